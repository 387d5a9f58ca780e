// llm-imatrix as a process: its sums against ones computed here in double precision, and against one another.
#include "quantize/imatrix.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "backend/registry/registry.h"
#include "gguf/file.h"
#include "model/stored_weight.h"
#include "models/registry.h"
#include "programs.h"
#include "runtime/session.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr int kChunk = 12;

/// 40 and more tokens of the tiny vocabularies.
const std::string kText = "abc ab a b c abcabc cab bac ab ab abc a cc bb aa abc cba ab c\n";

using Entries = std::map<std::string, ImportanceEntry>;

Entries entries_of(const std::string& path) {
  Warnings warnings;
  Entries out;
  for (ImportanceEntry& e : ImportanceMatrix::read(path, warnings).entries) out[e.tensor] = e;
  return out;
}

/// Runs llm-imatrix over kText.
std::string collect(const TempDir& folder, const std::string& model, std::vector<std::string> options = {},
                    const std::string& name = "imatrix.gguf") {
  const std::string out = (folder / name).string(), text = write_file(folder / "text", kText);
  options.insert(options.begin(), {"-m", model, "-f", text, "-o", out, "-c", std::to_string(kChunk), "--force"});
  CHECK(output_of("llm-imatrix", options).empty());
  return out;
}

/// OpenBLAS may be left out of a build.
bool is_built(std::string_view backend) {
  try {
    return make_backend(backend, {}) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

std::vector<int> tokens_of(const std::string& model, const TempDir& folder) {
  const std::string text = write_file(folder / "line", kText.substr(0, kText.size() - 1));
  return Json::parse(output_of("llm-inspect", {"tokenize", model, "--stdin", "--ids", "--no-special"}, text))
      .get<std::vector<int>>();
}

std::vector<float> values_of(const TinyFile& tiny, const std::string& tensor) {
  for (const TinyTensor& t : tiny.tensors())
    if (t.name == tensor) return tiny_values(t, tiny.seed);
  FAIL("no tensor " + tensor);
  return {};
}

void check_near(const std::vector<float>& got, const std::vector<double>& expected, double tolerance) {
  REQUIRE(got.size() == expected.size());
  double difference = 0, scale = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    scale += expected[i] * expected[i];
  }
  CHECK(std::sqrt(difference) <= tolerance * std::sqrt(scale));
}

std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

/// Every value of a step, by name.
struct EveryValue final : Observer {
  bool wants_value(std::string_view) override { return true; }
  void value(std::string_view name, const TensorView& view) override {
    values[std::string(name)].assign(view.data, view.data + view.type.bytes());
  }
  template <class T>
  std::vector<T> of(const std::string& name) const {
    const std::vector<std::byte>& bytes = values.at(name);
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  std::map<std::string, std::vector<std::byte>> values;
};

struct ExpectedEntry {
  std::vector<double> sums;
  std::vector<std::int64_t> counts;
};
using ExpectedEntries = std::map<std::string, ExpectedEntry>;

/// What a product's x adds to the entry of one of its matrices, whose shape is the file's.
void add_product(const EveryValue& step, const std::string& x_name, const std::optional<std::string>& ids_name,
                 const Shape& shape, ExpectedEntry& e) {
  const auto width = static_cast<std::size_t>(shape[0]);
  const std::vector<float> x = step.of<float>(x_name);
  const std::size_t rows = x.size() / width;
  const std::vector<std::int32_t> ids = ids_name ? step.of<std::int32_t>(*ids_name) : std::vector<std::int32_t>(rows);
  e.sums.resize(width * static_cast<std::size_t>(ids_name ? shape[2] : 1));
  e.counts.resize(e.sums.size() / width);
  for (std::size_t route = 0; route < ids.size(); ++route) {
    const std::size_t row = route * rows / ids.size();
    const std::size_t matrix = e.counts.size() == 1 ? 0 : static_cast<std::size_t>(ids[route]);
    for (std::size_t j = 0; j < width; ++j)
      e.sums.at(matrix * width + j) += std::pow(static_cast<double>(x.at(row * width + j)), 2);
    e.counts.at(matrix) += 1;
  }
}

/// From what the reference backend computed: of each product in the layers, the operands that are weights by name.
void add_step(const Graph& graph, const GgufFile& file, const EveryValue& step, ExpectedEntries& expected) {
  std::set<std::pair<std::string, std::string>> done;  // rows of one tensor with the same x: once
  for (const Node& node : graph.nodes()) {
    const bool experts = std::holds_alternative<ExpertLinear>(node.op);
    if (!experts && !std::holds_alternative<Linear>(node.op)) continue;
    const std::string x = graph.info(node.in[0]).name;
    const auto ids = experts ? std::optional(graph.info(node.in[1]).name) : std::nullopt;
    for (const ProductOperands& operands : product_operands(node.op)) {  // of RWKV biases, too, are named .weight
      const std::string tensor(tensor_of(graph.info(node.in[operands.weight]).name));
      const bool watched = experts || tensor.starts_with("blk.");  // not the one that gives the logits
      if (!watched || !tensor.ends_with(".weight") || !done.emplace(tensor, x).second) continue;
      add_product(step, x, ids, file.tensors().find(tensor)->type.shape, expected[tensor]);
    }
  }
}

ExpectedEntries expected_entries(const std::string& path, const std::vector<int>& tokens) {
  Warnings warnings;
  const auto model = Model::load({.path = path, .backend = "reference", .progress = {}}, warnings);
  const Graph graph = model->graph({});
  Session session(*model, {.context = kChunk});
  const SequenceId sequence = session.create();
  ExpectedEntries expected;
  for (std::size_t at = 0; at + kChunk <= tokens.size(); at += kChunk) {
    std::vector<Token> chunk(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                             tokens.begin() + static_cast<std::ptrdiff_t>(at + kChunk));
    const SpecialTokens& special = model->tokenizer().special();
    if (special.add_bos) chunk[0] = special.bos;
    EveryValue step;
    session.observer = &step;
    session.rewind(sequence, 0);
    const Append work{sequence, chunk, Logits::All};
    session.eval({&work, 1});
    add_step(graph, model->file(), step, expected);
  }
  return expected;
}

}  // namespace

TEST_CASE("the first layer's sums are those of its normalised embeddings", "[imatrix]") {
  TempDir folder;
  const TinyFile tiny = tiny_model({.layers = 2});
  const std::string model = write_model(folder, tiny);
  const Entries entries = entries_of(collect(folder, model));
  std::vector<int> tokens = tokens_of(model, folder);
  const std::size_t chunks = tokens.size() / kChunk, width = 32;
  REQUIRE(chunks >= 3);

  const std::vector<float> table = values_of(tiny, "token_embd.weight"),
                           norm = values_of(tiny, "blk.0.attn_norm.weight");
  std::vector<double> expected(width);
  for (std::size_t i = 0; i < chunks * kChunk; ++i) {
    const std::size_t token = i % kChunk == 0 ? 1 : static_cast<std::size_t>(tokens[i]);  // <s> begins each chunk
    double squares = 0;
    for (std::size_t j = 0; j < width; ++j) squares += std::pow(static_cast<double>(table[token * width + j]), 2);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    for (std::size_t j = 0; j < width; ++j)
      expected[j] += std::pow(static_cast<double>(table[token * width + j]) * scale * static_cast<double>(norm[j]), 2);
  }
  for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
    const ImportanceEntry& e = entries.at("blk.0." + std::string(part) + ".weight");
    CHECK(e.counts == std::vector<std::int64_t>{static_cast<std::int64_t>(chunks) * kChunk});
    check_near(e.sums, expected, 1e-5);
  }
  // Every matrix of the layers, also of the last one, for every token; not the one that gives the logits.
  CHECK(entries.size() == 2 * 7);
  for (const auto& [name, e] : entries) CHECK(e.counts.front() == static_cast<std::int64_t>(chunks) * kChunk);
}

TEST_CASE("of each family, matrices have the sums of what entered them, and nothing else has", "[imatrix]") {
  std::vector<TinyOptions> all{{.arch = "gpt-oss", .layers = 2, .n_embd = 32, .d_ff = 32}};  // as wide as published
  for (const Architecture& a : architectures()) all.push_back({.arch = std::string(a.name), .layers = 2});
  for (const TinyOptions& o : all) {
    INFO(o.arch << ", experts " << o.d_ff << " wide");
    TempDir folder;
    const std::string model = write_model(folder, tiny_model(o));
    const Entries entries = entries_of(collect(folder, model, {"--backend", "reference"}));
    const ExpectedEntries expected = expected_entries(model, tokens_of(model, folder));
    for (const auto& [name, e] : entries) {
      INFO(name);
      CHECK(expected.contains(name));
    }
    for (const auto& [name, e] : expected) {
      INFO(name);
      REQUIRE(entries.contains(name));
      CHECK(entries.at(name).counts == e.counts);
      check_near(entries.at(name).sums, e.sums, 1e-6);
    }
  }
}

TEST_CASE("experts are counted one by one", "[imatrix]") {
  for (const char* arch : {"llama", "qwen3moe"}) {
    INFO(arch);
    TempDir folder;
    const std::string model =
        write_model(folder, tiny_model({.arch = arch, .layers = 2, .experts = 4, .experts_used = 2}));
    const Entries entries = entries_of(collect(folder, model));
    for (const std::string blk : {"blk.0.", "blk.1."}) {
      const ImportanceEntry &router = entries.at(blk + "ffn_gate_inp.weight"),
                            &up = entries.at(blk + "ffn_up_exps.weight"),
                            &gate = entries.at(blk + "ffn_gate_exps.weight"),
                            &down = entries.at(blk + "ffn_down_exps.weight");
      REQUIRE(up.counts.size() == 4);
      std::int64_t routes = 0;
      for (const std::int64_t n : up.counts) routes += n;
      CHECK(routes == 2 * router.counts.front());
      CHECK(down.counts == up.counts);
      CHECK(gate.sums == up.sums);
      // Each token's row was added to two experts.
      std::vector<double> added(router.sums.size());
      for (std::size_t i = 0; i < up.sums.size(); ++i) added[i % added.size()] += static_cast<double>(up.sums[i]) / 2;
      check_near(router.sums, added, 1e-5);
      // An expert that no token met has sums of 0, the others have not.
      for (std::size_t e = 0; e < 4; ++e) CHECK((down.sums[e * 64] > 0) == (down.counts[e] > 0));
    }
  }
}

TEST_CASE("backends, and chunks evaluated in parts, agree", "[imatrix]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model({.layers = 2, .experts = 4}));
  const Entries reference = entries_of(collect(folder, model, {"--backend", "reference", "--process-output"}));
  CHECK(reference.contains("output.weight"));
  for (const char* backend : {"cpu", "blas"}) {
    if (!is_built(backend)) continue;
    const Entries got = entries_of(collect(folder, model, {"--backend", backend, "--process-output"}));
    REQUIRE(got.size() == reference.size());
    for (const auto& [name, e] : got) {
      INFO(backend << " " << name);
      CHECK(e.counts == reference.at(name).counts);
      check_near(e.sums, doubles(reference.at(name).sums), 1e-4);
    }
  }
}

TEST_CASE("files say what they were made of, and can be added to", "[imatrix]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string one = collect(folder, model, {"--chunks", "2"}, "one.gguf");
  const std::string two = collect(folder, model, {"--chunks", "2", "--in-file", one}, "two.gguf");
  const Outcome three =
      run_program("llm-imatrix", {"-m", model, "-f", (folder / "text").string(), "-c", std::to_string(kChunk),
                                  "--chunks", "2", "--in-file", two, "-o", (folder / "three.gguf").string()});
  CHECK(three.err.find("2 chunks of " + std::to_string(kChunk) + " tokens, 6 with the earlier ones\n") !=
        std::string::npos);
  const Entries once = entries_of(one), twice = entries_of(two);
  for (const auto& [name, e] : once) {
    CHECK(twice.at(name).counts.front() == 2 * e.counts.front());
    for (std::size_t i = 0; i < e.sums.size(); ++i) CHECK(twice.at(name).sums[i] == 2 * e.sums[i]);
  }
  Warnings warnings;
  const ImportanceMatrix m = ImportanceMatrix::read(two, warnings);
  CHECK(m.chunk_count == 4);
  CHECK(m.chunk_size == kChunk);
  CHECK(m.datasets.size() == 2);
  // What it is for.
  const TinyFile wide = tiny_model({.n_embd = 256, .d_ff = 256, .heads = 32, .kv_heads = 8});
  const std::string large = write_model(folder, wide, "wide.gguf");
  const std::string matrix = collect(folder, large);
  output_of("llm-quantize", {large, (folder / "q.gguf").string(), "IQ2_XS", "--imatrix", matrix});
  check_fails(
      3, "the matrix is of another model", "llm-imatrix",
      {"-m", large, "-f", (folder / "text").string(), "-o", (folder / "x").string(), "-c", "8", "--in-file", one});
}

TEST_CASE("matrices are added up without a model", "[imatrix]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model()), sum = (folder / "sum.gguf").string();
  const std::string one = collect(folder, model, {"--chunks", "1"}, "one.gguf");
  const std::string two = collect(folder, model, {"--chunks", "2", "--process-output"}, "two.gguf");
  const Outcome merged = run_program("llm-imatrix", {"--in-file", one, "--in-file", two, "-o", sum});
  CHECK(merged.code == 0);
  CHECK(merged.err.find("2 chunks of " + std::to_string(kChunk) + " tokens, 3 in all files\n") != std::string::npos);
  const Entries first = entries_of(one), second = entries_of(two), all = entries_of(sum);
  REQUIRE(all.size() == second.size());
  CHECK(second.size() == first.size() + 1);  // that of the logits
  for (const auto& [name, e] : second) {
    const auto other = first.find(name);
    const std::int64_t seen = other == first.end() ? 0 : other->second.counts.front();
    CHECK(all.at(name).counts.front() == e.counts.front() + seen);
    for (std::size_t i = 0; i < e.sums.size(); ++i)
      CHECK(all.at(name).sums[i] == e.sums[i] + (other == first.end() ? 0 : other->second.sums[i]));
  }
  Warnings warnings;
  const ImportanceMatrix m = ImportanceMatrix::read(sum, warnings);
  CHECK(m.chunk_count == 3);
  CHECK(m.chunk_size == kChunk);
  CHECK(m.datasets.size() == 2);
  const std::string of_wide =
      collect(folder, write_model(folder, tiny_model({.n_embd = 64}), "wide.gguf"), {}, "wide.imatrix");
  const std::string out = (folder / "out.gguf").string();
  check_fails(3, "has another shape than in " + one + ": the matrices are of different models", "llm-imatrix",
              {"--in-file", one, "--in-file", of_wide, "-o", out});
  check_fails(2, "option --chunks needs -f", "llm-imatrix", {"--in-file", one, "--chunks", "2", "-o", out});
  check_fails(2, "option -m needs -f", "llm-imatrix", {"--in-file", one, "-m", model, "-o", out});
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("what llm-imatrix refuses", "[imatrix]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model()), text = write_file(folder / "text", kText);
  const std::string out = (folder / "out.gguf").string();
  check_fails(2, "option -f, --file is missing: the text, or --in-file with matrices to add up", "llm-imatrix",
              {"-m", model});
  check_fails(2, "a chunk takes 512", "llm-imatrix", {"-m", model, "-f", text, "-o", out});
  check_fails(2, "cannot read", "llm-imatrix", {"-m", model, "-f", (folder / "none").string(), "-o", out});
  // Before any work: the model is not looked for, the text is not read.
  check_fails(8, "no/out.gguf: cannot be created: No such file or directory", "llm-imatrix",
              {"-m", (folder / "none").string(), "-f", text, "-o", (folder / "no/out.gguf").string()});
  const std::string wide = write_model(folder, tiny_model({.n_embd = 64}), "wide.gguf");
  const std::string of_wide = collect(folder, wide, {}, "wide.imatrix");
  check_fails(3, "; the matrix is of another model\n", "llm-imatrix",
              {"-m", model, "-f", (folder / "none").string(), "-o", out, "--in-file", of_wide});
  check_fails(2, "would be overwritten by -o while it is read", "llm-imatrix",
              {"-m", model, "-f", text, "-o", model, "--force"});
  output_of("llm-inspect", {"split", model, (folder / "part").string(), "--max-tensors", "6"});
  check_fails(2, "would be overwritten by -o while it is read", "llm-imatrix",
              {"-m", (folder / "part-00001-of-00002.gguf").string(), "-f", text, "-o",
               (folder / "part-00002-of-00002.gguf").string(), "--force"});
  CHECK_FALSE(std::filesystem::exists(out));
  write_file(out, "precious");
  check_fails(2, "already exists; --force", "llm-imatrix", {"-m", model, "-f", text, "-o", out});
  check_fails(2, "name a file (./- is one of that name)", "llm-imatrix", {"-m", model, "-f", text, "-o", "-"});
  CHECK(contents(out) == "precious");
}

TEST_CASE("a signal ends a long chunk at once", "[imatrix]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model()), program_path = program("llm-imatrix").string();
  std::string long_text;
  while (long_text.size() < 400'000) long_text += kText;
  const std::string text = write_file(folder / "text", long_text);
  const Outcome ended =
      run({.program = "/bin/sh",
           .arguments = {"-c", "'" + program_path + "' -m '" + model + "' -f '" + text +
                                   "' -c 100000 --chunks 1 -t 1 -o '" + (folder / "out.gguf").string() +
                                   "' & p=$!\nsleep 2; kill -TERM $p; wait $p"},
           .limit = std::chrono::seconds(30)});
  CHECK(ended.code == 128 + SIGTERM);
  CHECK_FALSE(std::filesystem::exists(folder / "out.gguf"));
}
