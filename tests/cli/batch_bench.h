// A folder with a tiny model, and batches that run in it as real processes.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "json_lines.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

namespace llm::test {

using Json = nlohmann::json;

/// What must be the same however a batch was run: everything but times, and what came from whose cache.
inline std::map<std::string, std::string> answers(const std::string& text) {
  std::map<std::string, std::string> by_id;
  for (Json line : parse_lines(text)) {
    const std::string id = line["custom_id"];
    CHECK(by_id.count(id) == 0);
    by_id[id] = line["error"].is_null() ? line["response"]["body"]["choices"].dump() : line["error"]["code"].dump();
  }
  return by_id;
}

class Bench {
 public:
  explicit Bench(const TinyFile& model_file = tiny_model({.layers = 2, .context = 4096})) { model_file.write(model()); }

  std::filesystem::path model() const { return folder_ / "tiny.gguf"; }
  std::filesystem::path path(std::string_view name) const { return folder_ / name; }
  std::filesystem::path file(std::string_view name, std::string_view content) const {
    return folder_.write(name, content);
  }
  Command command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-m", model().string(), "-n", "20", "--ignore-eos"});
    return {.program = program("llm-run"), .arguments = std::move(arguments)};
  }
  Outcome operator()(std::vector<std::string> arguments) const { return run(command(std::move(arguments))); }

 private:
  TempDir folder_;
};

}  // namespace llm::test
