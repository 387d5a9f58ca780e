#include "support/tiny_vocabulary.h"

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

namespace llm::test {
namespace {

void set_spm_tokenizer(TinyFile& f, TinyTokenizer which) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", b);
    const bool left_out = which == TinyTokenizer::SpmSansZ && b == 'z';
    tokens.emplace_back(left_out ? "yy" : text);
    types.push_back(left_out ? 1 : 6);
  }
  for (const char* piece : {"\u2581", "a", "b", "c", "ab", "abc", "\u2581a", "\u2581ab"}) {
    tokens.emplace_back(piece);
    types.push_back(1);
  }
  std::vector<float> scores(tokens.size(), 0.0f);
  for (std::size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  f.set("tokenizer.ggml.model", "llama");
  f.set_array("tokenizer.ggml.tokens", tokens);
  f.set_array("tokenizer.ggml.scores", scores);
  f.set_array("tokenizer.ggml.token_type", types);
  f.set("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  f.set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  f.set("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
}

std::string utf8(int codepoint) {  // below U+0800
  if (codepoint < 0x80) return {static_cast<char>(codepoint)};
  return {static_cast<char>(0xc0 | (codepoint >> 6)), static_cast<char>(0x80 | (codepoint & 0x3f))};
}

/// GPT-2's visible character of each byte: printable Latin-1 stands for itself, the others follow from U+0100 on.
std::vector<std::string> byte_characters() {
  std::vector<std::string> out;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    out.push_back(utf8(printable ? b : next++));
  }
  return out;
}

void set_bpe_tokenizer(TinyFile& f, std::initializer_list<std::size_t> gaps) {
  std::vector<std::string> tokens = byte_characters();
  for (const std::size_t byte : gaps) tokens[byte] = "unused" + std::to_string(byte);
  for (const char* token : {"ab", "abc", "<|end|>"}) tokens.emplace_back(token);
  std::vector<std::int32_t> types(tokens.size(), 1);
  types.back() = 3;
  f.set("tokenizer.ggml.model", "gpt2");
  f.set("tokenizer.ggml.pre", "gpt-2");
  f.set_array("tokenizer.ggml.tokens", tokens);
  f.set_array("tokenizer.ggml.token_type", types);
  f.set_array("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c"});
  f.set("tokenizer.ggml.eos_token_id", std::uint32_t{258});
}

}  // namespace

int tiny_vocabulary(TinyTokenizer t) { return t == TinyTokenizer::Spm || t == TinyTokenizer::SpmSansZ ? 267 : 259; }

void set_tiny_vocabulary(TinyFile& f, TinyTokenizer t) {
  switch (t) {
    case TinyTokenizer::Spm:
    case TinyTokenizer::SpmSansZ:
      return set_spm_tokenizer(f, t);
    case TinyTokenizer::Bpe:
      return set_bpe_tokenizer(f, {});
    case TinyTokenizer::BpeWithGaps:
      return set_bpe_tokenizer(f, {0x04, 0xf1});
  }
}

}  // namespace llm::test
