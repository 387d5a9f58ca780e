// The completion scripts in the shells that read them.
#include <algorithm>
#include <set>
#include <sstream>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/terminal.h"

using namespace llm::test;

namespace {

bool has_shell(const char* path) {
  if (std::filesystem::exists(path)) return true;
  std::printf("skipped, no %s\n", path);
  return false;
}

std::string script(const std::string& name, const std::string& shell) {
  const Outcome o = run({.program = program(name), .arguments = {"--completion", shell}});
  REQUIRE(o.code == 0);
  return o.out;
}

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> all;
  for (std::string line; std::getline(in, line);) all.insert(line.substr(0, line.find('\t')));
  return all;
}

/// A folder with models and other files, and the scripts of a shell.
struct Desk {
  explicit Desk(const std::string& shell) {
    for (const char* name : {"llm-run", "llm-inspect", "llm-bench", "llm-quantize"})
      folder.write(name, script(name, shell));
    for (const char* name : {"a.gguf", "b.gguf", "notes.txt", "parts/c.gguf"}) folder.write(name, "");
  }
  /// What bash offers for the last of these words; "=" is a word of its own to it.
  std::set<std::string> bash(const std::vector<std::string>& line) const {
    std::string quoted;
    for (const std::string& w : line) quoted += " '" + w + "'";
    std::string function = "_" + line[0];
    std::replace(function.begin(), function.end(), '-', '_');
    const Outcome o =
        run({.program = "/bin/bash",
             .arguments = {"-c", "cd " + folder.path().string() + " && source ./" + line[0] + " && COMP_WORDS=(" +
                                     quoted + ") && COMP_CWORD=" + std::to_string(line.size() - 1) + " && " + function +
                                     " && printf '%s\\n' \"${COMPREPLY[@]}\""}});
    CHECK(o.err == "");
    std::set<std::string> all = words(o.out);
    all.erase("");
    return all;
  }
  std::set<std::string> fish(const std::string& line) const {
    const Outcome o = run({.program = "/usr/bin/fish",
                           .arguments = {"--no-config", "-c",
                                         "cd " + folder.path().string() +
                                             "; source llm-run; source llm-inspect; complete -C '" + line + "'"}});
    CHECK(o.err == "");
    return words(o.out);
  }
  TempDir folder;
};

using Words = std::set<std::string>;

}  // namespace

TEST_CASE("bash completes options, their values, files and commands") {
  if (!has_shell("/bin/bash")) return;
  const Desk desk("bash");
  CHECK(desk.bash({"llm-run", "--output-format", ""}) == Words{"text", "json", "jsonl"});
  CHECK(desk.bash({"llm-run", "--output-format", "js"}) == Words{"json", "jsonl"});
  CHECK(desk.bash({"llm-run", "--output-format", "=", "js"}) == Words{"json", "jsonl"});
  CHECK(desk.bash({"llm-run", "--on-overflow", "="}) == Words{"error", "shift", "truncate"});
  CHECK(desk.bash({"llm-run", "--out"}) == Words{"--output", "--output-file", "--output-format"});
  CHECK(desk.bash({"llm-run", "-no"}) == Words{"-no-cnv"});
  CHECK(desk.bash({"llm-run", "-m", ""}) == Words{"a.gguf", "b.gguf", "parts"});
  CHECK(desk.bash({"llm-run", "--model", "=", "a"}) == Words{"a.gguf"});
  CHECK(desk.bash({"llm-run", "-f", "n"}) == Words{"notes.txt"});
  CHECK(desk.bash({"llm-run", "-np", ""}) == Words{"auto"});
  CHECK(desk.bash({"llm-run", "-p", ""}).empty());
  CHECK(desk.bash({"llm-run", "completion", ""}) == Words{"bash", "zsh", "fish"});
  CHECK(desk.bash({"llm-run", "comp"}) == Words{"completion"});
  CHECK(desk.bash({"llm-inspect", "gr"}) == Words{"graph"});
  CHECK(desk.bash({"llm-inspect", "graph", "--format", ""}) == Words{"text", "dot"});
  CHECK(desk.bash({"llm-inspect", "graph", "a"}) == Words{"a.gguf"});
  CHECK(desk.bash({"llm-inspect", "graph", "--bef"}) == Words{"--before-passes"});
  CHECK(desk.bash({"llm-bench", "-o", ""}) == Words{"md", "json", "jsonl", "csv"});
  CHECK(desk.bash({"llm-bench", ""}).empty());
  CHECK(desk.bash({"llm-quantize", ""}) == Words{"a.gguf", "b.gguf", "parts"});
  CHECK(desk.bash({"llm-quantize", "a.gguf", "b"}) == Words{"b.gguf"});
}

TEST_CASE("llm-run prints the scripts that the build installs, and llama.cpp's name for bash's works") {
  const std::string bash = script("llm-run", "bash");
  CHECK(run({.program = program("llm-run"), .arguments = {"completion", "bash"}}).out == bash);
  CHECK(run({.program = program("llm-run"), .arguments = {"--completion-bash"}}).out == bash);
  const Outcome other = run({.program = program("llm-run"), .arguments = {"completion", "tcsh"}});
  CHECK(other.code == 2);
  CHECK(other.err.find("\"tcsh\" is not bash, zsh or fish") != std::string::npos);
  CHECK(run({.program = program("llm-run"), .arguments = {"completion"}}).code == 2);
}

TEST_CASE("a script is for one shell") {
  const Outcome o = run({.program = program("llm-run"), .arguments = {"completion", "bash", "zsh"}});
  CHECK(o.code == 2);
  CHECK(o.out.empty());
  CHECK(o.err.find("unexpected argument \"zsh\"") != std::string::npos);
}

TEST_CASE("fish completes options, their values, files and commands") {
  if (!has_shell("/usr/bin/fish")) return;
  const Desk desk("fish");
  CHECK(desk.fish("llm-run --output-format ") == Words{"text", "json", "jsonl"});
  CHECK(desk.fish("llm-run --outp") == Words{"--output", "--output-file", "--output-format"});
  CHECK(desk.fish("llm-run -m a") == Words{"a.gguf"});
  CHECK(desk.fish("llm-run completion ") == Words{"bash", "zsh", "fish"});
  CHECK(desk.fish("llm-inspect graph --format ") == Words{"text", "dot"});
  CHECK(desk.fish("llm-inspect gr") == Words{"graph"});
}

TEST_CASE("zsh completes options, their values and commands") {
  if (!has_shell("/usr/bin/zsh")) return;
  const Desk desk("zsh");
  Terminal zsh(
      {.program = "/usr/bin/zsh", .arguments = {"-f", "-i"}, .environment = {{"HOME", desk.folder.path().string()}}});
  zsh.type("PS1=; cd " + desk.folder.path().string() + "; autoload -Uz compinit; compinit -D -u\n");
  zsh.type("source ./llm-run; source ./llm-inspect; echo rea''dy\n");
  zsh.until("ready");
  // What is left on the line after the key is echoed by a comment of our own.
  const auto completed = [&](const std::string& line, const std::string& expected) {
    INFO(line);
    zsh.type(line + "\t");
    CHECK_NOTHROW(zsh.until(expected));
    zsh.type("\x15");  // Ctrl-U: an empty line
  };
  completed("llm-run --output-format=jsonl --batch-o", "rder");
  completed("llm-run --batch-order d", "one");
  completed("llm-run --explain", "-prompt");
  completed("llm-run -m a", ".gguf");
  completed("llm-run completion f", "ish");
  completed("llm-inspect gra", "ph");
  completed("llm-inspect graph --format d", "ot");
}
