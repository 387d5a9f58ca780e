#include "text/token_trie.h"

#include <algorithm>

namespace llm {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, Token>> texts) {
  std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Nodes level by level: those of a node's strings are a range of the sorted list.
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, texts.size(), 0}};
  nodes_.push_back({0, 0, kNoToken});
  labels_.push_back(0);
  for (std::size_t node = 0; node < ranges.size(); ++node) {
    auto [at, end, depth] = ranges[node];
    for (; at < end && texts[at].first.size() == depth; ++at) {
      if (nodes_[node].token == kNoToken && depth > 0) nodes_[node].token = texts[at].second;
    }
    nodes_[node].begin = static_cast<Node>(nodes_.size());
    while (at < end) {
      const auto label = static_cast<std::uint8_t>(texts[at].first[depth]);
      std::size_t next = at;
      while (next < end && static_cast<std::uint8_t>(texts[next].first[depth]) == label) ++next;
      ranges.push_back({at, next, depth + 1});
      nodes_.push_back({0, 0, kNoToken});
      labels_.push_back(label);
      ++nodes_[node].count;
      at = next;
    }
  }
  std::fill(std::begin(first_), std::end(first_), kNone);
  for (Node child = nodes_[kRoot].begin; child < nodes_[kRoot].begin + nodes_[kRoot].count; ++child) {
    first_[labels_[child]] = child;
  }
}

}  // namespace llm
