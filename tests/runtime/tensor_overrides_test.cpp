// Tensors elsewhere than their layer: the same bits wherever they are, each weight where it was sent and nowhere else.
#include "runtime/tensor_overrides.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "placed.h"
#include "runtime/generator.h"
#include "runtime/memory_budget.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr std::string_view kOption = "--override-tensor";

PlacementOptions with(std::string_view overrides, PlacementOptions p = {}) {
  p.overrides = parse_tensor_overrides(kOption, overrides);
  return p;
}

std::set<std::string> names_of(const std::map<std::string, std::uint64_t>& weights) {
  std::set<std::string> names;
  for (const auto& [name, bytes] : weights) names.insert(name);
  return names;
}

std::set<std::string> named(const TinyFile& file, const std::function<bool(const std::string&)>& wanted) {
  std::set<std::string> names;
  for (const TinyTensor& t : file.tensors()) {
    if (wanted(t.name)) names.insert(t.name);
  }
  return names;
}

std::string refusal(std::string_view text) {
  const Error e = error_of([&] { parse_tensor_overrides(kOption, text); });
  CHECK(e.kind() == ErrorKind::Usage);
  return e.what();
}

}  // namespace

TEST_CASE("overrides are patterns and where their tensors go", "[placement]") {
  struct Expected {
    std::string pattern;
    int device;
  };
  const auto same = [](std::string_view text, const std::vector<Expected>& expected) {
    INFO(text);
    const auto got = parse_tensor_overrides(kOption, text);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].pattern == expected[i].pattern);
      CHECK(got[i].device == expected[i].device);
    }
  };
  constexpr int kHost = TensorOverride::kHost;
  same("exps=CPU", {{"exps", kHost}});
  same(R"(blk\.(1|2)\.ffn_(gate|up)=CUDA0,blk\.3\.=CUDA12,.*=CUDA_Host)",
       {{R"(blk\.(1|2)\.ffn_(gate|up))", 0}, {R"(blk\.3\.)", 12}, {".*", kHost}});
  same(R"(blk\.[0-9]{1,2}\.ffn=CPU,exps=CUDA1)", {{R"(blk\.[0-9]{1,2}\.ffn)", kHost}, {"exps", 1}});
  // The = of a look-ahead is the pattern's.
  same(R"((?=.*exps)blk\.[0-9]{1,2}\..*=CPU)", {{R"((?=.*exps)blk\.[0-9]{1,2}\..*)", kHost}});
  same(R"(attn=CUDA0,(?=.*(?=x{1,2}))blk\.[0-9]{1,2}=CPU,exps=CUDA1)",
       {{"attn", 0}, {R"((?=.*(?=x{1,2}))blk\.[0-9]{1,2})", kHost}, {"exps", 1}});

  CHECK(contains(refusal("exps"), "option --override-tensor: \"exps\" is not a pattern and where its tensors go"));
  CHECK(contains(refusal(""), "\"\" is not a pattern"));
  CHECK(contains(refusal("=CPU"), "\"=CPU\" is not a pattern"));
  CHECK(contains(refusal("exps=CPU,"), "\"\" is not a pattern"));
  CHECK(contains(refusal("exps=GPU,attn=CPU"), "\"exps=GPU\" does not end in CPU or a GPU that --list-devices names"));
  CHECK(contains(refusal("exps=CUDA-1"), "does not end in CPU"));
  CHECK(contains(refusal("exps="), "does not end in CPU"));
  CHECK(contains(refusal("(?=exps)"), "\"(?=exps)\" is not a pattern and where its tensors go"));
  CHECK(contains(refusal("a[=CPU"), "option --override-tensor: \"a[\" is not a regular expression"));
}

TEST_CASE("a model has the same bits wherever its tensors are", "[placement]") {
  std::vector<ModelCase> cases = placed_cases();
  for (const char* with_sinks : {"gpt-oss", "deepseek4"})  // a weight of attention itself
    cases.push_back({with_sinks, {.arch = with_sinks, .layers = kLayers, .context = 512}});
  for (const ModelCase& c : cases) {
    INFO(c.name);
    Loader load(tiny_model(c.options));
    const auto whole = load({}, "cpu");
    const std::vector<float> expected = everything(*whole, c.cache);
    std::vector<PlacementOptions> all{with("ffn_up=CPU"),
                                      with("ffn_(gate|down)=CPU"),
                                      with("attn_[kv]=CPU"),
                                      with("attn_output=CPU,attn_norm=CPU"),
                                      with("output=CPU,token_embd=CPU"),
                                      with(".*=CPU"),
                                      with(R"(blk\.1\.=CPU)"),
                                      with(R"(blk\.0\.=CUDA0)", {.layers = 2}),
                                      with(R"(blk\.2\.ffn_up=CUDA0,blk\.2\.ffn=CPU)", {.layers = 3})};
    if (whole->dims().experts > 0) {
      all.push_back(with("exps=CPU"));
      all.push_back(with(R"(blk\.1\.ffn_gate_exps=CUDA0)", {.host_experts = PlacementOptions::kAll}));
      all.push_back(with("ffn_gate_inp=CPU"));
    }
    for (const int streams_from : {0, 64}) {
      load.streams_from = streams_from;
      for (const PlacementOptions& p : all) {
        INFO(p.overrides.front().given << ", weights brought from " << streams_from);
        const auto parts = load(p);
        CHECK(load.warnings.empty());
        CHECK(same_bits(everything(*parts, c.cache), expected));
      }
    }
  }
}

TEST_CASE("tensors that are named lie where they were sent, all others with their layer", "[placement]") {
  TinyOptions options = narrow("llama");
  options.experts = 4;
  const TinyFile file = tiny_model(options);
  Loader load(file);
  const auto on_device = [&](const PlacementOptions& p) {
    const auto model = load(p);
    return names_of(load.device->loaded);
  };
  CHECK(on_device(with("ffn_up_exps=CPU")) ==
        named(file, [](const std::string& n) { return !contains(n, "ffn_up_exps"); }));
  CHECK(on_device(with("ffn_norm=CPU")) == named(file, [](const std::string& n) { return !contains(n, "ffn_norm"); }));
  // The first that names a tensor counts, before -ncmoe and -ngl, too.
  CHECK(on_device(with(R"(blk\.1\.ffn_gate_exps=CUDA0,blk\.[01]\..*_exps=CPU)")) ==
        named(file, [](const std::string& n) {
          return !contains(n, "_exps") || n.starts_with("blk.2.") || n == "blk.1.ffn_gate_exps.weight";
        }));
  CHECK(on_device(with(R"(blk\.1\.ffn_gate_exps=CUDA0)", {.host_experts = PlacementOptions::kAll})) ==
        named(file, [](const std::string& n) { return !contains(n, "_exps") || n == "blk.1.ffn_gate_exps.weight"; }));
  CHECK(on_device(with(R"(blk\.0\.attn_v=CUDA0)", {.layers = 1})) ==
        std::set<std::string>{"blk.0.attn_v.weight", "output.weight"});
}

TEST_CASE("what stands between two products that were sent away goes with them", "[placement]") {
  TinyOptions options = narrow("llama");
  options.experts = 4;
  Loader load(tiny_model(options));
  const auto segments = [&](const PlacementOptions& p) {
    const auto model = load(p);
    Session session(*model, {.context = 64});
    logits_in_chunks(session, session.create(), random_tokens(5, model->dims().vocab, 1), 5);
    const std::string text = session.describe();
    return std::stoi(text.substr(text.find(" of ") + 4));
  };
  const int experts = segments({.host_experts = PlacementOptions::kAll});
  CHECK(experts == 2 * kLayers + 1);
  CHECK(segments(with("_exps=CPU")) == experts);
  for (const char* some : {"ffn_(gate|up)_exps=CPU", "ffn_(up|down)_exps=CPU", "ffn_up_exps=CPU"})
    CHECK(segments(with(some)) == experts);
  CHECK(segments(with("ffn_down_exps=CPU")) == experts);
}

TEST_CASE("the dense matrices of the first layers can stay with the host", "[placement]") {
  const TinyFile file = tiny_model(narrow("qwen3"));
  Loader load(file);
  for (const int layers : {1, 2, 99}) {
    INFO(layers);
    PlacementOptions p;
    p.overrides = {host_ffn(layers)};
    const auto model = load(p);
    CHECK(names_of(load.device->loaded) == named(file, [&](const std::string& n) {
            const bool first = n.starts_with("blk.") && n[4] - '0' < layers;
            return !(first && (contains(n, ".ffn_gate.") || contains(n, ".ffn_up.") || contains(n, ".ffn_down.")));
          }));
    CHECK(contains(model->placement(),
                   "; CPU: the rest; tensors by name: " + std::to_string(3 * std::min(layers, kLayers)) + " on CPU"));
    CHECK(load.warnings.empty());
  }
}

TEST_CASE("patterns are about tensors of the file, of which a weight may be rows", "[placement]") {
  Loader load(tiny_model(narrow("phi3")));
  const std::vector<float> expected = everything(*load({}, "cpu"), {});
  const auto model = load(with("(attn_qkv|ffn_up).weight$=CPU"));
  CHECK(load.warnings.empty());
  CHECK(contains(model->placement(), "tensors by name: " + std::to_string(2 * kLayers) + " on CPU"));
  for (const auto& [name, bytes] : load.device->loaded) {
    INFO(name);
    CHECK(!contains(name, "attn_qkv"));
    CHECK(!contains(name, "ffn_up"));
  }
  CHECK(same_bits(everything(*model, {}), expected));
}

TEST_CASE("a pattern that names nothing is told, and changes nothing", "[placement]") {
  Loader load(tiny_model(narrow("llama")));
  const auto model = load(with("exps=CPU"));
  CHECK(model->placement().empty());
  CHECK(model->backend().name() == "device");
  REQUIRE(load.warnings.size() == 1);
  CHECK(load.warnings.front().code == "no-effect");
  CHECK(contains(load.warnings.front().text, "--override-tensor exps=CPU has no effect"));
  load.warnings.clear();
  // Behind one that names all it would.
  const auto other = load(with("ffn=CPU,ffn_up=CUDA0"));
  REQUIRE(load.warnings.size() == 1);
  CHECK(contains(load.warnings.front().text, "--override-tensor ffn_up=CUDA0 has no effect"));
  CHECK(other->backend().name() == "device and cpu, cpu \"ffn\"");
}

TEST_CASE("what is sent away leaves room for layers", "[placement]") {
  TinyOptions options = narrow("llama");
  options.d_ff = 512;
  const TinyFile file = tiny_model(options);
  const auto needed = [&](const PlacementOptions& p) {
    Loader load(file);
    const auto model = load(p, "device", LoadOptions::Weights::Leave);
    const ContextRequest r = memory_request(*model, {.context = 200});
    REQUIRE(r.memories.front().name == "GPU");
    return r.memories.front().weight_bytes + r.memories.front().work_bytes + cache_bytes(r, r.memories.front(), 200);
  };
  PlacementOptions fitting = with("ffn=CPU");
  fitting.room.context = 200;
  const std::uint64_t room = needed(fitting);
  CHECK(room < needed({.layers = 3}));
  fitting.layers = PlacementOptions::kFitting;
  Loader load(file, room);
  CHECK(contains(load(fitting)->placement(), "GPU: all 4 layers, "));
  fitting.overrides.clear();
  CHECK(!contains(load(fitting)->placement(), "all 4 layers"));
}

TEST_CASE("tensors go to one of several devices", "[placement]") {
  const TinyFile file = tiny_model(narrow("llama"));
  Loader one(file);
  const std::vector<float> expected = everything(*one({}, "cpu"), {});
  const auto split = [](std::string_view overrides, std::vector<double> shares) {
    PlacementOptions p = with(overrides);
    p.devices = {0, 1};
    p.shares = std::move(shares);
    if (!p.shares.empty()) p.split = PlacementOptions::Split::Always;
    return p;
  };
  Loader load(file, {kPlenty, kPlenty}, 1);
  const auto check = [&](const PlacementOptions& p, const std::string& name, const std::string& text,
                         const std::set<std::string>& on_second) {
    INFO(p.overrides.front().given);
    const auto model = load(p);
    CHECK(model->backend().name() == name);
    CHECK(contains(model->placement(), text));
    CHECK(names_of(load.devices.at(1)->loaded) == on_second);
    CHECK(same_bits(everything(*model, {}), expected));
  };
  check(split(R"(blk\.0\.ffn_down=CUDA1)", {3, 1}),
        "2 x device, device from layers 0, 3, device1 \"blk\\\\.0\\\\.ffn_down\"", "; tensors by name: 1 on CUDA1",
        {"blk.0.ffn_down.weight", "output.weight"});
  // One that has nothing else.
  check(split(R"(blk\.0\.ffn_down=CUDA1)", {1, 0}),
        "2 x device, device from layers 0, 4, device1 \"blk\\\\.0\\\\.ffn_down\"", "; CUDA1: no layer, ",
        {"blk.0.ffn_down.weight"});
  // Where one device would do but for what is named, both are taken.
  const auto both = load(split(R"(blk\.2\.ffn_up=CUDA1)", {}));
  CHECK(both->devices() == 2);
  CHECK(same_bits(everything(*both, {}), expected));
  const auto first = load(split(R"(blk\.2\.ffn_up=CUDA0)", {}));
  CHECK(first->devices() == 1);
  CHECK(same_bits(everything(*first, {}), expected));
  // Long steps find it there, too.
  load.streams_from = 64;
  PlacementOptions partly = split(R"(blk\.0\.ffn_down=CUDA1)", {1, 1});
  partly.layers = 2;
  const auto bringing = load(partly);
  CHECK(contains(bringing->placement(), "whose weights long prompts bring to GPUs"));
  CHECK(same_bits(everything(*bringing, {}), expected));
  CHECK(load.devices.at(0)->streamed.contains("blk.0.ffn_up.weight"));
  for (const auto& [number, device] : load.devices) CHECK(!device->streamed.contains("blk.0.ffn_down.weight"));
}
