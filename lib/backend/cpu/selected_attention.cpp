// Attention to selected keys: their rows, which lie apart in the cache, are packed into the blocks that the kernels of
// attention read, a chunk of kKeyChunk selected keys at a time. A token that sees no more keys than are selected has
// the bits of attention to all of them. Tiles of such tokens share what is packed; of few tokens threads share the
// chunks or, where these are too few, the packing and then the heads.
#include <algorithm>

#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/row_packer.h"
#include "backend/cpu/step.h"

namespace llm::cpu {
namespace {

/// Tokens of a step whose packed keys are kept at once.
constexpr std::int64_t kKeptTokens = 4;
/// Sizes that the instruction and its scratch memory go by.
struct SelectedSizes {
  std::int32_t heads, kv_heads, group, task_group;  ///< group: query heads of a KV head
  std::int64_t top_k, chunks, selections;           ///< selections: of a token
  std::size_t k_chunk, v_chunk;                     ///< bytes of a packed chunk
  std::int64_t partial_floats;                      ///< of a chunk and a task's heads

  SelectedSizes(const Graph& g, const Node& n, std::size_t k_block, std::size_t v_block) {
    const CacheType& c = g.info(n.in[1]).cache;
    heads = static_cast<std::int32_t>(g.info(n.in[0]).type.shape[1]);
    kv_heads = c.kv_heads;
    group = heads / kv_heads;
    task_group = task_heads(group);
    top_k = g.info(n.in[2]).type.shape[0];
    selections = selections_of(g.info(n.in[2]).type.shape);
    chunks = (top_k + kKeyChunk - 1) / kKeyChunk;
    k_chunk = whole_lines(kPackedBlocks * k_block);
    v_chunk = whole_lines(kPackedBlocks * v_block);
    partial_floats = std::int64_t{task_group} * (2 + c.head_dim_v);
  }
  std::size_t chunk_bytes() const { return k_chunk + v_chunk; }
  /// Of a thread that works alone: a packed chunk, the states of a tile's heads.
  std::size_t thread_bytes() const {
    return chunk_bytes() +
           whole_lines(static_cast<std::size_t>(TileStates::floats(kTileTokens, group)) * sizeof(float));
  }
  /// Of a token and a KV head whose parts threads share.
  std::size_t packed_bytes() const { return static_cast<std::size_t>(chunks) * chunk_bytes(); }
  std::size_t partial_bytes() const {
    const std::int64_t floats = group / task_group * chunks * partial_floats;
    return whole_lines(static_cast<std::size_t>(floats) * sizeof(float));
  }
  std::size_t shared_bytes() const { return packed_bytes() + partial_bytes(); }
};

class SelectedAttention final : public Instruction {
 public:
  explicit SelectedAttention(const InstructionSite& site)
      : q_(site.in[0]),
        cache_(site.in[1]),
        selected_(site.in[2]),
        y_(site.out[0]),
        scratch_(site.scratch),
        keys_(CacheSide::Keys, site.cache.k, site.in_info(1).cache.head_dim_k),
        values_(CacheSide::Values, site.cache.v, site.in_info(1).cache.head_dim_v),
        sizes_(site.graph, site.node, keys_.block_bytes(), values_.block_bytes()),
        kernels_(site.kernels) {
    const CacheType& c = site.in_info(1).cache;
    const auto& op = std::get<Attention>(site.node.op);
    args_.heads = sizes_.heads;
    args_.kv_heads = 1;  // one is packed
    args_.head_dim_k = c.head_dim_k;
    args_.head_dim_v = c.head_dim_v;
    args_.scale = op.scale;
    args_.soft_cap = op.soft_cap;
    args_.k_element = cache_element(site.cache.k);
    args_.v_element = cache_element(site.cache.v);
    args_.k_block_bytes = keys_.block_bytes();
    args_.v_block_bytes = values_.block_bytes();
    args_.blocks = kPackedInOrder.data();
    type_ = std::string(name(site.cache.k)) + "/" + std::string(name(site.cache.v));
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    if (w.n_threads > 1 && f.rows.tokens <= kKeptTokens) return run_together(f, w);
    const auto seeing_all = [this](const SequenceSpan& s) { return tokens_seeing_all(s); };
    const AttentionTiles tiles(*f.step, sizes_.kv_heads, seeing_all);
    const std::int64_t tasks = tiles.count();
    for (std::int64_t task = queue.take(); task < tasks; task = queue.take()) attend(f, w, tiles.tile(task));
  }

  std::string describe() const override {
    return "attention of " + std::to_string(sizes_.top_k) + " selected heads=" + std::to_string(args_.heads) + "/" +
           std::to_string(sizes_.kv_heads) + " head_dim=" + std::to_string(args_.head_dim_k) + " cache " + type_;
  }

 private:
  /// Keys of one token or of a tile, in ascending order.
  struct KeyList {
    const std::int32_t* positions;
    std::int64_t n;
    std::int64_t chunks() const { return (n + kKeyChunk - 1) / kKeyChunk; }
    std::int32_t in_chunk(std::int64_t chunk) const {
      return static_cast<std::int32_t>(std::min<std::int64_t>(kKeyChunk, n - chunk * kKeyChunk));
    }
  };
  KeyList keys_of(const Frame& f, std::int64_t token, std::int32_t kv_head) const {
    const std::int64_t seen = f.step->positions[static_cast<std::size_t>(token)] + std::int64_t{1};
    const std::int64_t own = token * sizes_.selections + (sizes_.selections > 1 ? kv_head : 0);
    const std::int32_t* const positions = f.i32(selected_) + own * sizes_.top_k;
    std::int64_t n = std::min(seen, sizes_.top_k);
    while (positions[n - 1] < 0) --n;  // few: keys that are chosen together are not always as many as they may be
    return {positions, n};
  }
  static const std::int32_t* table_of(const Frame& f, std::size_t sequence) {
    const StateGroup& state = f.step->groups[0];
    return state.block_table.data() + sequence * static_cast<std::size_t>(state.stride);
  }

  /// One block of a chunk of keys and of their values.
  void pack_block(const Frame& f, const Worker& w, const std::int32_t* table, std::int32_t kv_head, const KeyList& list,
                  std::int64_t chunk, std::int32_t block, std::byte* packed) const {
    const std::int32_t n = std::min(kKeyBlock, list.in_chunk(chunk) - block * kKeyBlock);
    if (n <= 0) return;
    const std::int32_t* const positions = list.positions + chunk * kKeyChunk + block * kKeyBlock;
    const auto b = static_cast<std::size_t>(block);
    keys_.pack(f.slots[cache_].data, sizes_.kv_heads, kv_head, table, positions, n, packed + b * keys_.block_bytes(),
               w.scratch);
    values_.pack(f.slots[cache_].values, sizes_.kv_heads, kv_head, table, positions, n,
                 packed + sizes_.k_chunk + b * values_.block_bytes(), w.scratch);
  }

  /// Of some heads of a token, from `head` on, to the packed keys up to the one at `*last`.
  AttentionArgs args_for(const Frame& f, std::int64_t token, std::int32_t head, std::int32_t heads,
                         const std::byte* packed, const std::int32_t* last) const {
    AttentionArgs a = args_;
    const std::int64_t row = token * a.heads + head;
    a.group = heads;
    a.q = f.f32(q_) + row * a.head_dim_k;
    a.y = f.f32(y_) + row * a.head_dim_v;
    a.k = packed;
    a.v = packed + sizes_.k_chunk;
    a.positions = last;
    return a;
  }

  // --- tiles: each by one thread ---

  /// Of a sequence, the first ones; of any other a tile has one.
  std::int64_t tokens_seeing_all(const SequenceSpan& s) const {
    return std::clamp<std::int64_t>(sizes_.top_k - (s.kv_len - s.n_tokens), 0, s.n_tokens);
  }

  /// The last token's keys are those of the others, too, as far as these see.
  void attend(const Frame& f, const Worker& w, const AttentionTile& tile) const {
    std::byte* const packed = f.slots[scratch_].data + static_cast<std::size_t>(w.thread) * sizes_.thread_bytes();
    const TileStates states(reinterpret_cast<float*>(packed + sizes_.chunk_bytes()), tile, sizes_.group);
    const auto kv_head = static_cast<std::int32_t>(tile.group);
    const KeyList list = keys_of(f, tile.end - 1, kv_head);
    const std::int32_t head = kv_head * sizes_.group;
    for (std::int64_t chunk = 0; chunk < list.chunks(); ++chunk) {
      for (std::int32_t block = 0; block < kPackedBlocks; ++block)
        pack_block(f, w, table_of(f, tile.sequence), kv_head, list, chunk, block, packed);
      states.for_each([&](std::int64_t token, float* own) {
        const std::int64_t seen = keys_of(f, token, kv_head).n - chunk * kKeyChunk;
        if (seen <= 0) return;
        const auto last = static_cast<std::int32_t>(std::min<std::int64_t>(seen, kKeyChunk) - 1);
        kernels_.attention_add(args_for(f, token, head, sizes_.group, packed, &last), 0, 0, 0, own, w.scratch);
      });
    }
    const std::int32_t none = 0;
    states.for_each([&](std::int64_t token, const float* own) {
      kernels_.attention_finish(args_for(f, token, head, sizes_.group, packed, &none), 0, 0, own);
    });
  }

  // --- few tokens: the parts of each by several threads ---

  /// A token and a KV head.
  struct Pair {
    std::int64_t number, token;
    std::size_t sequence;
    std::int32_t kv_head;
  };
  Pair pair(const Frame& f, std::int64_t number) const {
    const std::int64_t token = number / sizes_.kv_heads;
    return {number, token, sequence_of(f, token), static_cast<std::int32_t>(number % sizes_.kv_heads)};
  }
  std::byte* shared(const Frame& f, const Pair& p) const {
    return f.slots[scratch_].data + static_cast<std::size_t>(p.number) * sizes_.shared_bytes();
  }
  float* partials(const Frame& f, const Pair& p, std::int64_t heads) const {
    return reinterpret_cast<float*>(shared(f, p) + sizes_.packed_bytes()) +
           heads * sizes_.chunks * sizes_.partial_floats;
  }

  std::byte* packed_chunk(const Frame& f, const Pair& p, std::int64_t chunk) const {
    return shared(f, p) + static_cast<std::size_t>(chunk) * sizes_.chunk_bytes();
  }
  void pack_block(const Frame& f, const Worker& w, const Pair& p, std::int64_t chunk, std::int32_t block,
                  std::byte* packed) const {
    pack_block(f, w, table_of(f, p.sequence), p.kv_head, keys_of(f, p.token, p.kv_head), chunk, block, packed);
  }
  /// A chunk's part in the results of a task's heads.
  void attend_part(const Frame& f, const Worker& w, const Pair& p, std::int64_t chunk, std::int64_t part,
                   const std::byte* packed) const {
    const std::int32_t last = keys_of(f, p.token, p.kv_head).in_chunk(chunk) - 1;
    if (last < 0) return;
    kernels_.attention_chunk(task_args(f, p, part, packed, &last), 0, 0, 0,
                             partials(f, p, part) + chunk * sizes_.partial_floats, w.scratch);
  }
  std::int64_t parts() const { return sizes_.group / sizes_.task_group; }

  void run_together(const Frame& f, const Worker& w) const {
    const std::int64_t pairs = f.rows.tokens * sizes_.kv_heads;
    if (pairs * sizes_.chunks >= w.n_threads)
      take_chunks(f, w, pairs);
    else
      share_chunks(f, w, pairs);
    w.sync();
    const auto [begin, end] = w.share(pairs * parts());
    for (std::int64_t i = begin; i < end; ++i) {
      const Pair p = pair(f, i / parts());
      const std::int32_t none = 0;
      kernels_.attention_merge(task_args(f, p, i % parts(), shared(f, p), &none), 0, 0,
                               static_cast<std::int32_t>(keys_of(f, p.token, p.kv_head).chunks()),
                               partials(f, p, i % parts()));
    }
  }

  /// Each thread takes whole chunks, which it packs in one place, so that they stay in its cache.
  void take_chunks(const Frame& f, const Worker& w, std::int64_t pairs) const {
    std::byte* const packed = packed_chunk(f, pair(f, w.thread / sizes_.chunks), w.thread % sizes_.chunks);
    for (std::int64_t i = w.thread; i < pairs * sizes_.chunks; i += w.n_threads) {
      const Pair p = pair(f, i / sizes_.chunks);
      const std::int64_t chunk = i % sizes_.chunks;
      for (std::int32_t block = 0; block < kPackedBlocks; ++block) pack_block(f, w, p, chunk, block, packed);
      for (std::int64_t part = 0; part < parts(); ++part) attend_part(f, w, p, chunk, part, packed);
    }
  }

  /// All threads pack, then share the heads.
  void share_chunks(const Frame& f, const Worker& w, std::int64_t pairs) const {
    const auto share = [&](std::int64_t of_chunk, const auto& fn) {
      const auto [begin, end] = w.share(pairs * sizes_.chunks * of_chunk);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t chunk = i / of_chunk;
        fn(pair(f, chunk / sizes_.chunks), chunk % sizes_.chunks, i % of_chunk);
      }
    };
    share(kPackedBlocks, [&](const Pair& p, std::int64_t chunk, std::int64_t block) {
      pack_block(f, w, p, chunk, static_cast<std::int32_t>(block), packed_chunk(f, p, chunk));
    });
    w.sync();
    share(parts(), [&](const Pair& p, std::int64_t chunk, std::int64_t part) {
      attend_part(f, w, p, chunk, part, packed_chunk(f, p, chunk));
    });
  }
  AttentionArgs task_args(const Frame& f, const Pair& p, std::int64_t part, const std::byte* packed,
                          const std::int32_t* last) const {
    const auto head = static_cast<std::int32_t>(p.kv_head * sizes_.group + part * sizes_.task_group);
    return args_for(f, p.token, head, sizes_.task_group, packed, last);
  }

  int q_, cache_, selected_, y_, scratch_;
  RowPacker keys_, values_;
  SelectedSizes sizes_;
  const Kernels& kernels_;
  AttentionArgs args_;
  std::string type_;
  TaskQueues queues_;
};

}  // namespace

/// The cache's types are not known here: rows are at most f32.
std::size_t selected_attention_scratch_bytes(const Graph& g, const Node& n, int threads) {
  const CacheType& c = g.info(n.in[1]).cache;
  const auto block = [](std::int32_t head_dim) {
    return static_cast<std::size_t>(kKeyBlock) * static_cast<std::size_t>(head_dim) * sizeof(float);
  };
  const SelectedSizes sizes(g, n, block(c.head_dim_k), block(c.head_dim_v));
  const auto pairs = static_cast<std::size_t>(std::min<std::int64_t>(kKeptTokens, g.bucket().tokens) * c.kv_heads);
  return std::max(static_cast<std::size_t>(threads) * sizes.thread_bytes(), pairs * sizes.shared_bytes());
}

std::unique_ptr<Instruction> make_selected_attention(const InstructionSite& site) {
  return std::make_unique<SelectedAttention>(site);
}

}  // namespace llm::cpu
