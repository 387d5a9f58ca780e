#include "common/input.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "common/descriptor_io.h"
#include "common/messages.h"
#include "runtime/figures.h"

namespace llm::app {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : owned_(path != "-"), fd_(owned_ ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : STDIN_FILENO) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (owned_ && fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  bool owned_;
  int fd_;
};

[[noreturn]] void fail(const std::string& path, int error) {
  const bool from_stdin = path == "-";
  throw Error(
      from_stdin ? ErrorKind::Io : ErrorKind::Usage,
      ErrorParts{.file = from_stdin ? "stdin" : path, .problem = std::string("cannot read: ") + std::strerror(error)});
}

/// A text is held twice while it grows, and what is made of it takes as much again; of token ids it is more. What may
/// be read in any case is not measured by a memory that is full of something else.
std::size_t what_memory_holds() { return std::max(kMostText, static_cast<std::size_t>(available_memory() / 4)); }

[[noreturn]] void refuse_size(const std::string& path, std::size_t most, bool of_memory) {
  throw Error(
      of_memory ? ErrorKind::Memory : ErrorKind::Usage,
      ErrorParts{.file = path == "-" ? "stdin" : path,
                 .problem = "has more than " + bytes_text(most) +
                            (of_memory ? ", as much as is read with the memory that is free; it can be given in parts"
                                       : ", which is more text than any context holds")});
}

/// Where a text that comes from `from` has a byte: "stdin, line 3".
std::string place_of(std::size_t at, std::string_view text, const std::string& from, std::size_t first_line) {
  const auto before = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  return escaped(from, 200) + ", line " + number_text(first_line + static_cast<std::size_t>(before));
}

}  // namespace

void warn_of_nul_bytes(const std::string& from, std::string_view text, std::size_t first_line) {
  const std::size_t nul = text.find('\0');
  if (nul == std::string_view::npos) return;
  print_warnings({{"nul-bytes", place_of(nul, text, from, first_line) +
                                    ": has NUL bytes, as UTF-16 without a byte order mark has; iconv -f UTF-16LE "
                                    "-t UTF-8 converts such a text"}});
}

void warn_of_bytes(const std::string& from, std::string_view text, std::size_t first_line) {
  warn_of_nul_bytes(from, text, first_line);
  if (const std::size_t valid = utf8::valid_prefix(text); valid != text.size()) {
    print_warnings({{"not-utf8", place_of(valid, text, from, first_line) +
                                     ": is not UTF-8; the tokenizer gets the bytes as they are. iconv -t UTF-8 "
                                     "converts a text, -f says from what"}});
  }
}

std::string read_input(const std::string& path, std::size_t most) {
  const Descriptor file(path);
  if (file.get() < 0) fail(path, errno);
  const bool of_memory = most == kAnySize;
  if (of_memory) most = what_memory_holds();
  struct stat status {};
  const bool sized = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (sized && static_cast<std::uint64_t>(status.st_size) > most) refuse_size(path, most, of_memory);
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t n = read_some(file.get(), buffer);
    if (n < 0 && errno == EBADF && path == "-") return text;  // closed: whoever started us has nothing to say
    if (n < 0) fail(path, errno);
    if (n == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(n));
    if (text.size() > most) refuse_size(path, most, of_memory);
  }
}

bool drop_byte_order_mark(std::string& text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (!text.starts_with(kMark)) return false;
  text.erase(0, kMark.size());
  return true;
}

std::string read_unchecked_text(const std::string& path, std::size_t most) {
  std::string text = read_input(path, most);
  const std::string file = path == "-" ? "stdin" : path;
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    throw Error(
        ErrorKind::Usage,
        ErrorParts{.file = file, .problem = "is UTF-16, texts here are UTF-8: iconv -f UTF-16 -t UTF-8 converts it"});
  }
  if (drop_byte_order_mark(text)) verbose(escaped(file, 200) + ": the byte order mark at its beginning is left out");
  return text;
}

std::string read_text(const std::string& path, std::size_t most) {
  std::string text = read_unchecked_text(path, most);
  warn_of_bytes(path == "-" ? "stdin" : path, text);
  return text;
}

std::string read_message(const std::string& path) {
  std::string text = read_text(path, kMostText);
  if (text.ends_with('\n')) text.resize(text.size() - (text.ends_with("\r\n") ? 2 : 1));
  if (text.find("\r\n") != std::string::npos) {
    note(escaped(path == "-" ? "stdin" : path, 200) +
         ": its lines end in a carriage return and a line feed, and the text keeps both; tr -d '\\r' takes the first");
  }
  return text;
}

const std::string& regular_file(const std::string& path) {
  if (const char* kind = special_kind(path)) {
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = path, .problem = std::string("is ") + kind + ", a regular file is required"});
  }
  return path;
}

std::string home_expanded(std::string_view path) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || !path.starts_with("~/")) return std::string(path);
  return home + std::string(path.substr(1));
}

std::string read_matching(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_TILDE | GLOB_BRACE, nullptr, &found);
  const std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 && status != GLOB_NOMATCH)
    throw Error(ErrorKind::Io, "what matches \"" + escaped(pattern) + "\" cannot be listed");
  std::string text;
  for (const std::string& path : paths) {
    if (special_kind(path) != nullptr) continue;
    text += path + ":\n" + read_text(path, kMostText);
    text += text.ends_with('\n') ? "\n" : "\n\n";
  }
  if (text.empty()) throw Error(ErrorKind::Usage, "no file matches \"" + escaped(pattern) + "\"");
  return text;
}

void refuse_name_of_file(const std::string& option, const std::string& text, const std::string& for_files) {
  std::error_code unknown;  // of texts that are no names
  if (!std::filesystem::is_regular_file(text, unknown)) return;
  throw Error(ErrorKind::Usage, "option " + option + ": \"" + escaped(text) + "\" is a file; " + for_files +
                                    " reads it, " + option + " takes the text itself");
}

}  // namespace llm::app
