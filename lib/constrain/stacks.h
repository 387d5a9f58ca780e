// Where a text stands in a grammar: sets of stacks of states, as a graph whose nodes are shared and never change, so
// that ambiguity costs no more than the states that it reaches, and that any earlier standing stays valid.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/hash.h"

namespace llm {

class Stacks {
 public:
  using NodeId = std::uint32_t;
  using SetId = std::uint32_t;       ///< an ascending set of nodes
  using StandingId = std::uint32_t;  ///< all stacks that the text so far may have left

  /// The node below every stack: whoever returns to it has completed the root rule (or the rule that was begun with).
  static constexpr NodeId kBottom = 0;
  static constexpr StandingId kNowhere = 0;  ///< no stack: the text cannot go on

  struct Node {
    StateId state;
    std::uint32_t count;  ///< in a counted rule, complete repetitions
    SetId parents;        ///< nodes that go on when the rule of `state` is complete
  };
  struct Standing {
    std::vector<NodeId> tops;  ///< ascending; each has edges for bytes
    bool complete;             ///< the bottom is reached: the text may end here
    bool operator==(const Standing&) const = default;
  };

  explicit Stacks(const Grammar&);

  /// Before the first byte of the root rule.
  StandingId begin();
  /// At this state of a rule that was called from the bottom, and nowhere else.
  StandingId only_at(StateId, std::uint32_t count);
  /// Where the rules of these nodes go on, as if the rule above had just been completed.
  StandingId resume(SetId parents);
  StandingId step(StandingId, std::uint8_t byte);

  const Standing& standing(StandingId s) const { return standings_[s]; }
  const Node& node(NodeId n) const { return nodes_[n]; }
  std::span<const NodeId> set(SetId s) const { return sets_[s]; }
  std::size_t n_standings() const { return standings_.size(); }
  std::size_t n_nodes() const { return nodes_.size(); }

 private:
  struct Item {
    StateId state;
    std::uint32_t count;
    std::vector<NodeId> parents;  ///< ascending
    bool dirty;
  };

  void add(StateId, std::uint32_t count, std::span<const NodeId> parents);
  std::size_t item_of(StateId, std::uint32_t count);
  void go_on(std::span<const NodeId> nodes);
  void expand(std::size_t item);
  StandingId close();
  StandingId standing_id(std::vector<NodeId> tops, bool complete);
  bool may_consume(const Item&) const;
  NodeId node_id(StateId, std::uint32_t count, SetId parents);
  SetId set_id(std::span<const NodeId>);

  struct HashOfNode {
    std::size_t operator()(const Node& n) const {
      return static_cast<std::size_t>(mix(mix(mix(0, n.state), n.count), n.parents));
    }
  };
  struct SameNode {
    bool operator()(const Node& a, const Node& b) const {
      return a.state == b.state && a.count == b.count && a.parents == b.parents;
    }
  };

  const Grammar* grammar_;
  std::vector<Node> nodes_;
  std::unordered_map<Node, NodeId, HashOfNode, SameNode> node_ids_;
  std::deque<std::vector<NodeId>> sets_;  // a deque: spans of its members stay valid while it grows
  std::unordered_map<std::vector<NodeId>, SetId, HashOfVector> set_ids_;
  std::deque<Standing> standings_;
  std::unordered_map<std::vector<NodeId>, StandingId, HashOfVector> standing_ids_;  ///< tops, then complete
  // The standing that is being computed.
  std::vector<Item> items_;
  std::unordered_map<std::uint64_t, std::size_t> item_index_;  ///< of items_, once they are many
  std::vector<std::size_t> queue_;
  bool complete_ = false;
};

}  // namespace llm
