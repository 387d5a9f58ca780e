// A device beside the host that runs everywhere, models on it, and what is compared of them.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loaded.h"
#include "queued.h"
#include "support/catch.h"
#include "support/text.h"

namespace llm::test {

inline constexpr int kLayers = 3;
inline constexpr int kDeviceRows = 300;           // Backend::rows_at_once() of a device
inline constexpr std::size_t kShortPrompt = 110;  // two blocks of the cache

/// A backend of the host with a memory and a thread of its own, as a GPU has them. What crosses to it comes from memory
/// full of NaN.
class Device final : public Backend {
 public:
  /// Those of one `link`, above 0, reach each other.
  Device(std::unique_ptr<Backend> inner, std::string memory, std::uint64_t available, int link = 0,
         int streams_from = 0)
      : inner_(std::move(inner)),
        memory_(std::move(memory)),
        available_(available),
        link_(link),
        streams_from_(streams_from) {}
  std::string_view name() const override { return "device"; }
  std::string describe() const override { return "device: " + inner_->describe(); }
  Support supports(const Graph& g, const Node& n) const override { return inner_->supports(g, n); }
  Graph legalize(const Graph& g) const override { return inner_->legalize(g); }
  Layout choose_layout(const WeightUse&) const override { return Layout::Device; }
  std::vector<MemoryShare> memory(std::span<const Graph> largest) const override {
    MemoryShare share = inner_->memory(largest).front();
    share.name = memory_;
    share.available = available_;
    share.layout = Layout::Device;
    return {share};
  }
  std::unique_ptr<HostMemory> host_memory(std::size_t bytes) override {
    auto memory = inner_->host_memory(bytes);
    std::memset(memory->data(), 0xff, bytes);
    return memory;
  }
  bool reaches(const Backend& other) const override {
    const auto* const device = dynamic_cast<const Device*>(&other);
    return device != nullptr && link_ > 0 && device->link_ == link_;
  }
  std::unique_ptr<DeviceMemory> device_memory(std::size_t bytes) override {
    struct Own final : DeviceMemory {
      std::byte* data() const override { return memory->data(); }
      std::unique_ptr<HostMemory> memory;
    };
    auto own = std::make_unique<Own>();
    own->memory = host_memory(bytes);
    lent += bytes;
    return own;
  }
  int steps_at_once() const override { return 2; }
  int most_step_tokens() const override { return most_tokens; }
  int rows_at_once() const override { return kDeviceRows; }
  bool draws() const override { return inner_->draws(); }
  int streams_from(bool /*experts*/) const override { return streams_from_; }
  std::unique_ptr<WeightStore> load(const WeightSource& source, std::span<const WeightPlan> plans) override {
    auto own = std::make_unique<OwnWeights>();
    for (const WeightPlan& plan : plans) {
      const bool brought = plan.layout == Layout::Streamed;
      (brought ? streamed : loaded)[plan.name] = plan.type.bytes();
      if (brought) continue;
      source.read(plan.name, 0, own->copies.bytes[plan.name] = std::vector<std::byte>(plan.type.bytes()));
    }
    own->copies.source = &source;
    own->inner = inner_->load(own->copies, plans);
    return own;
  }
  std::unique_ptr<StateStore> allocate(const StateRequest& request) override {
    fleeting = 0;
    for (const CacheType& type : request.caches)
      fleeting += type.fleeting() && type.part == CacheType::Part::KeysValues ? 1 : 0;
    return inner_->allocate(request);
  }
  std::unique_ptr<Workspace> make_workspace(std::span<const Graph> largest, int at_once) override {
    return inner_->make_workspace(largest, at_once);
  }
  std::unique_ptr<Executable> compile(const Graph& g, const WeightStore& weights, StateStore& states,
                                      Workspace& workspace) override {
    compiled.emplace_back(g.bucket().tokens, g.nodes().size());
    for (const ValueInfo& v : g.values()) {
      if (v.kind == ValueKind::Weight) CHECK((v.streamed ? streamed : loaded).contains(v.name));
    }
    return std::make_unique<QueuedExecutable>(
        inner_->compile(g, *dynamic_cast<const OwnWeights&>(weights).inner, states, workspace), queue_, delay);
  }

  std::map<std::string, std::uint64_t> loaded, streamed;
  int fleeting = 0;                                   ///< caches of layers, of the session that was made last
  std::vector<std::pair<int, std::size_t>> compiled;  ///< tokens of the bucket, nodes
  std::size_t lent = 0;                               ///< bytes of device_memory()
  std::chrono::microseconds delay{};                  ///< of each step, of programs compiled from now on
  int most_tokens = 512;                              ///< of a step

 private:
  /// As a GPU copies weights and then needs them in the file no more.
  struct Copies final : WeightSource {
    std::optional<std::span<const std::byte>> mapped(std::string_view name) const override {
      const auto found = bytes.find(std::string(name));
      return found == bytes.end() ? source->mapped(name) : std::span<const std::byte>(found->second);
    }
    void read(std::string_view, std::uint64_t, std::span<std::byte>) const override {}
    const WeightSource* source = nullptr;
    std::map<std::string, std::vector<std::byte>> bytes;
  };
  struct OwnWeights final : WeightStore {
    Copies copies;
    std::unique_ptr<WeightStore> inner;
  };
  std::unique_ptr<Backend> inner_;
  Queue queue_;
  std::string memory_;
  std::uint64_t available_;
  int link_, streams_from_;
};

inline constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

/// Model::load with a device of that much memory, or with several.
struct Loader {
  explicit Loader(const TinyFile& file, std::uint64_t available = kPlenty) : available_{available} {
    file.write(folder / "model.gguf");
  }
  Loader(const TinyFile& file, std::vector<std::uint64_t> available, int link)
      : available_(std::move(available)), link_(link) {
    file.write(folder / "model.gguf");
  }

  std::unique_ptr<Model> operator()(const PlacementOptions& placement, const std::string& backend = "device",
                                    LoadOptions::Weights weights = LoadOptions::Weights::Load,
                                    const std::string& host = "cpu") {
    LoadOptions o{.path = folder / "model.gguf", .backend = backend, .host = host, .threads = 2, .progress = {}};
    o.placement = placement;
    o.bytes_per_thread = 0;
    o.weights = weights;
    o.files = files;
    o.adapters = adapters;
    o.predicts = predicts;
    o.backends = [this](std::string_view name, const BackendOptions& options) -> std::unique_ptr<Backend> {
      if (name != "device") return make_backend(name, options);
      const auto number = static_cast<std::size_t>(options.device);
      const std::string memory = available_.size() == 1 ? "GPU" : "CUDA" + std::to_string(number);
      auto made =
          std::make_unique<Device>(make_backend("cpu", options), memory, available_.at(number), link_, streams_from);
      device = devices[options.device] = made.get();
      return made;
    };
    return Model::load(o, warnings);
  }

  TempDir folder;
  Warnings warnings;
  Device* device = nullptr;        ///< of the model that was loaded last
  std::map<int, Device*> devices;  ///< by their numbers
  int streams_from = 0;            ///< of each device
  std::vector<AdapterFile> adapters;
  LoadOptions::Files files = LoadOptions::Files::Mapped;
  bool predicts = false;

 private:
  std::vector<std::uint64_t> available_;
  int link_ = 0;
};

inline TinyOptions narrow(std::string arch, DType type = DType::F32) {
  return {.arch = std::move(arch), .layers = kLayers, .context = 512, .type = type};
}

inline std::vector<ModelCase> placed_cases() {
  TinyOptions experts = narrow("llama");
  experts.experts = 4;
  TinyOptions tied = narrow("llama", DType::Q8_0);
  tied.tied = true;
  tied.rope = TinyRope::Llama3;
  TinyOptions window = narrow("qwen2", DType::BF16);
  return {{"llama F32", narrow("llama"), {DType::F32, DType::F32}},
          {"llama Q4_K, Q8_0 cache", wide("llama", DType::Q4_K, kLayers), {DType::Q8_0, DType::Q8_0}},
          {"llama experts", experts},
          {"llama tied Q8_0, factors of angles", tied},
          {"qwen2 BF16", window},
          {"qwen3 Q5_1, F8_E4M3 cache", narrow("qwen3", DType::Q5_1), {DType::F8_E4M3, DType::F8_E4M3}},
          {"qwen3moe Q4_K", wide("qwen3moe", DType::Q4_K, kLayers)},
          {"olmoe F16", narrow("olmoe", DType::F16)},
          {"deepseek2 Q8_0", narrow("deepseek2", DType::Q8_0)},
          {"llama4 Q8_0", narrow("llama4", DType::Q8_0)},
          {"glm-dsa Q8_0", narrow("glm-dsa", DType::Q8_0)},
          {"minimax-m3 Q8_0", narrow("minimax-m3", DType::Q8_0)},
          {"nanbeige Q8_0", narrow("nanbeige", DType::Q8_0)}};
}

inline Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error");
  return Error(ErrorKind::Internal, "");
}

/// Chunks, a batch, rewinds, forks and restored blocks, all in one string of bits.
inline std::vector<float> everything(Model& model, const CacheFormat& cache) {
  const auto prompt = random_tokens(kShortPrompt, model.dims().vocab, 1),
             other = random_tokens(40, model.dims().vocab, 2);
  Session session(model, {.context = 256, .sequences = 3, .cache = cache});
  const SequenceId first = session.create();
  std::vector<float> all = logits_in_chunks(session, first, prompt, kShortPrompt);
  const auto keep = [&](std::span<const float> rows) { all.insert(all.end(), rows.begin(), rows.end()); };
  session.rewind(first, 0);
  keep(logits_in_chunks(session, first, std::span(prompt).first(70), 7));
  keep(logits_in_chunks(session, first, std::span(prompt).subspan(70, 5), 1));
  const SequenceId fork = session.fork(first, 66);
  const std::array work{Append{first, std::span(prompt).subspan(75), Logits::All}, Append{fork, other, Logits::Last}};
  keep(session.eval(work));
  std::vector<std::vector<std::byte>> blocks;
  for (std::size_t b = 0; b < 2; ++b) {
    blocks.emplace_back(session.cache_block_bytes());
    session.read_block(first, b, blocks.back());
  }
  session.remove(fork);
  const SequenceId restored = session.create();
  session.restore(restored, {.tokens = std::span(prompt).first(100),
                             .block = [&](std::size_t b) { return std::span<const std::byte>(blocks[b]); }});
  keep(logits_in_chunks(session, restored, std::span(prompt).subspan(100), 20));
  return all;
}

}  // namespace llm::test
