// A model on several devices by layers: the bits of one, weights and cache where their layers are, exact plans.
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <set>

#include "backend/cuda/gpus.h"
#include "placed.h"
#include "runtime/memory_budget.h"
#include "runtime/state_file.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

PlacementOptions split(std::vector<double> shares, int layers = PlacementOptions::kAll, int host_experts = 0) {
  PlacementOptions o{.layers = layers, .host_experts = host_experts};
  o.devices.resize(shares.size());
  std::iota(o.devices.begin(), o.devices.end(), 0);
  o.split = PlacementOptions::Split::Always;
  o.shares = std::move(shares);
  return o;
}

PlacementOptions where_needed(int devices, int preferred, int layers = PlacementOptions::kFitting) {
  PlacementOptions o{.layers = layers};
  o.devices.resize(static_cast<std::size_t>(devices));
  std::iota(o.devices.begin(), o.devices.end(), 0);
  o.preferred = preferred;
  o.room.context = 200;
  return o;
}

std::vector<PlacementOptions> splits(bool experts) {
  std::vector<PlacementOptions> all{split({1, 1}), split({1, 3}), split({1, 1, 1, 1}), split({2, 1}, 3),
                                    split({1, 1}, 2)};
  if (experts) all.insert(all.end(), {split({1, 1}, PlacementOptions::kAll, 2), split({1, 1}, 3, 3)});
  return all;
}

const MemoryNeeds& memory_named(const ContextRequest& r, const std::string& name) {
  for (const MemoryNeeds& m : r.memories) {
    if (m.name == name) return m;
  }
  FAIL("no memory " << name);
  return r.memories.front();
}

/// What a run takes of a device's memory.
std::uint64_t needed(Model& model, const std::string& name) {
  const ContextRequest r = memory_request(model, {.context = 200});
  const MemoryNeeds& m = memory_named(r, name);
  return m.weight_bytes + m.work_bytes + cache_bytes(r, m, 200);
}

std::vector<ModelCase> split_cases() {
  std::vector<ModelCase> all = placed_cases();
  all.push_back({"qwen35 F32", narrow("qwen35")});
  all.push_back({"nemotron_h_moe F32", narrow("nemotron_h_moe")});
  return all;
}

}  // namespace

TEST_CASE("a model on several devices has the bits of one", "[placement]") {
  const std::vector<std::uint64_t> plenty(4, kPlenty);
  for (const ModelCase& c : split_cases()) {
    INFO(c.name);
    const TinyFile file = tiny_model(c.options);
    Loader one(file);
    const auto whole = one({}, "cpu");
    const std::vector<float> expected = everything(*whole, c.cache);
    for (const PlacementOptions& p : splits(whole->dims().experts > 0)) {
      for (const int link : {0, 1}) {
        INFO("layers " << p.layers << ", devices " << p.devices.size() << ", link " << link);
        Loader load(file, plenty, link);
        const auto parts = load(p);
        CHECK(parts->devices() == static_cast<int>(p.devices.size()));
        CHECK(same_bits(everything(*parts, c.cache), expected));
        // With a link values go from device to device; experts may be between the two.
        if (p.host_experts == 0) CHECK((load.devices.at(0)->lent > 0) == (link > 0));
      }
    }
  }
}

TEST_CASE("steps of a prompt run on several devices at once", "[placement]") {
  for (const ModelCase& c : split_cases()) {
    INFO(c.name);
    const TinyFile file = tiny_model(c.options);
    const auto in_steps = [&](Model& model) {
      const auto prompt = random_tokens(kShortPrompt, model.dims().vocab, 4);
      Session session(model, {.context = 256, .sequences = 2, .batch_tokens = 16, .cache = c.cache});
      const SequenceId first = session.create();
      std::vector<float> all = logits_in_chunks(session, first, prompt, kShortPrompt);
      // Those that nobody wants logits of, beside a sequence whose last block is copied meanwhile.
      const SequenceId fork = session.fork(first, 70);
      session.rewind(first, 3);
      const std::array work{Append{first, std::span(prompt).subspan(3), Logits::Last},
                            Append{fork, std::span(prompt).subspan(10), Logits::Last}};
      const auto rows = session.eval(work);
      all.insert(all.end(), rows.begin(), rows.end());
      return all;
    };
    Loader one(file);
    const std::vector<float> expected = in_steps(*one({}, "cpu"));
    for (const PlacementOptions& p : {split({1, 1}), split({1, 1, 1, 1}), split({2, 1}, 3)}) {
      for (const auto& delays : {std::array{0, 0}, std::array{1000, 0}, std::array{0, 1000}}) {
        INFO("layers " << p.layers << ", devices " << p.devices.size() << ", delays " << delays[0] << ", "
                       << delays[1]);
        Loader load(file, std::vector<std::uint64_t>(4, kPlenty), 1);
        const auto parts = load(p);
        for (const auto& [number, device] : load.devices)
          device->delay = std::chrono::microseconds(delays[number == 0 ? 0 : 1]);
        CHECK(same_bits(in_steps(*parts), expected));
      }
    }
  }
}

// What docs/cuda.md says of them: powers of two, on n devices 4 (n - 1) steps or more where these have 512 tokens.
TEST_CASE("a prompt is cut into steps by how many devices read it", "[placement]") {
  Loader load(tiny_model(narrow("llama")), std::vector<std::uint64_t>(4, kPlenty), 1);
  const auto lengths = [&](const PlacementOptions& p) {
    const auto model = load(p);
    for (const auto& [number, device] : load.devices) device->most_tokens = 2048;
    std::vector<int> all;
    for (const int tokens : {100, 2048, 6000, 8192, 16384, 100000}) all.push_back(model->backend().step_tokens(tokens));
    return all;
  };
  CHECK(lengths(split({1, 1})) == std::vector<int>{512, 512, 1024, 2048, 2048, 2048});
  CHECK(lengths(split({1, 1, 1})) == std::vector<int>{512, 512, 512, 1024, 2048, 2048});
  CHECK(lengths(split({1, 1, 1, 1})) == std::vector<int>{512, 512, 512, 512, 1024, 2048});
}

TEST_CASE("an evaluation goes on from the step where it was ended", "[placement]") {
  Loader load(tiny_model(narrow("llama")), {kPlenty, kPlenty}, 1);
  for (const std::size_t devices : {std::size_t{1}, std::size_t{2}}) {
    const auto model = devices == 1 ? load({}, "cpu") : load(split({1, 1}));
    const auto prompt = random_tokens(kShortPrompt, model->dims().vocab, 4);
    Session session(*model, {.context = 256, .sequences = 2, .batch_tokens = 16});
    std::vector<std::int64_t> computed;
    const SequenceId whole = session.create(), cut = session.create();
    const Append all{whole, prompt, Logits::Last};
    const auto rows = session.eval({&all, 1}, [&](std::int64_t n) {
      computed.push_back(n);
      return true;
    });
    const std::vector<float> expected(rows.begin(), rows.end());
    std::vector<std::int64_t> steps;
    for (std::int64_t n = 16; n < std::ssize(prompt); n += 16) steps.push_back(n);
    steps.push_back(std::ssize(prompt));
    CHECK(computed == steps);

    const Append same{cut, prompt, Logits::Last};
    CHECK(session.eval({&same, 1}, [](std::int64_t n) { return n < 48; }).empty());
    const auto done = static_cast<std::size_t>(session.length(cut));
    CHECK(done == 48 + 16 * (devices - 1));  // those on their way run to their end
    const Append rest{cut, std::span(prompt).subspan(done), Logits::Last};
    CHECK(same_bits(session.eval({&rest, 1}), expected));
  }
}

TEST_CASE("a wrong value in one of several steps at once takes all of them back", "[placement]") {
  Loader load(tiny_model(narrow("llama")), {kPlenty, kPlenty}, 1);
  constexpr Token kBad = 7;
  patch(load.folder / "model.gguf", "token_embd.weight", kBad * static_cast<std::size_t>(narrow("llama").n_embd) * 4,
        kNanF32);
  const auto model = load(split({1, 1}));
  Session session(*model, {.context = 256, .batch_tokens = 16});
  const SequenceId id = session.create();
  std::vector<Token> prompt(kShortPrompt, 5);
  const Append fine{id, std::span(prompt).first(20), Logits::Last};
  session.eval({&fine, 1});
  for (const std::size_t at : {std::size_t{0}, std::size_t{20}, kShortPrompt - 1}) {
    std::vector<Token> bad = prompt;
    bad[at] = kBad;
    const Append work{id, bad, Logits::None};
    const Error e = error_of([&] { session.eval({&work, 1}); });
    CHECK(e.kind() == ErrorKind::Numeric);
    CHECK(contains(e.what(), "token_embd"));
    CHECK(session.length(id) == 20);
  }
  session.rewind(id, 0);
  const Append again{id, prompt, Logits::Last};
  const auto rows = session.eval({&again, 1});
  Session fresh(*model, {.context = 256});
  const auto all = logits_in_chunks(fresh, fresh.create(), prompt, kShortPrompt);
  CHECK(same_bits(rows, std::span(all).last(rows.size())));
}

TEST_CASE("each of several devices gets its layers, and the last the head", "[placement]") {
  TinyOptions options = narrow("llama");
  const TinyFile file = tiny_model(options);
  Loader load(file, std::vector<std::uint64_t>(2, kPlenty), 1);
  const auto names_of = [&](int device) {
    std::set<std::string> names;
    for (const auto& [name, bytes] : load.devices.at(device)->loaded) names.insert(name);
    return names;
  };
  const auto model = load(split({1, 1}));
  CHECK(model->backend().name() == "2 x device, device from layers 0, 2");
  CHECK(model->kind() == "device");
  CHECK_FALSE(model->has_host_part());
  CHECK(contains(model->placement(), "CUDA0: layers 0-1, "));
  CHECK(contains(model->placement(), "; CUDA1: layer 2 and the head, "));
  CHECK_FALSE(contains(model->placement(), "CPU"));
  CHECK(names_of(0).contains("token_embd.weight"));
  CHECK(names_of(0).contains("blk.1.ffn_down.weight"));
  CHECK(names_of(0).contains("blk.2.attn_norm.weight"));  // a layer's sum is normed where it is made
  CHECK_FALSE(names_of(0).contains("blk.2.attn_q.weight"));
  CHECK_FALSE(names_of(0).contains("output.weight"));
  CHECK(names_of(1).contains("blk.2.attn_q.weight"));
  CHECK(names_of(1).contains("output.weight"));
  CHECK_FALSE(names_of(1).contains("blk.1.ffn_down.weight"));
  CHECK_FALSE(names_of(1).contains("token_embd.weight"));

  const ContextRequest r = memory_request(*model, {.context = 200});
  CHECK(memory_named(r, "CUDA0").bytes_per_position == 2 * memory_named(r, "CUDA1").bytes_per_position);
  Session session(*model, {.context = 64});
  logits_in_chunks(session, session.create(), random_tokens(5, model->dims().vocab, 1), 5);
  CHECK(contains(session.describe(), "segment 1 of 2 on CUDA0:"));
  CHECK(contains(session.describe(), "segment 2 of 2 on CUDA1:"));

  const auto part = load(split({1, 1}, 3));
  CHECK(part->backend().name() == "2 x device and cpu, device from layers 1, 3");
  CHECK(part->kind() == "device");
  CHECK(part->has_host_part());
  CHECK(contains(part->placement(), "CUDA0: layers 1-2, "));
  CHECK(contains(part->placement(), "; CUDA1: the head, "));
  CHECK(contains(part->placement(), "; CPU: the rest"));
  const auto lopsided = load(split({0, 1}));
  CHECK(lopsided->devices() == 1);
  CHECK_FALSE(lopsided->has_host_part());
  CHECK(lopsided->backend().name() == "device");
  CHECK(contains(lopsided->placement(), "CUDA1: all 4 layers, "));
}

TEST_CASE("a model that fits on one device is not split", "[placement]") {
  const TinyFile file = tiny_model(narrow("llama"));
  Loader plenty(file, {kPlenty, kPlenty}, 1);
  for (const int preferred : {0, 1}) {
    plenty.devices.clear();
    const auto model = plenty(where_needed(2, preferred), "device", LoadOptions::Weights::Leave);
    CHECK(model->devices() == 1);
    CHECK(model->backend().name() == "device");
    CHECK(contains(model->placement(), "CUDA" + std::to_string(preferred) + ": all 4 layers, "));
    CHECK(plenty.devices.size() == 1);  // the other was not even started
  }
  const auto part = plenty(where_needed(2, 1, 2), "device", LoadOptions::Weights::Leave);
  CHECK(part->devices() == 1);
  CHECK(contains(part->placement(), "CUDA1: 2 of 4 layers, "));

  PlacementOptions alone = split({1});
  alone.devices = {1};
  const std::uint64_t all = needed(*plenty(alone, "device", LoadOptions::Weights::Leave), "CUDA1");
  Loader enough(file, {all, all}, 1);
  CHECK(enough(where_needed(2, 1), "device", LoadOptions::Weights::Leave)->devices() == 1);
  Loader too_small(file, {all - 1, all - 1}, 0);
  for (const int layers : {PlacementOptions::kFitting, PlacementOptions::kAll}) {
    const auto model = too_small(where_needed(2, 1, layers), "device", LoadOptions::Weights::Leave);
    INFO("layers " << layers << ", " << all << " bytes: " << model->placement());
    CHECK(model->devices() == 2);
    CHECK(contains(model->placement(), "CUDA0: layers 0-1, "));
  }
}

TEST_CASE("several devices are filled to the byte", "[placement]") {
  TinyOptions options = narrow("qwen3moe");
  options.d_ff *= 8;  // a layer takes more than what is on its way between devices
  const TinyFile file = tiny_model(options);
  for (const int link : {0, 1}) {
    INFO("link " << link);
    // What 1 and 3 layers take, the embedding and the head with them.
    Loader plenty(file, {kPlenty, kPlenty}, link);
    const auto model = plenty(split({1, 3}), "device", LoadOptions::Weights::Leave);
    const std::uint64_t first = needed(*model, "CUDA0"), second = needed(*model, "CUDA1");
    const auto placed = [&](std::uint64_t a, std::uint64_t b) {
      const auto planned = Loader(file, {a, b}, link)(where_needed(2, 0), "device", LoadOptions::Weights::Leave);
      CHECK(choose_context(memory_request(*planned, {.context = 200})).context == 200);  // what was planned is there
      return planned->placement();
    };
    const std::string exact = placed(first, second);
    CHECK(contains(exact, "CUDA0: layer 0, "));
    CHECK(contains(exact, "; CUDA1: layers 1-2 and the head, "));
    CHECK_FALSE(contains(exact, "CPU"));
    CHECK(contains(placed(first - 1, second), "CPU: the rest"));
    CHECK(contains(placed(first, second - 1), "CPU: the rest"));
  }
}

TEST_CASE("what does not fit on several devices is an error with the plan", "[placement]") {
  const TinyFile file = tiny_model(narrow("llama"));
  Loader small(file, {100 * 1024, 100 * 1024}, 1);
  const Error all = error_of([&] { small(split({1, 1})); });
  CHECK(all.kind() == ErrorKind::Memory);
  CHECK(contains(all.what(), "of CUDA0's memory are available (CUDA0: layers 0-1, "));
  CHECK(contains(all.what(), "; CUDA1: layer 2 and the head, "));
  Loader tiny(file, {100, 200}, 1);
  const Error none = error_of([&] { tiny(where_needed(2, 1)); });
  CHECK(none.kind() == ErrorKind::Memory);
  CHECK(contains(none.what(), "fits with its cache into CUDA0's memory or CUDA1's memory: 100 B, 200 B available"));
}

TEST_CASE("a saved cache belongs to its split", "[placement]") {
  Loader load(tiny_model(narrow("llama")), std::vector<std::uint64_t>(2, kPlenty), 1);
  const auto path = load.folder / "state";
  const auto model = load(split({1, 1}));
  const auto tokens = random_tokens(100, model->dims().vocab, 3);
  Session session(*model, {.context = 256});
  const SequenceId id = session.create();
  logits_in_chunks(session, id, tokens, 100);
  save_state(path, *model, session, id, tokens);
  const auto other = load(split({1, 3}));
  Session there(*other, {.context = 256});
  CHECK(contains(error_of([&] { StateFile::open(path, *other, there.cache_format()); }).what(),
                 "holds the cache of backend \"2 x device, device from layers 0, 2"));
}

TEST_CASE("two cuda backends, on two GPUs or on one, have the bits of one", "[placement]") {
  const GpuReport report = look_for_gpus();
  if (report.state != GpuReport::State::Usable) {
    std::printf("skipped: %s\n", report.reason.c_str());
    return;
  }
  const bool two = report.gpus.size() > 1 && report.gpus[1].why_not.empty();
  std::printf("%s\n", two ? "two GPUs" : "one GPU, twice");
  const auto on_gpus = [&](PlacementOptions o) {
    if (!two) std::fill(o.devices.begin(), o.devices.end(), 0);
    return o;
  };
  for (const char* arch : {"llama", "qwen2", "qwen3moe"}) {
    INFO(arch);
    Loader load(tiny_model({.arch = arch, .layers = kLayers, .context = 256, .type = DType::Q8_0}));
    const auto tokens = random_tokens(kShortPrompt, 259, 3);
    const auto logits = [&](Model& model, std::size_t chunk) {
      Session session(model, {.context = 256, .sequences = 2});
      return logits_in_chunks(session, session.create(), tokens, chunk);
    };
    for (const PlacementOptions& p : splits(contains(arch, "moe"))) {
      if (p.devices.size() > 2) continue;
      INFO("layers " << p.layers << ", shares " << p.shares[0] << ":" << p.shares[1] << ", host's experts "
                     << p.host_experts);
      PlacementOptions alone{.layers = p.layers, .host_experts = p.host_experts};
      const auto one = load(alone, "cuda"), both = load(on_gpus(p), "cuda");
      CHECK(both->devices() == 2);
      for (const std::size_t chunk : {std::size_t{37}, std::size_t{1}}) {
        INFO("chunks of " << chunk);
        const auto expected = logits(*one, chunk), got = logits(*both, chunk);
        CHECK(same_bits(got, expected));
        CHECK(same_bits(logits(*both, chunk), got));
      }
      // A prompt's products are the library's.
      const auto expected = logits(*one, kShortPrompt), got = logits(*both, kShortPrompt);
      REQUIRE(got.size() == expected.size());
      float largest = 0, worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const float d = std::abs(got[i] - expected[i]);
        largest = std::max(largest, std::abs(expected[i]));
        worst = std::isnan(d) ? INFINITY : std::max(worst, d);
      }
      CHECK(worst <= 5e-3F * largest);
      if (worst > 0) std::printf("%s: a prompt's logits differ by up to %g of %g\n", arch, worst, largest);
      // What was copied out of both caches and back gives the same.
      Session session(*both, {.context = 256, .sequences = 2});
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
      CHECK(same_bits(logits_in_chunks(session, copy, rest, 10), logits_in_chunks(session, first, rest, 10)));
    }
  }
}
