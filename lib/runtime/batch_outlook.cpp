#include "runtime/batch_outlook.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "runtime/memory_budget.h"

namespace llm {
namespace {

/// Of the time that a generated token takes: prompts are read many tokens at a time. 0.9 of it beside 32 rows on two
/// threads of a CPU, less on a GPU; it matters while the first prompts are read.
constexpr double kPromptToken = 0.5;

bool has_all(const BatchResult& r) { return r.reason == StopReason::Length || r.reason == StopReason::ContextFull; }

/// Of a row that may generate so many more, where as many of its tokens end it.
double expected_tokens(double most, double ends_per_token) {
  return ends_per_token > 0 ? (1 - std::exp(-ends_per_token * most)) / ends_per_token : most;
}

}  // namespace

std::int64_t most_tokens(const BatchRow& row, std::int64_t context) {
  const auto prompt = static_cast<std::int64_t>(row.prompt->size());
  if (prompt > context) return 0;
  const std::int64_t room = context - prompt + 1;  // the last token is not evaluated
  return row.answer->max_tokens < 0 ? room : std::min(room, row.answer->max_tokens);
}

std::int64_t most_positions(std::span<const BatchRow> rows, int parallel, std::int64_t context) {
  std::vector<std::int64_t> blocks;
  for (const BatchRow& row : rows) {
    const auto prompt = static_cast<std::int64_t>(row.prompt->size());
    if (prompt <= context) blocks.push_back(whole_blocks(std::min(context, prompt + most_tokens(row, context))));
  }
  const auto n = std::min(blocks.size(), static_cast<std::size_t>(parallel));
  const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(n);
  std::partial_sort(blocks.begin(), end, blocks.end(), std::greater<>());
  std::int64_t all = 0;
  for (auto b = blocks.begin(); b != end; ++b) all += *b;
  return all * kBlockPositions;
}

BatchOutlook::BatchOutlook(std::span<const BatchRow> rows, std::int64_t context) : rows_(rows), context_(context) {
  for (const BatchRow& row : rows) {
    prompts_ += static_cast<double>(row.prompt->size());
    most_ += static_cast<double>(most_tokens(row, context));
  }
}

void BatchOutlook::ended(const BatchResult& result) {
  most_ -= static_cast<double>(most_tokens(rows_[result.row], context_));
  ended_tokens_ += static_cast<double>(result.tokens.size());
  if (result.error) return;  // why a row failed says nothing about how long others are
  ended_ += 1;
  if (!has_all(result)) ended_early_ += 1;
}

std::optional<double> BatchOutlook::seconds_left(const BatchProgress& p, double seconds) const {
  if (p.generated_tokens == 0) return std::nullopt;
  const auto generated = static_cast<double>(p.generated_tokens);
  const auto running = static_cast<double>(p.rows_running), waiting = static_cast<double>(p.rows_waiting);
  const double ends_per_token = ended_early_ / generated;
  const double most = most_ / std::max(1.0, running + waiting);  // of a row, on average
  const double had = (generated - ended_tokens_) / std::max(1.0, running);
  double left = running * expected_tokens(std::max(0.0, most - had), ends_per_token);
  const auto prompts_done = static_cast<double>(p.prompt_tokens + p.shared_tokens);
  if (rows_begin_) {
    left += waiting * expected_tokens(most, ends_per_token) + kPromptToken * std::max(0.0, prompts_ - prompts_done);
  }
  return seconds / (generated + kPromptToken * prompts_done) * left;
}

}  // namespace llm
