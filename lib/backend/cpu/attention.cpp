// Attention over the paged cache: tiles of query tokens share the reading of a KV head; a single token over a long
// cache is split by chunks of keys instead. Both give the same bits (kernels.h), so the choice is one of speed alone.
#include <algorithm>
#include <vector>

#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/cache_layout.h"
#include "backend/cpu/step.h"
#include "base/error.h"

namespace llm::cpu {
namespace {

static_assert(kBlockPositions == kKeyBlock, "the kernels' block of keys is the cache's");

/// Chunks of one token that can be computed apart, 262,144 positions; and of all sequences and KV heads of a step.
constexpr std::int32_t kMaxSplitChunks = 1024;
constexpr std::int64_t kMostPartials = 8192;
/// Below this many (sequence, group) pairs per thread a step of single tokens is split by chunks.
constexpr std::int32_t kPairsPerThread = 4;

/// Floats that a chunk of keys leaves for a group.
std::int64_t partial_floats(std::int64_t group, std::int64_t head_dim_v) { return group * (2 + head_dim_v); }

class AttentionInstruction final : public Instruction {
 public:
  explicit AttentionInstruction(const InstructionSite& site)
      : q_(site.in[0]), cache_(site.in[1]), sinks_(site.optional_in(2)), y_(site.out[0]), scratch_(site.scratch) {
    const CacheType& c = site.in_info(1).cache;
    const auto& op = std::get<Attention>(site.node.op);
    args_.heads = static_cast<std::int32_t>(site.in_info(0).type.shape[1]);
    args_.kv_heads = c.kv_heads;
    args_.head_dim_k = c.head_dim_k;
    args_.head_dim_v = c.head_dim_v;
    args_.scale = op.scale;
    args_.soft_cap = op.soft_cap;
    for (int h = 0; op.max_bias > 0 && h < args_.heads; ++h)
      slopes_.push_back(alibi_slope(op.max_bias, args_.heads, h));
    args_.window = op.window;
    args_.k_element = cache_element(site.cache.k);
    args_.v_element = cache_element(site.cache.v);
    args_.k_block_bytes = CacheLayout(CacheSide::Keys, site.cache.k, c.head_dim_k).block_bytes();
    args_.v_block_bytes = CacheLayout(CacheSide::Values, site.cache.v, c.head_dim_v).block_bytes();
    tile_fn_ = site.kernels.attention;
    chunk_fn_ = site.kernels.attention_chunk;
    merge_fn_ = site.kernels.attention_merge;
    type_ = std::string(name(site.cache.k)) + "/" + std::string(name(site.cache.v));
    args_.group = task_heads(args_.heads / args_.kv_heads);
    groups_ = args_.heads / args_.group;
    tile_tokens_ = std::max(1, kQueryTile / args_.group);
    partial_floats_ = partial_floats(args_.group, c.head_dim_v);
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    const bool split = splits(*f.step, w.n_threads);
    const std::int64_t tasks = count(*f.step, split);
    for (std::int64_t task = queue.take(); task < tasks; task = queue.take()) run_task(f, w, task, split);
    if (!split) return;
    w.sync();
    const auto [begin, end] = w.share(static_cast<std::int64_t>(f.step->sequences.size()) * groups_);
    for (std::int64_t pair = begin; pair < end; ++pair) merge(f, pair);
  }

  std::string describe() const override {
    return "attention heads=" + std::to_string(args_.heads) + "/" + std::to_string(args_.kv_heads) +
           " head_dim=" + std::to_string(args_.head_dim_k) + " cache " + type_ + ", tiles of " +
           std::to_string(tile_tokens_) + " tokens" + (args_.soft_cap > 0 ? ", capped" : "") +
           (slopes_.empty() ? "" : ", ALiBi") + (sinks_ != InstructionSite::kAbsent ? ", sinks" : "");
  }

 private:
  std::int32_t first_chunk(const SequenceSpan& s, const StepData& d) const {
    return args_.window.first_key(d.positions[static_cast<std::size_t>(s.first_token)]) / kKeyChunk;
  }
  std::int32_t chunks(const SequenceSpan& s, const StepData& d) const {
    const std::int32_t last = d.positions[static_cast<std::size_t>(s.first_token + s.n_tokens - 1)] / kKeyChunk;
    return last - first_chunk(s, d) + 1;
  }

  bool splits(const StepData& d, int threads) const {
    if (threads == 1 || static_cast<std::int64_t>(d.sequences.size()) * groups_ >= kPairsPerThread * threads)
      return false;
    bool any = false;
    for (const SequenceSpan& s : d.sequences) {
      if (s.n_tokens != 1 || chunks(s, d) > kMaxSplitChunks) return false;
      any = any || chunks(s, d) > 1;
    }
    return any && count(d, true) <= kMostPartials;
  }

  std::int64_t tasks_of(const SequenceSpan& s, const StepData& d, bool split) const {
    const std::int64_t parts = split ? chunks(s, d) : (s.n_tokens + tile_tokens_ - 1) / tile_tokens_;
    return parts * groups_;
  }
  std::int64_t count(const StepData& d, bool split) const {
    std::int64_t n = 0;
    for (const SequenceSpan& s : d.sequences) n += tasks_of(s, d, split);
    return n;
  }

  /// Query heads from the group's first on.
  AttentionArgs args_for(const Frame& f, std::size_t sequence, std::int32_t group) const {
    AttentionArgs a = args_;
    const std::int64_t heads = std::int64_t{group % (groups_ / a.kv_heads)} * a.group;
    const StateGroup& state = f.step->groups[0];
    a.q = f.f32(q_) + heads * a.head_dim_k;
    a.y = f.f32(y_) + heads * a.head_dim_v;
    if (sinks_ != InstructionSite::kAbsent) a.sinks = f.f32(sinks_) + heads;
    if (!slopes_.empty()) a.slopes = slopes_.data() + heads;
    a.k = f.slots[cache_].data;
    a.v = f.slots[cache_].values;
    a.positions = f.step->positions.data();
    a.blocks = state.block_table.data() + sequence * static_cast<std::size_t>(state.stride);
    return a;
  }

  std::int32_t kv_head(std::int32_t group) const { return group / (groups_ / args_.kv_heads); }

  void run_task(const Frame& f, const Worker& w, std::int64_t task, bool split) const {
    std::size_t sequence = 0;
    std::int64_t before = 0;
    for (std::int64_t n; task >= (n = tasks_of(f.step->sequences[sequence], *f.step, split)); ++sequence) {
      task -= n;
      before += n;
    }
    const SequenceSpan& s = f.step->sequences[sequence];
    const auto group = static_cast<std::int32_t>(task % groups_);
    auto part = static_cast<std::int32_t>(task / groups_);
    const AttentionArgs a = args_for(f, sequence, group);
    if (split) {
      float* partial = partials(f, before + std::int64_t{group} * chunks(s, *f.step) + part);
      chunk_fn_(a, kv_head(group), s.first_token, first_chunk(s, *f.step) + part, partial, w.scratch);
      return;
    }
    part = (s.n_tokens + tile_tokens_ - 1) / tile_tokens_ - 1 - part;  // the longest first
    const std::int32_t begin = s.first_token + part * tile_tokens_;
    tile_fn_(a, kv_head(group), begin, std::min(begin + tile_tokens_, s.first_token + s.n_tokens), w.scratch);
  }

  /// From the n-th on: [sequence][group][chunk].
  float* partials(const Frame& f, std::int64_t n) const {
    return reinterpret_cast<float*>(f.slots[scratch_].data) + n * partial_floats_;
  }

  void merge(const Frame& f, std::int64_t pair) const {
    const auto sequence = static_cast<std::size_t>(pair / groups_);
    const auto group = static_cast<std::int32_t>(pair % groups_);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < sequence; ++i) before += tasks_of(f.step->sequences[i], *f.step, true);
    const SequenceSpan& s = f.step->sequences[sequence];
    const std::int32_t n = chunks(s, *f.step);
    merge_fn_(args_for(f, sequence, group), kv_head(group), s.first_token, n,
              partials(f, before + std::int64_t{group} * n));
  }

  int q_, cache_, sinks_, y_, scratch_;
  AttentionArgs args_;
  std::vector<float> slopes_;  ///< of the heads, with ALiBi
  AttentionFn tile_fn_;
  AttentionChunkFn chunk_fn_;
  AttentionMergeFn merge_fn_;
  std::string type_;
  std::int32_t groups_ = 1, tile_tokens_ = 1;  ///< groups_: of all KV heads
  std::int64_t partial_floats_ = 0;
  TaskQueues queues_;
};

}  // namespace

std::size_t attention_scratch_bytes(const Graph& g, const Node& n, int threads) {
  const CacheType& c = g.info(n.in[1]).cache;
  const auto heads = static_cast<std::int32_t>(g.info(n.in[0]).type.shape[1]);
  const std::int32_t group = task_heads(heads / c.kv_heads);
  const std::int64_t floats = partial_floats(group, c.head_dim_v);
  const std::int64_t pairs = std::min(kPairsPerThread * threads, g.bucket().sequences * (heads / group));
  return static_cast<std::size_t>(std::min(pairs * kMaxSplitChunks, kMostPartials) * floats) * sizeof(float);
}

std::unique_ptr<Instruction> make_attention(const InstructionSite& site) {
  return std::make_unique<AttentionInstruction>(site);
}

}  // namespace llm::cpu
