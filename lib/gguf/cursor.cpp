#include "gguf/cursor.h"

#include "base/error.h"

namespace llm {

std::string Cursor::subject() const {
  if (!name_.empty()) return kind_ == "tensor" ? tensor_subject(name_) : key_subject(name_);
  std::string out(kind_);
  if (number_ != 0) out += " number " + std::to_string(number_);
  return out;
}

void Cursor::fail(std::uint64_t offset, std::string problem) const { fail(offset, subject(), std::move(problem)); }

void Cursor::fail(std::uint64_t offset, std::string subject, std::string problem) const {
  throw Error(
      ErrorKind::Model,
      ErrorParts{.file = *file_, .offset = offset, .subject = std::move(subject), .problem = std::move(problem)});
}

void Cursor::fail_truncated(std::string_view field, std::uint64_t needed) const {
  fail(pos_, "truncated: " + std::string(field) + " takes " + std::to_string(needed) +
                 " bytes, but the file has a size of " + std::to_string(bytes_.size()) + " bytes and only " +
                 std::to_string(remaining()) + " are left here");
}

}  // namespace llm
