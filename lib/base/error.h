// Typed errors. The library throws them and never prints, aborts or exits; apps turn them into one line and an exit
// code.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// What went wrong, by who can mend it. The value is the exit code of the command-line tools.
enum class ErrorKind : int {
  Runtime = 1,    ///< a run-time failure not listed below
  Usage = 2,      ///< an option or its value
  Model = 3,      ///< the model file: missing, damaged, unsupported
  Memory = 4,     ///< does not fit in memory
  Context = 5,    ///< the prompt does not fit the context
  Notation = 6,   ///< a chat template, grammar, schema or pattern: wrong, or it refuses, or it asks for too much
  Io = 8,         ///< reading input or writing output
  Device = 9,     ///< the requested backend or instruction set is not available here
  Numeric = 11,   ///< NaN or infinite logits
  Internal = 70,  ///< our own bug
};

/// The parts of an error, each shown where known.
struct ErrorParts {
  std::string file;                          ///< path as given by the user
  std::optional<std::uint64_t> offset = {};  ///< first byte of the offending field in `file`
  std::string subject = {};                  ///< e.g. `key "general.alignment"`, `tensor "output.weight"`
  std::string problem;                       ///< what was found and what is required
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, ErrorParts parts);
  Error(ErrorKind kind, std::string problem) : Error(kind, ErrorParts{.file = {}, .problem = std::move(problem)}) {}

  ErrorKind kind() const noexcept { return kind_; }
  const ErrorParts& parts() const noexcept { return parts_; }
  /// `file: offset 0x2f4: key "general.alignment": problem`, file names and subjects escaped.
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorKind kind_;
  ErrorParts parts_;
  std::string what_;
};

/// Something the user should know although the work goes on.
struct Warning {
  std::string code;  ///< stable short name, e.g. `unused-tensors`
  std::string text;
};
using Warnings = std::vector<Warning>;

/// Text from a file or a user made safe for one line of a terminal: control characters, DEL, C1 controls, line
/// separators, bidirectional overrides and bytes that are not UTF-8 become `\xnn` byte by byte, double quotes and
/// backslashes are escaped, and a result longer than `max_bytes` is cut between characters and ends in "..." (at least
/// 3 bytes).
std::string escaped(std::string_view text, std::size_t max_bytes = 80);

/// `key "general.alignment"`: the subject of an error about a metadata key or a tensor, its name escaped.
std::string key_subject(std::string_view key);
std::string tensor_subject(std::string_view name);

/// Throws ErrorKind::Internal with the caller's location if an invariant of ours is broken. Never used on anything a
/// file decides. Leave the last two arguments out.
void check(bool ok, std::string_view what, const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace llm
