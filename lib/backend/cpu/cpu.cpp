#include "backend/cpu/cpu.h"

#include <omp.h>

#include <algorithm>

#include "backend/cpu/cache_layout.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/program.h"
#include "backend/cpu/team.h"
#include "backend/host/interpreter.h"
#include "backend/host/legalize.h"
#include "base/error.h"

namespace llm::cpu {
namespace {

/// What writes and reads rows of a cache, keys of an index as well, has room for so many elements.
Support supports_heads(const Graph& g, const Node& n) {
  const bool fits = std::ranges::none_of(n.in, [&](std::uint32_t v) {
    const ValueInfo& value = g.info(v);
    return value.kind == ValueKind::Cache && std::max(value.cache.head_dim_k, value.cache.head_dim_v) > kMaxHeadDim;
  });
  if (fits) return {};
  return {.ok = false, .reason = "attention heads are wider than " + std::to_string(kMaxHeadDim)};
}

Support supports_places(const TensorType& places) {
  if (places.dtype == DType::F32) return {};
  if (static_cast<std::size_t>(places.shape.elements()) * sizeof(float) <= kScratchBytes) return {};
  return {.ok = false, .reason = "scores of places that are not F32 have more elements than fit the scratch"};
}

Support supports_width(std::int64_t width) {
  if (width <= kMaxConvWidth) return {};
  return {.ok = false, .reason = "a convolution or a mean is wider than " + std::to_string(kMaxConvWidth)};
}

Support supports_state(const Shape& state, std::int64_t most) {
  if (state[1] <= most) return {};
  return {.ok = false, .reason = "states of recurrent layers have more than " + std::to_string(most) + " rows"};
}

/// Keeps rows in the order that the kernels read.
class CpuCache final : public host::HostCache {
 public:
  using HostCache::HostCache;

 private:
  static CacheLayout layout(Side side, const HeadPart& part) {
    return {side == Side::Keys ? CacheSide::Keys : CacheSide::Values, part.type, part.head_dim, part.access};
  }
  void get(Side side, const HeadPart& part, std::byte* rows, std::int32_t begin, std::int32_t end) const override {
    layout(side, part).get(part.data, rows, begin, end);
  }
  void put(Side side, const HeadPart& part, const std::byte* rows, std::int32_t begin, std::int32_t end) override {
    layout(side, part).put(rows, part.data, begin, end);
  }
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options) : kernels_(choose_kernels(options.isa)), options_(options) {
    threads_ = std::max(options.threads, options.prompt_threads);
    if (threads_ > omp_get_thread_limit()) {
      throw Error(ErrorKind::Device, "asked for " + std::to_string(threads_) + " threads, OMP_THREAD_LIMIT allows " +
                                         std::to_string(omp_get_thread_limit()) + "; change it or pass " +
                                         (threads_ == options.threads ? "-t " : "-tb ") +
                                         std::to_string(omp_get_thread_limit()));
    }
    team_ = std::make_shared<Team>(threads_);
  }

  std::string_view name() const override { return "cpu"; }
  /// Tiles add products of BF16 in an order of their own; other instruction sets give the same bits as one another.
  std::string_view variant() const override {
    const std::string_view isa = kernels_.isa;
    return isa == "amx" ? isa : "";
  }
  std::string describe() const override {
    const int threads = options_.threads, prompts = options_.prompt_threads;
    return "cpu: " + std::string(kernels_.isa) + ", " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads") +
           (prompts > 0 && prompts != threads ? ", " + std::to_string(prompts) + " for prompts" : "");
  }

  Support supports(const Graph& g, const Node& n) const override {
    const Support support = host::supports_on_host(g, n);
    if (const Support heads = supports_heads(g, n); support.ok && !heads.ok) return heads;
    if (support.ok && std::holds_alternative<Compress>(n.op)) return supports_places(g.info(n.in[2]).type);
    if (support.ok && std::holds_alternative<ShortConv>(n.op))
      return supports_width(g.info(n.in[2]).recurrent.shape[1] + 1);
    if (support.ok && std::holds_alternative<WindowMean>(n.op)) return supports_width(std::get<WindowMean>(n.op).width);
    if (support.ok && std::holds_alternative<GatedDelta>(n.op))
      return supports_state(g.info(n.in[5]).recurrent.shape, kMaxDeltaKey);
    if (support.ok && std::holds_alternative<SelectiveScan>(n.op)) {
      const Shape& state = g.info(n.in[5]).recurrent.shape;
      return supports_state(state, scans_elements(g.info(n.in[2]).type.shape, state) ? kMaxDeltaKey / 2 : kMaxDeltaKey);
    }
    if (support.ok && std::holds_alternative<Wkv6>(n.op))
      return supports_state(g.info(n.in[4]).recurrent.shape, kMaxDeltaKey);
    if (support.ok && std::holds_alternative<Wkv7>(n.op))
      return supports_state(g.info(n.in[8]).recurrent.shape, kMaxDeltaKey);
    if (!support.ok || !(std::holds_alternative<Linear>(n.op) || std::holds_alternative<ExpertLinear>(n.op)))
      return support;
    for (std::uint32_t v : n.in) {
      const ValueInfo& w = g.info(v);
      if (w.kind != ValueKind::Weight || w.type.shape.n_dims() < 2 || kernels_.linear[static_cast<int>(w.type.dtype)])
        continue;
      return {.ok = false, .reason = w.name + ": no product kernel for " + std::string(llm::name(w.type.dtype))};
    }
    return support;
  }
  Graph legalize(const Graph& g) const override { return host::quantize_activations(g); }
  Layout choose_layout(const WeightUse&) const override { return Layout::File; }
  std::vector<MemoryShare> memory(std::span<const Graph> largest) const override {
    return {
        host::machine_memory(largest, activation_bytes(largest) + static_cast<std::size_t>(threads_) * kScratchBytes)};
  }

  std::unique_ptr<WeightStore> load(const WeightSource& source, std::span<const WeightPlan> plans) override {
    return std::make_unique<host::HostWeights>(source, plans);
  }
  std::unique_ptr<StateStore> allocate(const StateRequest& request) override {
    return std::make_unique<CpuCache>(request);
  }
  std::unique_ptr<Workspace> make_workspace(std::span<const Graph> largest, int /*at_once*/) override {
    return std::make_unique<CpuWorkspace>(activation_bytes(largest), threads_);
  }
  std::unique_ptr<Executable> compile(const Graph& g, const WeightStore& weights, StateStore& states,
                                      Workspace& workspace) override {
    return std::make_unique<Program>(legalize(g), dynamic_cast<const host::HostWeights&>(weights),
                                     dynamic_cast<const host::HostCache&>(states),
                                     dynamic_cast<CpuWorkspace&>(workspace), kernels_, options_, team_);
  }

 private:
  std::size_t activation_bytes(std::span<const Graph> largest) const {
    std::uint64_t bytes = 0;
    for (const Graph& g : largest) bytes = std::max(bytes, program_workspace_bytes(legalize(g), threads_));
    return bytes;
  }

  const Kernels& kernels_;
  BackendOptions options_;
  int threads_;  ///< of the largest step
  std::shared_ptr<Team> team_;
};

}  // namespace
}  // namespace llm::cpu

namespace llm {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}

}  // namespace llm
