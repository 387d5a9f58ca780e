#include "options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "common/app.h"

namespace llm::quantization {
namespace {

constexpr std::string_view kCopy = "COPY";

constexpr const char* kDescription =
    "Writes a model with its matrices in another storage type. TYPE names one type, or a mix that gives sensitive\n"
    "tensors more bits, by llama.cpp's names and with its choice for every tensor. The input is best F32, F16 or "
    "BF16;\n"
    "one that is quantised already is accepted with a warning. Works row by row: a file may be larger than memory.\n\n"
    "Examples:\n"
    "  llm-quantize model-f16.gguf model-q4.gguf Q4_K_M\n"
    "  llm-quantize model-f16.gguf model-iq2.gguf IQ2_XS --imatrix model.imatrix.gguf\n"
    "  llm-quantize model-f16.gguf out.gguf Q4_K_M \\\n"
    "               --tensor-type 'ffn_down=Q6_K' --output-tensor-type Q8_0\n"
    "  llm-quantize model-f16.gguf Q3_K_M --dry-run";

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

[[noreturn]] void unknown_name(const std::string& what, const std::string& given, std::span<const std::string> names) {
  const std::string nearest = nearest_name(upper_case(given), names);
  throw Error(ErrorKind::Usage, "unknown " + what + " \"" + escaped(given) + "\"" +
                                    (nearest.empty() ? "" : "; did you mean " + nearest + "?") + " (see --help)");
}

std::vector<std::string> mix_names() {
  std::vector<std::string> names{std::string(kCopy)};
  for (const Mix& m : mixes()) names.emplace_back(m.name);
  return names;
}

/// A storage type that a matrix may have.
DType matrix_type(const std::string& given) {
  const auto type = dtype_from_name(upper_case(given));
  if (type && info(*type).use == DTypeUse::Weight) return *type;
  std::vector<std::string> names;
  for (const DTypeInfo& t : dtypes()) {
    if (t.use == DTypeUse::Weight) names.emplace_back(t.name);
  }
  unknown_name("storage type", given, names);
}

TypeOverride override_of(const std::string& text) {
  const std::size_t equals = text.rfind('=');  // a pattern may hold one too
  if (equals == std::string::npos || equals == 0)
    throw Error(ErrorKind::Usage, "option --tensor-type: \"" + escaped(text) + "\" is not PATTERN=TYPE");
  return {text.substr(0, equals), matrix_type(text.substr(equals + 1))};
}

/// "a=Q8_0,b=Q5_0": a comma behind a type ends an item, any other one is the pattern's.
void add_overrides(std::string_view text, std::vector<TypeOverride>& overrides) {
  std::size_t begin = 0;
  for (std::size_t comma = text.find(','); comma != std::string_view::npos; comma = text.find(',', comma + 1)) {
    const std::string_view item = text.substr(begin, comma - begin);
    const std::size_t equals = item.rfind('=');
    if (equals == std::string_view::npos || !dtype_from_name(upper_case(item.substr(equals + 1)))) continue;
    overrides.push_back(override_of(std::string(item)));
    begin = comma + 1;
  }
  overrides.push_back(override_of(std::string(text.substr(begin))));
}

bool is_mix_name(const std::string& text) { return upper_case(text) == kCopy || find_mix(text) != nullptr; }

/// Numbers that llama-quantize takes for types are those of general.file_type.
void refuse_number(const std::string& type) {
  for (const Mix& m : mixes()) {
    if (type != std::to_string(static_cast<int>(m.file_type))) continue;
    throw Error(ErrorKind::Usage,
                "type \"" + type + "\": types are given by their names here; that number is " + std::string(m.name));
  }
}

/// IN OUT TYPE, or IN TYPE where nothing is written.
void take_positionals(const std::vector<std::string>& words, Options& o) {
  const bool without_output = words.size() == 2 && (o.dry_run || is_mix_name(words[1]));
  if (without_output && !o.dry_run)
    throw Error(ErrorKind::Usage, "give the file to write: llm-quantize IN.gguf OUT.gguf TYPE");
  if (words.size() == 4) {
    throw Error(ErrorKind::Usage, "\"" + escaped(words[3]) + "\" stands behind the type, where nothing is expected; " +
                                      "-t N gives the number of threads");
  }
  if (words.size() != 3 && !without_output) throw Error(ErrorKind::Usage, "give IN.gguf OUT.gguf TYPE (see --help)");
  o.input = words[0];
  if (words.size() == 3) o.output = words[1];
  const std::string& type = words.back();
  refuse_number(type);
  if (!is_mix_name(type)) unknown_name("type", type, mix_names());
  if (upper_case(type) != kCopy) o.mix = find_mix(type);
}

/// The first option given that chooses types; nullptr if there is none.
const char* choosing_option(const Options& o) {
  if (!o.choice.overrides.empty()) return "--tensor-type";
  if (o.choice.output) return "--output-tensor-type";
  if (o.choice.token_embedding) return "--token-embedding-type";
  if (o.choice.pure) return "--pure";
  return o.imatrix.empty() ? nullptr : "--imatrix";
}

void refuse_choices_of_copy(const Options& o) {
  const char* option = o.mix == nullptr ? choosing_option(o) : nullptr;
  if (option == nullptr) return;
  throw Error(ErrorKind::Usage, std::string("option ") + option + " with COPY, which leaves every tensor as it is");
}

std::string types_help() {
  std::string text = "Types:\n";
  const auto line = [&text](std::string_view name, std::string_view note) {
    text += "  " + std::string(name) + std::string(name.size() < 10 ? 10 - name.size() : 0, ' ') + "  " +
            std::string(note) + "\n";
  };
  for (const Mix& m : mixes()) line(m.name, m.note);
  line(kCopy, "every tensor as it is; for --keep-split, and merging without it");
  return text;
}

}  // namespace

std::optional<int> read_options(int argc, char** argv, Options& o) {
  app::Command cli{std::string(kDescription) + "\n\n" + types_help()};
  std::vector<std::string> words;
  cli.add_option("files", words, "IN.gguf OUT.gguf TYPE; with --dry-run OUT may be left out")
      ->type_name("MODEL OUT TYPE")
      ->required();
  cli.add_option("--imatrix", o.imatrix, "importance matrix, of llm-imatrix or llama.cpp")
      ->type_name("FILE")
      ->take_last();
  cli.add_option_function<std::vector<std::string>>(
         "--tensor-type",
         [&o](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) add_overrides(text, o.choice.overrides);
         },
         "a type for tensors whose names match a regular expression; may be repeated, the first match counts")
      ->type_name("PATTERN=TYPE,...")
      ->one_value();
  const auto add_type = [&cli](const std::string& name, std::optional<DType>& type, const std::string& help) {
    cli.add_option_function<std::string>(
           name, [&type](const std::string& text) { type = matrix_type(text); }, help)
        ->type_name("TYPE")
        ->take_last();
  };
  add_type("--output-tensor-type", o.choice.output, "of output.weight, or of the embeddings that take its place");
  add_type("--token-embedding-type", o.choice.token_embedding, "of the embeddings");
  cli.add_flag("--leave-output-tensor", o.choice.leave_output, "output.weight stays as it is");
  cli.add_flag("--pure", o.choice.pure, "all matrices get the one type: no mix");
  cli.add_flag_callback(
      "--allow-requantize", [] {}, "as in llama.cpp; here quantised input is always accepted, with a warning");
  cli.add_flag("--dry-run", o.dry_run, "only print each tensor's type and the sizes, exactly");
  cli.add_flag("--keep-split", o.keep_split, "as many files as the input has, OUT-00001-of-0000N.gguf and so on");
  app::add_threads_option(cli, o.threads);
  cli.add_flag_callback(
      "--force", [&o] { o.existing = app::Existing::Replace; }, "replace files that exist");
  app::add_common_options(cli);
  constexpr std::array<std::string_view, 13> kCommon{"--imatrix",
                                                     "--tensor-type",
                                                     "--output-tensor-type",
                                                     "--token-embedding-type",
                                                     "--leave-output-tensor",
                                                     "--pure",
                                                     "--dry-run",
                                                     "--keep-split",
                                                     "--threads",
                                                     "--force",
                                                     "--help",
                                                     "--help-all",
                                                     "--version"};
  if (const auto code = app::parse(cli, argc, argv, {.common = kCommon})) return code;
  take_positionals(words, o);
  refuse_choices_of_copy(o);
  return std::nullopt;
}

}  // namespace llm::quantization
