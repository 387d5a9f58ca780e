// Which keys a token is to attend to. Threads share the tokens; where there are too few of them, the keys of each,
// whose best are merged. The choice is that of one order over all keys, so it is the same however it is found.
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "backend/cpu/best_keys.h"
#include "backend/cpu/cache_layout.h"
#include "backend/cpu/step.h"
#include "backend/host/ops.h"

namespace llm::cpu {
namespace {

/// Keys of an index that are chosen of those that a token sees.
std::int64_t choices(const SelectKeys& op, const CacheType& index) {
  if (index.stride == 1 || op.choice == SelectKeys::Choice::Keys) return op.top_k;
  return (op.top_k + 1) / index.stride - 1;
}

class SelectKeysInstruction final : public Instruction {
 public:
  explicit SelectKeysInstruction(const InstructionSite& site)
      : q_(site.in[0]),
        weights_(site.in.size() > 2 ? site.in[1] : InstructionSite::kAbsent),
        index_(site.in.back()),
        positions_(site.out[0]),
        scratch_(site.scratch),
        top_k_(std::get<SelectKeys>(site.node.op).top_k),
        by_numbers_(std::get<SelectKeys>(site.node.op).choice == SelectKeys::Choice::Keys),
        score_(site.kernels.index_scores) {
    const CacheType& c = site.in_info(site.in.size() - 1).cache;
    choices_ = choices(std::get<SelectKeys>(site.node.op), c);
    chooses_from_ = chooses_from(std::get<SelectKeys>(site.node.op), c);
    args_.k_element = cache_element(site.cache.k);
    args_.k_block_bytes = CacheLayout(CacheSide::Keys, site.cache.k, c.head_dim_k).block_bytes();
    args_.heads = static_cast<std::int32_t>(site.in_info(0).type.shape[1]);
    args_.kv_heads = 1;
    args_.head_dim_k = c.head_dim_k;
    args_.scale = 1;
    args_.key_stride = c.stride;
    if (weights_ == InstructionSite::kAbsent) ones_.assign(static_cast<std::size_t>(args_.heads), 1);
    type_ = std::string(name(site.cache.k));
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    const std::int64_t choosing = count_choosing(f);
    if (choosing == 0 || choosing >= w.n_threads) {
      for (std::int64_t token = queue.take(); token < f.rows.tokens; token = queue.take()) {
        if (!chooses(f, token)) {
          write_all(f, token);
          continue;
        }
        BestKeys best = list(f, w.thread);
        find(f, w, token, {0, chunks(f, token)}, best);
        write(f, token, best.best());
      }
      return;
    }
    const std::int64_t parts = (w.n_threads + choosing - 1) / choosing;
    const auto [first, last] = w.share(choosing * parts);
    for (std::int64_t item = first; item < last; ++item) find_part(f, w, item, parts);
    w.sync();
    const auto [begin, end] = w.share(f.rows.tokens);
    for (std::int64_t token = begin, nth = count_choosing(f, begin); token < end; ++token) {
      if (chooses(f, token))
        merge(f, token, nth++, parts);
      else
        write_all(f, token);
    }
  }

  std::string describe() const override {
    return "select_keys top_k=" + std::to_string(top_k_) + " heads=" + std::to_string(args_.heads) + " index " + type_ +
           (args_.key_stride > 1 ? " stride " + std::to_string(args_.key_stride) : "");
  }

 private:
  struct Chunks {
    std::int64_t begin, end;
  };
  static std::int32_t position(const Frame& f, std::int64_t token) {
    return f.step->positions[static_cast<std::size_t>(token)];
  }
  static std::int64_t chunks(const Frame& f, std::int64_t token) { return position(f, token) / kKeyChunk + 1; }
  bool chooses(const Frame& f, std::int64_t token) const { return position(f, token) >= chooses_from_; }
  /// Of the first tokens.
  std::int64_t count_choosing(const Frame& f, std::int64_t tokens) const {
    return std::count_if(f.step->positions.begin(), f.step->positions.begin() + tokens,
                         [&](std::int32_t p) { return p >= chooses_from_; });
  }
  std::int64_t count_choosing(const Frame& f) const { return count_choosing(f, f.rows.tokens); }

  /// Of the n-th list of keys.
  std::uint64_t* list_memory(const Frame& f, std::int64_t n) const {
    return reinterpret_cast<std::uint64_t*>(f.slots[scratch_].data) + n * BestKeys::room(choices_);
  }
  BestKeys list(const Frame& f, std::int64_t n) const { return {list_memory(f, n), choices_}; }
  const float* weights(const Frame& f, std::int64_t token) const {
    return ones_.empty() ? f.f32(weights_) + token * args_.heads : ones_.data();
  }

  void find(const Frame& f, const Worker& w, std::int64_t token, Chunks part, BestKeys& best) const {
    const std::size_t sequence = sequence_of(f, token);
    const StateGroup& state = f.step->groups[0];
    AttentionArgs a = args_;
    a.q = f.f32(q_);
    a.k = f.slots[index_].data;
    a.positions = f.step->positions.data();
    a.blocks = state.block_table.data() + sequence * static_cast<std::size_t>(state.stride);
    float scores[kKeyChunk];
    const std::int32_t of_block = kKeyBlock / a.key_stride, of_chunk = kKeyChunk / a.key_stride;
    for (std::int64_t chunk = part.begin; chunk < part.end; ++chunk) {
      const auto first = static_cast<std::int32_t>(chunk * of_chunk);
      score_(a, weights(f, token), static_cast<std::int32_t>(token), static_cast<std::int32_t>(chunk), scores,
             w.scratch);
      const std::int32_t n = std::min(of_chunk, (position(f, token) + 1) / a.key_stride - first);
      for (std::int32_t place = 0; place < n; place += of_block) {
        const float* const of = scores + place / of_block * kKeyBlock;
        best.add({of, static_cast<std::size_t>(std::min(of_block, n - place))}, first + place);
      }
    }
  }

  /// Leaves the best of a part of the keys in a list of its own, which ends with a 0 if there are fewer than are
  /// chosen.
  void find_part(const Frame& f, const Worker& w, std::int64_t item, std::int64_t parts) const {
    std::int64_t token = 0;
    for (std::int64_t nth = item / parts; nth > 0 || !chooses(f, token); ++token) nth -= chooses(f, token) ? 1 : 0;
    const std::int64_t all = chunks(f, token), part = item % parts;
    BestKeys best = list(f, item);
    find(f, w, token, {all * part / parts, all * (part + 1) / parts}, best);
    const std::int64_t n = std::ssize(best.best());
    if (n < choices_) list_memory(f, item)[n] = 0;
  }

  void merge(const Frame& f, std::int64_t token, std::int64_t nth, std::int64_t parts) const {
    const auto found = [&](std::int64_t part) {
      const std::uint64_t* const ranks = list_memory(f, nth * parts + part);
      return std::span(ranks, static_cast<std::size_t>(std::find(ranks, ranks + choices_, 0u) - ranks));
    };
    BestKeys best = list(f, nth * parts);
    best.add(found(0));  // in place
    for (std::int64_t part = 1; part < parts; ++part) best.add(found(part));
    write(f, token, best.best());
  }

  /// Of a token that chooses, which sees more keys than it chooses.
  void write(const Frame& f, std::int64_t token, std::span<std::uint64_t> best) const {
    const std::span positions(f.i32(positions_) + token * top_k_, static_cast<std::size_t>(top_k_));
    std::ranges::sort(best, {}, place_of);
    host::write_selection(std::span<const std::uint64_t>(best), place_of, by_numbers_ ? 1 : args_.key_stride,
                          seen(f, token), positions);
  }
  /// Of what the choice is of: positions, or keys.
  std::int64_t seen(const Frame& f, std::int64_t token) const {
    return (position(f, token) + std::int64_t{1}) / (by_numbers_ ? args_.key_stride : 1);
  }
  /// All keys of a token that sees no more than top_k.
  void write_all(const Frame& f, std::int64_t token) const {
    std::int32_t* const to = f.i32(positions_) + token * top_k_;
    const std::int64_t n = seen(f, token);
    std::iota(to, to + n, 0);
    std::fill(to + n, to + top_k_, -1);
  }

  int q_, weights_, index_, positions_, scratch_;
  std::int64_t top_k_, choices_ = 0, chooses_from_ = 0;
  bool by_numbers_;
  std::vector<float> ones_;  ///< of heads without weights
  IndexScoresFn score_;
  AttentionArgs args_;
  std::string type_;
  TaskQueues queues_;
};

}  // namespace

/// Lists of twice as many parts as there are threads.
std::size_t select_keys_scratch_bytes(const Graph& g, const Node& n, int threads) {
  const std::int64_t room = BestKeys::room(choices(std::get<SelectKeys>(n.op), g.info(n.in.back()).cache));
  return static_cast<std::size_t>(2 * threads * room) * sizeof(std::uint64_t);
}

std::unique_ptr<Instruction> make_select_keys(const InstructionSite& site) {
  return std::make_unique<SelectKeysInstruction>(site);
}

}  // namespace llm::cpu
