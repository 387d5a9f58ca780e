// Running small graphs in tests: weights made in memory, steps over a paged cache whose blocks lie in scrambled order,
// results by name. Knows no backend.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "graph/graph.h"
#include "tensor/decode.h"
#include "tensor/quantize.h"

namespace llm::test {

/// n values from a normal distribution, the same for the same seed everywhere.
inline std::vector<float> random_values(std::int64_t n, std::uint32_t seed, float deviation = 1.0f) {
  std::mt19937 bits(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) {  // the sum of 12 uniform numbers: no library's distribution is prescribed bit for bit
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(bits() >> 8) * 0x1p-24f;
    v = sum * deviation;
  }
  return values;
}

/// Named weights in memory. Copies share nothing; the bytes of a weight stay where they are once it was added.
class MemoryWeights final : public WeightSource {
 public:
  /// `values` encoded to the type by plain rounding.
  const TensorType& add(const std::string& name, const TensorType& type, std::span<const float> values) {
    check(std::ssize(values) == type.shape.elements(), "a value for each element");
    std::vector<std::byte> bytes(type.bytes());
    encode(type.dtype, values.data(), bytes.data(), type.shape.elements());
    return add_bytes(name, type, std::move(bytes));
  }
  const TensorType& add_random(const std::string& name, const TensorType& type, std::uint32_t seed,
                               float deviation = 1.0f) {
    return add(name, type, random_values(type.shape.elements(), seed, deviation));
  }
  const TensorType& add_bytes(const std::string& name, const TensorType& type, std::vector<std::byte> bytes) {
    Entry& entry = entries_[name] = {type, std::move(bytes)};
    return entry.type;
  }

  const TensorType& type(const std::string& name) const { return entries_.at(name).type; }
  /// What the stored bytes stand for.
  std::vector<float> decoded(const std::string& name) const {
    const Entry& entry = entries_.at(name);
    std::vector<float> values(static_cast<std::size_t>(entry.type.shape.elements()));
    decode(entry.type.dtype, entry.bytes.data(), values.data(), entry.type.shape.elements());
    return values;
  }

  /// Of the weights that a graph uses.
  std::vector<WeightPlan> plans(const Graph& graph) const {
    std::vector<WeightPlan> plans;
    for (const ValueInfo& v : graph.values()) {
      if (v.kind == ValueKind::Weight) plans.push_back({v.name, entries_.at(v.name).type, Layout::File});
    }
    return plans;
  }

  /// From now on weights are not mapped but read, as those of a file in foreign byte order.
  void only_by_reading() { mapped_ = false; }

  std::optional<std::span<const std::byte>> mapped(std::string_view name) const override {
    if (!mapped_) return std::nullopt;
    return entries_.at(std::string(name)).bytes;
  }
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> dst) const override {
    const std::span<const std::byte> bytes = entries_.at(std::string(name)).bytes;
    const auto part = bytes.subspan(offset, dst.size());
    std::copy(part.begin(), part.end(), dst.begin());
  }

 private:
  struct Entry {
    TensorType type;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Entry> entries_;
  bool mapped_ = true;
};

/// A step with the memory that StepData points to: it may move, not be copied.
struct TestStep {
  TestStep() = default;
  TestStep(TestStep&&) = default;
  TestStep& operator=(TestStep&&) = default;

  std::vector<std::int32_t> tokens, positions, block_table, slots, out_rows;
  std::vector<SequenceSpan> sequences;
  std::vector<StateGroup> groups;
  std::vector<StateMove> states;

  StepData data() const { return {tokens, positions, sequences, groups, out_rows, {}, states}; }
};

/// Sequences over one paged cache. Every sequence has the same number of logical blocks; their physical blocks are
/// scattered.
class TestSequences {
 public:
  TestSequences(int n_sequences, int max_positions, std::uint32_t seed = 1)
      : stride_((max_positions + kBlockPositions - 1) / kBlockPositions),
        kv_len_(static_cast<std::size_t>(n_sequences), 0),
        slot_(static_cast<std::size_t>(n_sequences), -1),
        blocks_(static_cast<std::size_t>(n_sequences * stride_)) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::mt19937 bits(seed);
    for (std::size_t i = blocks_.size(); i > 1; --i) std::swap(blocks_[i - 1], blocks_[bits() % i]);
  }

  std::int32_t n_slots() const { return static_cast<std::int32_t>(2 * kv_len_.size()); }
  std::int32_t n_blocks() const { return static_cast<std::int32_t>(blocks_.size()); }
  std::int32_t kv_len(int sequence) const { return kv_len_[static_cast<std::size_t>(sequence)]; }
  /// Forgets the positions from `kv_len` on.
  void rewind(int sequence, std::int32_t kv_len) { kv_len_[static_cast<std::size_t>(sequence)] = kv_len; }

  struct Part {
    int sequence = 0;
    std::vector<std::int32_t> tokens;
  };
  enum class Outputs { All, LastOfEach, None };

  /// Appends each part's tokens to its sequence, in the order given.
  TestStep step(std::span<const Part> parts, Outputs outputs = Outputs::All) {
    TestStep s;
    for (const Part& part : parts) add_part(s, part, outputs);
    s.groups.push_back({s.block_table, stride_, s.slots});
    return s;
  }

 private:
  void add_part(TestStep& s, const Part& part, Outputs outputs) {
    const std::size_t q = static_cast<std::size_t>(part.sequence);
    const auto first = static_cast<std::int32_t>(s.tokens.size());
    const auto n = static_cast<std::int32_t>(part.tokens.size());
    const std::int32_t* table = blocks_.data() + q * static_cast<std::size_t>(stride_);
    s.block_table.insert(s.block_table.end(), table, table + stride_);
    for (std::int32_t i = 0; i < n; ++i) {
      const std::int32_t position = kv_len_[q] + i;
      s.tokens.push_back(part.tokens[static_cast<std::size_t>(i)]);
      s.positions.push_back(position);
      s.slots.push_back(table[position / kBlockPositions] * kBlockPositions + position % kBlockPositions);
      if (outputs == Outputs::All || (outputs == Outputs::LastOfEach && i + 1 == n)) s.out_rows.push_back(first + i);
    }
    kv_len_[q] += n;
    s.sequences.push_back({first, n, kv_len_[q]});
    s.states.push_back(move(q));
  }

  /// A state stays in its slot in every other step, and goes to the sequence's other one in those between.
  StateMove move(std::size_t sequence) {
    std::int32_t& slot = slot_[sequence];
    const std::int32_t from = slot, first = static_cast<std::int32_t>(2 * sequence);
    if (from == -1 || ++moves_ % 2 == 0) slot = from == first ? first + 1 : first;
    return {from, slot};
  }

  std::int32_t stride_;
  std::vector<std::int32_t> kv_len_;
  std::vector<std::int32_t> slot_;  ///< of recurrent states
  int moves_ = 0;
  std::vector<std::int32_t> blocks_;
};

/// Values of a step by name, only the rows that it filled.
using Results = std::map<std::string, std::vector<float>>;

/// Keeps every f32 value that was asked for; int32 values are kept as numbers.
class Recorder final : public Observer {
 public:
  explicit Recorder(std::set<std::string> names) : names_(std::move(names)) {}
  bool wants_value(std::string_view name) override { return names_.contains(std::string(name)); }
  void value(std::string_view name, const TensorView& view) override {
    std::vector<float>& kept = results_[std::string(name)];
    kept.resize(static_cast<std::size_t>(view.type.shape.elements()));
    decode(view.type.dtype, view.data, kept.data(), view.type.shape.elements());
  }
  Results take() { return std::exchange(results_, {}); }

 private:
  std::set<std::string> names_;
  Results results_;
};

/// One graph on one backend with its own cache and workspace.
class GraphRunner {
 public:
  GraphRunner(Backend& backend, const Graph& graph, const MemoryWeights& weights, std::int32_t n_blocks = 1,
              CacheFormat format = {}, std::set<std::string> observed = {}, std::int32_t n_slots = 1)
      : graph_(graph), recorder_(std::move(observed)) {
    store_ = backend.load(weights, weights.plans(graph));
    const auto cached = caches(graph);
    const auto remembered = recurrent(graph);
    state_ = backend.allocate({.caches = cached,
                               .format = format,
                               .n_blocks = n_blocks,
                               .most_positions = std::int64_t{n_blocks} * kBlockPositions,
                               .recurrent = remembered,
                               .n_slots = n_slots});
    workspace_ = backend.make_workspace(graph);
    program_ = backend.compile(graph, *store_, *state_, *workspace_);
    program_->observe(&recorder_);
  }

  /// Outputs of the graph and the observed values. `inputs` holds what the graph takes from other segments.
  Results run(const TestStep& step, const Results& inputs = {}) {
    std::vector<std::vector<float>> memory;
    std::vector<Binding> bindings;
    memory.reserve(graph_.outputs().size());
    for (const std::uint32_t id : graph_.outputs()) {
      memory.emplace_back(static_cast<std::size_t>(graph_.info(id).type.shape.elements()));
      bindings.push_back({graph_.info(id).name, reinterpret_cast<std::byte*>(memory.back().data()),
                          memory.back().size() * sizeof(float)});
    }
    std::vector<std::vector<float>> handed;
    std::vector<Binding> given;
    handed.reserve(inputs.size());
    for (const auto& [name, values] : inputs) {
      handed.push_back(values);
      given.push_back({name, reinterpret_cast<std::byte*>(handed.back().data()), values.size() * sizeof(float)});
    }
    program_->wait(program_->submit(step.data(), given, bindings));
    Results results = recorder_.take();
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      const ValueInfo& v = graph_.info(graph_.outputs()[i]);
      memory[i].resize(filled(v, step));
      results[v.name] = std::move(memory[i]);
    }
    return results;
  }

  Executable& program() { return *program_; }
  StateStore& state() { return *state_; }

  static std::vector<CacheType> caches(const Graph& graph) {
    std::vector<CacheType> types;
    for (const ValueInfo& v : graph.values()) {
      if (v.kind == ValueKind::Cache && std::find(types.begin(), types.end(), v.cache) == types.end())
        types.push_back(v.cache);
    }
    return types;
  }

  static std::vector<RecurrentType> recurrent(const Graph& graph) {
    std::vector<RecurrentType> types;
    for (const ValueInfo& v : graph.values()) {
      if (v.kind == ValueKind::Recurrent) types.push_back(v.recurrent);
    }
    return types;
  }

 private:
  std::size_t filled(const ValueInfo& v, const TestStep& step) const {
    const auto all = static_cast<std::size_t>(v.type.shape.elements());
    if (v.rows == RowSpace::Tokens) return all / static_cast<std::size_t>(graph_.bucket().tokens) * step.tokens.size();
    if (v.rows == RowSpace::Outputs)
      return all / static_cast<std::size_t>(graph_.bucket().outputs) * step.out_rows.size();
    return all;
  }

  Graph graph_;
  Recorder recorder_;
  std::unique_ptr<WeightStore> store_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<Executable> program_;
};

}  // namespace llm::test
