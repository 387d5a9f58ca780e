// The normalisation that SentencePiece compiles into a vocabulary (tokenizer.ggml.precompiled_charsmap): strings of
// characters and what replaces each.
// Layout: the size in bytes of a double array, little endian 32 bits; the array, one little endian unit of 32 bits
// each; the replacements, each ended by a zero byte. A unit has in bits 0-7 its label (with bit 31: units that hold a
// value have no label), in bit 8 whether a value follows, from bit 10 on the offset to its children, in bit 9 whether
// that is to be shifted left by 8 more bits. Child c of unit i is at i ^ offset ^ c, its value at i ^ offset. A value
// is the position of the replacement.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"

namespace llm {

class Charsmap {
 public:
  Charsmap() = default;
  /// Throws ErrorKind::Model for what is not such a map: sizes and replacements are checked here, so that no text can
  /// leave the map afterwards.
  explicit Charsmap(const Metadata&);
  // Part of it is a view of its bytes, which move with it.
  Charsmap(Charsmap&&) = default;
  Charsmap& operator=(Charsmap&&) = default;

  struct Match {
    std::size_t length;  ///< bytes of the text that are replaced
    std::string_view replacement;
  };
  /// The longest string of the map that the text begins with.
  std::optional<Match> longest(std::string_view text) const;

 private:
  std::uint32_t unit(std::size_t i) const { return i < units_.size() ? units_[i] : kNoUnit; }
  static constexpr std::uint32_t kNoUnit = 1u << 31;  ///< no text has its label

  std::vector<std::uint32_t> units_;
  std::vector<std::uint8_t> bytes_;  ///< as in the file
  std::string_view replacements_;    ///< the last part of bytes_; ends in a zero byte
};

}  // namespace llm
