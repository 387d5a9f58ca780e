// The vocabularies of tiny models.
#pragma once

#include "support/tiny_file.h"

namespace llm::test {

enum class TinyTokenizer {
  Spm,          ///< 267 tokens: <unk>, <s>, </s>, 256 bytes, 8 pieces
  SpmSansZ,     ///< the same, but that there is no token with a z: "yy" stands in for the byte
  Bpe,          ///< 259 tokens: 256 bytes, "ab", "abc", <|end|>; merges "a b" and "ab c"
  BpeWithGaps,  ///< the same, and nothing stands for the bytes 0x04 and 0xf1
};

/// How many tokens it has.
int tiny_vocabulary(TinyTokenizer);
/// The keys tokenizer.ggml.*.
void set_tiny_vocabulary(TinyFile&, TinyTokenizer);

}  // namespace llm::test
