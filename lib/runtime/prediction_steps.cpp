#include "runtime/prediction_steps.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "runtime/memory_budget.h"
#include "runtime/session_memory.h"

namespace llm {
namespace {

std::unique_ptr<StateStore> store_for(Model& model, const Graph& graph, std::int64_t context, CacheFormat format) {
  const std::vector<CacheType> caches = cache_types(graph);
  const std::int64_t blocks = whole_blocks(context);
  return model.backend().allocate({.caches = caches,
                                   .format = format,
                                   .n_blocks = static_cast<std::int32_t>(blocks),
                                   .most_positions = blocks * kBlockPositions});
}

Graph largest_graph(const Model& model) { return model.prediction_graph(largest_bucket(model.backend(), {})); }

std::byte* bytes(float* rows) { return reinterpret_cast<std::byte*>(rows); }

}  // namespace

PredictionSteps::PredictionSteps(Model& model, std::int64_t context, CacheFormat format)
    : model_(model),
      context_(context),
      sequences_(static_cast<std::int32_t>(whole_blocks(context)), 0, 1),
      sequence_(sequences_.create()),
      workspace_(model.backend().make_workspace(largest_graph(model))),
      store_(store_for(model, model.prediction_graph(Bucket{}), context, format)),
      programs_(
          model, [&model](Bucket b) { return model.prediction_graph(b); }, 1, *store_, *workspace_) {}

PredictionSteps::Result PredictionSteps::run(std::span<const Token> tokens, std::span<const float> hidden) {
  const auto width = static_cast<std::size_t>(model_.dims().n_embd);
  check(!tokens.empty() && hidden.size() == tokens.size() * width, "tokens to predict behind, with a row each");
  const auto most = static_cast<std::size_t>(most_step_tokens(model_.backend(), {}));
  for (std::size_t i = 0; i < tokens.size(); i += most) {
    const std::size_t n = std::min(most, tokens.size() - i);
    step(tokens.subspan(i, n), hidden.subspan(i * width, n * width));
  }
  const auto vocab = static_cast<std::size_t>(model_.dims().vocab);
  return {{logits_.reserve(model_.backend(), vocab), vocab}, {hidden_.reserve(model_.backend(), width), width}};
}

void PredictionSteps::step(std::span<const Token> tokens, std::span<const float> hidden) {
  Backend& backend = model_.backend();
  const auto vocab = static_cast<std::size_t>(model_.dims().vocab), width = hidden.size() / tokens.size();
  const std::int64_t before = length();
  work_.clear();
  sequences_.next_step();
  work_.add({sequence_, tokens, Logits::Last}, 0, tokens.size(), sequences_, *store_, [] {});
  try {
    Program& p = programs_.of(std::ssize(tokens));
    float* const given = given_.reserve(backend, hidden.size());
    std::ranges::copy(hidden, given);
    const Binding in{.value = "hidden_before", .data = bytes(given), .bytes = hidden.size_bytes()};
    const auto out = [&](std::size_t i, LogitRows& rows, std::size_t n) {
      return Binding{.value = p.graph.info(p.graph.outputs()[i]).name,
                     .data = bytes(rows.reserve(backend, n)),
                     .bytes = n * sizeof(float)};
    };
    const std::array bound{out(0, logits_, vocab), out(1, hidden_, width)};
    p.executable->wait(p.executable->submit(work_.data(sequences_.cache()), {&in, 1}, bound));
  } catch (...) {
    rewind(before);
    throw;
  }
}

}  // namespace llm
