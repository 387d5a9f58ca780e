#include "constrain/expression.h"

#include <algorithm>

#include "base/error.h"

namespace llm {

ExprId Productions::add(Expr e) {
  constexpr std::size_t kMost = 4'000'000;
  if (expressions_.size() == kMost) throw Error(ErrorKind::Notation, "the grammar has more than 4000000 parts");
  const std::uint32_t depth = 1 + depth_below(e);
  if (depth > kMostDepth) {
    throw Error(ErrorKind::Notation,
                "groups and repetitions are nested more than " + std::to_string(kMostDepth) + " deep");
  }
  expressions_.push_back(std::move(e));
  depths_.push_back(depth);
  return static_cast<ExprId>(expressions_.size() - 1);
}

std::uint32_t Productions::depth_below(const Expr& e) const {
  std::uint32_t depth = 0;
  const auto look_at = [&](ExprId id) { depth = std::max(depth, depths_[id]); };
  if (const auto* sequence = std::get_if<expr::Sequence>(&e))
    std::for_each(sequence->items.begin(), sequence->items.end(), look_at);
  if (const auto* choice = std::get_if<expr::Choice>(&e))
    std::for_each(choice->items.begin(), choice->items.end(), look_at);
  if (const auto* repeat = std::get_if<expr::Repeat>(&e)) look_at(repeat->body);
  if (const auto* graph = std::get_if<expr::Graph>(&e)) {
    for (const auto& edge : graph->edges) look_at(edge.label);
  }
  return depth;
}

ExprId Productions::sequence(std::vector<ExprId> items) {
  return items.size() == 1 ? items[0] : items.empty() ? empty() : add(expr::Sequence{std::move(items)});
}

ExprId Productions::choice(std::vector<ExprId> items) {
  return items.size() == 1 ? items[0] : items.empty() ? nothing() : add(expr::Choice{std::move(items)});
}

RuleId Productions::declare(std::string name) {
  rules_.push_back({std::move(name), nothing()});
  return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace llm
