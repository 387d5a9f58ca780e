// The one way bytes of a GGUF file are read: bounded, in either byte order, with errors that name file, offset and
// subject.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gguf/byte_order.h"

namespace llm {

class Cursor {
 public:
  Cursor(const std::string& file, std::span<const std::byte> bytes) : file_(&file), bytes_(bytes) {}

  /// Version 1 stores counts, lengths and dimensions in 32 bits, later versions in 64.
  void set_layout(bool swap_bytes, bool narrow_lengths) {
    swap_ = swap_bytes;
    narrow_ = narrow_lengths;
  }
  std::size_t length_bytes() const { return narrow_ ? 4 : 8; }
  std::uint64_t position() const { return pos_; }
  std::uint64_t remaining() const { return bytes_.size() - pos_; }
  bool fits(std::uint64_t n) const { return n <= remaining(); }

  /// What is being read, for errors; kept as parts so that nothing is formatted while all is well.
  void set_subject(std::string_view kind, std::uint64_t number) {
    kind_ = kind;
    number_ = number;
    name_ = {};
  }
  void set_name(std::string_view name) { name_ = name; }

  template <class T>
  T read(std::string_view field) {
    return load<T>(take(sizeof(T), field).data(), swap_);
  }
  std::uint64_t read_length(std::string_view field) {
    return narrow_ ? read<std::uint32_t>(field) : read<std::uint64_t>(field);
  }
  /// The next `n` bytes; fails at the current position if the file ends before.
  std::span<const std::byte> take(std::uint64_t n, std::string_view field) {
    if (n > remaining()) fail_truncated(field, n);
    const auto out = bytes_.subspan(pos_, static_cast<std::size_t>(n));
    pos_ += static_cast<std::size_t>(n);
    return out;
  }

  [[noreturn]] void fail(std::uint64_t offset, std::string problem) const;
  [[noreturn]] void fail(std::uint64_t offset, std::string subject, std::string problem) const;

 private:
  [[noreturn]] void fail_truncated(std::string_view field, std::uint64_t needed) const;
  std::string subject() const;

  const std::string* file_;
  std::span<const std::byte> bytes_;
  std::size_t pos_ = 0;
  bool swap_ = false;
  bool narrow_ = false;
  std::string_view kind_ = "header";
  std::uint64_t number_ = 0;
  std::string_view name_;
};

}  // namespace llm
