// A batch gives each row what the row gives alone, whatever runs beside it, whatever it shares, and however often it
// had to give its memory back.
#include "runtime/scheduler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "drawing.h"
#include "runtime/generator.h"
#include "runtime/prefix_order.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

std::vector<Token> joined(std::span<const Token> a, std::span<const Token> b) {
  std::vector<Token> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

AnswerOptions options(std::uint64_t row, std::int64_t max_tokens) {
  return {.max_tokens = max_tokens,
          .sampling = {.seed = 5, .temperature = 1.2F, .repeat_penalty = 1.1F},
          .row = row,
          .end_token = AnswerOptions::EndToken::Ignored};
}

/// Prompts that share beginnings in several ways: a long one in common, branches of it, equal ones, none at all.
std::vector<BatchRow> rows_with_prefixes(std::int64_t vocab) {
  const auto common = random_tokens(130, vocab, 1), branch = joined(common, random_tokens(40, vocab, 2));
  std::vector<BatchRow> rows;
  const auto add = [&](std::vector<Token> prompt, std::int64_t max_tokens) {
    rows.push_back({std::move(prompt), options(rows.size(), max_tokens)});
  };
  for (unsigned i = 0; i < 6; ++i) {
    add(joined(common, random_tokens(3 + 7 * i, vocab, 10 + i)), 5 + 9 * i);
    add(joined(branch, random_tokens(1 + i, vocab, 20 + i)), 20);
    add(random_tokens(1 + 40 * i, vocab, 30 + i), 15 + i);
  }
  add(branch, 12);
  add(branch, 12);
  add(common, 70);
  add(random_tokens(9, vocab, 40), 0);
  return rows;
}

std::map<std::size_t, BatchResult> run_all(Model& model, Session& session, std::span<const BatchRow> rows, int parallel,
                                           BatchProgress* last = nullptr) {
  std::map<std::size_t, BatchResult> results;
  run_batch(model, session, rows, parallel,
            {.finished =
                 [&](BatchResult&& r) {
                   CHECK(results.count(r.row) == 0);
                   const std::size_t row = r.row;
                   results.emplace(row, std::move(r));
                 },
             .progress =
                 [&](const BatchProgress& p) {
                   CHECK(p.rows_done + p.rows_running + p.rows_waiting == rows.size());
                   if (last != nullptr) *last = p;
                   return BatchControl::Continue;
                 }});
  return results;
}

/// Heads of 32, which quantised caches need.
TinyOptions with_wide_heads(int layers) {
  return {.layers = layers, .n_embd = 64, .heads = 2, .kv_heads = 1, .head_dim = 32, .context = 512};
}
constexpr CacheFormat kQuantizedCache{DType::Q8_0, DType::Q4_0};

std::string alone(Model& model, const BatchRow& row, CacheFormat cache = {}) {
  Session session(model, {.context = 512, .sequences = 1, .cache = cache});
  std::string text;
  GenerateOptions options{.answer = *row.answer};
  options.answer.logprobs = 0;  // takes the logits, whatever the backend draws
  options.step = [&](const Answer&, const AnswerText& piece) { text += piece.text; };
  generate(session, model, session.create(), *row.prompt, options);
  return text;
}

std::size_t common_length(std::span<const Token> a, std::span<const Token> b) {
  std::size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

}  // namespace

TEST_CASE("rows that begin alike share recurrent states, too") {
  const TempDir folder;
  const char* const backend = GENERATE("cpu", "reference");
  const auto model = load_tiny(folder, tiny_model({.arch = "qwen35", .layers = 2, .context = 512}), 1, backend);
  const auto common = random_tokens(150, model->dims().vocab, 1), more = joined(common, random_tokens(60, 200, 2));
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 8; ++i) {
    const std::vector<Token>& beginning = i < 4 ? common : more;
    rows.push_back({joined(beginning, random_tokens(10 + i, model->dims().vocab, 10 + i)), options(i, 5)});
  }
  for (const int parallel : {1, 3}) {
    INFO(backend << ", " << parallel << " at once");
    Session session(*model, {.context = 512, .sequences = batch_sequences(parallel), .batch_tokens = 64, .pool = 0});
    BatchProgress last;
    run_all(*model, session, rows, parallel, &last);
    CHECK(last.shared_tokens >= 4 * 150 + 3 * 210);
    CHECK(session.read_again() == 0);
  }
}

TEST_CASE("a row whose state lags waits until no step is on its way") {
  const TempDir folder;
  const char* const backend = GENERATE("reference", "two devices");
  const auto model = load_drawing(folder, tiny_model({.arch = "qwen35", .layers = 2, .context = 512}), backend);
  const auto common = random_tokens(260, model->dims().vocab, 1);
  std::vector<BatchRow> rows;
  // More places where a row parts from the one before than states are kept of.
  for (unsigned i = 12; i-- > 0;) {
    rows.push_back({joined(std::span(common).first(20 + 20 * i), random_tokens(10, model->dims().vocab, 10 + i)),
                    options(rows.size(), 30 + 7 * (i % 3))});
  }
  for (const int parallel : {2, 4}) {
    CAPTURE(backend, parallel);
    Session session(*model, {.context = 512, .sequences = batch_sequences(parallel), .batch_tokens = 16, .pool = 0});
    const auto results = run_all(*model, session, rows, parallel);
    CHECK(session.read_again() > 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(i);
      CHECK(results.at(i).text == alone(*model, rows[i]));
    }
  }
}

TEST_CASE("a row of a batch says what it says alone") {
  const TempDir folder;
  std::vector<std::string> expected;
  struct Setting {
    int parallel;
    std::int64_t pool;
    int batch_tokens;
    CacheFormat cache = {};
    const char* backend = "cpu";  ///< the reference draws tokens itself
    const char* arch = "llama";
  };
  const auto s =
      GENERATE(Setting{1, 0, 512}, Setting{3, 0, 64}, Setting{8, 0, 512}, Setting{32, 0, 512}, Setting{8, 512, 512},
               Setting{32, 640, 16}, Setting{8, 0, 512, kQuantizedCache}, Setting{32, 640, 16, kQuantizedCache},
               Setting{1, 0, 512, {}, "reference"}, Setting{5, 512, 64, {}, "reference"},
               Setting{32, 640, 16, {}, "reference"}, Setting{1, 0, 512, {}, "cpu", "qwen35"},
               Setting{8, 0, 64, {}, "cpu", "qwen35"}, Setting{32, 640, 16, {}, "cpu", "qwen35"},
               Setting{5, 512, 64, {}, "reference", "qwen35"}, Setting{32, 640, 16, {}, "reference", "qwen35"});
  CAPTURE(s.parallel, s.pool, s.batch_tokens, name(s.cache.k), s.backend, s.arch);
  TinyOptions tiny = with_wide_heads(2);
  tiny.arch = s.arch;
  const auto model = load_tiny(folder, tiny_model(tiny), 1, s.backend);
  const auto rows = rows_with_prefixes(model->dims().vocab);
  for (const BatchRow& row : rows) expected.push_back(alone(*model, row, s.cache));
  CHECK(expected[0] != expected[3]);
  Session session(*model, {.context = 512,
                           .sequences = batch_sequences(s.parallel),
                           .batch_tokens = s.batch_tokens,
                           .pool = s.pool,
                           .cache = s.cache});
  const auto results = run_all(*model, session, rows, s.parallel);
  REQUIRE(results.size() == rows.size());
  for (const auto& [row, result] : results) {
    CAPTURE(row);
    CHECK_FALSE(result.error);
    CHECK(result.text == expected[row]);
    CHECK(result.reason == StopReason::Length);
    CHECK(static_cast<std::int64_t>(result.tokens.size()) == rows[row].answer->max_tokens);
  }
  CHECK(session.cache_bytes_in_use() == 0);
}

TEST_CASE("rows end at any token while their backend draws ahead") {
  const TempDir folder;
  const auto model = load_drawing(folder, tiny_model({.layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe}),
                                  GENERATE(from_range(kDrawing)));
  if (!model) return;
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 40; ++i) {
    AnswerOptions answer = options(i, i % 7 == 0 ? -1 : 1 + i);
    if (i % 3 == 0) answer.stop_strings = {std::string(1, static_cast<char>('a' + i % 26)), "1"};
    if (i % 3 != 1) answer.end_token = AnswerOptions::EndToken::Stops;
    rows.push_back({random_tokens(3 + i % 30, 256, i), answer});
  }
  constexpr std::int64_t kContext = 90;
  const int parallel = GENERATE(6, 24);
  CAPTURE(parallel);
  Session session(*model, {.context = kContext, .sequences = batch_sequences(parallel), .pool = 107 * parallel});
  const auto results = run_all(*model, session, rows, parallel);
  std::map<StopReason, int> reasons;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    Session single(*model, {.context = kContext});
    AnswerOptions answer = *rows[i].answer;
    answer.logprobs = 0;
    const GenerateResult expected = generate(single, *model, single.create(), *rows[i].prompt, {.answer = answer});
    CHECK(results.at(i).tokens == expected.tokens);
    CHECK(results.at(i).reason == expected.reason);
    ++reasons[expected.reason];
  }
  CHECK(reasons[StopReason::StopString] > 2);
  CHECK(reasons[StopReason::ContextFull] > 1);
  CHECK(reasons[StopReason::Length] > 5);
  CHECK(session.begun() == 0);
  CHECK(session.cache_bytes_in_use() == 0);
}

TEST_CASE("rows join a batch while a step of the others is on its way") {
  const TempDir folder;
  const auto [backend, parallel] =
      GENERATE(table<const char*, int>({{"reference", 4}, {"two devices", 4}, {"two devices", 20}}));
  CAPTURE(backend, parallel);
  const auto model = load_drawing(folder, tiny_model({.layers = 2, .context = 512}), backend);
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 60; ++i)
    rows.push_back({random_tokens(3 + i % 20, model->dims().vocab, i), options(i, 4 + i % 11)});
  Session session(*model, {.context = 512, .sequences = batch_sequences(parallel)});
  std::map<std::size_t, std::vector<Token>> answers;
  int steps = 0, pauses = 0;
  BatchProgress last;
  run_batch(*model, session, rows, parallel,
            {.finished = [&](BatchResult&& r) { answers[r.row] = std::move(r.tokens); },
             .progress =
                 [&](const BatchProgress& p) {
                   if (p.rows_waiting > 0 && p.generated_tokens > 0) {
                     ++steps;
                     pauses += session.begun() == 0 ? 1 : 0;
                   }
                   last = p;
                   return BatchControl::Continue;
                 }});
  CHECK(steps > 30);
  CHECK(pauses == 0);
  std::int64_t prompts = 0, generated = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    Session single(*model, {.context = 64});
    CHECK(answers.at(i) ==
          generate(single, *model, single.create(), *rows[i].prompt, {.answer = *rows[i].answer}).tokens);
    prompts += std::ssize(*rows[i].prompt);
    generated += rows[i].answer->max_tokens;
  }
  CHECK(last.prompt_tokens + last.shared_tokens == prompts);
  CHECK(last.generated_tokens == generated);
}

TEST_CASE("rows read their prompts while others generate, on several devices, too") {
  const TempDir folder;
  const auto model = load_drawing(folder, tiny_model({.layers = 2, .context = 512}), "two devices");
  const unsigned short_prompts = GENERATE(0U, 1U, 4U, 17U);
  CAPTURE(short_prompts);
  constexpr unsigned kRows = 20;
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < kRows; ++i)
    rows.push_back({random_tokens(i < short_prompts ? 3 : 200, model->dims().vocab, i), options(i, 40)});
  Session session(*model, {.context = 256, .sequences = batch_sequences(kRows), .batch_tokens = 64});
  std::int64_t read_before_first_end = 0;
  BatchProgress now;
  std::map<std::size_t, std::vector<Token>> answers;
  run_batch(*model, session, rows, kRows,
            {.finished =
                 [&](BatchResult&& r) {
                   if (answers.empty()) read_before_first_end = now.prompt_tokens;
                   answers[r.row] = std::move(r.tokens);
                 },
             .progress =
                 [&](const BatchProgress& p) {
                   now = p;
                   return BatchControl::Continue;
                 }});
  // 40 steps of 64 tokens, of which the prompts have what generating leaves.
  CHECK(read_before_first_end > (short_prompts == 17 ? 500 : 1000));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    Session single(*model, {.context = 256});
    CHECK(answers.at(i) ==
          generate(single, *model, single.create(), *rows[i].prompt, {.answer = *rows[i].answer}).tokens);
  }
}

TEST_CASE("several devices read a batch's prompts in several steps at once") {
  const TempDir folder;
  const auto model = load_drawing(folder, tiny_model({.layers = 2, .context = 512}), "two devices");
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 10; ++i)
    rows.push_back({random_tokens(90 + 20 * i, model->dims().vocab, i), options(i, 5 + i)});
  Session session(*model, {.context = 320, .sequences = batch_sequences(8)});
  REQUIRE(session.batch_tokens() == 1024);
  const auto results = run_all(*model, session, rows, 8);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    Session single(*model, {.context = 320});
    CHECK(results.at(i).tokens ==
          generate(single, *model, single.create(), *rows[i].prompt, {.answer = *rows[i].answer}).tokens);
  }
  CHECK(contains(session.describe(), "program for up to 512 tokens"));
  CHECK_FALSE(contains(session.describe(), "program for up to 1024 tokens"));
  CHECK(contains(session.describe(), "program for up to 8 tokens"));
}

TEST_CASE("several devices generate for half of a batch's rows each at a time") {
  const TempDir folder;
  const TinyFile file = tiny_model({.layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe});
  const auto model = load_drawing(folder, file, "two devices");
  constexpr int kRows = 24;
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < kRows; ++i) {
    AnswerOptions answer = options(i, 12 + i % 5);
    answer.sampling.temperature = 0;
    rows.push_back({random_tokens(3, model->dims().vocab, i), answer});
  }
  const SessionOptions session_options{.context = 64, .sequences = batch_sequences(kRows)};
  Session session(*model, session_options);
  const auto results = run_all(*model, session, rows, kRows);
  std::map<Token, std::set<std::size_t>> fed;  // the rows that have a token before their last one
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    Session single(*model, {.context = 64});
    AnswerOptions answer = *rows[i].answer;
    answer.logprobs = 0;
    const auto expected = generate(single, *model, single.create(), *rows[i].prompt, {.answer = answer});
    CHECK(results.at(i).tokens == expected.tokens);
    for (std::size_t j = 0; j + 1 < expected.tokens.size(); ++j) fed[expected.tokens[j]].insert(i);
  }
  CHECK(contains(session.describe(), "program for up to 16 tokens"));
  CHECK_FALSE(contains(session.describe(), "program for up to 32 tokens"));

  // A fault in some rows of either half ends these and no others.
  for (const BatchRow& row : rows)
    for (const Token t : *row.prompt) fed.erase(t);
  const auto some = std::find_if(fed.begin(), fed.end(), [](const auto& f) {
    return *f.second.begin() < kRows / 2 && *f.second.rbegin() >= kRows / 2 && f.second.size() < kRows / 2;
  });
  REQUIRE(some != fed.end());
  const auto path = folder / "model.gguf";
  patch(path, "token_embd.weight", static_cast<std::size_t>(some->first) * 32 * sizeof(float), kNanF32);
  Warnings warnings;
  const auto bad = Model::load(drawing_options(path, "two devices"), warnings);
  Session faulty(*bad, session_options);
  const auto after = run_all(*bad, faulty, rows, kRows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    REQUIRE(after.at(i).error.has_value() == some->second.contains(i));
    if (after.at(i).error)
      CHECK(after.at(i).error->kind() == ErrorKind::Numeric);
    else
      CHECK(after.at(i).tokens == results.at(i).tokens);
  }
}

TEST_CASE("rows that outgrow the memory are computed again, and say the same") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model(with_wide_heads(1)));
  const auto common = random_tokens(70, model->dims().vocab, 3);
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 9; ++i) {
    rows.push_back({joined(common, random_tokens(5, model->dims().vocab, 80 + i)), options(i, 100 + 20 * i)});
  }
  const CacheFormat cache = GENERATE(CacheFormat{}, kQuantizedCache);
  Session session(*model, {.context = 512, .sequences = batch_sequences(8), .pool = 512, .cache = cache});
  BatchProgress last;
  const auto results = run_all(*model, session, rows, 8, &last);
  CHECK(last.preempted > 0);
  CHECK(last.prompt_tokens + last.shared_tokens == 9 * 75);
  REQUIRE(results.size() == rows.size());
  for (const auto& [row, result] : results) {
    CAPTURE(row);
    CHECK(result.text == alone(*model, rows[row], cache));
  }
  CHECK(session.cache_bytes_in_use() == 0);
}

TEST_CASE("what prompts have in common is computed once") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 512}));
  const auto common = random_tokens(200, model->dims().vocab, 3);
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 40; ++i) {
    rows.push_back({joined(common, random_tokens(20, model->dims().vocab, 50 + i)), options(i, 3 + i % 4)});
  }
  const int parallel = GENERATE(1, 4, 64);
  Session session(*model, {.context = 512, .sequences = batch_sequences(parallel), .pool = 0});
  BatchProgress last;
  run_all(*model, session, rows, parallel, &last);
  // Random tails may begin alike now and then: the tree of all prompts says how many tokens there are to compute.
  std::int64_t to_compute = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::size_t most = 0;
    for (std::size_t j = 0; j < i; ++j) most = std::max(most, common_length(*rows[i].prompt, *rows[j].prompt));
    to_compute += static_cast<std::int64_t>(rows[i].prompt->size() - most);
  }
  CHECK(last.prompt_tokens == to_compute);
  CHECK(last.shared_tokens == 40 * 220 - to_compute);
}

TEST_CASE("a row that cannot be computed fails alone") {
  const TempDir folder;
  const auto path = folder / "bad.gguf";
  tiny_model({.layers = 2, .context = 512}).write(path);
  patch(path, "token_embd.weight", (7 * 32 + 3) * sizeof(float), kNanF32);
  Warnings warnings;
  const auto model =
      Model::load({.path = path, .backend = GENERATE("cpu", "reference"), .threads = 1, .progress = {}}, warnings);
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 8; ++i) {
    auto prompt = random_tokens(20 + i, model->dims().vocab, 60 + i);
    std::replace(prompt.begin(), prompt.end(), Token{7}, Token{8});
    if (i == 2 || i == 5) prompt[4] = 7;
    AnswerOptions answer = options(i, 8);
    answer.sampling.temperature = 0;
    rows.push_back({std::move(prompt), answer});
  }
  rows.push_back({random_tokens(65, model->dims().vocab, 70), options(8, 8)});
  Session session(*model, {.context = 64, .sequences = batch_sequences(4), .pool = 0});
  BatchProgress last;
  const auto results = run_all(*model, session, rows, 4, &last);
  REQUIRE(results.size() == rows.size());
  std::int64_t prompts = 0;
  for (const auto& [row, result] : results) {
    CAPTURE(row);
    if (!result.error) prompts += std::ssize(*rows[row].prompt);
    if (row == 8) {
      REQUIRE(result.error);
      CHECK(result.error->kind() == ErrorKind::Context);
    } else if (row == 2 || row == 5) {
      REQUIRE(result.error);
      CHECK(result.error->kind() == ErrorKind::Numeric);
      CHECK(result.text.empty());
    } else {
      CHECK_FALSE(result.error);
      CHECK(result.text == alone(*model, rows[row]));
    }
  }
  CHECK(last.prompt_tokens == prompts);
}

TEST_CASE("rows that end as they begin keep no other from its turn") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 64}));
  const auto common = random_tokens(40, model->dims().vocab, 4);
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 4; ++i)
    rows.push_back({joined(common, random_tokens(30, 9, i)), options(i, 5)});  // too long
  for (unsigned i = 4; i < 12; ++i) {
    rows.push_back({joined(common, random_tokens(3, model->dims().vocab, i)), options(i, i % 3 == 0 ? 5 : 0)});
  }
  rows.push_back({random_tokens(3, model->dims().vocab, 20), options(12, 0)});
  rows.push_back({random_tokens(3, model->dims().vocab, 21), options(13, 5)});
  const int parallel = GENERATE(1, 2, 32);
  CAPTURE(parallel);
  Session session(*model, {.context = 64, .sequences = batch_sequences(parallel), .pool = 0});
  const auto results = run_all(*model, session, rows, parallel);
  REQUIRE(results.size() == rows.size());
  for (const auto& [row, result] : results) {
    CAPTURE(row);
    CHECK(result.error.has_value() == (row < 4));
    if (row >= 4) CHECK(result.text == alone(*model, rows[row]));
  }
  CHECK(session.cache_bytes_in_use() == 0);
}

TEST_CASE("a batch drains, and stops") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 512}));
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 10; ++i) rows.push_back({random_tokens(10, model->dims().vocab, i), options(i, 40)});
  Session session(*model, {.context = 512, .sequences = batch_sequences(3), .pool = 0});
  const auto control = GENERATE(BatchControl::Drain, BatchControl::Stop);
  std::vector<BatchResult> results;
  int steps = 0;
  run_batch(*model, session, rows, 3,
            {.finished = [&](BatchResult&& r) { results.push_back(std::move(r)); },
             .progress = [&](const BatchProgress&) { return ++steps > 10 ? control : BatchControl::Continue; }});
  REQUIRE(results.size() == 3);
  for (const BatchResult& r : results) {
    if (control == BatchControl::Drain) {
      CHECK(r.reason == StopReason::Length);
      CHECK(r.text == alone(*model, rows[r.row]));
    } else {
      CHECK(r.reason == StopReason::Cancelled);
      CHECK(alone(*model, rows[r.row]).starts_with(r.text));
      CHECK(r.tokens.size() == 10);
    }
  }
  CHECK(session.cache_bytes_in_use() == 0);
}

TEST_CASE("rows that gave their memory back are told of when all stop, and end when their time is up") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 512}));
  const bool stops = GENERATE(true, false);
  constexpr double kSeconds = 0.3;
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 4; ++i) {
    rows.push_back({random_tokens(100, model->dims().vocab, i), options(i, 300)});
    if (!stops) rows.back().max_seconds = kSeconds;
  }
  Session session(*model, {.context = 512, .sequences = batch_sequences(4), .pool = 512});
  std::vector<BatchResult> results;
  std::int64_t generated = -1;
  run_batch(*model, session, rows, 4,
            {.finished = [&](BatchResult&& r) { results.push_back(std::move(r)); },
             .progress =
                 [&](const BatchProgress& p) {
                   if (p.preempted == 0 || generated >= 0) return BatchControl::Continue;
                   generated = p.generated_tokens;
                   if (stops) return BatchControl::Stop;
                   std::this_thread::sleep_for(std::chrono::duration<double>(2 * kSeconds));
                   return BatchControl::Continue;
                 }});
  REQUIRE(results.size() == 4);
  std::int64_t all = 0;
  for (const BatchResult& r : results) {
    CHECK(r.reason == (stops ? StopReason::Cancelled : StopReason::TimeUp));
    all += std::ssize(r.tokens);
  }
  CHECK(all == generated);  // nothing was computed behind that
  CHECK(session.cache_bytes_in_use() == 0);
}

TEST_CASE("whoever hears of a row may throw, and the session is as before") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 512}));
  std::vector<BatchRow> rows;
  for (unsigned i = 0; i < 6; ++i) rows.push_back({random_tokens(40, model->dims().vocab, i), options(i, 5 + i / 2)});
  Session session(*model, {.context = 512, .sequences = batch_sequences(4), .pool = 0});
  int heard = 0;
  const BatchCallbacks callbacks{.finished =
                                     [&](BatchResult&&) {
                                       if (++heard == 2) throw std::runtime_error("full");
                                     },
                                 .progress = {}};
  CHECK_THROWS_WITH(run_batch(*model, session, rows, 4, callbacks), "full");
  CHECK(session.cache_bytes_in_use() == 0);
  CHECK(run_all(*model, session, rows, 4).size() == rows.size());
}

TEST_CASE("the order of prompts follows the tree of their tokens") {
  std::mt19937 random(GENERATE(1U, 2U, 3U, 4U));
  std::vector<std::vector<Token>> prompts(60);
  for (auto& p : prompts) {  // a choice now and then, and ends between them
    p.resize(random() % 80);
    Token chosen = 0;
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = chosen = i % 10 == 0 ? static_cast<Token>(random() % 3) : chosen;
  }
  prompts[40] = prompts[20];
  std::vector<std::span<const Token>> spans(prompts.begin(), prompts.end());
  const auto order = prefix_order(spans);
  REQUIRE(order.size() == prompts.size());
  std::vector<bool> seen(prompts.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    CHECK_FALSE(seen[order[i].prompt]);
    seen[order[i].prompt] = true;
    std::size_t most = 0;
    for (std::size_t j = 0; j < i; ++j) {
      most = std::max(most, common_length(prompts[order[i].prompt], prompts[order[j].prompt]));
    }
    const std::size_t had = std::min(most, std::max<std::size_t>(1, prompts[order[i].prompt].size()) - 1);
    CHECK(order[i].shared == (had < 16 ? 0 : had));
  }
  // Of two whole subtrees that part somewhere, the one that appears first in the file comes first; prompts that end
  // where others go on come before those.
  CHECK(prefix_order({}).empty());
  const std::vector<Token> a{5, 1}, b{4}, c{5, 2}, d{3, 9}, e{5};
  std::vector<std::size_t> indices;
  const std::vector<std::span<const Token>> five{a, b, c, d, e};
  for (const PrefixStep& s : prefix_order(five)) indices.push_back(s.prompt);
  CHECK(indices == std::vector<std::size_t>{4, 0, 2, 1, 3});
  const std::vector<Token> f(20, 3), g(21, 3), h(17, 3), i(16, 3);
  const std::vector<std::span<const Token>> six{f, a, g, f, h, i};
  const auto given = prefix_order(six, RowOrder::AsGiven);
  std::vector<std::size_t> shared;
  for (std::size_t k = 0; k < six.size(); ++k) {
    CHECK(given[k].prompt == k);
    shared.push_back(given[k].shared);
  }
  // With the one before it, without its last token, and at least 16.
  CHECK(shared == std::vector<std::size_t>{0, 0, 0, 19, 16, 0});
}

TEST_CASE("prompts a hundred thousand tokens deep need no stack") {
  const std::vector<Token> tokens(100'000, 1);
  std::vector<std::span<const Token>> prompts;
  for (std::size_t n = 400; n > 0; --n) prompts.push_back(std::span(tokens).first(n * 250));
  const auto order = prefix_order(prompts);
  CHECK(order.front().prompt == 399);
  CHECK(order.back().shared == 99'750);
}
