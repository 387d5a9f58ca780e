// LoRA adapters: logits are those of a model whose weights were merged in double precision, on every backend that was
// built; what is refused, and by which words.
#include "model/lora.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <set>

#include "graph/print.h"
#include "placed.h"
#include "runtime/state_file.h"
#include "support/catch.h"
#include "support/text.h"
#include "support/tiny_adapter.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr CacheFormat kExactCache{DType::F32, DType::F32};

/// A model and what adapts it, in a folder.
class LoraBench {
 public:
  explicit LoraBench(const TinyOptions& o) : arch_(o.arch), model_(tiny_model(o)) { model_.write(path()); }

  std::filesystem::path path() const { return folder_ / "model.gguf"; }
  std::filesystem::path adapter(const std::string& name, TinyAdapterOptions o = {}) const {
    o.arch = arch_;
    return write(name, tiny_adapter(model_, o));
  }
  std::filesystem::path write(const std::string& name, const TinyFile& file, GgufWriterOptions o = {}) const {
    file.write(folder_ / name, o);
    return folder_ / name;
  }
  TinyFile tiny(TinyAdapterOptions o = {}) const {
    o.arch = arch_;
    return tiny_adapter(model_, o);
  }

  std::unique_ptr<Model> load(std::vector<AdapterFile> adapters, const std::string& backend = "cpu",
                              LoadOptions more = {}) const {
    return load_file(path(), std::move(adapters), backend, std::move(more));
  }
  std::unique_ptr<Model> merged(const std::vector<AppliedAdapter>& adapters, const std::string& backend = "cpu") const {
    write_merged(path(), adapters, folder_ / "merged.gguf");
    return load_file(folder_ / "merged.gguf", {}, backend, {});
  }
  Error refusal(const TinyFile& adapter, float scale = 1) const {
    const auto file = write("refused.gguf", adapter);
    return error_of([&] { (void)load({{file, scale}}); });
  }

  mutable Warnings warnings;

 private:
  std::unique_ptr<Model> load_file(const std::filesystem::path& file, std::vector<AdapterFile> adapters,
                                   const std::string& backend, LoadOptions more) const {
    more.path = file;
    more.adapters = std::move(adapters);
    more.backend = backend;
    if (more.threads == 0) more.threads = 2;
    more.bytes_per_thread = 0;
    return Model::load(more, warnings);
  }

  TempDir folder_;
  std::string arch_;
  TinyFile model_;
};

std::vector<float> logits(Model& model, std::size_t chunk = 512) {
  Session session(model, {.context = 256, .cache = kExactCache});
  return logits_in_chunks(session, session.create(), random_tokens(90, model.dims().vocab, 1), chunk);
}

float largest_value(const std::vector<float>& values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

/// The largest difference as a part of the largest value.
float distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float d = std::abs(a[i] - b[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst / largest_value(b);
}

/// Sums in F32 in another order.
constexpr float kRounding = 2e-5f;

void check_same_as_merged(const LoraBench& bench, const std::vector<AdapterFile>& adapters,
                          const std::vector<AppliedAdapter>& merged, float limit = kRounding) {
  const std::vector<float> plain = logits(*bench.load({}));
  for (const char* backend : {"reference", "cpu", "blas", "cuda"}) {
    INFO(backend);
    std::unique_ptr<Model> model;
    try {
      model = bench.load(adapters, backend);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      std::printf("skipped: %s\n", e.what());
      continue;
    }
    const std::vector<float> got = logits(*model), expected = logits(*bench.merged(merged, backend));
    CHECK(distance(got, expected) < limit);
    CHECK(distance(plain, expected) > 1000 * kRounding);  // or nothing would be shown
  }
}

std::vector<ModelCase> families() {
  TinyOptions experts{.layers = 2, .context = 256, .experts = 4}, tied{.layers = 2, .context = 256, .tied = true};
  const auto of = [](std::string arch) { return TinyOptions{.arch = std::move(arch), .layers = 2, .context = 256}; };
  TinyOptions biases = of("llama");
  biases.biases = true;
  return {{"llama", of("llama")}, {"llama biases", biases},   {"llama experts", experts},   {"llama tied", tied},
          {"qwen2", of("qwen2")}, {"qwen3", of("qwen3")},     {"qwen3moe", of("qwen3moe")}, {"olmoe", of("olmoe")},
          {"phi3", of("phi3")},   {"gpt-oss", of("gpt-oss")}, {"gemma3", of("gemma3")}};
}

bool reads(const Graph& g, const Node& n, std::string_view weight) {
  return std::ranges::any_of(n.in, [&](std::uint32_t v) { return g.info(v).name == weight; });
}

const Node& reader(const Graph& g, std::string_view weight) {
  const auto found = std::ranges::find_if(g.nodes(), [&](const Node& n) { return reads(g, n, weight); });
  REQUIRE(found != g.nodes().end());
  return *found;
}

}  // namespace

TEST_CASE("an adapter gives the logits of the merged model", "[lora]") {
  for (const ModelCase& c : families()) {
    for (const int rank : {1, 3, 16}) {
      INFO(c.name << ", rank " << rank);
      const LoraBench bench(c.options);
      const auto file = bench.adapter("a.gguf", {.rank = rank, .alpha = 2.0f * static_cast<float>(rank)});
      check_same_as_merged(bench, {{file, 0.75f}}, {{file, 0.75 * 2}});
    }
  }
}

TEST_CASE("each kind of weight is adapted by itself", "[lora]") {
  const LoraBench dense({.layers = 2, .context = 256}), experts({.arch = "olmoe", .layers = 2, .context = 256});
  for (const char* target : {"token_embd.weight", "output.weight", "blk.1.attn_q.weight", "blk.0.attn_v.weight",
                             "blk.0.attn_output.weight", "blk.1.ffn_gate.weight", "blk.0.ffn_down.weight"}) {
    INFO(target);
    const auto file = dense.adapter("a.gguf", {.targets = {target}});
    check_same_as_merged(dense, {{file, 2}}, {{file, 2.0 * 8 / 4}});
  }
  for (const char* target : {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight"}) {
    INFO(target);
    const auto file = experts.adapter("a.gguf", {.targets = {target}});
    check_same_as_merged(experts, {{file, 2}}, {{file, 2.0 * 8 / 4}});
  }
}

TEST_CASE("of a tied model the adapter of the table leaves the head alone, and one of the head the table", "[lora]") {
  const LoraBench bench({.layers = 2, .context = 256, .tied = true});
  const auto table = bench.adapter("table.gguf", {.targets = {"token_embd.weight"}});
  check_same_as_merged(bench, {{table}}, {{table, 2}});
  const LoraBench untied({.layers = 2, .context = 256});
  const auto head = bench.write("head.gguf", untied.tiny({.targets = {"output.weight"}}));
  check_same_as_merged(bench, {{head}}, {{head, 2}});
}

TEST_CASE("several adapters add up, each with its scale", "[lora]") {
  for (const char* arch : {"llama", "qwen3moe"}) {
    const LoraBench bench({.arch = arch, .layers = 2, .context = 256});
    const auto a = bench.adapter("a.gguf", {.rank = 3, .alpha = 6}),
               b = bench.adapter("b.gguf", {.rank = 5, .alpha = 5, .targets = {"*attn*", "token*"}, .seed = 9});
    check_same_as_merged(bench, {{a, 0.5f}, {b, -0.75f}, {a, 0.25f}}, {{a, 0.75 * 2}, {b, -0.75}});
  }
}

TEST_CASE("without an alpha the scale is the factor", "[lora]") {
  const LoraBench bench({.layers = 2, .context = 256});
  TinyFile zero = bench.tiny({.alpha = 0}), none = zero;
  none.erase("adapter.lora.alpha");
  for (const TinyFile& file : {zero, none}) {
    const auto path = bench.write("a.gguf", file);
    check_same_as_merged(bench, {{path, 1.5f}}, {{path, 1.5}});
  }
}

TEST_CASE("an adapter of scale 0 leaves the model as it is", "[lora]") {
  for (const char* arch : {"llama", "olmoe"}) {
    const LoraBench bench({.arch = arch, .layers = 2, .context = 256});
    const auto file = bench.adapter("a.gguf");
    const auto plain = bench.load({}), none = bench.load({{file, 0}}), some = bench.load({{file, 1e-3f}});
    CHECK(none->graph_before_passes({.tokens = 4, .outputs = 2}).hash() ==
          plain->graph_before_passes({.tokens = 4, .outputs = 2}).hash());
    CHECK(none->fingerprint() == plain->fingerprint());
    CHECK(none->adapters().empty());
    CHECK(none->weight_bytes() == plain->weight_bytes());
    CHECK(same_bits(logits(*none), logits(*plain)));
    CHECK_FALSE(same_bits(logits(*some), logits(*plain)));
  }
}

TEST_CASE("adapters may be of any storage type, and of any byte order", "[lora]") {
  const LoraBench bench({.layers = 2, .n_embd = 64, .d_ff = 64, .head_dim = 16, .context = 256});
  LoadOptions reading;
  reading.files = LoadOptions::Files::Read;
  for (const DType type : {DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0}) {
    INFO(name(type));
    const TinyFile tiny = bench.tiny({.rank = 32, .alpha = 32, .type = type});
    const auto file = bench.write("a.gguf", tiny), other = bench.write("b.gguf", tiny, {.big_endian = true});
    const std::vector<float> expected = logits(*bench.merged({{file, 1}}, "reference"));
    CHECK(distance(logits(*bench.load({{file}}, "reference")), expected) < kRounding);
    // Activations are rounded to what the type is multiplied with.
    const std::vector<float> rounded = logits(*bench.load({{file}}));
    CHECK(distance(rounded, expected) < 0.03f);
    CHECK(same_bits(logits(*bench.load({{other}})), rounded));
    CHECK(same_bits(logits(*bench.load({{file}}, "cpu", reading)), rounded));
  }
}

TEST_CASE("quantised models are adapted, too", "[lora]") {
  for (const DType type : {DType::Q8_0, DType::Q4_K}) {
    const LoraBench bench(wide("llama", type));
    const auto file = bench.adapter("a.gguf", {.rank = 8, .alpha = 8});
    const std::vector<float> got = logits(*bench.load({{file}})), plain = logits(*bench.load({})),
                             exact = logits(*bench.load({{file}}, "reference"));
    CHECK(distance(got, exact) < 0.05f);
    CHECK(distance(plain, exact) > 0.1f);
  }
}

TEST_CASE("chunks, neighbours and places change no bit of an adapted model", "[lora]") {
  for (const ModelCase& c : placed_cases()) {
    const std::set<std::string> wanted{"llama Q4_K, Q8_0 cache", "llama tied Q8_0, factors of angles", "olmoe F16"};
    if (!wanted.contains(c.name)) continue;
    INFO(c.name);
    const TinyFile tiny = tiny_model(c.options);
    Loader load(tiny);
    TinyAdapterOptions o{.arch = c.options.arch, .rank = 5, .targets = {"blk*", "token*"}};
    tiny_adapter(tiny, o).write(load.folder / "a.gguf");
    load.adapters = {{load.folder / "a.gguf", 0.5f}, {load.folder / "a.gguf", 0.25f}};
    const auto whole = load({}, "cpu");
    const std::vector<float> expected = everything(*whole, c.cache);
    const std::vector<float> all = logits(*whole);
    for (const std::size_t chunk : {1u, 7u, 64u}) CHECK(same_bits(logits(*whole, chunk), all));
    std::vector<PlacementOptions> places{{.layers = 1}, {.layers = 2}, {.layers = kLayers}};
    if (whole->dims().experts > 0) places.push_back({.host_experts = PlacementOptions::kAll});
    places.push_back({.layers = kLayers + 1});
    places.back().overrides = parse_tensor_overrides("-ot", "ffn_up=CPU");
    for (const PlacementOptions& p : places) {
      INFO(p.layers << " layers, experts " << p.host_experts);
      const auto parts = load(p);
      CHECK(same_bits(everything(*parts, c.cache), expected));
      for (int layer = 0; layer < kLayers; ++layer) {
        const std::string blk = "blk." + std::to_string(layer) + ".attn_q.weight";
        const bool on_device = load.device->loaded.contains(blk);
        CHECK(load.device->loaded.contains(blk + ".lora_a") == on_device);
        CHECK(load.device->loaded.contains(blk + ".lora_b.2") == on_device);
      }
      if (!p.overrides.empty()) {
        for (const auto& [name, bytes] : load.device->loaded) CHECK(name.find("ffn_up") == std::string::npos);
      }
      if (p.host_experts > 0) {
        for (const auto& [name, bytes] : load.device->loaded) CHECK(name.find("_exps") == std::string::npos);
      }
    }
    load.adapters.clear();
    CHECK_FALSE(same_bits(everything(*load({}, "cpu"), c.cache), expected));
  }
}

TEST_CASE("any number of threads gives the same bits with adapters", "[lora]") {
  for (const char* arch : {"llama", "qwen3moe"}) {
    const LoraBench bench(wide(arch, DType::Q4_K));
    const auto file = bench.adapter("a.gguf", {.rank = 7});
    LoadOptions o;
    o.threads = 1;
    const std::vector<float> expected = logits(*bench.load({{file}}, "cpu", o));
    for (o.threads = 2; o.threads < 5; ++o.threads) CHECK(same_bits(logits(*bench.load({{file}}, "cpu", o)), expected));
  }
}

TEST_CASE("the nodes of a pair stand where the node is that they adapt", "[lora]") {
  const LoraBench bench({.arch = "olmoe", .layers = 2});
  const auto file = bench.adapter("a.gguf");
  const auto model = bench.load({{file}});
  const Graph g = model->graph_before_passes({.tokens = 4, .outputs = 2});
  for (const TensorInfo& t : model->adapters().front().file().tensors().all()) {
    const std::string target(t.name.substr(0, t.name.rfind('.')));
    INFO(t.name);
    const Node &own = reader(g, t.name), &adapted = reader(g, target);
    CHECK(own.layer == adapted.layer);
    CHECK(own.role == adapted.role);
  }
  // A reads what the weights read, and is multiplied with them.
  const Graph fast = model->graph({.tokens = 4, .outputs = 2});
  for (const char* weight : {"blk.1.attn_k.weight", "blk.1.attn_q.weight.lora_a", "blk.1.attn_v.weight.lora_a"})
    CHECK(reads(fast, reader(fast, "blk.1.attn_q.weight"), weight));
  CHECK(reads(fast, reader(fast, "blk.0.ffn_up_exps.weight"), "blk.0.ffn_gate_exps.weight.lora_a"));
  CHECK(contains(to_text(g), "blk.1.attn_q.lora_scaled"));
}

TEST_CASE("memory is counted with the adapters", "[lora]") {
  const LoraBench bench({.layers = 2});
  const auto file = bench.adapter("a.gguf", {.rank = 16});
  const auto plain = bench.load({}), adapted = bench.load({{file}});
  const LoraAdapter& adapter = adapted->adapters().front();
  std::uint64_t tensors = 0;
  for (const TensorInfo& t : adapter.file().tensors().all()) tensors += t.type.bytes();
  CHECK(adapter.bytes() == tensors);
  CHECK(adapted->weight_bytes() == plain->weight_bytes() + tensors);
  CHECK(adapted->file_bytes() == plain->file_bytes() + std::filesystem::file_size(file));
  const auto weights = [](const Model& m) {
    const Graph g = m.graph({.tokens = 4, .outputs = 2});
    return m.backend().memory({&g, 1}).front().weights;
  };
  CHECK(weights(*adapted) == weights(*plain) + tensors);
}

TEST_CASE("a state is refused where the adapters or their scales are others", "[lora]") {
  const LoraBench bench({.layers = 2, .context = 256});
  const auto a = bench.adapter("a.gguf"), b = bench.adapter("b.gguf", {.seed = 6});
  const TempDir folder;
  const auto state = folder / "state";
  const auto save = [&](const std::vector<AdapterFile>& adapters) {
    std::filesystem::remove(state);
    const auto model = bench.load(adapters);
    const std::vector<Token> tokens = random_tokens(70, model->dims().vocab, 3);
    Session session(*model, {.context = 256});
    const SequenceId id = session.create();
    const Append work{id, tokens, Logits::None};
    (void)session.eval({&work, 1});
    save_state(state, *model, session, id, tokens);
  };
  const auto open = [&](const std::vector<AdapterFile>& adapters) {
    const auto model = bench.load(adapters);
    const Session session(*model, {.context = 256});
    (void)StateFile::open(state, *model, session.cache_format());
  };
  save({{a, 0.5f}});
  CHECK_NOTHROW(open({{a, 0.5f}}));
  CHECK_THROWS_WITH(open({}), contains("the model \"model.gguf with a.gguf x 0.5\", this is \"model.gguf\""));
  CHECK_THROWS_WITH(open({{a, 0.25f}}), contains("this is \"model.gguf with a.gguf x 0.25\""));
  CHECK_THROWS_WITH(open({{b, 0.5f}}), contains("this is \"model.gguf with b.gguf x 0.5\""));
  CHECK_THROWS_WITH(open({{a, 0.5f}, {b}}), contains("this is \"model.gguf with a.gguf x 0.5 and b.gguf\""));
  save({});
  CHECK_NOTHROW(open({{a, 0}}));
  CHECK_THROWS_WITH(open({{a}}), contains("the model \"model.gguf\", this is \"model.gguf with a.gguf\""));
  bench.adapter("a.gguf", {.seed = 8});  // of another training, by the same name
  CHECK_THROWS_WITH(open({{a}}), contains("model"));
}

TEST_CASE("NaN in an adapter is told from NaN in the model", "[lora]") {
  const LoraBench bench({.layers = 2, .context = 256});
  const auto file = bench.adapter("a.gguf");
  patch(file, "blk.1.ffn_up.weight.lora_b", 0, kNanF32);
  const auto model = bench.load({{file}});
  const Error e = error_of([&] { (void)logits(*model); });
  CHECK(e.kind() == ErrorKind::Numeric);
  CHECK(contains(e.what(), "tensor \"blk.1.ffn_up.weight.lora_b\""));
  std::vector<std::string> seen;
  LoadOptions looking;
  looking.examine = [&](const GgufFile& f) { seen.push_back(std::filesystem::path(f.metadata().file()).filename()); };
  (void)bench.load({{file}}, "cpu", looking);
  CHECK(seen == std::vector<std::string>{"model.gguf", "a.gguf"});
}

TEST_CASE("an adapter that can be read as one row is screened as the model's vectors are", "[lora]") {
  const LoraBench bench({.layers = 2});
  const auto file = bench.adapter("a.gguf", {.rank = 1});
  patch(file, "blk.0.attn_v.weight.lora_a", 4 * 5, kNanF32);
  const Error e = error_of([&] { (void)bench.load({{file}}); });
  CHECK(e.kind() == ErrorKind::Model);
  CHECK(contains(e.what(), "a.gguf: "));
  CHECK(contains(e.what(), "tensor \"blk.0.attn_v.weight.lora_a\": element 5 is NaN"));
}

TEST_CASE("what happens to an adapter's file is seen, or does not matter once it was read", "[lora]") {
  const LoraBench bench({.layers = 2, .context = 256});
  const auto file = bench.adapter("a.gguf");
  const std::vector<float> expected = logits(*bench.load({{file}}));
  LoadOptions o;
  o.files = LoadOptions::Files::Read;
  const auto model = bench.load({{file}}, "cpu", o);
  CHECK(model->held_bytes() == model->file_bytes());
  std::filesystem::resize_file(file, 100);
  CHECK(same_bits(logits(*model), expected));
  const auto other = bench.adapter("b.gguf");
  LoadOptions changing;
  changing.examine = [&](const GgufFile& f) {
    if (f.metadata().file() == other.string()) std::ofstream(other, std::ios::app) << "more";
  };
  const Error e = error_of([&] { (void)bench.load({{other}}, "cpu", changing); });
  CHECK(e.kind() == ErrorKind::Model);
  CHECK(contains(e.what(), "b.gguf"));
}

TEST_CASE("what is no adapter for this model is refused", "[lora]") {
  const LoraBench bench({.layers = 2});
  struct Row {
    std::function<void(TinyFile&)> change;
    std::string words;
  };
  const std::string q = "blk.1.attn_q.weight", embd = "token_embd.weight";
  const Row rows[] = {
      {[](TinyFile& f) { f.erase("general.type"); }, "key \"general.type\": the file is a model, an adapter is needed"},
      {[](TinyFile& f) { f.set("general.type", "imatrix"); }, "\"imatrix\", an adapter is needed"},
      {[](TinyFile& f) { f.set("adapter.type", "ia3"); }, "key \"adapter.type\": is \"ia3\", only \"lora\" is known"},
      {[](TinyFile& f) { f.erase("adapter.type"); }, "key \"adapter.type\": is missing"},
      {[](TinyFile& f) { f.set("general.architecture", "qwen2"); },
       "for models of architecture \"qwen2\", this one is of \"llama\""},
      {[](TinyFile& f) { f.set("adapter.lora.alpha", std::uint32_t{3}); }, "key \"adapter.lora.alpha\": has type u32"},
      {[](TinyFile& f) { f.set("adapter.lora.alpha", INFINITY); }, "key \"adapter.lora.alpha\": is not a finite"},
      {[](TinyFile& f) {
         f.set_array("adapter.alora.invocation_tokens", std::vector<std::uint32_t>{1, 2});
       },
       "activated LoRA"},
      {[&](TinyFile& f) { f.erase_tensor(q + ".lora_a"); }, "is half of a pair: " + q + ".lora_a is missing"},
      {[&](TinyFile& f) { f.erase_tensor(q + ".lora_b"); }, "is half of a pair: " + q + ".lora_b is missing"},
      {[&](TinyFile& f) { f.rename(q + ".lora_b", q + ".lora_c"); },
       "tensor \"" + q + ".lora_c\": is no half of a pair"},
      {[&](TinyFile& f) {
         f.rename(q + ".lora_a", "blk.2.attn_q.weight.lora_a");
         f.rename(q + ".lora_b", "blk.2.attn_q.weight.lora_b");
       },
       "tensor \"blk.2.attn_q.weight.lora_a\": the model has no tensor blk.2.attn_q.weight"},
      {[&](TinyFile& f) {
         f.rename(q + ".lora_a", "blk.1.attn_norm.weight.lora_a");
         f.rename(q + ".lora_b", "blk.1.attn_norm.weight.lora_b");
       },
       "the model has no product with blk.1.attn_norm.weight"},
      {[&](TinyFile& f) {
         f.resize(q + ".lora_a", {16, 4});
       },
       "the pair has shapes [16, 4] and [4, 32], and needs [32, rank] and [rank, 32] beside " + q + " [32, 32]"},
      {[&](TinyFile& f) {
         f.resize(q + ".lora_b", {4, 48});
       },
       "the pair has shapes [32, 4] and [4, 48], and needs [32, rank] and [rank, 32] beside " + q},
      {[&](TinyFile& f) {
         f.resize(q + ".lora_a", {32, 3});
       },
       "[32, 3] and [4, 32], and needs [32, rank] and"},
      {[&](TinyFile& f) { f.resize(q + ".lora_a", {32}); }, "[32] and [4, 32], and needs [32, rank] and"},
      {[&](TinyFile& f) {
         f.resize(q + ".lora_a", {32, 4, 2});
       },
       "[32, 4, 2] and [4, 32], and needs [32, rank] and"},
      {[&](TinyFile& f) {
         f.resize(embd + ".lora_a", {267, 4});
       },
       "the pair has shapes [267, 4] and [4, 32], and needs [rank, 267] and [rank, 32] beside token_embd.weight [32, "
       "267]"},
      {[&](TinyFile& f) { f.retype(q + ".lora_a", DType::I32); }, "cannot be the type of a matrix"},
      {[&](TinyFile& f) {
         while (!f.tensors().empty()) f.erase_tensor(f.tensors().back().name);
       },
       "the file holds no pair"},
  };
  for (const Row& row : rows) {
    INFO(row.words);
    TinyFile file = bench.tiny();
    row.change(file);
    for (const float scale : {1.0f, 0.0f}) {  // one of scale 0 is checked, too
      const Error e = bench.refusal(file, scale);
      INFO(e.what());
      CHECK(e.kind() == ErrorKind::Model);
      CHECK(contains(e.what(), "refused.gguf: "));
      CHECK(contains(e.what(), row.words));
      // What fits another model is no damage: no place in the file.
      if (contains(row.words, "the model has no")) CHECK(!e.parts().offset);
    }
  }
  const LoraBench experts({.arch = "olmoe", .layers = 1});
  TinyFile flat = experts.tiny();
  flat.resize("blk.0.ffn_up_exps.weight.lora_a", {32, 4});
  CHECK(contains(experts.refusal(flat).what(),
                 "[32, 4] and [4, 64, 4], and needs [32, rank, 4] and [rank, 64, 4] beside blk.0.ffn_up_exps.weight"));
}

TEST_CASE("norms beside the pairs are left out, with a warning", "[lora]") {
  const LoraBench bench({.layers = 2, .context = 256});
  const auto with_norm = [&] {
    TinyFile file = bench.tiny();
    file.add_tensor({"blk.0.attn_norm.weight", {DType::F32, {32}}, 7, 0});
    return bench.write("b.gguf", file);
  }();
  const auto model = bench.load({{with_norm}});
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].code == "unused-tensors");
  CHECK(contains(bench.warnings[0].text, "b.gguf: 1 norm of the adapter is not used"));
  CHECK(same_bits(logits(*model), logits(*bench.load({{bench.adapter("a.gguf")}}))));
}

TEST_CASE("an adapter in place of a model is told as one", "[lora]") {
  const LoraBench bench({.layers = 2});
  const auto file = bench.adapter("a.gguf");
  Warnings warnings;
  const Error e = error_of([&] { (void)Model::load({.path = file, .progress = {}}, warnings); });
  CHECK(e.kind() == ErrorKind::Model);
  CHECK(contains(e.what(), "the file is an adapter"));
  CHECK(contains(e.what(), "--lora"));
}
