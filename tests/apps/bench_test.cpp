// llm-bench as a process: the fields of its rows, and that shares and limits follow from one another.
#include <algorithm>
#include <limits>
#include <set>
#include <sstream>
#include <tuple>

#include "programs.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr int kEmbd = 32;

/// Elements and bytes of the tensors, as the test wrote them.
struct Size {
  double elements = 0, bytes = 0;
};
Size size_of(const TinyFile& model, const std::function<bool(const TinyTensor&)>& wanted) {
  Size s;
  for (const TinyTensor& t : model.tensors()) {
    if (!wanted(t)) continue;
    s.elements += static_cast<double>(t.type.shape.elements());
    s.bytes += static_cast<double>(t.type.bytes());
  }
  return s;
}
bool any(const TinyTensor&) { return true; }
bool is_matrix(const TinyTensor& t) { return t.type.shape.n_dims() > 1; }
bool is_layer_matrix(const TinyTensor& t) { return t.name.starts_with("blk.") && is_matrix(t); }

std::vector<std::string> names(const Json& rows) {
  std::vector<std::string> all;
  for (const Json& row : rows) all.push_back(row["test"]);
  return all;
}

}  // namespace

TEST_CASE("a row for every test, with every field", "[apps]") {
  TempDir folder;
  const TinyFile model = tiny_model();
  const std::string path = write_model(folder, model);
  const Json rows = json_of("llm-bench", {"-m", path, "-p", "8,12", "-n", "3", "-np", "1,2", "-r", "1", "-t", "1", "-o",
                                          "json", "-ctk", "bf16"});
  CHECK(names(rows) == std::vector<std::string>{"pp8", "pp12", "tg3", "tg3 x2"});
  const Size size = size_of(model, any);
  for (const Json& row : rows) {
    INFO(row.dump());
    std::set<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.insert(key);
    CHECK(keys == std::set<std::string>{"model", "size_bytes", "n_params", "backend", "threads", "cache_type_k",
                                        "cache_type_v", "test", "t_s", "t_s_stddev", "pct_of_limit",
                                        "read_bytes_per_token", "read_gbps", "int8_tops", "bf16_gflops", "f32_gflops"});
    CHECK(row["model"] == "m.gguf");
    CHECK(row["size_bytes"] == size.bytes);
    CHECK(row["n_params"] == size.elements);
    CHECK(row["backend"] == "cpu");
    CHECK(row["threads"] == 1);
    CHECK(row["cache_type_k"] == "BF16");
    CHECK(row["cache_type_v"] == "F16");
    CHECK(row["t_s"] > 0.0);
    CHECK(row["t_s_stddev"] >= 0.0);
    for (const char* figure : {"pct_of_limit", "read_gbps", "int8_tops", "bf16_gflops", "f32_gflops"}) {
      if (!row[figure].is_null()) CHECK(row[figure] > 0.0);
    }
  }
  // A step reads the weights once for all its tokens, and of every sequence the cache: at a mean length of 2 here, for
  // each position a layer's keys and values of 2 bytes an element.
  const double weights = 8 * rows[0]["read_bytes_per_token"].get<double>();
  const TinyOptions shape;
  const double position = shape.layers * shape.kv_heads * shape.head_dim * 2.0 * 2.0;
  CHECK(12 * rows[1]["read_bytes_per_token"].get<double>() == Approx(weights));
  CHECK(rows[2]["read_bytes_per_token"].get<double>() == Approx(weights + 2 * position));
  CHECK(rows[3]["read_bytes_per_token"].get<double>() == Approx(weights / 2 + 2 * position));
}

TEST_CASE("what recurrent layers remember of a sequence is read for each of its tokens", "[apps]") {
  TempDir folder;
  const TinyOptions shape{.arch = "lfm2", .layers = 2};  // a convolution over 3 tokens, then attention
  const std::string path = write_model(folder, tiny_model(shape));
  const Json rows =
      json_of("llm-bench", {"-m", path, "-p", "8", "-n", "3", "-np", "1,2", "-r", "1", "-t", "1", "-o", "json"});
  const auto read = [&](std::size_t row) { return rows[row]["read_bytes_per_token"].get<double>(); };
  const double position = shape.kv_heads * shape.head_dim * 2.0 * 2.0, state = 2.0 * shape.n_embd * 4;
  CHECK(2 * read(2) - read(1) == Approx(2 * position + state));
  CHECK(8 * read(0) == Approx(read(1) - 2 * position - state));  // a prompt begins without any
}

TEST_CASE("rows as lines of JSON, and as CSV with the same names in the first line", "[apps]") {
  TempDir folder;
  const std::string path = (folder / "a,\"b\".gguf").string();
  tiny_model().write(path);
  const std::vector<std::string> line{"-m", path, "-p", "4", "-n", "2", "-r", "1", "-t", "1", "-o"};
  const auto rows = [&](const std::string& format) {
    std::vector<std::string> all = line;
    all.push_back(format);
    const Outcome o = run_program("llm-bench", all);
    CHECK(o.code == 0);
    std::istringstream in(o.out);
    std::vector<std::string> lines;
    for (std::string l; std::getline(in, l);) lines.push_back(l);
    return lines;
  };
  const std::vector<std::string> json = rows("jsonl"), csv = rows("csv");
  REQUIRE(json.size() == 2);
  CHECK(Json::parse(json[0])["test"] == "pp4");
  CHECK(Json::parse(json[1])["test"] == "tg2");
  REQUIRE(csv.size() == 3);
  CHECK(csv[0] ==
        "model,size_bytes,n_params,backend,threads,cache_type_k,cache_type_v,test,t_s,t_s_stddev,pct_of_limit,"
        "read_bytes_per_token,read_gbps,int8_tops,bf16_gflops,f32_gflops");
  const Json row = Json::parse(json[0]);
  CHECK(csv[1].starts_with("\"a,\"\"b\"\".gguf\"," + row["size_bytes"].dump() + "," + row["n_params"].dump() +
                           ",cpu,1,F16,F16,pp4,"));
  CHECK(std::count(csv[2].begin(), csv[2].end(), ',') == 16);  // one of them in the name
  std::vector<std::string> roofline = line;
  roofline.insert(roofline.end(), {"csv", "--roofline"});
  const Outcome with_limits = run_program("llm-bench", roofline);
  CHECK_THAT(with_limits.out, contains("f32_gflops,limit,limit_t_s\n"));
  CHECK_THAT(with_limits.err, contains("note: what nodes took is left out of -o csv"));
  check_fails(2, "\"sql\" is not md, json, jsonl or csv", "llm-bench", {"-m", path, "-o", "sql"});
}

TEST_CASE("ranges are llama-bench's", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const auto tests = [&](const std::string& prompts) {
    return names(json_of("llm-bench", {"-m", path, "-p", prompts, "-n", "0", "-r", "1", "-t", "1", "-o", "json"}));
  };
  CHECK(tests("2-4") == std::vector<std::string>{"pp2", "pp3", "pp4"});
  CHECK(tests("2-7+2,9") == std::vector<std::string>{"pp2", "pp4", "pp6", "pp9"});
  CHECK(tests("1-8*2") == std::vector<std::string>{"pp1", "pp2", "pp4", "pp8"});
  CHECK(tests("5-5") == std::vector<std::string>{"pp5"});
  for (const auto& [range, why] :
       std::vector<std::pair<std::string, std::string>>{{"4-2", "ends before it begins"},
                                                        {"0-4*2", "never ends"},
                                                        {"1-4*1", "never ends"},
                                                        {"1-4+0", "option -p"},
                                                        {"1-", "option -p"},
                                                        {"4*2", "option -p"},
                                                        {"1-9999", "more than 1,000 values"}}) {
    INFO(range);
    check_fails(2, why, "llm-bench", {"-m", path, "-p", range, "-r", "1"});
  }
}

TEST_CASE("all tests run with each number of threads, as llama-bench's do", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  for (const std::vector<std::string>& threads : {std::vector<std::string>{"-t", "1,2"}, {"-t", "1", "-t", "2"}}) {
    std::vector<std::string> line{"-m", path, "-p", "8", "-n", "2", "-r", "1", "-o", "json"};
    line.insert(line.end(), threads.begin(), threads.end());
    const Json rows = json_of("llm-bench", line);
    CHECK(names(rows) == std::vector<std::string>{"pp8", "tg2", "pp8", "tg2"});
    std::vector<int> counts;
    for (const Json& row : rows) counts.push_back(row["threads"]);
    CHECK(counts == std::vector<int>{1, 1, 2, 2});
  }
  const std::string table =
      output_of("llm-bench", {"-m", path, "-p", "4", "-n", "0", "-r", "1", "-t", "1-2", "--roofline"});
  CHECK_THAT(table, contains("| pp4, 1 thread: op | node |") && contains("| pp4, 2 threads: op | node |"));
  CHECK(table.find("| model |") == table.rfind("| model |"));
  check_fails(2, "option -t", "llm-bench", {"-m", path, "-t", "1,x"});
}

TEST_CASE("llama-bench's flags have 0 or 1 behind them", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const std::vector<std::string> line{"-m", path, "-p", "4", "-n", "0", "-r", "1", "-t", "1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = line;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  for (const std::vector<std::string>& accepted :
       {std::vector<std::string>{"-nkvo", "0", "-nopo", "1", "-mmp", "0", "-fa", "1"},
        {"--no-kv-offload", "1", "--no-op-offload", "0", "--mmap", "1", "--flash-attn", "on"},
        {"--no-host", "0", "--repack", "0", "-embd", "0", "-dio", "0", "--cpu-strict", "0", "--poll", "50"},
        {"-nkvo", "-nopo", "-mmp", "--no-host", "1"}}) {
    INFO(accepted.front());
    (void)output_of("llm-bench", with(accepted));
  }
  // Off is off: only where it is on it contradicts a backend of a GPU, which need not be here.
  check_fails(2, "contradict each other", "llm-bench", with({"-nkvo", "1", "--backend", "cuda"}));
  CHECK(run_program("llm-bench", with({"-nkvo", "0", "--backend", "cuda"})).code != 2);
  check_fails(2, "option -nkvo: \"0,1\" is a list", "llm-bench", with({"-nkvo", "0,1"}));
  check_fails(2, "attention never writes its whole matrix", "llm-bench", with({"-fa", "0,1"}));
  check_fails(2, "weights always stay as they are in the file", "llm-bench", with({"--repack", "1"}));
  check_fails(2, "for the text that they generate", "llm-bench", with({"-embd", "0,1"}));
  check_fails(2, "unexpected argument \"2\"", "llm-bench", with({"-nkvo", "2"}));
  check_fails(2, "unexpected argument \"0\"", "llm-run", {"-m", path, "-p", "a", "-nkvo", "0"});
}

TEST_CASE("a model, a type and the value of a flag come once on a line of llm-bench", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  for (const std::vector<std::string>& twice :
       {std::vector<std::string>{"-m", path}, {"-nkvo", "0", "-nkvo", "1"}, {"-ctk", "f16", "-ctk", "q8_0"}}) {
    std::vector<std::string> line{"-m", path, "-p", "4", "-n", "0", "-r", "1"};
    line.insert(line.end(), twice.begin(), twice.end());
    check_fails(2, "given more than once", "llm-bench", line);
  }
}

TEST_CASE("prompts are counted with their own threads, and their cache with what lies before them", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const Json rows = json_of("llm-bench", {"-m", path, "-p", "8,4,8", "-n", "2,2", "-d", "0,5", "-np", "1,8", "-t", "1",
                                          "-tb", "2", "-r", "1", "-o", "json"});
  CHECK(names(rows) ==
        std::vector<std::string>{"pp8", "pp4", "tg2", "tg2 x8", "pp8@d5", "pp4@d5", "tg2@d5", "tg2@d5 x8"});
  for (const Json& row : rows) {
    const std::string test = row["test"];
    const bool many = test.starts_with("pp8") || test.ends_with("x8");  // more than four tokens a step
    CHECK(row["threads"] == (many ? 2 : 1));
  }
  const TinyOptions shape;
  const double position = shape.layers * shape.kv_heads * shape.head_dim * 2.0 * 2.0;
  CHECK(8 * (rows[4]["read_bytes_per_token"].get<double>() - rows[0]["read_bytes_per_token"].get<double>()) ==
        Approx(5 * position));
}

TEST_CASE("tests after a depth come in the order of their depths", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const Json rows = json_of("llm-bench", {"-m", path, "-p", "4", "-n", "0,2", "-d", "9", "-d", "5,9", "--parallel", "2",
                                          "-r", "1", "-o", "json", "--backend", "reference"});
  CHECK(names(rows) == std::vector<std::string>{"pp4@d5", "tg2@d5 x2", "pp4@d9", "tg2@d9 x2"});
  for (const Json& row : rows) {
    CHECK(row["backend"] == "reference");
    CHECK(row["threads"] == 1);
    CHECK(row["t_s_stddev"] == 0.0);
  }
}

TEST_CASE("the limits of generation and prompts follow from what the model reads and multiplies", "[apps]") {
  TempDir folder;
  for (const DType type : {DType::F32, DType::BF16, DType::Q8_0}) {
    const TinyFile model = tiny_model({.layers = 2, .type = type});
    const std::string path = write_model(folder, model);
    const Json rows = json_of("llm-bench", {"-m", path, "-p", "512", "-n", "4", "-r", "1", "-o", "json", "--roofline"});
    REQUIRE(rows.size() == 2);
    for (const Json& row : rows) {
      INFO(row.dump());
      if (row["limit_t_s"].is_null()) continue;  // a machine whose limits are not measured
      CHECK(row["pct_of_limit"] == Approx(100 * row["t_s"].get<double>() / row["limit_t_s"].get<double>()));
    }
    // Behind the last layer's attention only the last token's row goes on.
    const auto is_last_row = [](const TinyTensor& t) {
      return t.name == "output.weight" || (t.name.starts_with("blk.1.") && (t.name.find("ffn_") != std::string::npos ||
                                                                            t.name.ends_with("attn_output.weight")));
    };
    const double of_last_row =
        size_of(model, [&](const TinyTensor& t) { return is_matrix(t) && is_last_row(t); }).elements;
    const double of_all =
        size_of(model, [&](const TinyTensor& t) { return is_layer_matrix(t) && !is_last_row(t); }).elements;
    const double multiplied = of_all + of_last_row / 512;
    const Json& prompt = rows[0];
    if (!prompt["limit_t_s"].is_null()) {
      const bool bytes = type == DType::Q8_0, brain = type == DType::BF16;
      const double ops = bytes   ? prompt["int8_tops"].get<double>() * 1e12
                         : brain ? prompt["bf16_gflops"].get<double>() * 1e9
                                 : prompt["f32_gflops"].get<double>() * 1e9;
      const double multiplying = ops / (2 * multiplied);
      // so small a model can be bound by reading where bytes are multiplied by tiles
      const double reading =
          prompt["read_gbps"].is_null()  // not measured where memory is scarce
              ? std::numeric_limits<double>::infinity()
              : prompt["read_gbps"].get<double>() * 1e9 / prompt["read_bytes_per_token"].get<double>();
      CHECK(prompt["limit_t_s"] == Approx(std::min(multiplying, reading)));
      const char* peak = bytes ? "int8 peak" : brain ? "bf16 peak" : "f32 peak";
      CHECK(prompt["limit"] == (multiplying < reading ? peak : "read bandwidth"));
    }
    const Json& generation = rows[1];
    if (generation["limit_t_s"].is_null()) continue;
    CHECK(generation["limit"] == "read bandwidth");
    const auto is_table = [](const TinyTensor& t) { return t.name == "token_embd.weight"; };
    const Size table = size_of(model, is_table);
    const double weights = size_of(model, any).bytes - table.bytes + table.bytes / table.elements * kEmbd;
    const double cache = 2 * 2 * (8 + 8) * 2 * 2.5;  // layers, heads, widths, bytes, mean length of 1, 2, 3, 4
    CHECK(generation["limit_t_s"] == Approx(generation["read_gbps"].get<double>() * 1e9 / (weights + cache)));
  }
}

TEST_CASE("of a model's experts a token reads and multiplies those it uses, a prompt reads all", "[apps]") {
  const auto is_expert = [](const TinyTensor& t) { return t.name.find("_exps") != std::string::npos; };
  const auto is_small = [](const TinyTensor& t) { return t.name.find("_chexps") != std::string::npos; };
  const auto is_shared = [&](const TinyTensor& t) {
    return !is_expert(t) && !is_small(t) && t.name != "token_embd.weight";
  };
  for (const char* arch : {"llama", "grovemoe"}) {  // the second has small experts for pairs of others
    INFO(arch);
    TempDir folder;
    const TinyFile model = tiny_model({.arch = arch, .experts = 8, .experts_used = 2});
    const Json rows = json_of("llm-bench", {"-m", write_model(folder, model), "-p", "0", "-n", "1", "-np", "1,2", "-r",
                                            "1", "-o", "json", "--roofline"});
    REQUIRE(rows.size() == 2);
    const double experts = size_of(model, is_expert).bytes, small = size_of(model, is_small).bytes,
                 shared = size_of(model, is_shared).bytes + kEmbd * 4;
    const double cache = 2 * (8 + 8) * 2;
    for (int parallel : {1, 2}) {
      const Json& row = rows[static_cast<std::size_t>(parallel - 1)];
      const double touched = parallel == 1 ? 2.0 / 8 : 1 - (6.0 / 8) * (6.0 / 8);
      const double touched_small = parallel == 1 ? 2.0 / 4 : 1 - (2.0 / 4) * (2.0 / 4);
      const double weights = shared + experts * touched + small * touched_small, bytes = weights + parallel * cache;
      CHECK(parallel * row["read_bytes_per_token"].get<double>() == Approx(bytes));
      if (row["limit_t_s"].is_null()) continue;
      CHECK(row["limit_t_s"] == Approx(parallel * row["read_gbps"].get<double>() * 1e9 / bytes));
    }
  }
}

TEST_CASE("the table is Markdown with as many cells in every row", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const std::string table = output_of("llm-bench", {"-m", path, "-p", "4", "-n", "2", "-r", "1", "--roofline"});
  // The rows of the tests, then for each test its nodes.
  std::vector<std::vector<std::string>> tables(1);
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty())
      tables.emplace_back();
    else
      tables.back().push_back(line);
  }
  REQUIRE(tables.size() == 3);
  CHECK(tables[0].size() == 4);
  CHECK(tables[1].front().starts_with("| pp4: op | node |"));
  CHECK(tables[2].front().starts_with("| tg2: op | node |"));
  for (const auto& rows : tables) {
    for (const std::string& row : rows)
      CHECK(std::count(row.begin(), row.end(), '|') == std::count(rows[0].begin(), rows[0].end(), '|'));
  }
}

TEST_CASE("--roofline tells what each kind of node moved and computed", "[apps]") {
  TempDir folder;
  constexpr int kLayers = 3, kTokens = 40;
  const TinyFile model = tiny_model({.layers = kLayers, .type = DType::Q8_0});
  const Json rows = json_of("llm-bench", {"-m", write_model(folder, model), "-p", std::to_string(kTokens), "-n", "2",
                                          "-r", "1", "-o", "json", "--roofline"});
  REQUIRE(rows.size() == 2);
  // Queries, keys and values are one product, of all tokens in every layer.
  const Size weights = size_of(model, [](const TinyTensor& t) {
    return t.name.ends_with("attn_q.weight") || t.name.ends_with("attn_k.weight") || t.name.ends_with("attn_v.weight");
  });
  const auto node = [](const Json& row, const std::string& name) {
    for (const Json& n : row["nodes"])
      if (n["node"] == name) return n;
    FAIL("no node " << name);
    return Json();
  };
  for (const auto& [row, steps, tokens] : {std::tuple{0, 1, kTokens}, std::tuple{1, 2, 1}}) {
    const Json n = node(rows[static_cast<std::size_t>(row)], "blk.*.attn_q");
    INFO(n.dump());
    CHECK(n["op"] == "linear");
    CHECK(n["calls"] == kLayers * steps);
    CHECK(n["operations"] == 2 * weights.elements * tokens * steps);
    const double activations = kLayers * 4.0 * tokens * (kEmbd + 2 * kEmbd);  // of 32 and as many queries, half as many
    CHECK(n["bytes"] == (weights.bytes + activations) * steps);               // keys and values
    CHECK(n["seconds"] > 0.0);
    if (n["pct_of_limit"].is_null()) continue;
    CHECK(n["pct_of_limit"] > 0.0);
    const std::string limit = n["limit"];
    CHECK((limit == "read bandwidth" || limit == "int8 peak"));
  }
  CHECK(node(rows[0], "output")["calls"] == 1);
}
