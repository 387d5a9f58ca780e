// One instruction of a compiled program: a node with its kernels chosen, its sizes fixed and its operands numbered.
// Equal layers share their instructions; what differs between them (weights, caches, places in the workspace) is in a
// table of slots.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/team.h"
#include "backend/host/host.h"
#include "backend/host/step_check.h"
#include "graph/graph.h"

namespace llm::cpu {

/// Where an operand is in this layer.
struct Slot {
  std::byte* data = nullptr;    ///< of a cache: its keys; of a recurrent state: slot 0
  std::byte* values = nullptr;  ///< of a cache: its values
};

/// Everything that a run of an instruction may look at.
struct Frame {
  const Slot* slots = nullptr;
  const StepData* step = nullptr;
  host::StepRows rows;
  std::uint32_t turn = 0;  ///< counts the runs of the layer's instructions: which of their task queues is open
  std::exception_ptr* failure = nullptr;    ///< of this thread: where code that is not ours leaves what it throws
  std::atomic<bool>* non_finite = nullptr;  ///< set by products that look at what they give (looks_at_results)

  float* f32(int slot) const { return reinterpret_cast<float*>(slots[slot].data); }
  /// Null for InstructionSite::kAbsent.
  const float* optional(int slot) const { return slot < 0 ? nullptr : f32(slot); }
  std::int32_t* i32(int slot) const { return reinterpret_cast<std::int32_t*>(slots[slot].data); }
};

class Instruction {
 public:
  virtual ~Instruction() = default;
  /// Called by all threads of the team; those that have no work return at once. Ends without a barrier.
  virtual void run(const Frame&, const Worker&) = 0;
  virtual std::string describe() const = 0;
};

/// What instructions are made from: the node, and the numbers of its operands in the layer's table.
struct InstructionSite {
  const Graph& graph;
  const Node& node;
  std::vector<int> in, out;  ///< slots
  int scratch = -1;          ///< slot of the node's scratch memory
  const Kernels& kernels;
  CacheFormat cache;
  int threads;

  static constexpr int kAbsent = -1;
  /// An operand that not every node has.
  int optional_in(std::size_t i) const { return i < in.size() ? in[i] : kAbsent; }
  const ValueInfo& in_info(std::size_t i) const { return graph.info(node.in[i]); }
  const ValueInfo& out_info(std::size_t i) const { return graph.info(node.out[i]); }
};

/// Whether a node's instruction says which of its results, outputs of the graph, are NaN or infinite: as they are made
/// they lie in a core's cache. Not within layers, whose instructions are shared.
bool looks_at_results(const Graph&, const Node&);

/// Bytes of scratch memory that a node's instruction needs at the bucket's capacity.
std::size_t scratch_bytes(const Graph&, const Node&, int threads);
/// nullptr for a node that needs no work (a reshape).
std::unique_ptr<Instruction> make_instruction(const InstructionSite&);

// By kind of op; each file holds the instructions of one.
std::unique_ptr<Instruction> make_linear(const InstructionSite&);
std::unique_ptr<Instruction> make_expert_linear(const InstructionSite&);
std::size_t expert_linear_scratch_bytes(const Graph&, const Node&);
std::unique_ptr<Instruction> make_attention(const InstructionSite&);
std::size_t attention_scratch_bytes(const Graph&, const Node&, int threads);
std::unique_ptr<Instruction> make_select_keys(const InstructionSite&);
std::size_t select_keys_scratch_bytes(const Graph&, const Node&, int threads);
std::unique_ptr<Instruction> make_select_blocks(const InstructionSite&);
std::size_t select_blocks_scratch_bytes(const Graph&, const Node&, int threads);
std::unique_ptr<Instruction> make_selected_attention(const InstructionSite&);
std::size_t selected_attention_scratch_bytes(const Graph&, const Node&, int threads);
std::unique_ptr<Instruction> make_compressed_attention(const InstructionSite&);
std::size_t compressed_attention_scratch_bytes(const Graph&, const Node&, int threads);
std::unique_ptr<Instruction> make_route(const InstructionSite&);
std::unique_ptr<Instruction> make_short_conv(const InstructionSite&);
std::unique_ptr<Instruction> make_window_mean(const InstructionSite&);
std::unique_ptr<Instruction> make_token_shift(const InstructionSite&);
std::unique_ptr<Instruction> make_compress(const InstructionSite&);
std::unique_ptr<Instruction> make_hash_ids(const InstructionSite&);
std::unique_ptr<Instruction> make_gated_delta(const InstructionSite&);
std::size_t gated_delta_scratch_bytes(const Graph&, const Node&);
std::unique_ptr<Instruction> make_selective_scan(const InstructionSite&);
std::size_t selective_scan_scratch_bytes(const Graph&, const Node&);
std::unique_ptr<Instruction> make_wkv6(const InstructionSite&);
std::size_t wkv6_scratch_bytes(const Graph&, const Node&);
std::unique_ptr<Instruction> make_wkv7(const InstructionSite&);
std::size_t wkv7_scratch_bytes(const Graph&, const Node&);

/// Weight rows of one task of a product of so many rows. With few columns longer tasks let the next rows be fetched
/// while the last ones are multiplied. With many each task also reads all activations, so that longer tasks read them
/// less often; but each thread should get about four, to end at the same time.
inline std::int64_t task_rows(std::int64_t columns, std::int64_t rows, int threads) {
  constexpr std::int64_t kUnit = 2 * kRowTile, kMostUnits = 4, kTasksOfThread = 4;  // kernels take two tiles at a time
  if (columns <= 32) return kMostUnits * kUnit;
  return std::clamp<std::int64_t>(rows / (kTasksOfThread * threads * kUnit), 1, kMostUnits) * kUnit;
}

/// Which sequence of the step a token belongs to.
inline std::size_t sequence_of(const Frame& f, std::int64_t token) {
  std::size_t s = 0;
  while (token >= f.step->sequences[s].first_token + f.step->sequences[s].n_tokens) ++s;
  return s;
}

/// Elements of one row of a value.
inline std::int64_t row_elems(const ValueInfo& v) {
  const int n = v.type.shape.n_dims();
  std::int64_t elems = 1;
  for (int i = 0; i + 1 < n; ++i) elems *= v.type.shape[i];
  return v.rows == RowSpace::None ? v.type.shape.elements() : elems;
}

}  // namespace llm::cpu
