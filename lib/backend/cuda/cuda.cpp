#include "backend/cuda/cuda.h"

#include <algorithm>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "backend/cuda/cache.h"
#include "backend/cuda/device.h"
#include "backend/cuda/forms_plan.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/gpus.h"
#include "backend/cuda/instructions.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "backend/cuda/program.h"
#include "backend/cuda/weights.h"
#include "backend/cuda/workspace.h"
#include "backend/host/host.h"
#include "base/error.h"

namespace llm {
namespace {

using namespace cuda;

/// Left to the driver and to what grows after a session was planned: recorded steps, attention's scratch.
constexpr std::uint64_t kReserve = std::uint64_t{512} << 20;
/// Threads that read weights: four saturate a bus of the fifth generation when pages are in memory, more help disks.
constexpr unsigned kReaders = 8;
int readers() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kReaders)); }
/// Of a step for which it pays to bring weights that the CPU could compute with; a token reads few of the experts
/// (docs/cuda.md).
constexpr int kStreamingTokens = 128, kStreamingExpertTokens = 512;
/// Of the largest step whose weights are decoded on the way to the tensor cores: whole steps of 1,024 tokens are as
/// fast by the library, of 2,048 faster, since the GPU then works at its limit of power; in FP8 those of 512 are
/// (docs/cuda-kernels.md).
constexpr int kWgmmaTokens = 512, kWgmmaTokensBesideF8 = 256;

/// takes_f8() in words.
constexpr std::string_view kInF8 =
    ", long steps in FP8, but for logits, experts of F16, BF16 or F32 or with rows beyond 2,048, and what is brought "
    "for a step";

/// From here on the calling thread's.
cudaDeviceProp usable_device(int device) {
  const GpuReport report = look_for_gpus();
  if (report.state != GpuReport::State::Usable)
    throw Error(ErrorKind::Device, "backend cuda is not available here: " + report.reason);
  check(device >= 0 && device < std::ssize(report.gpus), "a device that there is");
  const Gpu& gpu = report.gpus[static_cast<std::size_t>(device)];
  if (!gpu.why_not.empty()) throw Error(ErrorKind::Device, "backend cuda is not available here: " + gpu.why_not);
  use_device(device);
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "asking for the device");
  return properties;
}

template <class T, class U>
T& as_cuda(U& store, std::string_view what) {
  auto* const own = dynamic_cast<T*>(&store);
  check(own != nullptr, what);
  return *own;
}

class PinnedMemory final : public HostMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) : buffer_(bytes) {}
  std::byte* data() const override { return buffer_.data(); }

 private:
  PinnedBuffer buffer_;
};

class SharedMemory final : public DeviceMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : buffer_(bytes) {}
  std::byte* data() const override { return buffer_.data(); }

 private:
  DeviceBuffer buffer_;
};

struct Library {
  std::unique_ptr<Gemm> gemm;
  std::string why_not;  ///< there is none
};
Library load_library(int device) {
  Library library;
  library.gemm = Gemm::load(device, library.why_not);
  return library;
}

/// Of steps of `tokens` with these weights, as far as they are multiplied in a narrower type than F32: each kind once.
/// Not of matrices that have a row for each token of a vocabulary, of which long steps want few rows.
std::vector<GemmShape> product_shapes(std::span<const WeightPlan> plans, int tokens, DType operands) {
  constexpr std::int64_t kMostRows = 32000;
  std::set<GemmShape> shapes;
  for (const WeightPlan& plan : plans) {
    const Shape& shape = plan.type.shape;
    const DType type = device_type(plan.type.dtype);
    if (shape.n_dims() != 2 || type == DType::F32 || shape[1] >= kMostRows) continue;
    if (info(type).use != DTypeUse::Weight) continue;
    const std::int64_t at_once = type == operands ? shape[1] : decoded_rows(shape, info(operands).block_bytes);
    for (const std::int64_t rows : {at_once, shape[1] % at_once}) {
      if (rows > 0)
        shapes.insert({.n = static_cast<int>(rows),
                       .rows = tokens,
                       .k = static_cast<int>(shape[0]),
                       .ldy = static_cast<int>(shape[1])});
    }
  }
  return {shapes.begin(), shapes.end()};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const BackendOptions& options, const cudaDeviceProp& properties, Library library)
      : device_(options.device),
        properties_(properties),
        deterministic_(options.deterministic),
        no_gemm_(std::move(library.why_not)),
        gemm_(std::move(library.gemm)),
        f8_(options.f8),
        wgmma_(has_wgmma()) {
    check(!f8_ || !deterministic_, "what is rounded to FP8 depends on the step's length");
    if (!f8_) return;
    if (!wgmma_)
      throw Error(ErrorKind::Device, "backend cuda cannot multiply in FP8: that needs compute capability 9.0");
    const std::string reason = gemm_ ? gemm_->f8_refusal() : no_gemm_;
    if (!reason.empty()) throw Error(ErrorKind::Device, "backend cuda cannot multiply in FP8: " + reason);
  }

  std::string_view name() const override { return "cuda"; }
  std::string_view variant() const override { return f8_ ? "FP8" : deterministic_ ? "deterministic" : ""; }
  std::string describe() const override {
    const std::string label = device_label(device_);
    return "cuda: " + (label == "GPU" ? "" : label + ", ") + std::string(properties_.name) + ", " +
           std::to_string(properties_.multiProcessorCount) + " multiprocessors, " +
           std::to_string(properties_.totalGlobalMem >> 20) + " MiB; " +
           (deterministic_ ? "deterministic, prompts are slower for it"
            : gemm_        ? gemm_->describe() + (f8_ ? std::string(kInF8) : "")
                           : "prompts are slower than they need be: " + no_gemm_);
  }

  std::string lacks() const override {
    return gemm_ || deterministic_ ? "" : "cuBLASLt of CUDA 12 or 13 (" + no_gemm_ + ")";
  }

  Support supports(const Graph& graph, const Node& node) const override {
    use_device(device_);
    std::string reason = refusal(graph, node);
    return {reason.empty(), std::move(reason)};
  }

  /// Products of many columns take x as it is: what tensor cores round is not among the formats.
  Graph legalize(const Graph& graph) const override {
    use_device(device_);
    Graph legal = graph;
    for (Node& node : legal.mutable_nodes()) {
      const auto operands = product_operands(node.op);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const DType type = device_type(legal.info(node.in[operands[i].weight]).type.dtype);
        const bool many = std::holds_alternative<ExpertLinear>(node.op)
                              ? uses_grouped_products(graph, node.in[1], many_columns(graph))
                              : has_many_columns(graph, node, many_columns(graph));
        products(node.op)[i].activation = many ? ActFormat::F32 : info(type).activation;
      }
      if (auto* attention = std::get_if<Attention>(&node.op)) attention->query = ActFormat::Q8x32;
      if (auto* attention = std::get_if<CompressedAttention>(&node.op)) attention->query = ActFormat::Q8x32;
      if (auto* selection = std::get_if<SelectKeys>(&node.op)) selection->query = ActFormat::Q8x32;
      if (auto* selection = std::get_if<SelectBlocks>(&node.op)) selection->query = ActFormat::Q8x32;
    }
    return legal;
  }

  Layout choose_layout(const WeightUse&) const override { return Layout::Device; }

  std::vector<MemoryShare> memory(std::span<const Graph> largest) const override {
    use_device(device_);
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
    MemoryShare share{
        .name = device_label(device_),
        .available = free > kReserve ? free - kReserve : 0,
        .layout = Layout::Device,
        .workspace = workspace_bytes(largest) + draw_size(largest).bytes() + stream_size(largest).bytes()};
    host::add_contents(share, largest, [&](const TensorType& type) {
      return loaded_ ? 0 : device_bytes(type) + (f8_ ? f8_scale_bytes(type) : 0);
    });
    return {std::move(share)};
  }
  std::unique_ptr<HostMemory> host_memory(std::size_t bytes) override {
    use_device(device_);
    return std::make_unique<PinnedMemory>(bytes);
  }
  bool reaches(const Backend& other) const override {
    const auto* const gpu = dynamic_cast<const CudaBackend*>(&other);
    return gpu != nullptr && connect_devices(device_, gpu->device_);
  }
  std::unique_ptr<DeviceMemory> device_memory(std::size_t bytes) override {
    use_device(device_);
    return std::make_unique<SharedMemory>(bytes);
  }
  /// The second is launched while the first one runs.
  int steps_at_once() const override { return 2; }
  bool draws() const override { return true; }
  /// Products that give the same bits in steps of any length are no faster than the CPU by as much.
  int streams_from(bool experts) const override {
    return gemm_ == nullptr ? 0 : experts ? kStreamingExpertTokens : kStreamingTokens;
  }
  int rows_at_once() const override { return 256; }
  int most_step_tokens() const override { return gemm_ ? 2048 : kMaxColumns * 8; }

  std::unique_ptr<WeightStore> load(const WeightSource& source, std::span<const WeightPlan> plans) override {
    use_device(device_);
    if (gemm_) {
      const DType operands = f8_ ? DType::F8_E4M3 : DType::F16;
      gemm_->prepare(operands, product_shapes(plans, most_step_tokens(), operands));
    }
    auto weights = std::make_unique<CudaWeights>(
        source, plans, f8_ ? CudaWeights::F8Scales::Present : CudaWeights::F8Scales::Absent, readers());
    loaded_ = true;
    return weights;
  }

  std::unique_ptr<StateStore> allocate(const StateRequest& r) override {
    use_device(device_);
    return std::make_unique<CudaCache>(r, readers());
  }

  std::unique_ptr<Workspace> make_workspace(std::span<const Graph> largest, int at_once) override {
    use_device(device_);
    return std::make_unique<CudaWorkspace>(workspace_bytes(largest), draw_size(largest), at_once, stream_size(largest),
                                           readers());
  }

  std::unique_ptr<Executable> compile(const Graph& graph, const WeightStore& weights, StateStore& state,
                                      Workspace& workspace) override {
    use_device(device_);
    for (const Node& node : graph.nodes()) {
      if (const std::string reason = refusal(graph, node); !reason.empty())
        throw Error(ErrorKind::Device, "backend cuda cannot run " + std::string(llm::name(node.op)) + ": " + reason);
    }
    return make_program(
        with_arrivals(legalize(graph)), as_cuda<const CudaWeights>(weights, "weights on the GPU"),
        as_cuda<CudaCache>(state, "a cache on the GPU"), as_cuda<CudaWorkspace>(workspace, "a workspace on the GPU"),
        gemm_.get(), stream_,
        {.overlap = properties_.major >= 9, .prompt_attention = !deterministic_, .many = many_columns(graph)});
  }

 private:
  Many many_columns(const Graph& graph) const {
    if (gemm_ == nullptr) return Many::AsFew;
    if (wgmma_ && graph.bucket().tokens <= (f8_ ? kWgmmaTokensBesideF8 : kWgmmaTokens)) return Many::Wgmma;
    return f8_ ? Many::F8 : wgmma_ ? Many::WgmmaExperts : Many::F16;
  }

  /// More than the largest plan: a best fit may pack a smaller bucket's values a little less well.
  std::uint64_t workspace_bytes(std::span<const Graph> largest) const {
    std::uint64_t bytes = 0;
    for (const Graph& graph : largest)
      bytes = std::max(bytes, plan_step(with_arrivals(legalize(graph)), many_columns(graph), token_kernels()).bytes);
    return bytes + bytes / 8 + (std::uint64_t{1} << 20);
  }

  static DrawSize draw_size(std::span<const Graph> largest) {
    DrawSize size;
    for (const Graph& graph : largest) {
      if (!ends_in_logits(graph)) continue;
      size.rows = std::max(size.rows, graph.bucket().outputs);
      size.n = std::max(size.n, static_cast<int>(graph.info(graph.outputs().front()).type.shape[0]));
    }
    return size;
  }

  static StreamSize stream_size(std::span<const Graph> largest) {
    StreamSize size;
    for (const Graph& graph : largest) size.add(plan_streams(graph).size);
    return size;
  }

  int device_;
  cudaDeviceProp properties_;
  bool deterministic_;
  std::string no_gemm_;  ///< why there is no library
  std::unique_ptr<Gemm> gemm_;
  bool f8_;
  bool wgmma_;  ///< wgmma_products() can run here
  Stream stream_;
  bool loaded_ = false;
};

}  // namespace

/// The library is loaded while the driver makes a context, which takes as long.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  auto library = std::async([&options] { return options.deterministic ? Library{} : load_library(options.device); });
  const cudaDeviceProp properties = usable_device(options.device);
  return std::make_unique<CudaBackend>(options, properties, library.get());
}

}  // namespace llm
