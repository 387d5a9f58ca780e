#include "backend/cuda/fusions.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "backend/cuda/kernels/rope_append.h"

namespace llm::cuda {
namespace {

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), readers_(g.values().size(), 0), maker_(g.values().size()) {
    for (std::size_t i = 0; i < g.nodes().size(); ++i) {
      for (const std::uint32_t v : g.nodes()[i].in) ++readers_[v];
      for (const std::uint32_t v : g.nodes()[i].out) maker_[v] = i;
    }
    for (const std::uint32_t v : g.outputs()) ++readers_[v];
  }

  std::optional<RopeAppendNodes> rope_append(std::size_t append) const {
    const Node& node = g_.nodes()[append];
    const auto rope_k = rope_that_makes(node.in[0]);
    if (!rope_k || readers_[node.in[0]] != 1) return std::nullopt;
    // The queries' rope stands before the keys'; values that die at either keep their bytes up to the append only if
    // nothing between takes them.
    for (std::size_t i = append; i-- > 0;) {
      const Node& other = g_.nodes()[i];
      if (i == *rope_k || std::holds_alternative<Reshape>(other.op)) continue;
      if (!std::holds_alternative<Rope>(other.op) || !same_rotation(i, *rope_k) || i > *rope_k) return std::nullopt;
      return RopeAppendNodes{i, *rope_k, append};
    }
    return std::nullopt;
  }

 private:
  std::optional<std::size_t> rope_that_makes(std::uint32_t value) const {
    const auto& node = maker_[value];
    return node && std::holds_alternative<Rope>(g_.nodes()[*node].op) ? node : std::nullopt;
  }
  bool same_rotation(std::size_t a, std::size_t b) const {
    const Node &x = g_.nodes()[a], &y = g_.nodes()[b];
    return std::get<Rope>(x.op) == std::get<Rope>(y.op) && x.in[1] == y.in[1];
  }

  const Graph& g_;
  std::vector<int> readers_;
  std::vector<std::optional<std::size_t>> maker_;
};

}  // namespace

std::vector<RopeAppendNodes> find_rope_appends(const Graph& g, CacheFormat format) {
  std::vector<RopeAppendNodes> found;
  if (!appends_with_rope(format.k, format.v)) return found;
  const Finder finder(g);
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    if (!std::holds_alternative<KvAppend>(g.nodes()[i].op)) continue;
    if (const auto match = finder.rope_append(i)) found.push_back(*match);
  }
  return found;
}

}  // namespace llm::cuda
