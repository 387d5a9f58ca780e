#include "constrain/token_tree.h"

#include <algorithm>

namespace llm {
namespace {

constexpr std::uint32_t kLeftOut = ~std::uint32_t{0};
constexpr std::size_t kMostBytes = 65535;  // of one token: what Node::depth holds

bool stands_for_text(const Tokenizer& tokenizer, Token token) {
  switch (tokenizer.kind(token)) {
    case TokenKind::Control:
    case TokenKind::Unknown:
    case TokenKind::Unused:
      return false;
    case TokenKind::Undefined:
    case TokenKind::Normal:
    case TokenKind::UserDefined:
    case TokenKind::Byte:
      break;
  }
  return !tokenizer.is_end_of_generation(token);
}

}  // namespace

TokenTree::TokenTree(const Tokenizer& tokenizer) : piece_index_(tokenizer.n_vocab(), kLeftOut) {
  std::vector<std::pair<std::string, Token>> pieces;
  for (std::size_t t = 0; t < tokenizer.n_vocab(); ++t) {
    const auto token = static_cast<Token>(t);
    if (tokenizer.is_end_of_generation(token)) end_tokens_.push_back(token);
    if (!stands_for_text(tokenizer, token)) continue;
    std::string piece = tokenizer.piece(token);
    if (!piece.empty() && piece.size() <= kMostBytes) pieces.emplace_back(std::move(piece), token);
  }
  std::sort(pieces.begin(), pieces.end());
  offsets_.push_back(0);
  for (const auto& [piece, token] : pieces) {
    piece_index_[static_cast<std::size_t>(token)] = static_cast<std::uint32_t>(tokens_.size());
    tokens_.push_back(token);
    text_ += piece;
    offsets_.push_back(static_cast<std::uint32_t>(text_.size()));
    longest_ = std::max(longest_, piece.size());
  }
  add_nodes();
}

void TokenTree::add_nodes() {
  std::vector<std::size_t> open;  // the nodes of the bytes of the token before
  const auto close_to = [&](std::size_t depth, std::size_t token) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
      nodes_[open.back()].tokens_end = static_cast<std::uint32_t>(token);
    }
  };
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view now = bytes(i);
    std::size_t common = 0;
    while (common < open.size() && common < now.size() &&
           nodes_[open[common]].byte == static_cast<std::uint8_t>(now[common])) {
      ++common;
    }
    close_to(common, i);
    const auto index = static_cast<std::uint32_t>(i);
    for (std::size_t d = common; d < now.size(); ++d) {
      open.push_back(nodes_.size());
      nodes_.push_back({static_cast<std::uint8_t>(now[d]), static_cast<std::uint16_t>(d), 0, index, index, 0});
    }
    nodes_[open.back()].tokens_middle = index + 1;
  }
  close_to(0, tokens_.size());
}

std::string_view TokenTree::piece(Token token) const {
  const std::uint32_t index = piece_index_[static_cast<std::size_t>(token)];
  return index == kLeftOut ? std::string_view() : bytes(index);
}

}  // namespace llm
