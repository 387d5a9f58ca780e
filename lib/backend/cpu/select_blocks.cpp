// Which blocks of keys the heads of a token are to attend to. Threads share the pairs of a token and a head. What a key
// is worth comes from the kernel that weighs scores above 0: of a query and its opposite, one of the two is.
#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <string>

#include "backend/cpu/best_keys.h"
#include "backend/cpu/cache_layout.h"
#include "backend/cpu/step.h"

namespace llm::cpu {
namespace {

constexpr float kBothSigns[] = {1, -1};

std::size_t ranks_bytes(const SelectBlocks& op) {
  return static_cast<std::size_t>(BestKeys::room(op.top_k / op.block)) * sizeof(std::uint64_t);
}
/// Of a thread: a list, behind it a query and its opposite.
std::size_t selecting_bytes(const SelectBlocks& op, std::int64_t head_dim) {
  const std::size_t queries = 2 * static_cast<std::size_t>(head_dim) * sizeof(float);
  return (ranks_bytes(op) + queries + 63) / 64 * 64;
}

class SelectBlocksInstruction final : public Instruction {
 public:
  explicit SelectBlocksInstruction(const InstructionSite& site)
      : q_(site.in[0]),
        index_(site.in[1]),
        positions_(site.out[0]),
        scratch_(site.scratch),
        op_(std::get<SelectBlocks>(site.node.op)),
        heads_(site.in_info(0).type.shape[1]),
        score_(site.kernels.index_scores) {
    const CacheType& c = site.in_info(1).cache;
    args_.k_element = cache_element(site.cache.k);
    args_.k_block_bytes = CacheLayout(CacheSide::Keys, site.cache.k, c.head_dim_k).block_bytes();
    args_.heads = 2;
    args_.kv_heads = 1;
    args_.head_dim_k = c.head_dim_k;
    args_.scale = 1;
    type_ = std::string(name(site.cache.k));
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    for (std::int64_t pair = queue.take(); pair < f.rows.tokens * heads_; pair = queue.take()) {
      const std::int32_t seen = f.step->positions[static_cast<std::size_t>(pair / heads_)] + 1;
      const std::span to(f.i32(positions_) + pair * op_.top_k, static_cast<std::size_t>(op_.top_k));
      if (seen > op_.top_k)
        write(find(f, w, pair, seen), seen, to);
      else
        write_all(seen, to);
    }
  }

  std::string describe() const override {
    return "select_blocks top_k=" + std::to_string(op_.top_k) + " block=" + std::to_string(op_.block) +
           " heads=" + std::to_string(heads_) + " index " + type_;
  }

 private:
  /// The best blocks of a token and a head, which sees the first `seen` keys.
  std::span<std::uint64_t> find(const Frame& f, const Worker& w, std::int64_t pair, std::int32_t seen) const {
    const std::int64_t token = pair / heads_, dim = args_.head_dim_k;
    std::byte* const memory = f.slots[scratch_].data + static_cast<std::size_t>(w.thread) * selecting_bytes(op_, dim);
    float* const queries = reinterpret_cast<float*>(memory + ranks_bytes(op_));
    const float* const q = f.f32(q_) + pair * dim;
    std::copy_n(q, dim, queries);
    std::transform(q, q + dim, queries + dim, [](float x) { return -x; });
    const StateGroup& state = f.step->groups[0];
    const std::int32_t position = seen - 1;
    AttentionArgs a = args_;
    a.q = queries;
    a.k = f.slots[index_].data;
    a.positions = &position;
    a.blocks = state.block_table.data() + sequence_of(f, token) * static_cast<std::size_t>(state.stride);
    BestKeys best(reinterpret_cast<std::uint64_t*>(memory), op_.top_k / op_.block);
    const std::int32_t blocks = (seen + op_.block - 1) / op_.block;
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    float scores[kKeyChunk], greatest = kNone;
    for (std::int32_t key = 0; key < seen; ++key) {
      if (key % kKeyChunk == 0) score_(a, kBothSigns, 0, key / kKeyChunk, scores, w.scratch);
      if (scores[key % kKeyChunk] > greatest) greatest = scores[key % kKeyChunk];  // never NaN
      if ((key + 1) % op_.block != 0 && key + 1 < seen) continue;
      const std::int32_t place = key / op_.block;
      if (place + op_.local >= blocks) greatest = std::numeric_limits<float>::infinity();
      best.add(std::span<const float>(&greatest, 1), place);
      greatest = kNone;
    }
    return best.best();
  }

  void write(std::span<std::uint64_t> blocks, std::int32_t seen, std::span<std::int32_t> positions) const {
    std::ranges::sort(blocks, {}, place_of);
    auto to = positions.begin();
    for (const std::uint64_t block : blocks) {
      const std::int32_t first = place_of(block) * op_.block, n = std::min(op_.block, seen - first);
      std::iota(to, to + n, first);
      to += n;
    }
    std::fill(to, positions.end(), -1);
  }
  static void write_all(std::int32_t seen, std::span<std::int32_t> positions) {
    std::iota(positions.begin(), positions.begin() + seen, 0);
    std::fill(positions.begin() + seen, positions.end(), -1);
  }

  int q_, index_, positions_, scratch_;
  SelectBlocks op_;
  std::int64_t heads_;
  IndexScoresFn score_;
  AttentionArgs args_;
  std::string type_;
  TaskQueues queues_;
};

}  // namespace

std::size_t select_blocks_scratch_bytes(const Graph& g, const Node& n, int threads) {
  return static_cast<std::size_t>(threads) *
         selecting_bytes(std::get<SelectBlocks>(n.op), g.info(n.in[1]).cache.head_dim_k);
}

std::unique_ptr<Instruction> make_select_blocks(const InstructionSite& site) {
  return std::make_unique<SelectBlocksInstruction>(site);
}

}  // namespace llm::cpu
