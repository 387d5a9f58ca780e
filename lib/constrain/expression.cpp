#include "constrain/expression.h"

#include "base/error.h"

namespace llm {

ExprId Productions::add(Expr e) {
  constexpr std::size_t kMost = 4'000'000;
  if (expressions_.size() == kMost) throw Error(ErrorKind::Notation, "the grammar has more than 4000000 parts");
  expressions_.push_back(std::move(e));
  return static_cast<ExprId>(expressions_.size() - 1);
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
