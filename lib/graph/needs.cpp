#include "graph/needs.h"

#include <algorithm>
#include <limits>

namespace llm {

std::vector<std::int32_t> needed_from(const Graph& g) {
  constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> read(g.values().size(), kNever), needed(g.nodes().size(), 0);
  for (const std::uint32_t v : g.outputs()) read[v] = 0;
  for (std::size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.nodes()[i];
    const bool remembers = std::ranges::any_of(n.in, [&](std::uint32_t v) { return outlives_step(g.info(v).kind); });
    std::int32_t from = remembers ? 0 : kNever;
    for (const std::uint32_t v : n.out) from = std::min(from, read[v]);
    needed[i] = from == kNever ? 0 : from;
    std::int64_t chooses = needed[i];
    if (const auto* keys = std::get_if<SelectKeys>(&n.op)) chooses = chooses_from(*keys, g.info(n.in.back()).cache);
    if (const auto* blocks = std::get_if<SelectBlocks>(&n.op)) chooses = blocks->top_k;
    const auto wanted = static_cast<std::int32_t>(std::min<std::int64_t>(chooses, kNever));
    for (const std::uint32_t v : n.in) read[v] = std::min(read[v], wanted);
  }
  return needed;
}

}  // namespace llm
