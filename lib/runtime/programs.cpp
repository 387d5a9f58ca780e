#include "runtime/programs.h"

#include <algorithm>
#include <array>
#include <utility>

namespace llm {
namespace {

constexpr std::array kBucketTokens{1, 2, 4, 8, 16, 32, 64, 256, 512, 1024, 2048, 4096};
static_assert(kBucketTokens.back() == kMaxBatchTokens);

}  // namespace

Bucket bucket_for(std::int64_t tokens, int sequences) {
  const int size = *std::ranges::find_if(kBucketTokens, [tokens](int b) { return b >= tokens; });
  return {.tokens = size, .sequences = std::min(size, sequences), .outputs = std::min(size, kMaxOutputs)};
}

Program& Programs::of(std::int64_t tokens) {
  const Bucket bucket = bucket_for(tokens, sequences_);
  if (const auto found = programs_.find(bucket.tokens); found != programs_.end()) return found->second;
  Program made{graph_(bucket), nullptr};
  Program& kept = programs_.emplace(bucket.tokens, std::move(made)).first->second;  // programs may refer to their graph
  try {
    kept.executable = model_.backend().compile(kept.graph, model_.weights(), store_, workspace_);
  } catch (...) {
    programs_.erase(bucket.tokens);
    throw;
  }
  return kept;
}

std::string Programs::describe() const {
  std::string text;
  for (const auto& [tokens, program] : programs_) {
    text += "program for up to " + std::to_string(tokens) + (tokens == 1 ? " token:\n" : " tokens:\n");
    text += program.executable->describe();
    if (!text.ends_with('\n')) text += '\n';
  }
  return text;
}

}  // namespace llm
