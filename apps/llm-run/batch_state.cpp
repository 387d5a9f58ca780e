#include "batch_state.h"

#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/output_file.h"
#include "common/input.h"
#include "gguf/fingerprint.h"

namespace llm::app {
namespace {

constexpr int kFormat = 2;

/// As it comes back from the file: bytes that are no UTF-8 are replaced.
std::string text_of(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }
Json as_stored(const Json& json) { return Json::parse(text_of(json)); }

}  // namespace

Json describe_model_file(const GgufFile& file) {
  Json json{{"name", std::filesystem::path(file.metadata().file()).filename().string()},
            {"bytes", file.file_bytes()},
            {"fingerprint", fingerprint(file)}};
  for (const KeyOverride& o : file.metadata().overrides()) json["overrides"].push_back(to_string(o));
  return json;
}

std::string state_path(const std::string& results) { return results + ".state"; }

std::optional<BatchState> read_state(const std::string& path) {
  if (!is_there(path)) return std::nullopt;
  const std::string text = read_input(path);
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat || !json.at("options").is_object()) throw Error(ErrorKind::Usage, "");
    return BatchState{.options = json.at("options"),
                      .seed = json.at("seed").get<std::uint64_t>(),
                      .model = json.at("model"),
                      .rows = json.at("rows").get<std::size_t>(),
                      .answered = json.at("answered").get<std::size_t>(),
                      .failed = json.at("failed").get<std::size_t>(),
                      .status = json.at("status").get<std::string>()};
  } catch (const std::exception&) {
    throw Error(
        ErrorKind::Usage,
        ErrorParts{.file = path, .problem = "is not the state of a batch of this version; --force begins anew"});
  }
}

void write_state(const std::string& path, const BatchState& state) {
  const Json json{{"format", kFormat},          {"status", state.status},   {"rows", state.rows},
                  {"answered", state.answered}, {"failed", state.failed},   {"seed", state.seed},
                  {"model", state.model},       {"options", state.options}, {"pid", ::getpid()}};
  const std::string text = text_of(json) + "\n";
  std::error_code none;
  std::filesystem::remove(temporary_name(path), none);  // left by a run that was killed and had our process id
  OutputFile out(path);
  out.write(std::as_bytes(std::span(text)));
  out.put_in_place();
}

void require_same_run(const std::string& path, const BatchState& before, const BatchState& now) {
  const auto refuse = [&](const std::string& what, const Json& then, const Json& today) {
    throw Error(ErrorKind::Usage, ErrorParts{.file = path,
                                             .problem = "the run to go on had " + what + " " + then.dump() + ", not " +
                                                        today.dump() + ": give the same, or begin anew with --force"});
  };
  const Json model = as_stored(now.model), options = as_stored(now.options);
  if (before.model != model) refuse("the model", before.model, model);
  Json names = before.options;
  names.update(options);
  for (const auto& [name, any] : names.items()) {
    const Json then = before.options.value(name, Json()), today = options.value(name, Json());
    if (then != today) refuse(name, then, today);
  }
}

}  // namespace llm::app
