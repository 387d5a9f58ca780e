// What programs read besides models: files of text or numbers, and stdin.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace llm::app {

/// Bytes of a text that can be a prompt or a part of it: more than any context holds. A device may have no end.
inline constexpr std::size_t kMostText = std::size_t{64} << 20;
/// Rows, tokens of a corpus: what memory holds.
inline constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();

/// All bytes of a file, or of stdin for "-". Throws ErrorKind::Usage for a file that cannot be read or has more than
/// `most`, ErrorKind::Memory for more than a quarter of the free memory, ErrorKind::Io for stdin.
std::string read_input(const std::string& path, std::size_t most = kAnySize);

/// It says how a text is written, and is none of it. False: there was none.
bool drop_byte_order_mark(std::string& text);

/// Warns of a text that has NUL bytes, of which nothing is changed. `first_line`: the number of its first line where
/// `from` has others before.
void warn_of_nul_bytes(const std::string& from, std::string_view text, std::size_t first_line = 1);
/// Beside that of one that is not UTF-8, and is nowhere refused for it.
void warn_of_bytes(const std::string& from, std::string_view text, std::size_t first_line = 1);

/// The same as read_input() of a text, without a byte order mark at its beginning. Throws ErrorKind::Usage for one that
/// begins as UTF-16 does.
std::string read_unchecked_text(const std::string& path, std::size_t most = kAnySize);
/// And warns of its bytes.
std::string read_text(const std::string& path, std::size_t most = kAnySize);

/// The same of one that is said to a model, without the line end that editors put at its end. Notes that others have a
/// carriage return.
std::string read_message(const std::string& path);

/// The path again, for what somebody waits for at a prompt: a pipe or a device might never end. Throws
/// ErrorKind::Usage for what is no regular file.
const std::string& regular_file(const std::string& path);

/// As a shell reads "~/name", where no shell has seen it.
std::string home_expanded(std::string_view path);

/// The texts of all files that a shell's pattern names, each under its path. Throws ErrorKind::Usage if it names none.
std::string read_matching(const std::string& pattern);

/// Throws ErrorKind::Usage where what an option takes as a text names a file: another option is for files.
void refuse_name_of_file(const std::string& option, const std::string& text, const std::string& for_files);

}  // namespace llm::app
