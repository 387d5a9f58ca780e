// Where encoders put tokens: ids and, if somebody asked for them, the places that they end at.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

class TokenSink {
 public:
  enum class Places : std::uint8_t { Dropped, Kept };

  explicit TokenSink(Places places) : places_(places) {}

  void reserve(std::size_t n) {
    ids_.reserve(n);
    if (keeps_places()) ends_.reserve(n);
  }

  /// A token; all text before `end` belongs to it or to those before it. Encoders that work on a changed text give
  /// places in that one, and move_ends() afterwards.
  void push(Token id, std::size_t end) {
    ids_.push_back(id);
    if (keeps_places()) ends_.push_back(static_cast<std::uint32_t>(end));
  }

  /// Appends tokens [at, at + count) once more, `shift` further on in the text.
  void repeat(std::size_t at, std::size_t count, std::size_t shift) {
    for (std::size_t i = at; i < at + count; ++i) {
      const Token id = ids_[i];
      ids_.push_back(id);
    }
    if (!keeps_places()) return;
    for (std::size_t i = at; i < at + count; ++i) {
      const std::uint32_t end = ends_[i];
      ends_.push_back(end + static_cast<std::uint32_t>(shift));
    }
  }

  /// Replaces the ends of all tokens from `first` on by `place(end)`. For those who keep places.
  template <class Place>
  void move_ends(std::size_t first, Place&& place) {
    for (std::size_t i = first; i < ends_.size(); ++i) ends_[i] = static_cast<std::uint32_t>(place(ends_[i]));
  }

  bool keeps_places() const { return places_ == Places::Kept; }
  std::size_t size() const { return ids_.size(); }
  std::vector<Token>& ids() { return ids_; }
  const std::vector<std::uint32_t>& ends() const { return ends_; }

 private:
  Places places_;
  std::vector<Token> ids_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace llm
