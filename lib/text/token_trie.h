// Token strings as a tree of bytes: which of them begin at a place in a text. Built once, then only read.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

class TokenTrie {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = UINT32_MAX;

  /// Of equal strings the first one counts; empty ones are left out. The strings need not outlive the call.
  explicit TokenTrie(std::vector<std::pair<std::string_view, Token>> texts = {});

  /// The node after one more byte; kNone if no string goes on so.
  Node step(Node node, std::uint8_t byte) const {
    if (node == kRoot) return first_[byte];
    const auto& [begin, count, token] = nodes_[node];
    for (Node child = begin; child < begin + count; ++child) {
      if (labels_[child] >= byte) return labels_[child] == byte ? child : kNone;
    }
    return kNone;
  }
  /// The string that ends at a node; kNoToken if none does.
  Token token(Node node) const { return nodes_[node].token; }

  struct Match {
    std::size_t length = 0;
    Token token = kNoToken;
  };
  /// The longest string that the text begins with.
  Match longest(std::string_view text) const {
    Match best;
    Node node = kRoot;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = step(node, static_cast<std::uint8_t>(text[i]));
      if (node == kNone) break;
      if (token(node) != kNoToken) best = {i + 1, token(node)};
    }
    return best;
  }

 private:
  struct Branch {
    Node begin;           ///< the first child; children are neighbours, by label
    std::uint32_t count;  ///< of children
    Token token;
  };
  std::vector<Branch> nodes_;
  std::vector<std::uint8_t> labels_;  ///< [nodes] the byte that leads to each
  Node first_[256];                   ///< the root's children by byte
};

}  // namespace llm
