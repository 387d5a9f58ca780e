#include "common/cache_type.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace llm::app {
namespace {

constexpr std::array<std::string_view, 6> kQuantized{"q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"};

DType cache_type(const std::string& option, const std::string& text) {
  if (text == "f32") return DType::F32;
  if (text == "f16") return DType::F16;
  if (text == "bf16") return DType::BF16;
  const bool known = std::find(kQuantized.begin(), kQuantized.end(), text) != kQuantized.end();
  throw Error(ErrorKind::Usage, "option " + option + ": " +
                                    (known ? text + " is recognised, not supported yet: f32, f16 or bf16"
                                           : "\"" + escaped(text) + "\" is not f32, f16 or bf16"));
}

void add_cache_type(CLI::App& cli, const std::string& name, DType& type, const std::string& help) {
  cli.add_option_function<std::string>(
         name, [&type, name](const std::string& text) { type = cache_type(name, text); }, help)
      ->type_name("TYPE")
      ->take_last();
}

}  // namespace

void add_cache_types(CLI::App& cli, DType& keys, DType& values) {
  add_cache_type(cli, "--cache-type-k", keys, "f32, f16 or bf16: cached keys (default f16; also -ctk)");
  add_cache_type(cli, "--cache-type-v", values, "f32, f16 or bf16: cached values (default f16; also -ctv)");
}

}  // namespace llm::app
