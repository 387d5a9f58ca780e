#include "constrain/stacks.h"

#include <algorithm>
#include <iterator>

namespace llm {

Stacks::Stacks(const Grammar& grammar) : grammar_(&grammar) {
  nodes_.push_back({0, 0, 0});  // kBottom
  sets_.emplace_back();
  set_ids_.emplace(std::vector<NodeId>{}, 0);
  close();  // nothing was added: kNowhere
}

Stacks::StandingId Stacks::begin() {
  constexpr NodeId bottom[] = {kBottom};
  add(grammar_->rule(grammar_->root()).start, 0, bottom);
  return close();
}

Stacks::StandingId Stacks::only_at(StateId state, std::uint32_t count) {
  constexpr NodeId bottom[] = {kBottom};
  return standing_id({node_id(state, count, set_id(bottom))}, false);
}

Stacks::StandingId Stacks::resume(SetId parents) {
  go_on(set(parents));
  return close();
}

Stacks::StandingId Stacks::step(StandingId from, std::uint8_t byte) {
  for (const NodeId top : standings_[from].tops) {
    const Node node = nodes_[top];
    for (const auto& edge : grammar_->bytes(grammar_->state(node.state))) {
      if (edge.first <= byte && byte <= edge.last) add(edge.target, node.count, set(node.parents));
    }
  }
  return items_.empty() ? kNowhere : close();
}

/// Its place among the items, where it is put if it is new.
std::size_t Stacks::item_of(StateId state, std::uint32_t count) {
  constexpr std::size_t kMany = 32;
  const auto key = [](StateId s, std::uint32_t c) { return std::uint64_t{s} << 32 | c; };
  if (items_.size() < kMany) {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].state == state && items_[i].count == count) return i;
    }
  } else {
    if (item_index_.empty()) {
      for (std::size_t i = 0; i < items_.size(); ++i) item_index_.emplace(key(items_[i].state, items_[i].count), i);
    }
    const auto [found, is_new] = item_index_.try_emplace(key(state, count), items_.size());
    if (!is_new) return found->second;
  }
  items_.push_back({state, count, {}, false});
  return items_.size() - 1;
}

/// Stacks that end in the same state differ in what is below only: they become one with more parents.
void Stacks::add(StateId state, std::uint32_t count, std::span<const NodeId> parents) {
  const std::size_t i = item_of(state, count);
  std::vector<NodeId>& have = items_[i].parents;
  if (!have.empty() && std::includes(have.begin(), have.end(), parents.begin(), parents.end())) return;
  std::vector<NodeId> all;
  std::set_union(have.begin(), have.end(), parents.begin(), parents.end(), std::back_inserter(all));
  have = std::move(all);
  if (!items_[i].dirty) queue_.push_back(i);
  items_[i].dirty = true;
}

void Stacks::go_on(std::span<const NodeId> nodes) {
  for (const NodeId id : nodes) {
    if (id == kBottom) {
      complete_ = true;
    } else {
      const Node node = nodes_[id];
      add(node.state, node.count, set(node.parents));
    }
  }
}

bool Stacks::may_consume(const Item& item) const {
  const Grammar::Rule& rule = grammar_->rule(grammar_->state(item.state).rule);
  return !rule.counted || item.state != rule.start || item.count < rule.max;
}

/// Everything that an item leads to without a byte: into calls, and out of complete rules.
void Stacks::expand(std::size_t index) {
  const StateId id = items_[index].state;
  const std::uint32_t count = items_[index].count;
  const std::vector<NodeId> parents = items_[index].parents;
  const Grammar::State& state = grammar_->state(id);
  const Grammar::Rule& rule = grammar_->rule(state.rule);
  if (!rule.counted) {
    if (state.accepting) go_on(parents);
  } else if (state.accepting) {
    // Without a limit, nothing is to be known beyond the least number.
    const bool enough = rule.max == Grammar::kNoLimit && count >= rule.min;
    add(rule.start, enough ? count : count + 1, parents);
  } else if (id == rule.start && count >= rule.min) {
    go_on(parents);
  }
  if (!may_consume(items_[index])) return;
  for (const auto& call : grammar_->calls(state)) {
    const StateId start = grammar_->rule(call.rule).start;
    if (grammar_->state(call.target).returns_only) {  // so that right recursion needs no stack
      add(start, 0, parents);
    } else {
      const NodeId back[] = {node_id(call.target, count, set_id(parents))};
      add(start, 0, back);
    }
  }
}

Stacks::StandingId Stacks::close() {
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const std::size_t item = queue_[i];
    items_[item].dirty = false;
    expand(item);
  }
  std::vector<NodeId> tops;
  for (const Item& item : items_) {
    const Grammar::State& state = grammar_->state(item.state);
    if (state.bytes_begin == state.bytes_end || !may_consume(item)) continue;
    tops.push_back(node_id(item.state, item.count, set_id(item.parents)));
  }
  std::sort(tops.begin(), tops.end());
  const StandingId result = standing_id(std::move(tops), complete_);
  items_.clear();
  item_index_.clear();
  queue_.clear();
  complete_ = false;
  return result;
}

Stacks::StandingId Stacks::standing_id(std::vector<NodeId> tops, bool complete) {
  std::vector<NodeId> key = tops;
  key.push_back(complete ? 1 : 0);
  const auto [found, is_new] = standing_ids_.try_emplace(std::move(key), static_cast<StandingId>(standings_.size()));
  if (is_new) standings_.push_back({std::move(tops), complete});
  return found->second;
}

Stacks::NodeId Stacks::node_id(StateId state, std::uint32_t count, SetId parents) {
  const auto [found, is_new] = node_ids_.try_emplace({state, count, parents}, static_cast<NodeId>(nodes_.size()));
  if (is_new) nodes_.push_back({state, count, parents});
  return found->second;
}

Stacks::SetId Stacks::set_id(std::span<const NodeId> nodes) {
  const auto [found, is_new] =
      set_ids_.try_emplace(std::vector<NodeId>(nodes.begin(), nodes.end()), static_cast<SetId>(sets_.size()));
  if (is_new) sets_.emplace_back(nodes.begin(), nodes.end());
  return found->second;
}

}  // namespace llm
