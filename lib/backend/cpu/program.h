// A compiled graph: a flat list of instructions, executed by all threads of a team.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/step.h"
#include "backend/cpu/team.h"
#include "backend/host/host.h"
#include "backend/host/step_check.h"
#include "graph/memory_plan.h"

namespace llm::cpu {

/// Activations of the largest bucket, and each thread's scratch memory.
class CpuWorkspace final : public Workspace {
 public:
  CpuWorkspace(std::size_t bytes, int threads);
  std::size_t bytes() const override { return activations_.bytes() + scratch_.bytes(); }
  std::byte* activations() const { return activations_.data(); }
  std::size_t activation_bytes() const { return activations_.bytes(); }
  std::byte* scratch(int thread) const { return scratch_.data() + static_cast<std::size_t>(thread) * kScratchBytes; }

 private:
  host::Pages activations_, scratch_;
};

/// What programs of this legalized graph and of its smaller buckets want of activation_bytes().
std::uint64_t program_workspace_bytes(const Graph& largest, int threads);

class Program final : public Executable {
 public:
  Program(Graph graph, const host::HostWeights&, const host::HostCache&, const CpuWorkspace&, const Kernels&,
          const BackendOptions&, std::shared_ptr<Team>);
  ~Program() override;
  Ticket submit(const StepData&, std::span<const Binding> in, std::span<const Binding> out) override;
  void wait(Ticket) override {}
  bool may_be_non_finite() const override { return !looks_at_outputs_ || non_finite_.load(std::memory_order_relaxed); }
  std::string describe() const override;
  void observe(Observer* observer) override { observer_ = observer; }

 private:
  /// Instructions that layers of equal structure share. `instructions[i]` belongs to the i-th node of the layer;
  /// nullptr for a node without work.
  struct Plan {
    std::vector<std::unique_ptr<Instruction>> instructions;
    std::uint32_t users = 0;  ///< layers that run it in one step
    std::uint32_t runs = 0;   ///< so far
  };
  /// One layer: its plan and what is its own.
  struct Layer {
    LayerRange range;
    Plan* plan;
    std::uint32_t turn;  ///< among the plan's users
    std::vector<Slot> slots;
    std::vector<bool> sync_before;  ///< per node: a barrier is needed since it touches what an earlier one touched
    std::vector<std::int32_t> needed_from;  ///< per node: graph/needs.h
  };
  struct Bound {
    std::uint32_t value;
    std::vector<std::pair<std::size_t, int>> slots;  ///< (layer, slot) to fill
  };

  void add_layer(const LayerRange&, const MemoryPlan&, const host::HostWeights&, const Kernels&,
                 std::vector<std::uint64_t>& hashes);
  Slot place(std::uint32_t value, const MemoryPlan&, const host::HostWeights&) const;
  std::unique_ptr<Plan> make_plan(const LayerRange&, const std::vector<int>& slot_of, const MemoryPlan&,
                                  const host::HostWeights&, const Kernels&) const;
  std::vector<bool> find_barriers(const LayerRange&, const MemoryPlan&) const;
  std::byte* binding(const ValueInfo&, const host::StepRows&, std::span<const Binding> in,
                     std::span<const Binding> out) const;
  void bind(const StepData&, const host::StepRows&, std::span<const Binding> in, std::span<const Binding> out);
  int most_threads() const { return std::max(threads_, prompt_threads_); }
  int team_size(const StepData&, const host::StepRows&) const;
  /// What an observer or a caller's function threw, on thread 0.
  std::exception_ptr execute(const StepData&, const host::StepRows&, const Worker&);
  void observe_node(const Node&, const Frame&, const Layer&, double seconds);

  Graph graph_;
  const host::HostCache& cache_;
  host::StepCheck check_;
  const CpuWorkspace& workspace_;
  int threads_, prompt_threads_;
  std::uint64_t bytes_per_thread_;
  std::uint64_t meetings_ = 0;      ///< of a step's threads
  std::uint64_t weight_bytes_ = 0;  ///< that a step of one token reads
  /// Of a position in all caches that the graph reads, and that it writes.
  std::uint64_t read_position_bytes_ = 0, stored_position_bytes_ = 0;
  /// Rows of the smallest tables that tokens and positions index.
  std::int64_t vocab_ = std::numeric_limits<std::int64_t>::max(), positions_ = vocab_;
  std::vector<std::int32_t> needed_from_;  ///< per node
  std::vector<std::uint32_t> roots_;       ///< per value: the one whose bytes it shares, through reshapes
  std::unordered_map<std::uint64_t, std::unique_ptr<Plan>> plans_;
  std::vector<Layer> layers_;
  std::vector<Bound> bound_;
  std::shared_ptr<Team> team_;
  Barrier barrier_;
  bool looks_at_outputs_ = false;  ///< all of them are looked at as they are made
  std::atomic<bool> non_finite_ = false;
  Observer* observer_ = nullptr;
  std::uint64_t submitted_ = 0;
};

}  // namespace llm::cpu
