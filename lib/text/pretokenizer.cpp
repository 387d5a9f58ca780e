#include "text/pretokenizer.h"

#include <algorithm>
#include <numeric>

namespace llm {
namespace {

// The expressions as published with each family's tokenizer.
#define LLM_GPT2 R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
#define LLM_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LLM_LETTERS R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define LLM_REST R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr std::string_view kDefaultNames[] = {"default"};
constexpr std::string_view kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", LLM_GPT2, R"(\p{N}+)", "[0-9][0-9][0-9]"};

constexpr std::string_view kGpt2Names[] = {
    "gpt-2",   "phi-2",  "jina-es",     "jina-de", "gigachat", "jina-v2-es", "jina-v2-de",
    "a.x-4.0", "mellum", "modern-bert", "exaone4", "mpt",      "olmo",       "jais",
};
constexpr std::string_view kGpt2[] = {LLM_GPT2};

constexpr std::string_view kLlama3Names[] = {
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
};
constexpr std::string_view kLlama3[] = {LLM_CONTRACTIONS "|" LLM_LETTERS R"(|\p{N}{1,3}|)" LLM_REST};

constexpr std::string_view kQwen2Names[] = {
    "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2",
};
constexpr std::string_view kQwen2[] = {LLM_CONTRACTIONS "|" LLM_LETTERS R"(|\p{N}|)" LLM_REST};

constexpr std::string_view kSmollmNames[] = {
    "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
};
constexpr std::string_view kSmollm[] = {R"(\p{N})", LLM_GPT2};

#undef LLM_GPT2
#undef LLM_CONTRACTIONS
#undef LLM_LETTERS
#undef LLM_REST

constexpr PreTokenizerRule kRules[] = {
    {kDefaultNames, kDefault}, {kGpt2Names, kGpt2},     {kLlama3Names, kLlama3, WordRule::WholeIfToken, BosRule::Add},
    {kQwen2Names, kQwen2},     {kSmollmNames, kSmollm},
};

/// Insertions, deletions and replacements that turn one string into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

const PreTokenizerRule* find_pretokenizer(std::string_view name) {
  for (const PreTokenizerRule& rule : kRules) {
    if (std::find(rule.names.begin(), rule.names.end(), name) != rule.names.end()) return &rule;
  }
  return nullptr;
}

std::vector<std::string_view> nearest_pretokenizers(std::string_view name, std::size_t count) {
  const std::string_view looked_for = name.substr(0, 64);  // longer than any known name: a file may say anything
  std::vector<std::string_view> names;
  for (const PreTokenizerRule& rule : kRules) names.insert(names.end(), rule.names.begin(), rule.names.end());
  std::stable_sort(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(looked_for, a) < edit_distance(looked_for, b);
  });
  names.resize(std::min(count, names.size()));
  return names;
}

PreTokenizer::PreTokenizer(const PreTokenizerRule& rule) {
  for (const std::string_view pattern : rule.patterns) patterns_.emplace_back(pattern);
}

}  // namespace llm
