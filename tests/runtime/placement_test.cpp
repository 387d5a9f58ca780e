// A model whose parts run on different backends: the same bits as on one where both are of one kind, whatever the cut;
// memory counted where things lie; as many layers as fit.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "backend/cuda/gpus.h"
#include "placed.h"
#include "runtime/generator.h"
#include "runtime/placement_options.h"
#include "runtime/state_file.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Every number of layers, and some of them with experts elsewhere.
std::vector<PlacementOptions> placements(bool experts) {
  std::vector<PlacementOptions> all;
  for (int layers = 1; layers <= kLayers; ++layers) all.push_back({.layers = layers});
  if (!experts) return all;
  all.push_back({.layers = 3, .host_experts = PlacementOptions::kAll});
  all.push_back({.layers = kLayers + 1, .host_experts = 2});
  all.push_back({.host_experts = PlacementOptions::kAll});
  return all;
}

/// And some with single tensors elsewhere.
std::vector<PlacementOptions> all_placements(bool experts) {
  std::vector<PlacementOptions> all = placements(experts);
  for (const char* overrides : {"attn_[kv]=CPU", "attn_output=CPU", "ffn_up=CPU", "ffn_down=CPU", ".*=CPU"}) {
    all.push_back({});
    all.back().overrides = parse_tensor_overrides("-ot", overrides);
  }
  all.push_back({.layers = 2});
  all.back().overrides = parse_tensor_overrides("-ot", R"(blk\.0\.=CUDA0)");
  return all;
}

/// What `load` gives, or nothing, which it says, where the backend is not built or has no device.
template <class Load>
std::unique_ptr<Model> if_built(const Load& load) {
  try {
    return load();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Device) throw;
    std::printf("skipped: %s\n", e.what());
    return nullptr;
  }
}

float largest_of(const std::vector<float>& logits) {
  float largest = 0;
  for (const float f : logits) largest = std::max(largest, std::abs(f));
  return largest;
}

/// Infinite where one is no number.
float worst_difference(const std::vector<float>& got, const std::vector<float>& expected) {
  float worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float d = std::abs(got[i] - expected[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

}  // namespace

TEST_CASE("a model in parts has the bits of the whole", "[placement]") {
  for (const ModelCase& c : placed_cases()) {
    INFO(c.name);
    Loader load(tiny_model(c.options));
    const auto whole = load({}, "cpu");
    REQUIRE(whole->placement().empty());
    const std::vector<float> expected = everything(*whole, c.cache);
    for (const PlacementOptions& p : placements(whole->dims().experts > 0)) {
      INFO("layers " << p.layers << ", host's experts " << p.host_experts);
      const auto parts = load(p);
      CHECK(contains(parts->placement(), "GPU: "));
      CHECK(same_bits(everything(*parts, c.cache), expected));
    }
  }
}

TEST_CASE("recurrent layers in parts have the bits of the whole, and long steps leave their states where they are",
          "[placement]") {
  for (const char* const arch :
       {"qwen35", "qwen35moe", "qwen4exp", "deepseek4", "kimi-k3", "glm5-next", "lfm2moe", "falcon-h1"}) {
    INFO(arch);
    Loader load(tiny_model({.arch = arch, .layers = kLayers, .context = 512}));
    const auto whole = load({}, "cpu");
    const std::vector<float> expected = everything(*whole, {});
    load.streams_from = 64;
    for (const PlacementOptions& p : placements(whole->dims().experts > 0)) {
      INFO("layers " << p.layers << ", host's experts " << p.host_experts);
      const auto parts = load(p);
      const bool layers_on_host = p.layers >= 1 && p.layers <= kLayers;
      CHECK(contains(parts->placement(), "weights long prompts bring") != layers_on_host);
      CHECK(same_bits(everything(*parts, {}), expected));
    }
  }
}

TEST_CASE("long steps compute on a device with weights of the host, and have the bits of the whole", "[placement]") {
  for (const ModelCase& c : placed_cases()) {
    INFO(c.name);
    Loader load(tiny_model(c.options));
    const auto whole = load({}, "cpu");
    const std::vector<float> expected = everything(*whole, c.cache);
    load.streams_from = 64;
    for (const PlacementOptions& p : placements(whole->dims().experts > 0)) {
      INFO("layers " << p.layers << ", host's experts " << p.host_experts);
      const auto parts = load(p);
      CHECK(contains(parts->placement(), "CPU: the rest, whose weights long prompts bring to the GPU"));
      CHECK(same_bits(everything(*parts, c.cache), expected));
      const auto nodes_of_steps = [&](bool long_ones) {
        std::size_t most = 0;  // of all segments of one bucket
        std::map<int, std::size_t> nodes;
        for (const auto& [tokens, n] : load.device->compiled) nodes[tokens] += n;
        for (const auto& [tokens, n] : nodes)
          if ((tokens >= load.streams_from) == long_ones) most = std::max(most, n);
        return most;
      };
      CHECK(nodes_of_steps(true) > nodes_of_steps(false));
      CHECK(!load.device->streamed.empty());
      // Attention is the device's, too, over caches that no block of the session has.
      const int all = whole->dims().n_layers + 1;
      CHECK(load.device->fleeting == all - std::min(p.layers, all));
      Session parts_session(*parts, {.context = 256, .cache = c.cache}),
          whole_session(*whole, {.context = 256, .cache = c.cache});
      CHECK(parts_session.cache_block_bytes() == whole_session.cache_block_bytes());
      PlacementOptions not_brought = p;
      not_brought.streams = false;
      const auto kept = load(not_brought);
      CHECK(kept->placement().ends_with("CPU: the rest"));
      CHECK(load.device->streamed.empty());
      // Nor where no step is long enough: then nothing has a place for what would come.
      PlacementOptions short_steps = p;
      short_steps.room.batch_tokens = 32;
      const auto briefly = load(short_steps);
      CHECK(briefly->placement().ends_with("CPU: the rest"));
      Session(*briefly, {.context = 256, .batch_tokens = 32, .cache = c.cache});
      CHECK(load.device->streamed.empty());
      CHECK(load.device->fleeting == 0);
      short_steps.room.batch_tokens = 64;
      CHECK(contains(load(short_steps)->placement(), "whose weights long prompts bring"));
    }
  }
}

TEST_CASE("a file that was read into memory serves all devices", "[placement]") {
  TinyOptions options = wide("llama", DType::F32, kLayers);
  options.tied = true;
  Loader load(tiny_model(options));
  const std::vector<float> expected = everything(*load({}, "cpu"), {});
  load.files = LoadOptions::Files::Read;
  for (const int streams_from : {0, 64}) {
    INFO("weights brought from " << streams_from << " tokens on");
    load.streams_from = streams_from;
    CHECK(same_bits(everything(*load({.layers = 2}), {}), expected));
  }
}

TEST_CASE("weights of long steps are brought, not kept", "[placement]") {
  TinyOptions options = wide("llama", DType::F32, kLayers);
  options.experts = 4;
  const TinyFile file = tiny_model(options);
  Loader load(file);
  load.streams_from = 64;
  const auto names = [](const std::map<std::string, std::uint64_t>& weights) {
    std::set<std::string> all;
    for (const auto& [name, bytes] : weights) all.insert(name);
    return all;
  };
  const auto named = [&](const std::function<bool(const TinyTensor&)>& wanted) {
    std::set<std::string> all;
    for (const TinyTensor& t : file.tensors()) {
      if (wanted(t)) all.insert(t.name);
    }
    return all;
  };
  // Of the first two layers the vectors and the routers are kept.
  const auto whole_model = load({.layers = 2});
  CHECK(names(load.device->streamed) == named([](const TinyTensor& t) {
          const bool product = contains(t.name, "ffn_") ? contains(t.name, "_exps.") : contains(t.name, "attn_");
          return (t.name.starts_with("blk.0.") || t.name.starts_with("blk.1.")) && product && !contains(t.name, "norm");
        }));
  CHECK(load.device->loaded.contains("blk.0.ffn_gate_inp.weight"));
  CHECK(!load.device->loaded.contains("blk.0.attn_q.weight"));
  CHECK(!load.device->loaded.contains("token_embd.weight"));
  // What they take is not of the device's memory, but of the host's as before.
  const auto weights_of = [](const Model& model, std::string_view memory) {
    const Graph largest = model.graph({.tokens = 64, .sequences = 1, .outputs = 1});
    for (const MemoryShare& share : model.backend().memory({&largest, 1}))
      if (share.name == memory) return share.weights;
    return std::uint64_t{0};
  };
  const std::uint64_t here = weights_of(*whole_model, "CPU"), there = weights_of(*whole_model, "GPU");
  // Fleeting caches have two places, however many layers there are; these two have one each.
  const Graph largest = whole_model->graph({.tokens = 64, .sequences = 1, .outputs = 1});
  int fleeting = 0;
  for (const MemoryShare& share : whole_model->backend().memory({&largest, 1}))
    for (const CacheType& cache : share.caches) fleeting += cache.fleeting() ? 1 : 0;
  CHECK(fleeting == 2);
  const auto kept = load({.layers = 2, .streams = false});
  CHECK(weights_of(*kept, "CPU") == here);
  CHECK(there - weights_of(*kept, "GPU") < 64 << 10);
}

TEST_CASE("parts of other kinds of backends agree with the reference", "[placement]") {
  for (const char* arch : {"llama", "qwen3moe", "deepseek2"}) {
    INFO(arch);
    Loader load(tiny_model({.arch = arch, .layers = kLayers, .context = 128}));
    const auto logits = [&](Model& model) {
      Session session(model, {.context = 128, .cache = {DType::F32, DType::F32}});
      return logits_in_chunks(session, session.create(), random_tokens(60, model.dims().vocab, 3), 37);
    };
    const auto expected = logits(*load({}, "reference"));
    const float largest = largest_of(expected);
    for (const auto& [backend, host] : {std::pair{"cpu", "reference"}, std::pair{"blas", "cpu"}}) {
      INFO(backend << " and " << host);
      const auto model = if_built([&, backend = backend, host = host] {
        return load({.layers = 2, .host_experts = PlacementOptions::kAll}, backend, LoadOptions::Weights::Load, host);
      });
      if (!model) continue;
      const auto got = logits(*model);
      REQUIRE(got.size() == expected.size());
      CHECK(worst_difference(got, expected) <= 2e-5F * largest);
    }
  }
}

TEST_CASE("on a GPU and the CPU, parts of a model agree with the reference", "[placement]") {
  for (const char* arch : {"llama", "qwen2", "qwen3", "qwen3moe", "olmoe", "glm4moe", "grovemoe"}) {
    INFO(arch);
    Loader load(tiny_model({.arch = arch, .layers = kLayers, .context = 256}));
    const auto tokens = random_tokens(kShortPrompt, 259, 3);
    // Short steps, which are recorded, then one of a prompt, whose operands on the GPU are rounded to F16.
    const auto logits = [&](Model& model, std::size_t first_chunk) {
      Session session(model, {.context = 256, .sequences = 2, .cache = {DType::F32, DType::F32}});
      return logits_in_chunks(session, session.create(), tokens, first_chunk);
    };
    const auto expected = logits(*load({}, "reference"), kShortPrompt);
    const float largest = largest_of(expected);
    for (const PlacementOptions& p : all_placements(contains(arch, "moe"))) {
      INFO("layers " << p.layers << ", host's experts " << p.host_experts << ", overrides "
                     << (p.overrides.empty() ? "none" : p.overrides.front().given));
      const auto model = if_built([&] { return load(p, "cuda"); });
      if (!model) return;
      for (const auto& [chunk, tolerance] :
           {std::pair{std::size_t{37}, 2e-5F}, std::pair{std::size_t{1}, 2e-5F}, std::pair{kShortPrompt, 5e-3F}}) {
        INFO("chunks of " << chunk);
        const auto got = logits(*model, chunk);
        REQUIRE(got.size() == expected.size());
        CHECK(same_bits(logits(*model, chunk), got));
        // Where two experts are all but equally good, the rounding of a prompt's operands chooses: no bound holds.
        if (chunk == kShortPrompt && contains(arch, "moe")) continue;
        CHECK(worst_difference(got, expected) <= tolerance * largest);
      }
      // What was copied out of both caches and back gives the same.
      Session session(*model, {.context = 256, .sequences = 2});
      const SequenceId first = session.create(), copy = session.create();
      logits_in_chunks(session, first, std::span(tokens).first(100), 50);
      std::vector<std::vector<std::byte>> blocks;
      for (std::size_t b = 0; b < 2; ++b) {
        blocks.emplace_back(session.cache_block_bytes());
        session.read_block(first, b, blocks.back());
      }
      session.restore(copy, {.tokens = std::span(tokens).first(100),
                             .block = [&](std::size_t b) { return std::span<const std::byte>(blocks[b]); }});
      const auto rest = std::span(tokens).subspan(100);
      CHECK(same_bits(logits_in_chunks(session, copy, rest, 25), logits_in_chunks(session, first, rest, 25)));
    }
  }
}

TEST_CASE("on a GPU and the CPU, parts of a model that remembers or selects agree with the reference", "[placement]") {
  for (const char* arch : {"qwen35moe", "qwen4exp", "deepseek4", "minimax-m3"}) {
    INFO(arch);
    Loader load(tiny_model({.arch = arch, .layers = kLayers, .context = 256}));
    const auto tokens = random_tokens(kShortPrompt, 259, 3);
    const auto logits = [&](Model& model, std::size_t first_chunk) {
      Session session(model, {.context = 256, .cache = {DType::F32, DType::F32}});
      return logits_in_chunks(session, session.create(), tokens, first_chunk);
    };
    const auto expected = logits(*load({}, "reference"), kShortPrompt);
    for (const PlacementOptions& p : all_placements(true)) {
      INFO("layers " << p.layers << ", host's experts " << p.host_experts << ", overrides "
                     << (p.overrides.empty() ? "none" : p.overrides.front().given));
      const auto model = if_built([&] { return load(p, "cuda"); });
      if (!model) return;
      for (const std::size_t chunk : {std::size_t{37}, std::size_t{1}, kShortPrompt}) {
        INFO("chunks of " << chunk);
        const auto got = logits(*model, chunk);
        REQUIRE(got.size() == expected.size());
        CHECK(same_bits(logits(*model, chunk), got));
        if (chunk == kShortPrompt) continue;  // as above
        CHECK(worst_difference(got, expected) <= 2e-5F * largest_of(expected));
      }
    }
  }
}

TEST_CASE("long prompts on a GPU with weights of the CPU's layers agree with the reference", "[placement]") {
  constexpr std::size_t kLongPrompt = 400;
  for (const auto& [arch, type] :
       {std::pair{"llama", DType::F32}, std::pair{"llama", DType::Q4_K}, std::pair{"qwen3", DType::Q8_0},
        std::pair{"qwen3moe", DType::Q4_K}, std::pair{"nanbeige", DType::Q8_0}}) {  // whose weights several nodes read
    INFO(arch << " " << name(type));
    TinyOptions options = wide(arch, type, kLayers);
    options.context = 512;
    Loader load(tiny_model(options));
    const auto tokens = random_tokens(kLongPrompt, 259, 3);
    const auto logits = [&](Model& model, std::size_t chunk) {
      Session session(model, {.context = 512, .cache = {DType::F32, DType::F32}});
      return logits_in_chunks(session, session.create(), tokens, chunk);
    };
    const auto expected = logits(*load({}, "reference"), kLongPrompt);
    const float largest = largest_of(expected);
    for (const PlacementOptions& p : all_placements(contains(arch, "moe"))) {
      INFO("layers " << p.layers << ", host's experts " << p.host_experts << ", overrides "
                     << (p.overrides.empty() ? "none" : p.overrides.front().given));
      const auto model = if_built([&] { return load(p, "cuda"); });
      if (!model) return;
      if (model->backend().most_step_tokens() < 512) {
        std::printf("skipped: cuBLASLt is not here, without which no weights are brought\n");
        return;
      }
      const std::string gpu = look_for_gpus().gpus.size() > 1 ? "CUDA0" : "the GPU";
      CHECK(contains(model->placement(), "whose weights long prompts bring to " + gpu));
      for (const std::size_t chunk : {kLongPrompt, kLongPrompt / 2}) {  // the second half of two has a past
        INFO("chunks of " << chunk);
        const auto got = logits(*model, chunk);
        REQUIRE(got.size() == expected.size());
        CHECK(same_bits(logits(*model, chunk), got));
        // As above.
        if (contains(arch, "moe")) continue;
        CHECK(worst_difference(got, expected) <= 5e-3F * largest);
      }
    }
  }
}

TEST_CASE("long prompts on a GPU bring the caches of layers between which others do not attend", "[placement]") {
  constexpr std::size_t kPrompt = 400;
  TinyOptions options = wide("deci", DType::Q8_0, 9);  // the first, the fifth and the last layer attend
  options.context = 512;
  Loader load(tiny_model(options));
  const auto tokens = random_tokens(kPrompt, 259, 3);
  const auto logits = [&](Model& model, std::size_t chunk) {
    Session session(model, {.context = 512, .cache = {DType::F32, DType::F32}});
    return logits_in_chunks(session, session.create(), tokens, chunk);
  };
  const auto expected = logits(*load({}, "reference"), kPrompt);
  const auto model = if_built([&] { return load({.layers = 1}, "cuda"); });
  if (!model) return;
  for (const std::size_t chunk : {kPrompt, kPrompt / 2}) {
    INFO("chunks of " << chunk);
    CHECK(worst_difference(logits(*model, chunk), expected) <= 5e-3F * largest_of(expected));
  }
}

// Every step is long enough for all weights to be brought: what the CPU computed of a shorter one would have other
// bits.
TEST_CASE("long prompts on a GPU bring indexes, and have the bits of the whole model there", "[placement]") {
  constexpr std::size_t kBringing = 1024;
  for (const char* arch : {"deepseek32", "glm-dsa", "minimax-m3"}) {
    INFO(arch);
    TinyOptions options = wide(arch, DType::Q8_0, kLayers);
    options.context = 2048;
    Loader load(tiny_model(options));
    const auto tokens = random_tokens(kBringing, 259, 3);
    const auto logits = [&](Model& model, std::size_t chunk) {
      Session session(model, {.context = 2048});
      return logits_in_chunks(session, session.create(), tokens, chunk);
    };
    const auto whole = if_built([&] { return load({}, "cuda"); });
    if (!whole) return;
    if (whole->backend().most_step_tokens() < 512) {
      std::printf("skipped: cuBLASLt is not here, without which no weights are brought\n");
      return;
    }
    for (int layers = 1; layers <= kLayers; ++layers) {
      INFO("layers " << layers);
      const auto parts = load({.layers = layers}, "cuda");
      CHECK(contains(parts->placement(), "whose weights long prompts bring to"));
      for (const std::size_t chunk : {kBringing, kBringing / 2}) {  // the second half of two has a past
        INFO("chunks of " << chunk);
        CHECK(same_bits(logits(*parts, chunk), logits(*whole, chunk)));
      }
    }
  }
}

TEST_CASE("each device gets the weights of its nodes, and no others", "[placement]") {
  TinyOptions options = narrow("llama");
  options.experts = 4;
  options.tied = true;
  const TinyFile file = tiny_model(options);
  const auto loaded_with = [&](const PlacementOptions& p) {
    Loader load(file);
    const auto model = load(p);
    std::set<std::string> names;
    for (const auto& [name, bytes] : load.device->loaded) names.insert(name);
    return names;
  };
  const auto named = [&](const std::function<bool(const std::string&)>& wanted) {
    std::set<std::string> names;
    for (const TinyTensor& t : file.tensors()) {
      if (wanted(t.name)) names.insert(t.name);
    }
    return names;
  };
  // The head reads the embedding's table; a layer's sum is normed for the next one where it is made.
  CHECK(loaded_with({.layers = 1}) == std::set<std::string>{"token_embd.weight"});
  CHECK(loaded_with({.layers = 2}) == named([](const std::string& n) {
          return (n.starts_with("blk.2.") && n != "blk.2.attn_norm.weight") || !n.starts_with("blk.");
        }));
  CHECK(loaded_with({.layers = kLayers + 1, .host_experts = 2}) ==
        named([](const std::string& n) { return !contains(n, "_exps.") || n.starts_with("blk.2."); }));
}

TEST_CASE("a saved cache belongs to its placement", "[placement]") {
  TinyOptions options = narrow("qwen3moe");
  Loader load(tiny_model(options));
  const auto path = load.folder / "state";
  const PlacementOptions placement{.layers = 2, .host_experts = PlacementOptions::kAll};
  const auto model = load(placement);
  const auto tokens = random_tokens(100, model->dims().vocab, 3), rest = random_tokens(20, model->dims().vocab, 4);
  Session session(*model, {.context = 256, .sequences = 2});
  const SequenceId id = session.create();
  logits_in_chunks(session, id, tokens, 100);
  save_state(path, *model, session, id, tokens);
  const std::vector<float> expected = logits_in_chunks(session, id, rest, 20);

  const auto again = load(placement);
  Session other(*again, {.context = 256, .sequences = 2});
  const SequenceId restored = other.create();
  StateFile::open(path, *again, other.cache_format()).restore(other, restored, 100);
  CHECK(same_bits(logits_in_chunks(other, restored, rest, 20), expected));

  for (const PlacementOptions& p : {PlacementOptions{.layers = 3, .host_experts = PlacementOptions::kAll},
                                    PlacementOptions{.layers = 2}, PlacementOptions{}}) {
    const auto elsewhere = load(p);
    Session there(*elsewhere, {.context = 256, .sequences = 2});
    const Error e = error_of([&] { StateFile::open(path, *elsewhere, there.cache_format()); });
    CHECK(contains(e.what(), "holds the cache of backend \"device and cpu, device from layer 2"));
  }
}

TEST_CASE("as many layers as fit run on the device", "[placement]") {
  const TinyFile file = tiny_model(narrow("llama"));
  Loader load(file);
  PlacementOptions fitting{.layers = PlacementOptions::kFitting};
  fitting.room.context = 200;
  const auto layers_with = [&](std::uint64_t available, const PlacementOptions& p) {
    Loader some(file, available);
    const auto model = some(p, "device", LoadOptions::Weights::Leave);
    const std::string text = model->placement();
    return text.empty() ? kLayers + 1 : std::stoi(text.substr(text.find(": ") + 2));
  };
  // What each number of layers takes, by the figures of a session with that context.
  std::uint64_t before = 0;
  for (int layers = 1; layers <= kLayers + 1; ++layers) {
    INFO(layers);
    const auto model = load({.layers = layers}, "device", LoadOptions::Weights::Leave);
    const ContextRequest r = memory_request(*model, {.context = 200});
    const MemoryNeeds& gpu = r.memories.front();
    REQUIRE(gpu.name == "GPU");
    const std::uint64_t needed = gpu.weight_bytes + gpu.work_bytes + cache_bytes(r, gpu, 200);
    CHECK(needed > before);
    CHECK(layers_with(needed, fitting) == layers);
    CHECK(model->backend().rows_at_once() == (layers > kLayers ? kDeviceRows : 32));
    if (layers > 1) CHECK(layers_with(needed - 1, fitting) == layers - 1);
    before = needed;
  }
  Loader tiny(file, 100);
  const Error none = error_of([&] { tiny(fitting); });
  CHECK(none.kind() == ErrorKind::Memory);
  CHECK(contains(none.what(), "not one of the model's 4 layers fits with its cache into the GPU's memory"));
  // A longer context leaves less for weights; what nobody asked for counts up to 4,096 positions.
  PlacementOptions more = fitting;
  more.room.context = 0;  // the trained one, 512
  CHECK(layers_with(before, more) < kLayers + 1);
  more.room.context = std::nullopt;
  CHECK(layers_with(before, more) < kLayers + 1);
  more = fitting;
  more.room.sequences = 4;
  CHECK(layers_with(before, more) < kLayers + 1);
}

TEST_CASE("layers that attend to what others keep are on their device", "[placement]") {
  // Layers 3 and 4 read the keys and values of 1 and 2.
  const TinyFile file = tiny_model({.arch = "gemma4", .layers = 5, .context = 512});
  Loader load(file);
  load.streams_from = 64;
  const CacheFormat cache;
  const auto whole = load({}, "cpu");
  const std::vector<float> expected = everything(*whole, cache);
  for (const int layers : {1, 5, 6}) {  // the head alone; all but the first; all
    INFO(layers);
    const auto parts = load({.layers = layers});
    CHECK(same_bits(everything(*parts, cache), expected));
    CHECK(load.device->fleeting == 0);  // what is brought is for one layer
  }
  for (const int layers : {2, 3, 4}) {
    INFO(layers);
    const Error e = error_of([&] { load({.layers = layers}); });
    CHECK(e.kind() == ErrorKind::Device);
    CHECK(contains(e.what(), "attn: it reads the keys and values of layer "));
  }
  // Where all but two have room.
  PlacementOptions fitting{.layers = PlacementOptions::kFitting};
  fitting.room.context = 200;
  const auto most = load({.layers = 5}, "device", LoadOptions::Weights::Leave);
  const ContextRequest r = memory_request(*most, {.context = 200});
  const MemoryNeeds& gpu = r.memories.front();
  const std::uint64_t needed = gpu.weight_bytes + gpu.work_bytes + cache_bytes(r, gpu, 200);
  Loader enough(file, needed), less(file, needed - 1);
  CHECK(contains(enough(fitting)->placement(), "GPU: 5 of 6 layers"));
  CHECK(contains(less(fitting)->placement(), "GPU: 1 of 6 layers"));
}

TEST_CASE("memory is counted where things lie", "[placement]") {
  TinyOptions options = narrow("qwen3moe");
  Loader load(tiny_model(options));
  const auto whole = load({}, "cpu", LoadOptions::Weights::Leave);
  const ContextRequest one = memory_request(*whole, {.context = 200});
  REQUIRE(one.memories.size() == 1);
  for (const PlacementOptions& p : {PlacementOptions{.layers = 2}, PlacementOptions{.host_experts = 2}}) {
    const auto model = load(p, "device", LoadOptions::Weights::Leave);
    const ContextRequest r = memory_request(*model, {.context = 200});
    REQUIRE(r.memories.size() == 2);
    CHECK(weight_bytes(r) == weight_bytes(one));  // nothing is shared
    CHECK(bytes_per_position(r) == bytes_per_position(one));
    CHECK(r.memories[0].available == kPlenty);
    CHECK(r.memories[0].weights == MemoryNeeds::Weights::Kept);
    CHECK(r.memories[1].name == "CPU");
    CHECK(r.memories[1].weights == MemoryNeeds::Weights::Mapped);
    const bool experts_alone = p.layers > kLayers;
    CHECK((r.memories[1].bytes_per_position == 0) == experts_alone);
  }
  const auto model = load({.layers = 2}, "device", LoadOptions::Weights::Leave);
  // Two of the same kind share their memory.
  const auto same = load({.layers = 2}, "cpu", LoadOptions::Weights::Leave);
  REQUIRE(memory_request(*same, {.context = 200}).memories.size() == 1);
  CHECK(weight_bytes(memory_request(*same, {.context = 200})) == weight_bytes(one));

  Loader small(tiny_model(options), 300 * 1024);
  const Error weights = error_of([&] { small({.layers = PlacementOptions::kAll}); });
  CHECK(weights.kind() == ErrorKind::Memory);
  CHECK(contains(weights.what(), "and 300.0 KiB of the GPU's memory are available"));
}

TEST_CASE("a wrong value is named wherever it was computed", "[placement]") {
  for (const char* tensor : {"blk.0.ffn_down.weight", "blk.2.ffn_down.weight"}) {
    INFO(tensor);
    Loader load(tiny_model(narrow("llama")));
    patch(load.folder / "model.gguf", tensor, 0, kNanF32);
    const auto model = load({.layers = 2});
    Session session(*model, {.context = 64});
    const SequenceId id = session.create();
    const Error e = error_of([&] { logits_in_chunks(session, id, random_tokens(5, model->dims().vocab, 1), 5); });
    CHECK(e.kind() == ErrorKind::Numeric);
    CHECK(contains(e.what(), "computed from tensor \"" + std::string(tensor) + "\""));
  }
}

TEST_CASE("parts can be watched, checked and described", "[placement]") {
  struct Watcher final : Observer {
    bool wants_value(std::string_view) override { return true; }
    void value(std::string_view name, const TensorView&) override { seen.insert(std::string(name)); }
    bool wants_timings() override { return true; }
    void timing(const StepTiming& t) override { layers.insert(t.layer); }
    std::set<std::string> seen;
    std::set<int> layers;
  } watcher;
  Loader load(tiny_model(narrow("olmoe")));
  const auto whole = load({}, "cpu");
  const std::vector<float> expected = everything(*whole, {});
  const PlacementOptions placement{.layers = 2, .host_experts = PlacementOptions::kAll};
  {
    const auto model = load(placement);
    CHECK(model->backend().name() == "device and cpu, device from layer 2, cpu the experts of layer 2");
    CHECK(contains(model->placement(), "GPU: 2 of 4 layers without the experts of layer 2, "));
    CHECK(contains(model->placement(), "; CPU: the rest"));
    Session session(*model, {.context = 64});
    session.observer = &watcher;
    logits_in_chunks(session, session.create(), random_tokens(5, model->dims().vocab, 1), 5);
    CHECK(watcher.layers == std::set<int>{-1, 0, 1, 2});
    for (const char* name : {"token_embd", "blk.2.attn", "blk.2.ffn_glu", "output"})
      CHECK(watcher.seen.count(name) == 1);
    // The layers before, the third's attention, its experts, the rest.
    const std::string text = session.describe();
    for (const char* part :
         {"segment 1 of 4 on cpu:", "segment 2 of 4 on device:", "segment 3 of 4 on cpu:", "segment 4 of 4 on device:"})
      CHECK(contains(text, part));
  }
  ::setenv("LLM_RUN_CHECK", "1", 1);
  const auto checked = load(placement);
  ::unsetenv("LLM_RUN_CHECK");
  CHECK(contains(checked->backend().describe(), "checked against the reference backend"));
  CHECK(same_bits(everything(*checked, {}), expected));
}
