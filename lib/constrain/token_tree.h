// A vocabulary as constraints see it: the bytes of its tokens in order, as a tree of common beginnings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

/// One bit per token, ids from the lowest bit of the first word.
using TokenBits = std::vector<std::uint64_t>;

class TokenTree {
 public:
  /// Tokens that stand for no text, and those that end it, are left out.
  explicit TokenTree(const Tokenizer&);

  struct Node {
    std::uint8_t byte;
    std::uint16_t depth;          ///< bytes before this one
    std::uint32_t end;            ///< the first node behind those that begin with this one
    std::uint32_t tokens_begin;   ///< of tokens(): those that begin with the bytes up to this one ...
    std::uint32_t tokens_middle;  ///< ... the first of them up to here are no longer
    std::uint32_t tokens_end;
  };
  std::span<const Node> nodes() const { return nodes_; }     ///< depth first
  std::span<const Token> tokens() const { return tokens_; }  ///< in the order of their bytes
  std::string_view bytes(std::size_t index) const {          ///< of tokens()[index]
    return std::string_view(text_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
  }

  std::size_t n_vocab() const { return piece_index_.size(); }
  std::size_t longest() const { return longest_; }
  /// The bytes of a token; empty for those that were left out.
  std::string_view piece(Token) const;
  std::span<const Token> end_tokens() const { return end_tokens_; }

 private:
  void add_nodes();

  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::string text_;                        ///< of all tokens, one after another
  std::vector<std::uint32_t> offsets_;      ///< [tokens + 1]
  std::vector<std::uint32_t> piece_index_;  ///< [n_vocab], into tokens()
  std::vector<Token> end_tokens_;
  std::size_t longest_ = 0;
};

}  // namespace llm
