#include "prompt_input.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/run_files.h"

namespace llm::app {
namespace {

void add_file(PromptInput& input, const std::string& by, const std::string& path, PromptFile::Content content) {
  if (path == "-" && input.reads_stdin()) {
    throw Error(ErrorKind::Usage, "stdin can be a part of the prompt only once: -f - is given twice");
  }
  will_read(by, path);
  input.files.push_back({path, content});
}

std::string read_part(const PromptFile& file) {
  return file.content == PromptFile::Content::Text ? read_message(file.path) : read_input(file.path, kMostText);
}

}  // namespace

void add_prompt_input(Command& cli, PromptInput& input) {
  cli.add_option("-p,--prompt", input.text,
                 "the message, or with -no-cnv the text to complete; special tokens in that are recognised")
      ->type_name("TEXT")
      ->take_last();
  const auto file = [&](const std::string& names, const char* by, PromptFile::Content content,
                        const std::string& help) {
    cli.add_option_function<std::string>(
           names, [&input, by, content](const std::string& path) { add_file(input, by, path, content); }, help)
        ->type_name("FILE")
        ->take_last()
        ->trigger_on_parse();  // each of several, in their order
  };
  file("-f,--file", "-f", PromptFile::Content::Text,
       "file with it, - for stdin; one line end at its end is dropped; repeatable (default: stdin, unless it is a "
       "terminal)");
  file("--binary-file", "-bf", PromptFile::Content::Bytes, "file with it, every byte as it is; repeatable");
}

bool PromptInput::reads_stdin() const {
  return std::any_of(files.begin(), files.end(), [](const PromptFile& f) { return f.path == "-"; });
}

bool find_prompt(PromptInput& input) {
  if (input.given()) return true;
  if (::isatty(STDIN_FILENO) == 1) return false;
  input.by_default = true;
  input.files.push_back({"-", PromptFile::Content::Text});
  return true;
}

void mention_unread_stdin(const PromptInput& input) {
  if (input.reads_stdin()) return;
  struct stat status {};  // an empty or a closed pipe is not worth a word
  if (::fstat(STDIN_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  int waiting = 0;
  if (::ioctl(STDIN_FILENO, FIONREAD, &waiting) != 0 || waiting == 0) return;
  note("stdin holds text that is left unread, since the prompt is given; -f - adds it to the prompt");
}

std::string read_prompt(const PromptInput& input) {
  std::optional<std::string> prompt = input.text;
  for (const PromptFile& file : input.files) {
    const std::string text = read_part(file);
    if (input.by_default && text.empty()) {
      throw Error(ErrorKind::Usage,
                  "no prompt: stdin is empty; give one with -p TEXT or -f FILE, or many with --batch");
    }
    prompt = prompt ? *prompt + "\n\n" + text : text;
  }
  if (prompt->empty() && !input.text) {
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = input.files.front().path == "-" ? "stdin" : input.files.front().path,
                           .problem = "is empty: there is no prompt in it"});
  }
  return *prompt;
}

}  // namespace llm::app
