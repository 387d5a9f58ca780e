// Chats of a sample model as real processes, in a folder of their own.
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/terminal.h"
#include "support/text.h"

namespace llm::test {

inline constexpr std::string_view kEnd = "\x04", kInterrupt = "\x03";

class ConversationBench {
 public:
  Command command(std::vector<std::string> arguments) const {
    const std::string model = (source_dir() / "models" / "samples" / "fable-dense.gguf").string();
    arguments.insert(arguments.begin(), {"-m", model, "-i", "-t", "1"});
    return {.program = program("llm-run"),
            .arguments = std::move(arguments),
            .environment = {{"XDG_STATE_HOME", (folder_ / "state").string()}}};
  }
  Outcome pipe(std::string_view lines, std::vector<std::string> arguments) const {
    Command c = command(std::move(arguments));
    c.input_file = folder_.write("input", lines).string();
    return run(c);
  }
  std::filesystem::path path(std::string_view name) const { return folder_ / name; }
  std::filesystem::path write(std::string_view name, std::string_view text) const { return folder_.write(name, text); }

 private:
  TempDir folder_;
};

inline const std::vector<std::string> kShort{"-n", "12", "--temp", "0", "-q"};

/// Tokens evaluated and tokens reused for each prompt, from -v.
inline std::vector<std::pair<int, int>> prompts(const std::string& err) {
  std::vector<std::pair<int, int>> found;
  static const std::regex line(R"(prompt (\d+) tok[^(\n]*\(cached (\d+)\))");
  for (std::sregex_iterator i(err.begin(), err.end(), line), end; i != end; ++i) {
    found.emplace_back(std::stoi((*i)[1]), std::stoi((*i)[2]));
  }
  return found;
}

/// Keys count as keys from the moment the prompt is seen.
inline std::string to_prompt(Terminal& t) {
  std::string seen = t.until("> ");
  REQUIRE_FALSE(t.is_cooked());
  return seen;
}

}  // namespace llm::test
