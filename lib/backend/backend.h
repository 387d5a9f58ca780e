// The interface between compiled models and devices: a backend gets its whole subgraph at once, decides everything in
// compile() and only executes in submit().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/draw.h"
#include "graph/graph.h"

namespace llm {

/// What the tokens of one sequence in a step share. Tokens of a sequence are contiguous and in the order of their
/// positions.
struct SequenceSpan {
  std::int32_t first_token = 0;
  std::int32_t n_tokens = 0;
  std::int32_t kv_len = 0;  ///< positions in the cache once this step's are stored
};

/// Where one group of layers with the same kind of state keeps the rows of each sequence.
struct StateGroup {
  std::span<const std::int32_t> block_table;  ///< [n_sequences][stride]: physical block of each logical block
  std::int32_t stride = 0;
  std::span<const std::int32_t> slots;  ///< [n_tokens]: block * block_positions + offset; -1 stores nothing
};

/// Where the recurrent states of one sequence are: a step reads those of slot `from` (-1: zeros, of a sequence without
/// tokens yet) and leaves those after its tokens in slot `to`, which may be the same one.
struct StateMove {
  std::int32_t from = -1, to = -1;
};

/// All that differs between two runs of a program.
struct StepData {
  std::span<const std::int32_t> tokens;     ///< [n_tokens]; with draws perhaps drawn_by(row)
  std::span<const std::int32_t> positions;  ///< [n_tokens]
  std::span<const SequenceSpan> sequences;
  std::span<const StateGroup> groups;
  std::span<const std::int32_t> out_rows;  ///< [n_outputs]: ascending token indices whose results are wanted
  /// [n_outputs]: the tokens drawn from the rows of the graph's only output are wanted in its place; nothing: the rows.
  std::span<const DrawRule> draws = {};
  /// [n_sequences] where the graph has recurrent states: no slot that is written is another sequence's of the step.
  std::span<const StateMove> states = {};
};

/// Caller's memory for a graph input or output, f32 or int32 as its type says, large enough for the step's rows: the
/// host's, or a device's that the program's own reaches.
struct Binding {
  std::string_view value;  ///< name
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct Support {
  bool ok = true;
  std::string reason;  ///< why not
};

enum class Layout : std::uint8_t {
  File,      ///< the mapped bytes of the file
  Device,    ///< the backend's own, made when weights are loaded
  Streamed,  ///< the mapped bytes, from which each step that reads them makes the backend's own
};

/// How a model's graphs use one weight.
struct WeightUse {
  std::string name;
  TensorType type;
};
struct WeightPlan {
  std::string name;
  TensorType type;
  Layout layout = Layout::File;
};

/// Where weights come from. Implemented by the runtime over a file.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The bytes in place, valid as long as the source; nothing if they must be converted (foreign byte order).
  virtual std::optional<std::span<const std::byte>> mapped(std::string_view name) const = 0;
  /// Copies the part that begins at `offset`, whole blocks of it, in this machine's byte order. Several threads may.
  virtual void read(std::string_view name, std::uint64_t offset, std::span<std::byte> dst) const = 0;
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;
};

/// What cached keys and values can be kept as. Blocks of the quantised ones lie along a head's dimension.
inline constexpr std::array kCacheTypes{DType::F32,  DType::F16,  DType::BF16,   DType::F8_E4M3, DType::Q8_0,
                                        DType::Q4_0, DType::Q4_1, DType::IQ4_NL, DType::Q5_0,    DType::Q5_1};
/// Number formats of the cached keys and values: of kCacheTypes.
struct CacheFormat {
  DType k = DType::F16, v = DType::F16;
};

/// Positions [begin, end) of one block of a layer's cache, in all of its KV heads.
struct CacheSlice {
  int layer = 0;
  CacheType::Part part = CacheType::Part::KeysValues;
  std::int32_t block = 0;
  std::int32_t begin = 0, end = kBlockPositions;
};

/// Keeps keys and values that another device computes with. Outside of it they are rows [kv_heads][positions] of a
/// head's elements in the cache's storage types, whatever its own order is; of an index there are no values. Different
/// positions at once are fine.
class CacheKeeper {
 public:
  virtual ~CacheKeeper() = default;
  virtual void read_rows(const CacheSlice&, std::byte* k, std::byte* v) const = 0;
  virtual void write_rows(const CacheSlice&, const std::byte* k, const std::byte* v) = 0;
};

/// What sequences leave behind in a backend: keys and values in blocks, recurrent states in slots.
struct StateRequest {
  std::span<const CacheType> caches = {};
  CacheFormat format = {};
  std::int32_t n_blocks = 0;        ///< of every cache
  std::int64_t most_positions = 0;  ///< one sequence has at most the blocks of so many
  std::span<const RecurrentType> recurrent = {};
  std::int32_t n_slots = 0;  ///< of every recurrent state
};

class StateStore {
 public:
  virtual ~StateStore() = default;
  /// Between steps the rows of fleeting caches are there, which a store that has some must know before programs are
  /// compiled.
  virtual void keep_fleeting_in(CacheKeeper&) {}
  /// Itself, if it keeps rows for other devices.
  virtual CacheKeeper* keeper() { return nullptr; }
  virtual std::size_t bytes_per_block() const = 0;  ///< over all layers
  /// Copies the rows of one block over another: copy on write of shared prefixes.
  virtual void copy_block(std::int32_t from, std::int32_t to) = 0;
  /// All rows of a block as bytes_per_block() bytes, which only a store of the same backend, caches and format takes.
  virtual void read_block(std::int32_t block, std::span<std::byte> dst) const = 0;
  virtual void write_block(std::int32_t block, std::span<const std::byte> src) = 0;
  virtual std::size_t bytes_per_slot() const { return 0; }  ///< over all layers
  /// The states of a slot as bytes_per_slot() bytes, which only a store of the same backend and states takes.
  virtual void read_slot(std::int32_t /*slot*/, std::span<std::byte> /*dst*/) const {}
  virtual void write_slot(std::int32_t /*slot*/, std::span<const std::byte> /*src*/) {}
};

/// Memory of activations, shared by the programs of all buckets.
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual std::size_t bytes() const = 0;
};

/// This machine's memory, as a backend copies to it fastest.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  virtual std::byte* data() const = 0;
};

/// A device's memory, which bindings of programs on devices that reach it may lie in.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
};

struct StepTiming {
  std::string_view op;
  std::string_view value;  ///< name of the first result
  int layer;
  double seconds;
  std::uint64_t bytes;       ///< moved from and to memory: weights, cache, activations
  std::uint64_t operations;  ///< multiply-adds count twice
};

/// Looks at a run without changing a bit of its results.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual bool wants_value(std::string_view /*name*/) { return false; }
  /// A named result right after it was computed; `view.type` has the step's actual number of rows.
  virtual void value(std::string_view /*name*/, const TensorView& /*view*/) {}
  virtual bool wants_timings() { return false; }
  virtual void timing(const StepTiming&) {}
};

struct Ticket {
  std::uint64_t id = 0;
};

class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs the step; `out` has a binding for every output of the graph, unless the step draws, `in` for every input that
  /// StepData does not fill. Beside other steps on their way both are host_memory() or device_memory(). The StepData is
  /// the caller's again when this returns, bound memory when the step has ended. No allocation, no decisions. Throws
  /// ErrorKind::Internal if the step exceeds the bucket.
  virtual Ticket submit(const StepData&, std::span<const Binding> in, std::span<const Binding> out) = 0;
  /// What is submitted next begins when that step of another program has ended, which the host need not wait for.
  /// False: it must.
  virtual bool begin_behind(const Executable& /*other*/, Ticket) { return false; }
  /// Of one of the last steps_at_once() steps, or two, as often as you like: what follows is about that step then.
  virtual void wait(Ticket) = 0;
  /// Whether results of the step that was waited for last may be NaN or infinite. A backend that did not look says
  /// yes, and the caller looks.
  virtual bool may_be_non_finite() const { return true; }
  /// [n_outputs] of the step that was waited for last, if it drew; where results may not be finite, anything.
  virtual std::span<const std::int32_t> drawn() const { return {}; }
  /// Kernels, layouts, fusions: printed by -v.
  virtual std::string describe() const = 0;
  /// nullptr stops observing.
  virtual void observe(Observer*) = 0;
};

/// One memory, and what of a model's graphs a backend keeps there.
struct MemoryShare {
  std::string name;  ///< whose it is: "CPU", "GPU", of several GPUs "CUDA1"
  std::uint64_t available = 0;
  Layout layout = Layout::File;  ///< of its weights: pages of a mapped file can be dropped and read again
  std::uint64_t weights = 0;     ///< bytes that are still to come out of `available`
  std::uint64_t workspace = 0;   ///< bytes
  std::vector<CacheType> caches = {};
  std::vector<RecurrentType> recurrent = {};
};

inline constexpr int kMostStepsAtOnce = 8;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual std::string describe() const = 0;  ///< e.g. "cpu: avx512, 2 threads"
  /// An option or an instruction set by which its numbers differ from those of the same backend without it; empty for
  /// none.
  virtual std::string_view variant() const { return {}; }
  /// What this machine lacks that would make long steps faster by as much as is worth a warning; empty: nothing.
  virtual std::string lacks() const { return {}; }
  virtual Support supports(const Graph&, const Node&) const = 0;
  /// The graph as this backend computes it: the same nodes with the attributes that are the backend's to set (the
  /// format of a product's activations). compile() does this itself; the reference, given such a graph, evaluates the
  /// same operands.
  virtual Graph legalize(const Graph& g) const { return g; }
  virtual Layout choose_layout(const WeightUse&) const = 0;
  /// Where these graphs' weights, caches and workspace lie: one memory, unless a model runs on several devices. Without
  /// graphs, what there is.
  virtual std::vector<MemoryShare> memory(std::span<const Graph> largest) const = 0;
  /// Uninitialised, for results of steps; bindings may lie elsewhere too.
  virtual std::unique_ptr<HostMemory> host_memory(std::size_t bytes);
  /// Whether values can go from this device to the other, which may be the same, and back without the host's memory:
  /// both copy to and from device_memory() of either.
  virtual bool reaches(const Backend& /*other*/) const { return false; }
  /// Uninitialised, for values on their way from one device to another; null of devices that reach no other.
  virtual std::unique_ptr<DeviceMemory> device_memory(std::size_t /*bytes*/) { return nullptr; }
  /// So many steps, of whichever programs, may have been submitted and not been waited for, which is done in their
  /// order; at most kMostStepsAtOnce.
  virtual int steps_at_once() const { return 1; }
  /// Whether steps may draw, two of them at once, of which the second may take tokens from the first.
  virtual bool draws() const { return false; }
  /// From so many tokens of a bucket on it pays to bring weights here for a step that the host keeps, all experts of a
  /// layer if the model has some; 0: it never does.
  virtual int streams_from(bool /*experts*/) const { return 0; }
  /// Rows of a batch that are best computed at once: with more, a step of a token each takes longer by as much.
  virtual int rows_at_once() const { return 32; }
  /// Tokens of the largest step that pays.
  virtual int most_step_tokens() const { return 512; }
  /// Of the steps that compute so many tokens soonest.
  virtual int step_tokens(std::int64_t /*all*/) const { return most_step_tokens(); }
  virtual std::unique_ptr<WeightStore> load(const WeightSource&, std::span<const WeightPlan>) = 0;
  /// Host memory is taken as blocks and slots fill. Throws ErrorKind::Memory.
  virtual std::unique_ptr<StateStore> allocate(const StateRequest&) = 0;
  /// One workspace serves programs of these graphs, of any bucket up to theirs, of which `at_once` steps, as
  /// steps_at_once() counts them, are on their way; address space only until used.
  virtual std::unique_ptr<Workspace> make_workspace(std::span<const Graph> largest, int at_once) = 0;
  std::unique_ptr<Workspace> make_workspace(const Graph& largest) {
    return make_workspace({&largest, 1}, steps_at_once());
  }
  virtual std::unique_ptr<Executable> compile(const Graph&, const WeightStore&, StateStore&, Workspace&) = 0;
};

/// Of the C++ library.
class PlainHostMemory final : public HostMemory {
 public:
  explicit PlainHostMemory(std::size_t bytes) : bytes_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
  std::byte* data() const override { return bytes_.get(); }

 private:
  std::unique_ptr<std::byte[]> bytes_;
};
inline std::unique_ptr<HostMemory> Backend::host_memory(std::size_t bytes) {
  return std::make_unique<PlainHostMemory>(bytes);
}

/// A step of more tokens is bound by arithmetic rather than by reading the weights.
inline constexpr int kFewTokens = 4;

struct BackendOptions {
  int threads = 1;
  /// Of steps of more than kFewTokens tokens, which read prompts; 0: as many. Results do not depend on it.
  int prompt_threads = 0;
  std::string isa;  ///< empty: what LLM_RUN_ISA says, else the best of this machine
  /// Least bytes that each thread of a step reads between two places where threads wait for each other: with less they
  /// wait longer than they work. Where there are not even eight times as many, which one thread reads about as soon as
  /// another one wakes, it works alone. 0: all threads take part. Results do not depend on it.
  std::uint64_t bytes_per_thread = std::uint64_t{16} << 10;
  /// A result may not depend on the rows beside it or on how a prompt was cut into steps, whatever that costs. The cpu
  /// and reference backends never let it.
  bool deterministic = false;
  /// Products of many columns may round both operands to FP8, where the backend has a faster way for that; not with
  /// `deterministic`. Throws ErrorKind::Device where a device that has such a way cannot go it.
  bool f8 = false;
  /// Which of several devices of the backend's kind, by its number there; the CPU is one.
  int device = 0;
};

}  // namespace llm
