// Every malformed file through the real program: exit code, one line on stderr with all its parts, nothing on stdout
// that could be taken for an answer.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "malformed.h"
#include "process.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"

namespace llm::test {
namespace {

constexpr std::chrono::seconds kLimit{10};
constexpr std::string_view kError = "llm-run: error[E-";
constexpr std::string_view kWarning = "llm-run: warning[";

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<std::string> starting_with(const std::vector<std::string>& all, std::string_view start) {
  std::vector<std::string> out;
  for (const std::string& line : all)
    if (line.starts_with(start)) out.push_back(line);
  return out;
}

bool has_control_character(const std::string& line) {
  return std::ranges::any_of(line, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

enum class Prompt { Raw, Chat };

ProcessResult run_model(const std::filesystem::path& path, bool quiet, Prompt prompt = Prompt::Raw) {
  std::vector<std::string> arguments{"-m", path.string(), "-p", "ab", "-n", "1", "--temp", "0", "-t", "1"};
  if (prompt == Prompt::Raw) arguments.push_back("--no-cnv");
  if (quiet) arguments.push_back("-q");
  return run_process(program("llm-run"), arguments, kLimit);
}

/// What is wrong with an end that should be a refusal, or nothing. Such a run is quiet: the error is all there is.
std::optional<std::string> check_error(const ProcessResult& r, int exit_code, const std::filesystem::path& path,
                                       const std::string& word, bool at_an_offset) {
  if (r.exit_code != exit_code) return "exit " + std::to_string(exit_code) + " is required";
  const auto all = lines(r.err);
  const auto errors = starting_with(all, kError);
  if (errors.size() != 1 || all.size() != 1) return "exactly one line on stderr is required, an error";
  const std::string& line = errors.front();
  if (has_control_character(line)) return "the line holds control characters";
  if (line.find(word) == std::string::npos) return "the line lacks " + word;
  if (!at_an_offset) return std::nullopt;
  const std::string start = std::string(kError) + "MODEL]: " + escaped(path.string(), 4096) + ": offset 0x";
  if (!line.starts_with(start)) return "the line must begin with " + start;
  const std::size_t subject = line.find(": ", start.size());
  if (subject == std::string::npos) return "the line lacks a subject";
  if (line.find(": ", subject + 2) == std::string::npos) return "the line lacks a problem";
  return std::nullopt;
}

std::optional<std::string> check_accepted(const ProcessResult& r, std::size_t least_warnings, std::size_t most_warnings,
                                          const std::string& word) {
  if (r.exit_code != 0) return "exit 0 is required";
  const auto all = lines(r.err);
  if (!starting_with(all, kError).empty()) return "an error line in spite of exit 0";
  const auto warnings = starting_with(all, kWarning);
  if (warnings.size() < least_warnings || warnings.size() > most_warnings)
    return std::to_string(warnings.size()) + " warnings, " + std::to_string(least_warnings) + " to " +
           std::to_string(most_warnings) + " are required";
  if (!warnings.empty() && warnings.front().find(word) == std::string::npos) return "the warning lacks " + word;
  return std::nullopt;
}

std::optional<std::string> check_bounded(const ProcessResult& r, std::uint64_t file_bytes, const std::string& word) {
  if (!kSanitized && r.peak_bytes > (64u << 20) + 4 * file_bytes)
    return "took " + std::to_string(r.peak_bytes >> 20) + " MiB of memory";
  if (r.exit_code == 0) return check_accepted(r, 0, 1, word);
  if (r.exit_code != 3 && r.exit_code != 4) return "exit 0, 3 or 4 is required";
  const auto errors = starting_with(lines(r.err), kError);
  if (errors.size() != 1) return "exactly one error line is required";
  if (errors.front().find(word) == std::string::npos) return "the line lacks " + word;
  return std::nullopt;
}

std::optional<std::string> check_end(const MalformedFile& f, const ProcessResult& r,
                                     const std::filesystem::path& path) {
  if (r.timed_out) return "did not end in time";
  if (r.signal != 0) return "ended by signal " + std::to_string(r.signal);
  switch (f.outcome) {
    case Outcome::Accepted:
      return check_accepted(r, 0, 0, "");
    case Outcome::Warned:
      return check_accepted(r, 1, 1, f.must_contain);
    case Outcome::Refused:
      return check_error(r, 3, path, f.must_contain, true);
    case Outcome::Template:
      return check_error(r, 6, path, f.must_contain, false);
    case Outcome::Numeric:
      return check_error(r, 11, path, f.must_contain, false);
    case Outcome::Bounded:
      return check_bounded(r, std::filesystem::file_size(path), f.must_contain);
  }
  return "no such outcome";
}

std::string_view text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string failure(const std::string& id, const std::string& construction, const std::string& problem,
                    const ProcessResult& r) {
  std::string out =
      "\n" + id + " (" + construction + "): " + problem + "; exit " + std::to_string(r.exit_code) + ", stderr:";
  for (const std::string& line : lines(r.err)) out += "\n      " + line.substr(0, 300);
  return out;
}

/// Runs on one kind of path, and says what is wrong.
std::string refused_path(const std::filesystem::path& path, const std::string& what) {
  const ProcessResult r = run_model(path, true);
  if (r.timed_out) return failure("P04", what, "did not end in time", r);
  const auto problem = check_error(r, 3, path, escaped(path.filename().string()), false);
  return problem ? failure("P04", what, *problem, r) : "";
}

}  // namespace

TEST_CASE("185 model files end as they should") {
  REQUIRE(std::filesystem::exists(program("llm-run")));
  const TempDir folder;
  std::string failures;
  int failed = 0;
  for (const MalformedFile& f : malformed_files()) {
    const std::filesystem::path path = folder.write(f.name(), text_of(f.build()));
    const bool chat = f.outcome == Outcome::Template;
    const bool quiet = chat || f.outcome == Outcome::Refused || f.outcome == Outcome::Numeric;  // the others may warn
    const ProcessResult r = run_model(path, quiet, chat ? Prompt::Chat : Prompt::Raw);
    if (const auto problem = check_end(f, r, path)) {
      failures += failure(f.id, f.construction, *problem, r);
      ++failed;
    }
    std::filesystem::remove(path);
  }
  INFO(failures);
  CHECK(failed == 0);
}

TEST_CASE("paths that are not model files are refused") {
  REQUIRE(std::filesystem::exists(program("llm-run")));
  const TempDir folder;
  const auto in = [&](const char* name) { return folder.path() / name; };
  std::filesystem::create_directory(in("a-folder"));
  REQUIRE(::mkfifo(in("a-pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink(in("nowhere"), in("a-link"));
  std::string failures;
  failures += refused_path(in("absent.gguf"), "no such file");
  failures += refused_path(in("a-folder"), "a directory");
  failures += refused_path(in("a-pipe"), "a pipe without a writer");
  failures += refused_path(in("a-link"), "a dangling symbolic link");
  failures += refused_path("/dev/zero", "an endless device");
  failures += refused_path("/dev/random", "an endless device");
  folder.write("unreadable.gguf", text_of(tiny_llama().build()));
  REQUIRE(::chmod(in("unreadable.gguf").c_str(), 0) == 0);
  if (::access(in("unreadable.gguf").c_str(), R_OK) != 0)
    failures += refused_path(in("unreadable.gguf"), "no permission to read");
  INFO(failures);
  CHECK(failures.empty());
}

TEST_CASE("what may not be read is told as that") {
  if (::geteuid() != 0) return;  // who is not root cannot become somebody else for the test
  const TempDir folder;
  ::chmod(folder.path().c_str(), 0755);
  folder.write("closed/m.gguf", "");
  folder.write("m.gguf", text_of(tiny_llama().build()));
  REQUIRE(::chmod((folder / "closed").c_str(), 0) == 0);
  REQUIRE(::chmod((folder / "m.gguf").c_str(), 0) == 0);
  const std::string as_nobody = "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" -m \"$1\" -p a";
  for (const char* name : {"closed", "m.gguf"}) {
    const ProcessResult o =
        run_process("/bin/sh", {"-c", as_nobody, program("llm-run").string(), (folder / name).string()}, kLimit);
    INFO(o.err);
    CHECK(o.exit_code == 3);
    CHECK(o.err.find("Permission denied") != std::string::npos);
    CHECK(o.err.find("hint: ls -ld shows who may read and write there") != std::string::npos);
  }
}

TEST_CASE("a file name with line feed and escape is shown escaped") {
  REQUIRE(std::filesystem::exists(program("llm-run")));
  const TempDir folder;
  const auto path = folder.write("bad\nname\x1b[2J.gguf", "GGUF");
  const ProcessResult r = run_model(path, true);
  INFO(r.err);
  CHECK(r.exit_code == 3);
  CHECK(lines(r.err).size() == 1);
  CHECK_FALSE(has_control_character(lines(r.err).front()));
  CHECK(r.err.find("name\\x1b[2J.gguf") != std::string::npos);
}

}  // namespace llm::test
