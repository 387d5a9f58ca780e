#include "graph/memory_plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace llm {
namespace {

constexpr std::uint64_t kAlign = 64;
std::uint64_t aligned(std::uint64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

/// Free ranges of a growing workspace.
class Arena {
 public:
  std::uint64_t take(std::uint64_t bytes) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return extend(bytes);
    const auto [offset, size] = *best;
    free_.erase(best);
    if (size > bytes) free_.emplace(offset + bytes, size - bytes);
    return offset;
  }

  void give(std::uint64_t offset, std::uint64_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        free_.erase(before);
      }
    }
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      free_.erase(next);
    }
    free_.emplace(offset, bytes);
  }

  std::uint64_t size() const { return size_; }

 private:
  /// A free range at the end grows instead of being skipped.
  std::uint64_t extend(std::uint64_t bytes) {
    std::uint64_t offset = size_;
    if (!free_.empty()) {
      auto last = std::prev(free_.end());
      if (last->first + last->second == size_) {
        offset = last->first;
        free_.erase(last);
      }
    }
    size_ = offset + bytes;
    return offset;
  }

  std::map<std::uint64_t, std::uint64_t> free_;
  std::uint64_t size_ = 0;
};

class Planner {
 public:
  Planner(const Graph& g, const std::vector<std::uint64_t>& scratch)
      : g_(g), scratch_(scratch), root_(g.values().size()) {
    find_roots();
    find_last_uses();
  }

  MemoryPlan run() {
    MemoryPlan plan;
    plan.offset.assign(g_.values().size(), MemoryPlan::kNone);
    plan.scratch_offset.assign(g_.nodes().size(), MemoryPlan::kNone);
    for (std::size_t i = 0; i < g_.nodes().size(); ++i) {
      for (std::uint32_t v : g_.nodes()[i].out) {
        if (lives(v) && root_[v] == v) plan.offset[v] = arena_.take(bytes(v));
      }
      if (scratch_[i]) {
        plan.scratch_offset[i] = arena_.take(aligned(scratch_[i]));
        arena_.give(plan.scratch_offset[i], aligned(scratch_[i]));
      }
      for (std::uint32_t v : dying_[i]) arena_.give(plan.offset[v], bytes(v));
    }
    for (std::uint32_t v = 0; v < root_.size(); ++v) {
      if (root_[v] != v) plan.offset[v] = plan.offset[root_[v]];
    }
    plan.bytes = arena_.size();
    return plan;
  }

 private:
  std::uint64_t bytes(std::uint32_t v) const { return aligned(g_.info(v).type.bytes()); }
  bool lives(std::uint32_t v) const { return g_.info(v).kind == ValueKind::Result && !bound_[root_[v]]; }

  void find_roots() {
    for (std::uint32_t v = 0; v < root_.size(); ++v) root_[v] = v;
    bound_.assign(root_.size(), false);
    for (const Node& n : g_.nodes()) {
      if (std::holds_alternative<Reshape>(n.op)) root_[n.out[0]] = root_[n.in[0]];
    }
    for (std::uint32_t v : g_.outputs()) {
      check(root_[v] == v, "a reshaped value is an output of the graph: " + g_.info(v).name);
      bound_[v] = true;
    }
  }

  void find_last_uses() {
    constexpr std::size_t kNever = ~std::size_t{0};
    std::vector<std::size_t> last(root_.size(), kNever);
    for (std::size_t i = 0; i < g_.nodes().size(); ++i) {
      for (const auto* list : {&g_.nodes()[i].in, &g_.nodes()[i].out}) {
        for (std::uint32_t v : *list) last[root_[v]] = i;
      }
    }
    dying_.resize(g_.nodes().size());
    for (std::uint32_t v = 0; v < root_.size(); ++v) {
      if (root_[v] == v && last[v] != kNever && lives(v)) dying_[last[v]].push_back(v);
    }
  }

  const Graph& g_;
  const std::vector<std::uint64_t>& scratch_;
  std::vector<std::uint32_t> root_;  ///< the value whose bytes a reshaped one shares
  std::vector<bool> bound_;
  std::vector<std::vector<std::uint32_t>> dying_;  ///< per node: roots that are not needed after it
  Arena arena_;
};

}  // namespace

MemoryPlan plan_memory(const Graph& g, const std::vector<std::uint64_t>& node_scratch) {
  check(node_scratch.size() == g.nodes().size(), "plan_memory: one scratch size per node is needed");
  return Planner(g, node_scratch).run();
}

std::uint64_t workspace_bytes(const Graph& largest, const std::vector<std::uint64_t>& node_scratch) {
  const std::uint64_t bytes = plan_memory(largest, node_scratch).bytes;
  const auto scratch = std::max_element(node_scratch.begin(), node_scratch.end());
  return bytes + bytes / 4 + (scratch == node_scratch.end() ? 0 : aligned(*scratch));
}

}  // namespace llm
