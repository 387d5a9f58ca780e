// Tokens that backends draw themselves: the rules say what the sampler does, and answers are the same token by token
// whether the backend or the sampler draws.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "backend/host/draw.h"
#include "drawing.h"
#include "runtime/generator.h"
#include "runtime/ngram_drafter.h"
#include "runtime/sampler.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Of few values, so that many are equal.
std::vector<float> coarse_logits(std::mt19937& random, std::size_t n) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(n);
  for (float& l : logits) l = std::round(normal(random) * 4) / 4;
  return logits;
}

std::vector<std::pair<std::string, SamplerOptions>> ruled() {
  std::vector<std::pair<std::string, SamplerOptions>> all;
  const auto add = [&](const std::string& name, const std::function<void(SamplerOptions&)>& change) {
    SamplerOptions o;
    change(o);
    all.emplace_back(name, o);
  };
  add("defaults", [](auto&) {});
  add("greedy", [](auto& o) { o.temperature = 0; });
  add("greedy with penalties", [](auto& o) {
    o.temperature = 0;
    o.repeat_penalty = 1.3F;
    o.frequency_penalty = 0.2F;
  });
  add("hot", [](auto& o) {
    o.temperature = 3;
    o.top_k = 128;
    o.top_p = 1;
    o.min_p = 0;
  });
  add("temperature 1", [](auto& o) { o.temperature = 1; });
  add("narrow", [](auto& o) {
    o.top_p = 0.3F;
    o.min_p = 0.4F;
  });
  add("min_keep", [](auto& o) {
    o.top_p = 0.01F;
    o.min_p = 0.9F;
    o.min_keep = 5;
  });
  add("penalties of few", [](auto& o) {
    o.repeat_penalty = 1.5F;
    o.presence_penalty = -0.5F;
    o.frequency_penalty = 0.3F;
    o.repeat_last_n = 7;
  });
  add("penalties of none", [](auto& o) {
    o.repeat_penalty = 3;
    o.repeat_last_n = 0;
  });
  add("penalties of all", [](auto& o) {
    o.repeat_penalty = 0.7F;
    o.repeat_last_n = -1;
  });
  add("no temperature in the chain", [](auto& o) {
    o.order = {SamplerKind::TopK, SamplerKind::TopP};
    o.temperature = 0.2F;
  });
  add("no temperature in the chain, of 0", [](auto& o) {
    o.order = {SamplerKind::TopK};
    o.temperature = 0;
    o.dynatemp_range = 0.5F;
  });
  add("bias", [](auto& o) {
    o.logit_bias = {{3, 5}, {4, -std::numeric_limits<float>::infinity()}, {3, 1}, {10'000, 4}};
    o.presence_penalty = 1;
  });
  return all;
}

}  // namespace

TEST_CASE("a rule draws what the sampler samples", "[draws]") {
  constexpr std::size_t kVocab = 900, kRows = 910;  // rows without a token at the end, which may not be drawn
  std::mt19937 random(5);
  for (const auto& [name, options] : ruled()) {
    INFO(name);
    SamplerOptions o = options;
    o.seed = 11;
    Sampler sampler(o, 3);
    std::set<Token> seen;
    for (std::uint64_t index = 0; index < 150; ++index) {
      std::vector<float> logits = coarse_logits(random, kRows);
      for (std::size_t i = kVocab; i < kRows; ++i) logits[i] = 40;
      for (std::size_t i = 0; i < 12; ++i) logits[i] += 6;  // those that penalties know
      const auto rule = sampler.rule(kVocab, index, 0);
      REQUIRE(rule);
      const auto drawn = host::draw(*rule, logits, -1);
      const Token sampled = sampler.sample(std::span(logits).first(kVocab), index);
      REQUIRE(drawn == sampled);

      // One token further than the sampler knows, often one that it has seen.
      const Token unseen = static_cast<Token>(random() % 12);
      auto ahead = sampler.rule(kVocab, index + 1, 1);
      REQUIRE(ahead);
      ahead->newest = 0;
      const auto drawn_ahead = host::draw(*ahead, logits, unseen);
      sampler.accept(unseen);
      REQUIRE(drawn_ahead == sampler.sample(std::span(logits).first(kVocab), index + 1));
      seen.insert(sampled);
    }
    CHECK(seen.size() > 5);
  }
}

TEST_CASE("what a rule cannot say is left to the sampler", "[draws]") {
  const auto refused = [](const std::function<void(SamplerOptions&)>& change, std::size_t vocab = 1000) {
    SamplerOptions o;
    change(o);
    return !Sampler(o).rule(vocab, 0, 0);
  };
  CHECK_FALSE(refused([](auto&) {}));
  CHECK(refused([](auto& o) { o.top_k = 0; }));
  CHECK(refused([](auto& o) { o.top_k = kMostDrawn + 1; }));
  CHECK(refused([](auto& o) { o.dry_multiplier = 1; }));
  CHECK(refused([](auto& o) { o.typical_p = 0.5F; }));
  CHECK(refused([](auto& o) { o.xtc_probability = 0.5F; }));
  CHECK(refused([](auto& o) { o.top_n_sigma = 1; }));
  CHECK(refused([](auto& o) { o.mirostat = 2; }));
  CHECK(refused([](auto& o) { o.dynatemp_range = 0.3F; }));
  CHECK(refused([](auto& o) { o.order = {SamplerKind::Temperature, SamplerKind::TopK}; }));
  CHECK(refused([](auto& o) { o.order = {SamplerKind::TopP, SamplerKind::TopK, SamplerKind::Temperature}; }));
  for (const SamplerKind twice : {SamplerKind::TopK, SamplerKind::TopP, SamplerKind::Temperature}) {
    CHECK(refused([&](auto& o) {
      o.order = {SamplerKind::TopK, SamplerKind::TopP, SamplerKind::Temperature};
      o.order.insert(std::ranges::find(o.order, twice), twice);
    }));
  }
  CHECK(refused([](auto& o) {  // without a top-k of few, a temperature that does not act makes no best
    o.order = {SamplerKind::TopP};
    o.temperature = 0;
  }));
  CHECK(refused([](auto& o) {
    for (Token t = 0; t < 300; ++t) o.logit_bias.push_back({t, 1});
  }));
  CHECK_FALSE(refused([](auto& o) {
    for (Token t = 0; t < 3000; ++t) o.logit_bias.push_back({t % 30, 1});
  }));
  CHECK(refused([](auto& o) { o.logit_bias = {{0, 1}, {1, 1}}; }, 2));  // all could be forbidden
}

TEST_CASE("a row that is not finite draws nothing", "[draws]") {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> logits{1, 2, bad, 0};
    CHECK_FALSE(host::draw({.n_tokens = 2}, logits, -1));
  }
}

namespace {

struct Drawn {
  std::vector<Token> tokens;
  std::vector<std::pair<std::size_t, std::string>> steps;
  StopReason reason = StopReason::Cancelled;
  std::int64_t length = 0;
  std::vector<float> after;  ///< logits behind the answer, from the cache that it left
};

struct DrawRequest {
  std::string name;
  AnswerOptions answer;
  std::optional<std::int64_t> keep = {};
  std::size_t stop_after = 1000;
};

enum class Who : std::uint8_t { Backend, Sampler };

/// Log probabilities take the logits, so that the sampler draws.
Drawn show(Model& model, std::span<const Token> prompt, DrawRequest asked, Who who,
           Speculation* speculation = nullptr) {
  if (who == Who::Sampler) asked.answer.logprobs = 0;
  Session session(model, {.context = 128});
  REQUIRE(session.draws());
  const SequenceId id = session.create();
  Drawn shown;
  GenerateOptions options{.answer = asked.answer, .keep = asked.keep, .speculation = speculation};
  std::size_t pieces = 0;
  std::atomic<bool> stop{false};
  options.cancel = &stop;
  options.step = [&](const Answer& a, const AnswerText& piece) {
    shown.steps.emplace_back(a.tokens().size(), piece.text);
    pieces += piece.text.empty() ? 0 : 1;
    stop = pieces >= asked.stop_after;
  };
  const GenerateResult result = generate(session, model, id, prompt, options);
  CHECK(session.begun() == 0);
  shown.tokens = result.tokens;
  shown.reason = result.reason;
  shown.length = session.length(id);
  if (session.length(id) < session.context()) {
    const std::vector<Token> next{5};
    const Append work{id, next, Logits::Last};
    const auto logits = session.eval({&work, 1});
    shown.after.assign(logits.begin(), logits.end());
  }
  return shown;
}

void check_same_draws(const Drawn& a, const Drawn& b) {
  CHECK(a.tokens == b.tokens);
  CHECK(a.steps == b.steps);
  CHECK(a.reason == b.reason);
  CHECK(a.length == b.length);
  CHECK(same_bits(a.after, b.after));
}

std::vector<DrawRequest> answers() {
  std::vector<DrawRequest> all;
  const auto add = [&](const std::string& name, const std::function<void(DrawRequest&)>& change) {
    DrawRequest asked{.name = name, .answer = {}};
    asked.answer.max_tokens = 50;
    asked.answer.sampling.seed = 7;
    change(asked);
    all.push_back(asked);
  };
  add("defaults", [](auto&) {});
  add("greedy", [](auto& a) { a.answer.sampling.temperature = 0; });
  add("penalties", [](auto& a) {
    a.answer.sampling.repeat_penalty = 1.2F;
    a.answer.sampling.frequency_penalty = 0.2F;
    a.answer.sampling.repeat_last_n = 9;
  });
  add("no rule", [](auto& a) { a.answer.sampling.top_k = 0; });
  add("to the end of the context", [](auto& a) {
    a.answer.max_tokens = -1;
    a.answer.end_token = AnswerOptions::EndToken::Ignored;
  });
  add("beyond it", [](auto& a) {
    a.answer.max_tokens = 300;
    a.answer.end_token = AnswerOptions::EndToken::Ignored;
    a.keep = 3;
  });
  add("a reader who leaves", [](auto& a) { a.stop_after = 9; });
  add("a stop string", [](auto& a) {
    a.answer.stop_strings = {"a", "e", "1", "~"};
    a.answer.max_tokens = 200;
  });
  for (const std::int64_t n : {0, 1, 2, 3}) add("few tokens", [&](auto& a) { a.answer.max_tokens = n; });
  return all;
}

}  // namespace

TEST_CASE("an answer is the same whoever draws its tokens", "[draws]") {
  const TempDir folder;
  const std::string backend = GENERATE(from_range(kDrawing));
  for (const char* arch : {"llama", "qwen3moe", "qwen4exp"}) {  // the last one hashes what is drawn
    const auto model = load_drawing(
        folder, tiny_model({.arch = arch, .layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe}), backend);
    if (!model) return;
    const auto prompt = random_tokens(20, 256, 4);
    for (const DrawRequest& asked : answers()) {
      INFO(arch << ": " << asked.name);
      const Drawn expected = show(*model, prompt, asked, Who::Sampler);
      check_same_draws(show(*model, prompt, asked, Who::Backend), expected);
      std::vector<std::unique_ptr<Drafter>> drafters;
      drafters.push_back(std::make_unique<NgramDrafter>());
      Speculation speculation(std::move(drafters), {.most = 4, .length = SpeculationOptions::Length::Fixed});
      check_same_draws(show(*model, prompt, asked, Who::Backend, &speculation), expected);
    }
  }
}

namespace {

/// Guesses the same token for ever, and counts how often it is asked.
class Counted final : public Drafter {
 public:
  explicit Counted(std::int64_t& guesses) : guesses_(guesses) {}
  std::string_view name() const override { return "counted"; }
  void begin(std::span<const Token>) override {}
  void append(Token) override {}
  std::optional<Guess> guess(std::span<const Token>) override {
    ++guesses_;
    return Guess{1, 1.0};
  }

 private:
  std::int64_t& guesses_;
};

}  // namespace

TEST_CASE("where the backend draws tokens a draft is made once", "[draws]") {
  const TempDir folder;
  const auto model = load_drawing(folder, tiny_model({.layers = 2, .context = 512}), GENERATE(from_range(kDrawing)));
  if (!model) return;
  std::int64_t guesses = 0;
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<Counted>(guesses));
  Speculation speculation(std::move(drafters), {.most = 4, .length = SpeculationOptions::Length::Fixed});
  DrawRequest asked;
  asked.answer.max_tokens = 40;
  show(*model, random_tokens(20, model->dims().vocab, 4), asked, Who::Backend, &speculation);
  CHECK(speculation.counts().drafted > 40);
  CHECK(guesses == speculation.counts().drafted);
}

TEST_CASE("a fault in a step that draws is told as in any other", "[draws]") {
  const TempDir folder;
  const std::string backend = GENERATE(from_range(kDrawing));
  const auto path = folder / "model.gguf";
  const TinyFile file = tiny_model({.layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe});
  DrawRequest asked{.name = "greedy", .answer = {}};
  asked.answer.max_tokens = 40;
  asked.answer.sampling.temperature = 0;
  std::vector<Token> prompt{65, 66, 67};
  Token late = -1;
  {
    const auto model = load_drawing(folder, file, backend);
    if (!model) return;
    const Drawn whole = show(*model, prompt, asked, Who::Sampler);
    for (std::size_t i = 5; i < whole.tokens.size() && late < 0; ++i) {
      const Token t = whole.tokens[i];
      const bool first = std::find(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(i), t) ==
                         whole.tokens.begin() + static_cast<std::ptrdiff_t>(i);
      if (first && std::find(prompt.begin(), prompt.end(), t) == prompt.end()) late = t;
    }
    REQUIRE(late >= 0);
  }
  patch(path, "token_embd.weight", static_cast<std::size_t>(late) * 32 * sizeof(float), kNanF32);
  Warnings warnings;
  const auto model = Model::load(drawing_options(path, backend), warnings);
  const auto fault = [&](Who who) {
    try {
      show(*model, prompt, asked, who);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Numeric);
      return std::string(e.what());
    }
    FAIL("no fault");
    return std::string();
  };
  const std::string told = fault(Who::Sampler);
  CHECK(fault(Who::Backend) == told);
}

TEST_CASE("a step that is taken back leaves a sequence alone that got the id of one of its own", "[draws]") {
  const TempDir folder;
  const auto path = folder / "model.gguf";
  tiny_model({.layers = 2, .context = 512}).write(path);
  patch(path, "token_embd.weight", std::size_t{7} * 32 * sizeof(float), kNanF32);
  Warnings warnings;
  const auto model = Model::load(drawing_options(path, "reference"), warnings);
  Session session(*model, {.context = 128, .sequences = 2});
  const SequenceId donor = session.create();
  const std::vector<Token> good(70, 8), bad{7};
  const std::array<Append, 1> work{{{donor, good}}};
  session.eval(work);
  const SequenceId first = session.create();
  const std::array<Drawing, 1> drawing{
      {{first, bad, DrawRule{.n_tokens = static_cast<std::int32_t>(model->dims().vocab)}}}};
  session.begin(drawing);
  session.remove(first);
  const SequenceId second = session.fork(donor, 50);
  REQUIRE(second == first);
  CHECK_FALSE(session.collect());
  CHECK(session.length(second) == 50);
  CHECK(session.length(donor) == 70);
}

TEST_CASE("a step that fails behind another leaves its sequences where that one brought them", "[draws]") {
  const TempDir folder;
  const auto path = folder / "model.gguf";
  tiny_model({.arch = GENERATE("llama", "qwen35"), .layers = 2, .context = 512}).write(path);
  patch(path, "token_embd.weight", std::size_t{7} * 32 * sizeof(float), kNanF32);
  Warnings warnings;
  const auto model = Model::load(drawing_options(path, "reference"), warnings);
  Session session(*model, {.context = 128, .sequences = 2, .pool = 128}), plain(*model, {.context = 128});
  const SequenceId one = session.create(), same = plain.create();
  const std::vector<Token> text(70, 8);  // all blocks of the pool
  const auto logits = [](Session& s, SequenceId id, std::span<const Token> tokens) {
    const std::array<Append, 1> work{{{id, tokens}}};
    const std::span<const float> rows = s.eval(work);
    return std::vector<float>(rows.begin(), rows.end());
  };
  CHECK(logits(session, one, text) == logits(plain, same, text));
  const DrawRule best{.n_tokens = static_cast<std::int32_t>(model->dims().vocab)};
  const std::array<Token, 1> bad{7}, good{9};
  const std::array<Drawing, 1> first{{{one, good, best}}}, not_finite{{{one, bad, best}}};
  SECTION("for what it computed") {
    session.begin(first);
    session.begin(not_finite);
    CHECK(session.collect());
    CHECK_FALSE(session.collect());
  }
  SECTION("for the room in the cache") {
    session.begin(first);
    const SequenceId other = session.create();
    const std::array<Drawing, 2> too_much{{{one, good, best}, {other, good, best}}};
    CHECK_THROWS_AS(session.begin(too_much), Error);
    CHECK(session.length(other) == 0);
    CHECK(session.begun() == 1);
    CHECK(session.collect());
  }
  SECTION("for the room, while one is on its way that fails, too") {
    session.begin(first);
    CHECK(session.collect());
    session.begin(not_finite);
    const std::array<Drawing, 2> too_much{{{one, good, best}, {session.create(), good, best}}};
    CHECK_THROWS_AS(session.begin(too_much), Error);
    session.begin(first);  // forgets what nobody holds
    CHECK_FALSE(session.collect());
    CHECK(session.begun() == 0);
  }
  CHECK(session.length(one) == 71);
  CHECK(session.to_read_again(one) == 0);
  logits(plain, same, good);
  CHECK(logits(session, one, good) == logits(plain, same, good));
}

TEST_CASE("no step begins behind another for a sequence whose state lags", "[draws]") {
  const TempDir folder;
  const auto model = load_drawing(folder, tiny_model({.arch = "qwen35", .layers = 2, .context = 256}), "reference");
  Session session(*model, {.context = 200, .sequences = 2});
  const std::vector<Token> text = random_tokens(60, model->dims().vocab, 1);
  const SequenceId one = session.create(), other = session.create();
  const std::array<Append, 2> read{{{one, text}, {other, text}}};
  session.eval(read);
  session.rewind(other, 50);
  CHECK(session.to_read_again(one) == 0);
  CHECK(session.to_read_again(other) == 50);
  const DrawRule best{.n_tokens = static_cast<std::int32_t>(model->dims().vocab)};
  const std::array<Drawing, 1> first{{{one, std::span(text).first(1), best}}},
      second{{{other, std::span(text).first(1), best}}};
  session.begin(first);
  CHECK_THROWS_AS(session.begin(second), Error);
  CHECK(session.begun() == 1);
  CHECK(session.collect());
  session.begin(second);
  CHECK(session.to_read_again(other) == 0);
  CHECK(session.collect());
  CHECK(session.length(one) == 61);
  CHECK(session.length(other) == 51);
}

TEST_CASE("steps that draw run ahead of their reader", "[draws]") {
  const TempDir folder;
  const auto model = load_drawing(folder, tiny_model({.layers = 2, .context = 256, .tokenizer = TinyTokenizer::Bpe}),
                                  GENERATE(from_range(kDrawing)));
  if (!model) return;
  const std::int64_t vocab = model->dims().vocab;
  Session session(*model, {.context = 200, .sequences = 3});
  Session plain(*model, {.context = 200, .sequences = 3});
  std::vector<std::vector<Token>> texts;
  std::vector<SequenceId> ids, plain_ids;
  std::vector<Drawing> work;
  const DrawRule best{.n_tokens = static_cast<std::int32_t>(vocab)};
  for (unsigned i = 0; i < 3; ++i) {
    texts.push_back(random_tokens(5 + 7 * i, 256, i));
    ids.push_back(session.create());
    plain_ids.push_back(plain.create());
  }
  for (std::size_t i = 0; i < 3; ++i) work.push_back({ids[i], texts[i], best});
  session.begin(work);
  std::vector<Token> ahead{drawn_by(2), drawn_by(0), drawn_by(1)};
  std::vector<std::vector<Token>> drawn(3);
  std::array<std::size_t, 3> row{0, 1, 2};  // of each sequence in the step that is collected
  std::vector<std::byte> block(session.cache_block_bytes());
  for (int step = 0; step < 20; ++step) {
    // Rows change places from step to step.
    const std::array<std::size_t, 3> order =
        step % 2 == 0 ? std::array<std::size_t, 3>{2, 0, 1} : std::array<std::size_t, 3>{1, 0, 2};
    std::vector<Drawing> next;
    for (std::size_t r = 0; r < 3; ++r) {
      ahead[r] = drawn_by(static_cast<std::int32_t>(row[order[r]]));
      next.push_back({ids[order[r]], std::span(ahead).subspan(r, 1), best});
    }
    session.begin(next);
    CHECK(session.begun() == 2);
    if (step % 3 == 0) session.read_block(ids[0], 0, block);  // waits for both
    const auto tokens = session.collect();
    REQUIRE(tokens);
    for (std::size_t i = 0; i < 3; ++i) drawn[i].push_back((*tokens)[row[i]]);
    for (std::size_t r = 0; r < 3; ++r) row[order[r]] = r;
  }
  session.abandon();
  CHECK(session.begun() == 0);
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<Token> expected, text = texts[i];
    for (int step = 0; step < 20; ++step) {
      const Append a{plain_ids[i], text, Logits::Last};
      const auto logits = plain.eval({&a, 1});
      expected.push_back(static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      text = {expected.back()};
    }
    CHECK(drawn[i] == expected);
    CHECK(session.length(ids[i]) == static_cast<std::int64_t>(texts[i].size()) + 20);
  }
}
