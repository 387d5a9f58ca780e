#include "runtime/prefix_order.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace llm {
namespace {

using Prompts = std::span<const std::span<const Token>>;

/// A node of the tree with more than one prompt below it, or a leaf: prompts whose first `depth` tokens are the same,
/// in the order of the file.
struct Group {
  std::vector<std::size_t> members;
  std::size_t depth = 0;
};

bool goes_on_alike(Prompts prompts, const Group& g) {
  const std::span<const Token> first = prompts[g.members.front()];
  return std::all_of(g.members.begin(), g.members.end(), [&](std::size_t m) {
    return prompts[m].size() > g.depth && prompts[m][g.depth] == first[g.depth];
  });
}

/// Prompts that end here go to `order`; the others into groups by their next token.
std::vector<Group> branch(Prompts prompts, const Group& g, std::vector<std::size_t>& order) {
  std::vector<Group> branches;
  std::unordered_map<Token, std::size_t> branch_of;
  for (const std::size_t m : g.members) {
    if (prompts[m].size() == g.depth) {
      order.push_back(m);
      continue;
    }
    const auto [found, is_new] = branch_of.try_emplace(prompts[m][g.depth], branches.size());
    if (is_new) branches.push_back({{}, g.depth + 1});
    branches[found->second].members.push_back(m);
  }
  return branches;
}

std::vector<std::size_t> walk(Prompts prompts) {
  std::vector<std::size_t> order;
  if (prompts.empty()) return order;
  std::vector<Group> open(1);  // the last one is next; a stack of our own, since the tree may be as deep as a prompt
  open.front().members.resize(prompts.size());
  std::iota(open.front().members.begin(), open.front().members.end(), std::size_t{0});
  while (!open.empty()) {
    Group g = std::move(open.back());
    open.pop_back();
    if (g.members.size() == 1) {
      order.push_back(g.members.front());
      continue;
    }
    while (goes_on_alike(prompts, g)) ++g.depth;
    std::vector<Group> branches = branch(prompts, g, order);
    std::move(branches.rbegin(), branches.rend(), std::back_inserter(open));
  }
  return order;
}

std::vector<std::size_t> as_given(Prompts prompts) {
  std::vector<std::size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

/// What a prompt has from the one before it.
std::size_t shared_with(std::span<const Token> before, std::span<const Token> prompt) {
  if (prompt.empty()) return 0;
  const std::span<const Token> taken = prompt.first(prompt.size() - 1);
  const auto n = static_cast<std::size_t>(std::ranges::mismatch(taken, before).in1 - taken.begin());
  return n < kLeastShared ? 0 : n;
}

}  // namespace

std::vector<PrefixStep> prefix_order(Prompts prompts, RowOrder order) {
  std::vector<PrefixStep> steps;
  steps.reserve(prompts.size());
  for (const std::size_t p : order == RowOrder::AsGiven ? as_given(prompts) : walk(prompts)) {
    steps.push_back({p, steps.empty() ? 0 : shared_with(prompts[steps.back().prompt], prompts[p])});
  }
  return steps;
}

}  // namespace llm
