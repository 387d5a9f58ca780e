#include "plan.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "common/help_page.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/terminal.h"
#include "runtime/memory_budget.h"
#include "runtime/prefix_order.h"

namespace llm::app {
namespace {

/// As if the model had been trained with any length that it has positions for. Nothing fits: 0.
std::int64_t longest_context(ContextRequest request) {
  request.context = 0;
  request.trained = request.most > 0 ? request.most : std::numeric_limits<std::int32_t>::max();
  try {
    return choose_context(request).context;
  } catch (const Error&) {
    return 0;
  }
}

/// Positions of the cache that a run with such a context comes to hold.
using CacheUse = std::function<std::int64_t(const ContextRequest&, std::int64_t context)>;

/// Behind the name of its memory, where there are several.
std::string figure(const ContextRequest& r, const MemoryNeeds& m, const std::string& what, const std::string& value) {
  return plan_line(r.memories.size() > 1 ? m.name + " " + what : what, value);
}

std::string weights_line(const ContextRequest& r, const MemoryNeeds& m) {
  const bool mapped = m.weights == MemoryNeeds::Weights::Mapped;
  return figure(r, m, "weights",
                bytes_text(m.weight_bytes) + (mapped ? ", in the file's own pages" : ", in " + owned_text(m.name)));
}

/// What is there whatever the context.
std::string fixed_lines(const ContextRequest& r, const MemoryNeeds& m) {
  return (m.state_bytes > 0 ? figure(r, m, "recurrent states", bytes_text(m.state_bytes)) : "") +
         figure(r, m, "work buffers", bytes_text(m.work_bytes));
}

std::string full_lines(const ContextRequest& r, const MemoryNeeds& m, std::int64_t positions) {
  const std::uint64_t cache = cache_bytes(r, m, positions);
  return figure(r, m, "cache when full", bytes_text(cache)) + fixed_lines(r, m) +
         figure(r, m, "in all",
                bytes_text(m.weight_bytes + cache + m.state_bytes + m.work_bytes) + " of " + bytes_text(m.available) +
                    " available");
}

std::string context_lines(const ContextRequest& r, const ContextChoice& choice, const CacheUse& positions,
                          std::int64_t longest) {
  std::string text = plan_line("context", number_text(choice.context) + " tokens, " + choice.reason);
  for (const MemoryNeeds& m : r.memories) text += full_lines(r, m, positions(r, choice.context));
  return text + plan_line("longest that fits", number_text(longest) + " tokens beside the weights (trained with " +
                                                   number_text(r.trained) + ")");
}

}  // namespace

std::string plan_line(const std::string& what, const std::string& value) {
  constexpr std::size_t kColumn = 22;
  const std::string head = what + std::string(what.size() < kColumn ? kColumn - what.size() : 1, ' ');
  // Who reads it by a program finds one line of each.
  return head + (stdout_is_terminal() ? wrapped(value, text_width(STDOUT_FILENO), kColumn) : value) + "\n";
}

namespace {

int print_plan(Model& model, const SessionOptions& options, const std::string& draft_model, const CacheUse& use) {
  const ContextRequest request = memory_request(model, options);
  const std::int64_t longest = longest_context(request);
  std::string text = model.placement().empty() ? "" : plan_line("placement", model.placement());
  for (const MemoryNeeds& m : request.memories) {
    text += weights_line(request, m) +
            figure(request, m, "cache", bytes_text(m.bytes_per_position * 1000) + " per 1,000 tokens");
  }
  std::uint64_t adapters = 0;
  for (const LoraAdapter& adapter : model.adapters()) adapters += adapter.bytes();
  if (adapters > 0) text += plan_line("of the weights", bytes_text(adapters) + " of adapters");
  if (!draft_model.empty()) text += plan_line("of it a draft model", draft_model);
  try {
    const ContextChoice choice = choose_context(request);
    const bool weights_stay = std::all_of(request.memories.begin(), request.memories.end(),
                                          [](const MemoryNeeds& m) { return m.weight_bytes <= m.available; });
    text += context_lines(request, choice, use, longest) +
            plan_line("fits", weights_stay ? "yes" : "yes, but the weights will be read from disk again and again");
    write_stdout(text);
    return 0;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Memory) throw;
    for (const MemoryNeeds& m : request.memories) text += fixed_lines(request, m);
    text += plan_line("longest that fits", number_text(longest) + " tokens beside the weights") +
            plan_line("fits", std::string("no: ") + error.what());
    write_stdout(text);
    return static_cast<int>(ErrorKind::Memory);
  }
}

}  // namespace

int print_memory_plan(Model& model, const SessionOptions& options, const std::string& draft_model) {
  return print_plan(model, options, draft_model, [](const ContextRequest&, std::int64_t context) { return context; });
}

int print_memory_plan(Model& model, const SessionOptions& options,
                      const std::function<std::int64_t(std::int64_t)>& positions) {
  return print_plan(model, options, "", [&](const ContextRequest& request, std::int64_t context) {
    return std::min(positions(context), pool_blocks(request, context, 0) * kBlockPositions);
  });
}

std::optional<std::int64_t> context_that_fits(Model& model, const SessionOptions& options) {
  try {
    return choose_context(memory_request(model, options)).context;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Memory) throw;
    return std::nullopt;
  }
}

void print_batch_progress(std::size_t answered, std::size_t failed, std::size_t left) {
  write_stdout(plan_line(
      "done", number_text(answered) + " answered, " + number_text(failed) + " failed; " + number_text(left) + " left"));
}

void print_batch_plan(const BatchWork& work, std::size_t rows, std::size_t failed) {
  write_stdout(
      plan_line("rows", number_text(rows) + ", of which " + number_text(failed) + " cannot be run; answers " +
                            number_text(work.rows)) +
      plan_line("prompt tokens", number_text(work.prompt_tokens) + ", longest " + number_text(work.longest_prompt)) +
      plan_line("shared", number_text(work.shared_tokens) + " tokens, computed once") +
      plan_line("to be computed", number_text(work.prompt_tokens - work.shared_tokens) + " prompt tokens"));
}

BatchWork measure_batch(std::span<const std::span<const Token>> prompts, RowOrder order) {
  BatchWork work{.rows = prompts.size()};
  for (const PrefixStep& step : prefix_order(prompts, order)) {
    const auto tokens = static_cast<std::int64_t>(prompts[step.prompt].size());
    work.prompt_tokens += tokens;
    work.longest_prompt = std::max(work.longest_prompt, tokens);
    work.shared_tokens += static_cast<std::int64_t>(step.shared);
  }
  return work;
}

}  // namespace llm::app
