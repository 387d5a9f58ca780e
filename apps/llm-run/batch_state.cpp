#include "batch_state.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "gguf/fingerprint.h"

namespace llm::app {
namespace {

constexpr int kFormat = 2;

}  // namespace

Json describe_model_file(const GgufFile& file) {
  return {{"name", std::filesystem::path(file.metadata().file()).filename().string()},
          {"bytes", file.file_bytes()},
          {"fingerprint", fingerprint(file)}};
}

std::string state_path(const std::string& results) { return results + ".state"; }

std::optional<BatchState> read_state(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  try {
    const Json json = Json::parse(text.str());
    if (json.at("format") != kFormat) throw Error(ErrorKind::Usage, "");
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
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << json.dump(2) << '\n';
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    throw Error(ErrorKind::Io,
                ErrorParts{.file = path, .problem = std::string("cannot write: ") + std::strerror(errno)});
  }
}

void require_same_run(const std::string& path, const BatchState& before, const BatchState& now) {
  const auto refuse = [&](const std::string& what, const Json& then, const Json& today) {
    throw Error(ErrorKind::Usage, ErrorParts{.file = path,
                                             .problem = "the run to go on had " + what + " " + then.dump() + ", not " +
                                                        today.dump() + ": give the same, or begin anew with --force"});
  };
  if (before.model != now.model) refuse("the model", before.model, now.model);
  for (const auto& [name, value] : now.options.items()) {
    const Json then = before.options.value(name, Json());
    if (then != value) refuse(name, then, value);
  }
}

}  // namespace llm::app
