#include "windows.h"

#include "base/sha256.h"
#include "common/token_input.h"

namespace llm::perplexity {

Windows::Windows(std::vector<Token> tokens, std::int64_t size, const Tokenizer& tokenizer, std::int64_t most)
    : tokens_(std::move(tokens)),
      size_(size),
      count_(app::count_stretches(std::ssize(tokens_), size, most, "window")),
      tokenizer_(tokenizer) {}

std::vector<Token> Windows::input(std::int64_t window) const {
  const auto begin = tokens_.begin() + window * size_;
  std::vector<Token> input(begin, begin + size_ - 1);
  const SpecialTokens& special = tokenizer_.special();
  if (special.add_bos && special.bos != kNoToken) input.front() = special.bos;
  return input;
}

Token Windows::next(std::int64_t window, std::int64_t position) const {
  return tokens_[static_cast<std::size_t>(window * size_ + position + 1)];
}

std::uint64_t Windows::scored_bytes() const {
  std::uint64_t bytes = 0;
  for (std::int64_t w = 0; w < count_; ++w) {
    for (std::int64_t p = first_scored(); p + 1 < size_; ++p) {
      const Token token = next(w, p);  // a model may have more rows than its vocabulary has tokens
      if (token < static_cast<Token>(tokenizer_.n_vocab())) bytes += tokenizer_.piece(token).size();
    }
  }
  return bytes;
}

std::string Windows::digest() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&size_, 1)));
  hash.update(std::as_bytes(std::span(tokens_).first(static_cast<std::size_t>(count_ * size_))));
  return hash.digest();
}

}  // namespace llm::perplexity
