// Attention to the keys of a window and to compressed ones, in one softmax: the window's chunks first, as attention
// takes them, then the compressed keys in chunks of kKeyChunk, packed into the blocks that the kernels read, then the
// sink. Tiles of tokens that take compressed keys in the same order share what is packed; of tokens with choices of
// their own each packs for itself. Threads share the tiles and groups of heads.
#include <algorithm>
#include <numeric>
#include <string>

#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/row_packer.h"
#include "backend/cpu/step.h"

namespace llm::cpu {
namespace {

/// Of a thread: a packed chunk of keys and of their values, the states of a tile's heads.
struct CompressedSizes {
  std::size_t k_chunk, v_chunk, states;
  CompressedSizes(std::size_t k_block, std::size_t v_block, std::int64_t heads)
      : k_chunk(whole_lines(kPackedBlocks * k_block)),
        v_chunk(whole_lines(kPackedBlocks * v_block)),
        states(whole_lines(static_cast<std::size_t>(TileStates::floats(kTileTokens, heads)) * sizeof(float))) {}
  std::size_t bytes() const { return k_chunk + v_chunk + states; }
};

class CompressedAttentionInstruction final : public Instruction {
 public:
  explicit CompressedAttentionInstruction(const InstructionSite& site)
      : q_(site.in[0]),
        cache_(site.in[1]),
        compressed_(site.in[2]),
        sinks_(site.in[3]),
        chosen_(site.optional_in(4)),
        y_(site.out[0]),
        scratch_(site.scratch),
        stride_(site.in_info(2).cache.stride),
        keys_(CacheSide::Keys, site.cache.k, site.in_info(2).cache.head_dim_k, stride_),
        values_(CacheSide::Values, site.cache.k, site.in_info(2).cache.head_dim_k, stride_),
        heads_(static_cast<std::int32_t>(site.in_info(0).type.shape[1])),
        group_(task_heads(heads_)),
        sizes_(keys_.block_bytes(), values_.block_bytes(), group_),
        kernels_(site.kernels) {
    const CacheType& c = site.in_info(1).cache;
    const auto& op = std::get<CompressedAttention>(site.node.op);
    if (chosen_ != InstructionSite::kAbsent) top_k_ = site.in_info(4).type.shape[0];
    window_.heads = packed_.heads = heads_;
    window_.kv_heads = packed_.kv_heads = 1;
    window_.group = packed_.group = group_;
    window_.head_dim_k = packed_.head_dim_k = c.head_dim_k;
    window_.head_dim_v = packed_.head_dim_v = c.head_dim_v;
    window_.scale = packed_.scale = op.scale;
    window_.window = op.window;
    window_.k_element = packed_.k_element = packed_.v_element = cache_element(site.cache.k);
    window_.v_element = cache_element(site.cache.v);
    window_.k_block_bytes = CacheLayout(CacheSide::Keys, site.cache.k, c.head_dim_k).block_bytes();
    window_.v_block_bytes = CacheLayout(CacheSide::Values, site.cache.v, c.head_dim_v).block_bytes();
    packed_.k_block_bytes = keys_.block_bytes();
    packed_.v_block_bytes = values_.block_bytes();
    packed_.blocks = kPackedInOrder.data();
    type_ = std::string(name(site.cache.k)) + "/" + std::string(name(site.cache.v));
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    const auto taking_all = [this](const SequenceSpan& s) { return tokens_taking_all(s); };
    const AttentionTiles tiles(*f.step, heads_ / group_, taking_all);
    const std::int64_t tasks = tiles.count();
    for (std::int64_t task = queue.take(); task < tasks; task = queue.take()) attend(f, w, tiles.tile(task));
  }

  std::string describe() const override {
    return "attention to compressed keys, stride " + std::to_string(stride_) +
           (top_k_ > 0 ? ", " + std::to_string(top_k_) + " selected" : "") + " heads=" + std::to_string(heads_) +
           "/1 head_dim=" + std::to_string(window_.head_dim_k) + " cache " + type_;
  }

 private:
  std::int32_t first_head(const AttentionTile& tile) const { return static_cast<std::int32_t>(tile.group) * group_; }
  std::int64_t seen(const Frame& f, std::int64_t token) const {
    return (f.step->positions[static_cast<std::size_t>(token)] + std::int64_t{1}) / stride_;
  }
  /// Of a sequence, the first tokens, which take all that they see.
  std::int64_t tokens_taking_all(const SequenceSpan& s) const {
    if (top_k_ == 0) return s.n_tokens;
    const std::int64_t first_choice = (top_k_ + 1) * stride_ - 1;  // a position
    return std::clamp<std::int64_t>(first_choice - (s.kv_len - s.n_tokens), 0, s.n_tokens);
  }

  void attend(const Frame& f, const Worker& w, const AttentionTile& tile) const {
    std::byte* const packed = f.slots[scratch_].data + static_cast<std::size_t>(w.thread) * sizes_.bytes();
    const TileStates states(reinterpret_cast<float*>(packed + sizes_.k_chunk + sizes_.v_chunk), tile, group_);
    const AttentionArgs window = window_args(f, tile);
    const auto each_token = [&](const auto& fn) {
      states.for_each([&](std::int64_t t, float* own) { fn(static_cast<std::int32_t>(t), own); });
    };
    each_token([&](std::int32_t token, float* own) {
      const std::int32_t position = window.positions[token];
      for (std::int32_t c = window.window.first_key(position) / kKeyChunk; c <= position / kKeyChunk; ++c)
        kernels_.attention_add(window, 0, token, c, own, w.scratch);
    });
    const std::int64_t keys = count(f, tile.end - 1);
    for (std::int64_t first = 0; first < keys; first += kKeyChunk) {
      pack_chunk(f, w, tile, first, std::min<std::int64_t>(kKeyChunk, keys - first), packed);
      each_token([&](std::int32_t token, float* own) {
        const auto n = static_cast<std::int32_t>(std::min<std::int64_t>(count(f, token) - first, kKeyChunk));
        if (n <= 0) return;
        const std::int32_t last = n - 1;
        kernels_.attention_add(packed_args(f, token, first_head(tile), packed, &last), 0, 0, 0, own, w.scratch);
      });
    }
    each_token([&](std::int32_t token, const float* own) { kernels_.attention_finish(window, 0, token, own); });
  }

  /// Compressed keys that a token takes.
  std::int64_t count(const Frame& f, std::int64_t token) const {
    return top_k_ > 0 ? std::min(top_k_, seen(f, token)) : seen(f, token);
  }

  void pack_chunk(const Frame& f, const Worker& w, const AttentionTile& tile, std::int64_t first, std::int64_t n,
                  std::byte* packed) const {
    const StateGroup& state = f.step->groups[0];
    const std::int32_t* const table = state.block_table.data() + tile.sequence * static_cast<std::size_t>(state.stride);
    std::int32_t numbers[kKeyChunk];
    if (top_k_ > 0)
      std::copy_n(f.i32(chosen_) + (tile.end - 1) * top_k_ + first, n, numbers);
    else
      std::iota(numbers, numbers + n, static_cast<std::int32_t>(first));
    for (std::int64_t at = 0; at < n; at += kKeyBlock) {
      const auto in_block = static_cast<std::int32_t>(std::min<std::int64_t>(kKeyBlock, n - at));
      const auto block = static_cast<std::size_t>(at / kKeyBlock);
      keys_.pack(f.slots[compressed_].data, 1, 0, table, numbers + at, in_block, packed + block * keys_.block_bytes(),
                 w.scratch);
      values_.pack(f.slots[compressed_].data, 1, 0, table, numbers + at, in_block,
                   packed + sizes_.k_chunk + block * values_.block_bytes(), w.scratch);
    }
  }

  AttentionArgs window_args(const Frame& f, const AttentionTile& tile) const {
    AttentionArgs a = window_;
    const StateGroup& state = f.step->groups[0];
    a.q = f.f32(q_) + std::int64_t{first_head(tile)} * a.head_dim_k;
    a.y = f.f32(y_) + std::int64_t{first_head(tile)} * a.head_dim_v;
    a.sinks = f.f32(sinks_) + first_head(tile);
    a.k = f.slots[cache_].data;
    a.v = f.slots[cache_].values;
    a.positions = f.step->positions.data();
    a.blocks = state.block_table.data() + tile.sequence * static_cast<std::size_t>(state.stride);
    return a;
  }
  /// To the packed keys up to the one at `*last`.
  AttentionArgs packed_args(const Frame& f, std::int64_t token, std::int32_t head, const std::byte* packed,
                            const std::int32_t* last) const {
    AttentionArgs a = packed_;
    const std::int64_t row = token * a.heads + head;
    a.q = f.f32(q_) + row * a.head_dim_k;
    a.y = f.f32(y_) + row * a.head_dim_v;
    a.k = packed;
    a.v = packed + sizes_.k_chunk;
    a.positions = last;
    return a;
  }

  int q_, cache_, compressed_, sinks_, chosen_, y_, scratch_;
  std::int32_t stride_;
  RowPacker keys_, values_;  ///< both of the keys
  std::int32_t heads_, group_;
  std::int64_t top_k_ = 0;  ///< 0: all
  CompressedSizes sizes_;
  const Kernels& kernels_;
  AttentionArgs window_, packed_;
  std::string type_;
  TaskQueues queues_;
};

}  // namespace

/// The cache's types are not known here: rows are at most f32.
std::size_t compressed_attention_scratch_bytes(const Graph& g, const Node& n, int threads) {
  const auto row = static_cast<std::size_t>(g.info(n.in[2]).cache.head_dim_k) * sizeof(float);
  const auto heads = static_cast<std::int32_t>(g.info(n.in[0]).type.shape[1]);
  const CompressedSizes sizes(kKeyBlock * row, kKeyBlock * row, task_heads(heads));
  return static_cast<std::size_t>(threads) * sizes.bytes();
}

std::unique_ptr<Instruction> make_compressed_attention(const InstructionSite& site) {
  return std::make_unique<CompressedAttentionInstruction>(site);
}

}  // namespace llm::cpu
