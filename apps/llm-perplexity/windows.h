// A text as llama.cpp's perplexity takes it: windows of N tokens that do not overlap, the first token of each replaced
// by BOS where the vocabulary adds one, the second half scored. In a window the tokens at N/2+1 .. N-1 are scored, each
// by the logits of the position before it: N - 1 - N/2 of them. What is left at the end is not used.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace llm::perplexity {

class Windows {
 public:
  /// Throws ErrorKind::Usage if there are fewer tokens than one window. `most`: use no more windows; 0: all.
  Windows(std::vector<Token> tokens, std::int64_t size, const Tokenizer&, std::int64_t most);

  std::int64_t count() const { return count_; }
  std::int64_t size() const { return size_; }
  std::int64_t first_scored() const { return size_ / 2; }  ///< position whose logits score the next token
  std::int64_t scored_per_window() const { return size_ - 1 - first_scored(); }
  std::int64_t scored() const { return count_ * scored_per_window(); }
  /// What the model is given: [size - 1], the last token is only predicted.
  std::vector<Token> input(std::int64_t window) const;
  /// The token after a position of a window.
  Token next(std::int64_t window, std::int64_t position) const;
  std::uint64_t scored_bytes() const;  ///< of the scored tokens' text
  /// SHA-256 of the size as int64 and the tokens of all windows as int32, both as the machine has them.
  std::string digest() const;

 private:
  std::vector<Token> tokens_;
  std::int64_t size_, count_;
  const Tokenizer& tokenizer_;
};

}  // namespace llm::perplexity
