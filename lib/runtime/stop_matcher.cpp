#include "runtime/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace llm {

StopMatcher::StopMatcher(const std::vector<std::string>& strings)
    : automaton_(std::make_shared<const Automaton>(build(strings))),
      strings_(std::make_shared<const std::vector<std::string>>(strings)) {}

std::optional<std::uint32_t> StopMatcher::child(const Node& node, char byte) {
  for (const auto& [b, to] : node.next) {
    if (b == byte) return to;
  }
  return std::nullopt;
}

std::uint32_t StopMatcher::step(const Automaton& nodes, std::uint32_t from, char byte) {
  for (;;) {
    if (const auto to = child(nodes[from], byte)) return *to;
    if (from == 0) return 0;
    from = nodes[from].shorter;
  }
}

StopMatcher::Automaton StopMatcher::build(const std::vector<std::string>& strings) {
  Automaton nodes(1);
  for (std::size_t s = 0; s < strings.size(); ++s) {
    check(!strings[s].empty(), "an empty stop string");
    std::uint32_t at = 0;
    for (const char byte : strings[s]) {
      auto to = child(nodes[at], byte);
      if (!to) {
        to = static_cast<std::uint32_t>(nodes.size());
        nodes[at].next.emplace_back(byte, *to);
        nodes.push_back({.next = {}, .shorter = 0, .depth = nodes[at].depth + 1, .found = {}});
      }
      at = *to;
    }
    if (!nodes[at].found) nodes[at].found = s;
  }
  std::vector<std::uint32_t> queue{0};  // breadth first: what is shorter is complete when it is needed
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::uint32_t from = queue[i];
    for (const auto& [byte, to] : nodes[from].next) {
      if (from != 0) nodes[to].shorter = step(nodes, nodes[from].shorter, byte);
      if (!nodes[to].found) nodes[to].found = nodes[nodes[to].shorter].found;
      queue.push_back(to);
    }
  }
  return nodes;
}

std::string StopMatcher::push(std::string_view text) {
  for (const char byte : text) {
    if (matched_) break;
    held_ += byte;
    node_ = step(*automaton_, node_, byte);
    matched_ = (*automaton_)[node_].found;
  }
  const std::size_t back = matched_ ? (*strings_)[*matched_].size() : (*automaton_)[node_].depth;
  if (matched_ && held_.size() < back) return {};  // found before: nothing is held any more
  std::string certain = held_.substr(0, held_.size() - back);
  held_.erase(0, certain.size());
  if (matched_) held_.clear();
  return certain;
}

std::string StopMatcher::finish() {
  node_ = 0;
  return std::exchange(held_, {});
}

}  // namespace llm
