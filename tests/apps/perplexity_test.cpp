// llm-perplexity as a process, against a computation of its own: logits of whole windows from the library, sums in long
// double from the definition.
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "programs.h"
#include "runtime/session.h"

using namespace llm;
using namespace llm::test;

namespace {

using Matrix = std::vector<std::vector<float>>;

/// A float32 matrix by the .npy format: magic, version 1.0, length of the header, header, data.
Matrix read_npy(const std::string& path) {
  const std::string bytes = contents(path);
  REQUIRE(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t length = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  const std::string header = bytes.substr(10, length);
  CHECK((10 + length) % 64 == 0);
  CHECK(header.back() == '\n');
  std::size_t n = 0, width = 0;
  REQUIRE(std::sscanf(header.c_str(), "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", &n, &width) ==
          2);
  REQUIRE(bytes.size() == 10 + length + 4 * n * width);
  Matrix rows(n, std::vector<float>(width));
  for (std::size_t i = 0; i < n; ++i)
    std::memcpy(rows[i].data(), bytes.data() + 10 + length + 4 * width * i, 4 * width);
  return rows;
}

std::string npy(const Matrix& rows) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows.size()) + ", " +
                       std::to_string(rows[0].size()) + "), }";
  header.resize(117, ' ');
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  bytes += header + '\n';
  for (const auto& row : rows) bytes.append(reinterpret_cast<const char*>(row.data()), 4 * row.size());
  return bytes;
}

long double log_sum_exp(const std::vector<float>& row) {
  long double sum = 0;
  for (const float v : row) sum += std::exp(static_cast<long double>(v));
  return std::log(sum);
}

std::vector<Token> random_ids(std::size_t n, int vocab) {
  std::mt19937 bits(7);
  std::vector<Token> ids(n);
  for (Token& t : ids) t = static_cast<Token>(bits() % static_cast<unsigned>(vocab));
  return ids;
}

std::string id_file(const TempDir& folder, const std::vector<Token>& ids) {
  return write_file(folder / "ids.json", Json(ids).dump());
}

struct Expected {
  Matrix logits;
  std::vector<long double> nll;
};

/// Windows of `size` ids, the first replaced by `bos`; the logits of position i score id i + 1, for i in size/2 ..
/// size-2.
Expected expect(const std::string& path, const std::vector<Token>& ids, std::size_t size, Token bos) {
  Warnings warnings;
  LoadOptions options;
  options.path = path;
  options.threads = 1;
  const auto model = Model::load(options, warnings);
  Session session(*model, {.context = static_cast<std::int64_t>(size)});
  const auto vocab = static_cast<std::size_t>(model->dims().vocab);
  Expected e;
  for (std::size_t begin = 0; begin + size <= ids.size(); begin += size) {
    std::vector<Token> window(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                              ids.begin() + static_cast<std::ptrdiff_t>(begin + size));
    if (bos != kNoToken) window[0] = bos;
    const SequenceId sequence = session.create();
    const Append work{sequence, window, Logits::All};
    const std::span<const float> logits = session.eval({&work, 1});
    for (std::size_t i = size / 2; i + 1 < size; ++i) {
      const auto row = logits.subspan(i * vocab, vocab);
      e.logits.emplace_back(row.begin(), row.end());
      e.nll.push_back(log_sum_exp(e.logits.back()) - row[static_cast<std::size_t>(window[i + 1])]);
    }
    session.remove(sequence);
  }
  return e;
}

void check_figures(const Json& j, const std::vector<long double>& nll) {
  long double sum = 0, squares = 0;
  const auto n = static_cast<long double>(nll.size());
  for (const long double v : nll) sum += v;
  for (const long double v : nll) squares += (v - sum / n) * (v - sum / n);
  const double ppl = static_cast<double>(std::exp(sum / n));
  CHECK(j["n_tokens"] == nll.size());
  CHECK(j["nll"] == Approx(static_cast<double>(sum)).epsilon(1e-9));
  CHECK(j["ppl"] == Approx(ppl).epsilon(1e-9));
  CHECK(j["ppl_stderr"] == Approx(ppl * static_cast<double>(std::sqrt(squares / n / (n - 1)))).epsilon(1e-9));
}

}  // namespace

TEST_CASE("perplexity follows its definition, with BOS where the vocabulary adds one", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model({.layers = 2}));
  const std::vector<Token> ids = random_ids(16 * 3 + 5, 267);
  const std::string npy_path = (folder / "logits.npy").string();
  const Json j = json_of("llm-perplexity", {"-m", path, "--tokens", id_file(folder, ids), "-c", "16", "--json",
                                            "--save-logits", npy_path});
  const Expected e = expect(path, ids, 16, 1);
  REQUIRE(e.nll.size() == 3 * 7);
  CHECK(read_npy(npy_path) == e.logits);
  check_figures(j, e.nll);
}

TEST_CASE("perplexity of a text: tokenised once, its line feed at the end dropped, special tokens not recognised",
          "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model({.tokenizer = TinyTokenizer::Bpe}));
  // A byte's id is its value and no two bytes of these merge; windows of an odd size.
  const std::string text = "xyz zyx <|end|> yxz, zzz; xy\xc3\xa9yx. Zyx";
  const std::vector<Token> ids = [&] {
    std::vector<Token> all;
    for (const char c : text) all.push_back(static_cast<unsigned char>(c));
    return all;
  }();
  const Expected e = expect(path, ids, 11, kNoToken);
  REQUIRE(e.nll.size() == 3 * 5);
  const std::string file = write_file(folder / "text", text + "\n");
  const Json j = json_of("llm-perplexity", {"-m", path, "-f", file, "-c", "11", "--json"});
  check_figures(j, e.nll);
  CHECK(j["n_bytes"] == 3 * 5);
  CHECK(!j.contains("kl_mean"));

  const Json two = json_of("llm-perplexity", {"-m", path, "-f", file, "-c", "11", "--chunks", "2", "--json"});
  check_figures(two, {e.nll.begin(), e.nll.begin() + 10});
}

TEST_CASE("ids are read as JSON or as numbers between spaces", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const std::vector<Token> ids = random_ids(20, 267);
  std::string words;
  for (const Token t : ids) words += std::to_string(t) + (t % 2 ? "\n" : "  ");
  const std::vector<std::string> rest{"-m", path, "-c", "8", "--json", "--tokens"};
  const auto with = [&](const std::string& file) {
    std::vector<std::string> all = rest;
    all.push_back(file);
    return all;
  };
  CHECK(json_of("llm-perplexity", with(id_file(folder, ids))) ==
        json_of("llm-perplexity", with(write_file(folder / "words", words))));
  const std::string of_controls = write_file(folder / "controls", "1 2 1 2 1 2 1 2");  // tokens that no text has
  const std::string said = output_of("llm-perplexity", {"-m", path, "-c", "8", "--tokens", of_controls});
  CHECK_THAT(said, contains(" nats over 3 tokens\n"));
  CHECK_THAT(said, !contains("byte"));
  check_fails(2, "267", "llm-perplexity", with(write_file(folder / "large", "1 2 267")));
  check_fails(2, "-1", "llm-perplexity", with(write_file(folder / "negative", "[1, -1]")));
  check_fails(2, "1.5", "llm-perplexity", with(write_file(folder / "real", "1 1.5")));
  check_fails(2, "JSON array", "llm-perplexity", with(write_file(folder / "broken", "[1, 2")));
}

TEST_CASE("distances from a base follow their definitions", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const std::vector<std::string> run{"-m", path, "--tokens", id_file(folder, random_ids(40, 267)),
                                     "-c", "20", "--json"};
  const auto with = [&](const std::string& option, const std::string& file) {
    std::vector<std::string> all = run;
    all.insert(all.end(), {option, file});
    return all;
  };
  const std::string own = (folder / "own.npy").string();
  const Json saved = json_of("llm-perplexity", with("--save-logits", own));
  const Matrix rows = read_npy(own);

  const Json same = json_of("llm-perplexity", with("--kl-base", own));
  CHECK(same["kl_mean"] == 0.0);
  CHECK(same["kl_max"] == 0.0);
  CHECK(same["top1_agreement"] == 1.0);
  CHECK(same["max_abs_logit_diff"] == 0.0);
  CHECK(same["nll"] == saved["nll"]);

  Matrix base = rows;  // row 2 uniform, row 5 with its likeliest token pushed down, all others as they are
  std::fill(base[2].begin(), base[2].end(), 1.0f);
  *std::max_element(base[5].begin(), base[5].end()) -= 30;
  const Json j = json_of("llm-perplexity", with("--kl-base", write_file(folder / "base.npy", npy(base))));
  long double sum = 0, largest = 0, difference = 0;
  int agree = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const long double p_norm = log_sum_exp(base[i]), q_norm = log_sum_exp(rows[i]);
    long double kl = 0;
    for (std::size_t t = 0; t < rows[i].size(); ++t) {
      const long double p = base[i][t] - p_norm, q = rows[i][t] - q_norm;
      kl += std::exp(p) * (p - q);
      difference = std::max(difference, std::abs(static_cast<long double>(base[i][t]) - rows[i][t]));
    }
    sum += kl;
    largest = std::max(largest, kl);
    agree += std::max_element(base[i].begin(), base[i].end()) - base[i].begin() ==
             std::max_element(rows[i].begin(), rows[i].end()) - rows[i].begin();
  }
  REQUIRE(largest > 0.01L);
  REQUIRE(agree < static_cast<int>(rows.size()));
  const auto n = static_cast<double>(rows.size());
  CHECK(j["kl_mean"] == Approx(static_cast<double>(sum) / n).epsilon(1e-9));
  CHECK(j["kl_max"] == Approx(static_cast<double>(largest)).epsilon(1e-9));
  CHECK(j["top1_agreement"] == Approx(agree / n));
  CHECK(j["max_abs_logit_diff"] == Approx(static_cast<double>(difference)));
  CHECK(j["kl_stderr"] > 0.0);
}

/// What --save-logits writes for 16 tokens in windows of 8, six rows, but for one value.
std::string saved_with(const std::string& model, const std::string& ids, std::size_t row, float value) {
  const TempDir folder;
  const std::string file = (folder / "saved.npy").string();
  REQUIRE(run_program("llm-perplexity", {"-m", model, "--tokens", ids, "-c", "8", "--save-logits", file}).code == 0);
  std::string bytes = contents(file);
  std::memcpy(bytes.data() + bytes.size() - (6 - row) * 267 * sizeof value, &value, sizeof value);
  return bytes;
}

TEST_CASE("bases that do not fit are refused", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const std::string ids = id_file(folder, random_ids(16, 267));
  const auto with = [&](const std::string& bytes) {
    return std::vector<std::string>{"-m", path, "--tokens",  ids,
                                    "-c", "8",  "--kl-base", write_file(folder / "base.npy", bytes)};
  };
  const Matrix rows(6, std::vector<float>(267));
  CHECK(run_program("llm-perplexity", with(npy(rows))).code == 0);
  check_fails(2, "[5, 267]", "llm-perplexity", with(npy(Matrix(5, std::vector<float>(267)))));
  check_fails(2, "[6, 266]", "llm-perplexity", with(npy(Matrix(6, std::vector<float>(266)))));
  const std::string good = npy(rows);
  check_fails(2, "cut short", "llm-perplexity", with(good.substr(0, good.size() - 1)));
  check_fails(2, "cut short", "llm-perplexity", with(good.substr(0, 9)));
  check_fails(2, "not an .npy", "llm-perplexity", with(std::string(200, 'x')));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  check_fails(2, "f32", "llm-perplexity", with(replaced("<f4", "<f8")));
  check_fails(2, "C order", "llm-perplexity", with(replaced("False", "True ")));
  check_fails(2, "matrix", "llm-perplexity", with(replaced("(6, 267)", "(1602,) ")));
  check_fails(2, "is cut short", "llm-perplexity", with(""));
  const auto base_is = [&](const std::string& file) {
    return std::vector<std::string>{"-m", path, "--tokens", ids, "-c", "8", "--kl-base", file};
  };
  check_fails(2, "is a directory, a regular file is required", "llm-perplexity", base_is(folder.path().string()));
  check_fails(2, "No such file", "llm-perplexity", base_is((folder / "none").string()));
  check_fails(8, "row 3", "llm-perplexity", with(saved_with(path, ids, 3, std::nanf(""))));
}

TEST_CASE("a base of another text is refused though it has as many tokens", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model()), base = (folder / "base.npy").string();
  std::vector<Token> ids(17);
  std::iota(ids.begin(), ids.end(), 1);
  const auto with = [&](std::vector<Token> tokens, std::vector<std::string> rest) {
    rest.insert(rest.begin(), {"-m", path, "--tokens", id_file(folder, tokens)});
    return rest;
  };
  REQUIRE(run_program("llm-perplexity", with(ids, {"-c", "8", "--save-logits", base})).code == 0);
  // Python: hashlib.sha256(struct.pack('<q16i', 8, *range(1, 17)))
  CHECK_THAT(contents(base),
             contains("# tokens sha256 766d10434cafda69f84a6e7b0ccb660d0cd9422315d9bd48f98fdec9214116ca "));
  const Outcome same = run_program("llm-perplexity", with(ids, {"-c", "8", "--kl-base", base}));
  CHECK(same.code == 0);
  CHECK(same.err.empty());
  ids.back() = 99;  // in no window
  CHECK(run_program("llm-perplexity", with(ids, {"-c", "8", "--kl-base", base})).code == 0);
  ids[3] = 99;
  const std::string other = "base.npy: was made from other tokens: text, -c and vocabulary must be the same";
  check_fails(2, other, "llm-perplexity", with(ids, {"-c", "8", "--kl-base", base}));
  // Windows of 7 tokens score as many.
  check_fails(2, other, "llm-perplexity", with(ids, {"-c", "7", "--kl-base", base}));
  const Outcome old = run_program(
      "llm-perplexity",
      with(ids, {"-c", "8", "--kl-base", write_file(folder / "old.npy", npy(Matrix(6, std::vector<float>(267))))}));
  CHECK(old.code == 0);
  CHECK_THAT(old.err, contains("note: " + (folder / "old.npy").string() + " does not say of which text it is"));
}

TEST_CASE("logits are written whole or not at all", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const std::string ids = id_file(folder, random_ids(16, 267));
  const std::string before = npy(Matrix(1, std::vector<float>(3)));
  const std::string out = write_file(folder / "out.npy", before);
  check_fails(8, "base.npy", "llm-perplexity",
              {"-m", path, "--tokens", ids, "-c", "8", "--save-logits", out, "--kl-base",
               write_file(folder / "base.npy", saved_with(path, ids, 5, INFINITY))});
  CHECK(contents(out) == before);
  CHECK(folder.entries() == 4);  // model, ids, base, out: no temporary file stays
  check_fails(8, "cannot be created", "llm-perplexity",
              {"-m", path, "--tokens", ids, "-c", "8", "--save-logits", (folder / "none/out.npy").string()});
  check_fails(8, "/dev/full", "llm-perplexity", {"-m", path, "--tokens", ids, "-c", "8", "--save-logits", "/dev/full"});
  CHECK(std::filesystem::is_character_file("/dev/full"));
  const std::string other = write_file(folder / "notes", "mine");
  check_fails(2, "is there already and is no .npy file", "llm-perplexity",
              {"-m", path, "--tokens", ids, "-c", "8", "--save-logits", other});
  CHECK(contents(other) == "mine");
  for (const std::string& input : {path, ids}) {  // under another name
    const std::string link = (folder / "link").string();
    std::filesystem::remove(link);
    std::filesystem::create_hard_link(input, link);
    const std::string content = contents(input);
    check_fails(2, "would be overwritten", "llm-perplexity",
                {"-m", path, "--tokens", ids, "-c", "8", "--save-logits", link});
    CHECK(contents(input) == content);
  }
}

TEST_CASE("a signal ends a long window at once, and leaves no part of a file with logits", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const std::string ids = id_file(folder, random_ids(200'000, 267));
  const std::string program_path = program("llm-perplexity").string(), out = (folder / "out.npy").string();
  const Outcome ended =
      run({.program = "/bin/sh",
           .arguments = {"-c", "'" + program_path + "' -m '" + path + "' --tokens '" + ids +
                                   "' -c 200000 -t 1 --save-logits '" + out + "' & p=$!\n" + "until ls '" + out +
                                   "'.tmp* >/dev/null 2>&1; do\n  kill -0 $p || exit 99; done\nsleep 1; kill -TERM $p; "
                                   "wait $p"},
           .limit = std::chrono::seconds(30)});
  CHECK(ended.code == 128 + SIGTERM);
  CHECK(folder.entries() == 2);
}

TEST_CASE("threads change nothing, and a longer window than one step does not either", "[apps]") {
  const auto path = shared_file("data/models/stories260K-f32.gguf");
  if (!path) return;
  TempDir folder;
  const std::string ids = id_file(folder, random_ids(1500, 512));
  const auto run = [&](const std::string& threads) {
    const std::string npy_path = (folder / ("t" + threads + ".npy")).string();
    output_of("llm-perplexity",
              {"-m", path->string(), "--tokens", ids, "-c", "700", "-t", threads, "-q", "--save-logits", npy_path});
    return contents(npy_path);
  };
  const std::string one = run("1");
  CHECK(one == run("2"));
  CHECK(one.size() > 2 * 349 * 512 * 4);
}
