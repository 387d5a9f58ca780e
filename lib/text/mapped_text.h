// Text as a vocabulary wants it (spaces escaped, normalised ...), and where in the text given each of its bytes comes
// from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_sink.h"
#include "text/vocabulary.h"

namespace llm {

class MappedText {
 public:
  explicit MappedText(const TokenSink& sink) : keeps_places_(sink.keeps_places()) {}

  /// Bytes that stand in the text given from `begin` on.
  void copy(std::string_view bytes, std::size_t begin) {
    text_ += bytes;
    for (std::size_t i = 1; keeps_places_ && i <= bytes.size(); ++i) {
      source_.push_back(static_cast<std::uint32_t>(begin + i));
    }
  }
  /// Bytes for what ends at `end` in the text given.
  void replace(std::string_view bytes, std::size_t end) {
    text_ += bytes;
    if (keeps_places_) source_.resize(text_.size(), static_cast<std::uint32_t>(end));
  }
  /// One byte that no text becomes, so that a special token that ends at `end` has a place here as well.
  void special(std::size_t end) { replace(std::string_view("\0", 1), end); }

  /// Text that ends here is made of what ends at the place given in the original.
  std::size_t source(std::size_t end) const { return end == 0 ? 0 : source_[end - 1]; }

  void clear() {
    text_.clear();
    source_.clear();
  }
  std::size_t size() const { return text_.size(); }
  std::string_view text() const { return text_; }

 private:
  bool keeps_places_;
  std::string text_;
  std::vector<std::uint32_t> source_;  ///< [size()] where what each byte was made of ends, if places are kept
};

/// Spaces become U+2581.
inline void append_escaped(std::string_view text, std::size_t begin, MappedText& out) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t space = std::min(text.find(' ', i), text.size());
    out.copy(text.substr(i, space - i), begin + i);
    for (i = space; i < text.size() && text[i] == ' '; ++i) out.replace(kEscapedSpace, begin + i + 1);
  }
}

}  // namespace llm
