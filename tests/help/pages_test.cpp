// Help, manual pages and version of the programs. What they must name is taken from docs/cli.md and from the option
// tables of the sources; the manual's language is judged by mandoc where it is installed.
#include <algorithm>
#include <sstream>

#include "common/columns.h"
#include "common/help_page.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/terminal.h"
#include "support/text.h"

using namespace llm::test;

namespace {

constexpr const char* kPrograms[] = {"llm-run",        "llm-inspect",  "llm-bench",
                                     "llm-perplexity", "llm-quantize", "llm-imatrix"};

std::string output(const std::string& name, std::vector<std::string> arguments) {
  const Outcome o = run({.program = program(name), .arguments = std::move(arguments)});
  CHECK(o.err.empty());
  CHECK(o.code == 0);
  return o.out;
}

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

}  // namespace

TEST_CASE("--help fits two screens and shows groups, --help-all has every option") {
  const std::string brief = output("llm-run", {"--help"}), all = output("llm-run", {"--help-all"});
  Terminal wide(
      {.program = "/bin/sh", .arguments = {"-c", "stty cols 100; exec \"$0\" --help", program("llm-run").string()}});
  CHECK(wide.end() == 0);
  CHECK(lines(wide.rest()).size() <= 88);  // a screen or two
  CHECK(lines(brief).size() < 104);        // in 80 columns
  std::size_t last = 0;
  for (const char* group : {"Model:", "Prompt:", "Chat:", "Context:", "Sampling:", "Constraint:", "Output:", "Batch:",
                            "General:", "Commands:", "Examples:"}) {
    INFO(group);
    const std::size_t at = brief.find("\n" + std::string(group) + "\n");
    REQUIRE(at != std::string::npos);
    CHECK(at > last);
    last = at;
    CHECK(brief.find("\n" + std::string(group) + "\n", at + 1) == std::string::npos);
  }
  for (const char* option : {"-m, --model MODEL", "--temp X", "--grammar", "(default 0.8)", "--batch FILE"}) {
    INFO(option);
    CHECK(contains(brief, option));
  }
  for (const char* rare : {"--mirostat", "--dump-graph", "LLM_RUN_ISA", "--logit-bias"}) {
    INFO(rare);
    CHECK_FALSE(contains(brief, rare));
    CHECK(contains(all, rare));
  }
  CHECK(contains(brief, " more options: llm-run --help-all, man llm-run\n"));
  CHECK(contains(all,
                 "  -no-cnv, --no-cnv, --no-conversation\n"));  // names that CLI11 does not know stand with the others
  CHECK(contains(all, "\n  124   --max-time was reached\n"));
  CHECK(contains(all, "--output-format text|json|jsonl"));
}

TEST_CASE("every program has help, a manual page and a version") {
  for (const char* name : kPrograms) {
    INFO(name);
    const std::string help = output(name, {"--help"}), page = output(name, {"--man-page"});
    CHECK(contains(help, "\nUsage: " + std::string(name)));
    CHECK(contains(help, "\nExamples:\n  " + std::string(name)));
    CHECK(help.find("Examples:") == help.rfind("Examples:"));
    CHECK(contains(page, "\n.SH OPTIONS\n"));
    CHECK(contains(page, "\n.SH EXIT STATUS\n"));
    CHECK(contains(page, "\\fB\\-\\-version\\fR"));
    const std::vector<std::string> version = lines(output(name, {"--version"}));
    REQUIRE(version.size() == 3);
    CHECK(version[0].starts_with(std::string(name) + " 0."));
    CHECK(contains(version[0], "(cpu: "));
    CHECK(version[1].starts_with("build: "));
    CHECK(version[2].starts_with("backends: cpu, "));
    CHECK(contains(version[2], "; CUDA: "));
  }
  CHECK(contains(output("llm-inspect", {"split", "--help"}), "Usage: llm-inspect split MODEL PREFIX [options]\n"));
  CHECK(contains(output("llm-quantize", {"--help"}), "\n  Q4_K_M "));
}

TEST_CASE("options of the help page are those of the manual page") {
  for (const char* name : kPrograms) {
    const std::string page = output(name, {"--man-page"});
    for (const std::string& line : lines(output(name, {"--help-all"}))) {
      const std::size_t at = line.find("--");
      if (at == std::string::npos || at > 12 || !line.starts_with(at == 6 ? "      --" : "  -")) continue;
      std::string option = line.substr(at, line.find_first_of(" ,\n", at) - at), escaped;
      for (const char c : option) escaped += c == '-' ? "\\-" : std::string(1, c);
      INFO(name << " " << option);
      CHECK(contains(page, "\\fB" + escaped + "\\fR"));
    }
  }
}

TEST_CASE("mandoc finds nothing in the manual pages, and groff neither") {
  const TempDir folder;
  for (const char* name : kPrograms) {
    const auto file = folder.write(std::string(name) + ".1", output(name, {"--man-page"}));
    if (std::filesystem::exists("/usr/bin/mandoc")) {
      const Outcome o = run({.program = "/usr/bin/mandoc", .arguments = {"-Tlint", "-Wwarning", file.string()}});
      CHECK(o.out == "");
    } else {
      std::printf("skipped, no mandoc\n");
    }
    if (std::filesystem::exists("/usr/bin/groff")) {
      const Outcome o = run({.program = "/usr/bin/groff", .arguments = {"-z", "-man", "-ww", file.string()}});
      CHECK(o.err == "");
    } else {
      std::printf("skipped, no groff\n");
    }
  }
}

TEST_CASE("help fits a narrow terminal, tables too") {
  const std::string narrow = "stty cols 60; \"$0\" --help";
  for (const char* name : {"llm-quantize", "llm-run"}) {
    INFO(name);
    Terminal t({.program = "/bin/sh", .arguments = {"-c", narrow, program(name).string()}});
    std::string page = t.until("Examples:");
    std::erase(page, '\r');
    CHECK(contains(page, "Usage: "));
    for (const std::string& line : lines(page)) {
      INFO(line);
      const bool example = line.starts_with("  llm-") || line.starts_with("Usage: ") || line.starts_with("       llm-");
      CHECK((example || line.size() <= 60));
    }
  }
}

TEST_CASE("all help fits 80 columns, which a terminal has that does not say") {
  for (const char* name : kPrograms) {
    for (const char* option : {"--help", "--help-all"}) {
      INFO(name << " " << option);
      const std::string command = "stty cols 80; exec \"$0\" " + std::string(option);
      Terminal t({.program = "/bin/sh", .arguments = {"-c", command, program(name).string()}});
      CHECK(t.end() == 0);
      std::string page = t.rest();
      std::erase(page, '\r');
      CHECK(page == output(name, {option}));
      for (const std::string& line : lines(page)) {
        INFO(line);
        CHECK(llm::app::columns_of(line) <= 80);
      }
    }
  }
}

TEST_CASE("text is wrapped at words, and columns are counted in characters") {
  using llm::app::wrapped;
  CHECK(wrapped("aa bb cc", 5, 0) == "aa bb\ncc");
  CHECK(wrapped("aa bb cc", 8, 0) == "aa bb cc");
  CHECK(wrapped("aa bb cc", 7, 2) == "aa bb\n  cc");
  CHECK(wrapped("a toolongforthis b", 5, 0) == "a\ntoolongforthis\nb");
  CHECK(wrapped("a too,lon;g,fort b", 5, 0) == "a\ntoo,\nlon;\ng,\nfort\nb");
  CHECK(wrapped("\xc3\xa4\xc3\xb6 \xc3\xbc\xc3\xbc", 5, 0) == "\xc3\xa4\xc3\xb6 \xc3\xbc\xc3\xbc");
  CHECK(wrapped("", 5, 0).empty());
}
