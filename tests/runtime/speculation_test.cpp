// Speculation changes nothing but time: every answer is the same, token by token, with any drafter, right or wrong. And
// it is worth its time: what drafts cost beyond what they give is bounded.
#include "runtime/speculation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <random>

#include "constrain/token_masks.h"
#include "loaded.h"
#include "runtime/generator.h"
#include "runtime/model_drafter.h"
#include "runtime/ngram_drafter.h"
#include "runtime/ngram_index.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

using Length = SpeculationOptions::Length;

/// Says what a function of the text and the guesses says.
class Scripted final : public Drafter {
 public:
  using Script = std::function<std::optional<Guess>(std::span<const Token> text, std::size_t ahead)>;
  explicit Scripted(Script script) : script_(std::move(script)) {}
  std::string_view name() const override { return "scripted"; }
  void begin(std::span<const Token> text) override { text_.assign(text.begin(), text.end()); }
  void append(Token t) override { text_.push_back(t); }
  std::optional<Guess> guess(std::span<const Token> ahead) override { return script_(text_, ahead.size()); }

 private:
  Script script_;
  std::vector<Token> text_;
};

std::unique_ptr<Speculation> speculation(std::unique_ptr<Drafter> drafter, SpeculationOptions options = {}) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::move(drafter));
  return std::make_unique<Speculation>(std::move(drafters), options);
}

/// The definition: the latest earlier place of the longest of the ends.
NgramIndex::Match naive_match(std::span<const Token> text) {
  for (auto n = kNgramLengths.rbegin(); n != kNgramLengths.rend(); ++n) {
    if (*n >= text.size()) continue;
    const auto end = text.last(*n);
    for (std::size_t next = text.size() - 1; next >= *n; --next) {
      if (!std::equal(end.begin(), end.end(), text.begin() + static_cast<std::ptrdiff_t>(next - *n))) continue;
      std::size_t length = *n;
      while (length < std::min(next, NgramIndex::kLongest) &&
             text[next - 1 - length] == text[text.size() - 1 - length]) {
        ++length;
      }
      return {length, next};
    }
  }
  return {};
}

/// Everything that an answer shows.
struct Shown {
  std::vector<Token> tokens;
  std::vector<Logprobs> logprobs;
  std::vector<std::pair<std::size_t, std::string>> steps;  ///< tokens so far, text that became complete
  StopReason reason = StopReason::Cancelled;
  std::vector<float> after;  ///< logits of a token behind the answer, from the cache that it left
};

void check_same(const Shown& a, const Shown& b) {
  CHECK(a.tokens == b.tokens);
  CHECK(a.steps == b.steps);
  CHECK(a.reason == b.reason);
  CHECK(same_bits(a.after, b.after));
  REQUIRE(a.logprobs.size() == b.logprobs.size());
  for (std::size_t i = 0; i < a.logprobs.size(); ++i) {
    CHECK(a.logprobs[i].chosen.logprob == b.logprobs[i].chosen.logprob);
    REQUIRE(a.logprobs[i].best.size() == b.logprobs[i].best.size());
    for (std::size_t j = 0; j < a.logprobs[i].best.size(); ++j) {
      CHECK(a.logprobs[i].best[j].token == b.logprobs[i].best[j].token);
      CHECK(a.logprobs[i].best[j].logprob == b.logprobs[i].best[j].logprob);
    }
  }
}

struct Asked {
  AnswerOptions answer;
  std::optional<std::int64_t> keep = {};
  std::size_t stop_after = 1000;  ///< pieces of text, by the reader
};

Shown show(Model& model, std::span<const Token> prompt, const Asked& asked, Speculation* speculation,
           SpeculationCounts* counts = nullptr, std::int64_t context = 256) {
  Session session(model, {.context = context});
  const SequenceId id = session.create();
  Shown shown;
  GenerateOptions options{.answer = asked.answer, .keep = asked.keep, .speculation = speculation};
  std::size_t pieces = 0;
  std::atomic<bool> stop{false};
  options.cancel = &stop;
  options.step = [&](const Answer& a, const AnswerText& piece) {
    shown.steps.emplace_back(a.tokens().size(), piece.text);
    pieces += piece.text.empty() ? 0 : 1;
    stop = pieces >= asked.stop_after;
    shown.logprobs.assign(a.token_logprobs().begin(), a.token_logprobs().end());
  };
  const GenerateResult result = generate(session, model, id, prompt, options);
  shown.tokens = result.tokens;
  shown.reason = result.reason;
  if (counts != nullptr) *counts = result.speculation;
  if (session.length(id) < session.context()) {
    const std::vector<Token> next{5};
    const Append work{id, next, Logits::Last};
    const auto logits = session.eval({&work, 1});
    shown.after.assign(logits.begin(), logits.end());
  }
  return shown;
}

std::vector<std::pair<std::string, Asked>> kinds_of_answers(const Model& model) {
  std::vector<std::pair<std::string, Asked>> all;
  const auto add = [&](const std::string& name, const std::function<void(Asked&)>& change) {
    Asked asked;
    asked.answer.max_tokens = 60;
    asked.answer.sampling.temperature = 0.8F;
    asked.answer.sampling.seed = 7;
    change(asked);
    all.emplace_back(name, asked);
  };
  add("greedy", [](Asked& a) { a.answer.sampling.temperature = 0; });
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    add("temperature 0.8", [&](Asked& a) { a.answer.sampling.seed = seed; });
  }
  add("temperature 2 without filters", [](Asked& a) {
    a.answer.sampling.temperature = 2;
    a.answer.sampling.top_k = 0;
    a.answer.sampling.top_p = 1;
    a.answer.sampling.min_p = 0;
  });
  add("penalties", [](Asked& a) {
    a.answer.sampling.temperature = 0;
    a.answer.sampling.repeat_penalty = 1.1F;
    a.answer.sampling.frequency_penalty = 0.1F;
    a.answer.sampling.presence_penalty = 0.1F;
    a.answer.sampling.repeat_last_n = 20;
  });
  add("dry", [](Asked& a) {
    a.answer.sampling.temperature = 0;
    a.answer.sampling.dry_multiplier = 0.8F;
  });
  for (const int version : {1, 2}) add("mirostat", [&](Asked& a) { a.answer.sampling.mirostat = version; });
  add("log probabilities", [](Asked& a) { a.answer.logprobs = 4; });
  add("greedy to the end of the context", [](Asked& a) {
    a.answer.max_tokens = -1;
    a.answer.end_token = AnswerOptions::EndToken::Ignored;
    a.answer.sampling.temperature = 0;
  });
  add("beyond the end of the context", [](Asked& a) {
    a.answer.max_tokens = 700;
    a.answer.end_token = AnswerOptions::EndToken::Ignored;
    a.answer.sampling.temperature = 0;
    a.keep = 3;
  });
  for (const std::int64_t n : {0, 1, 2}) add("few tokens", [&](Asked& a) { a.answer.max_tokens = n; });
  add("a reader who leaves", [](Asked& a) { a.stop_after = 9; });
  add("a form", [&](Asked& a) {
    a.answer.constraint =
        std::make_shared<TokenMasks>(std::make_shared<const Grammar>(grammar_from_regex("(abc|abd)+[x-z]{20}(no|yes)")),
                                     std::make_shared<const TokenTree>(model.tokenizer()));
  });
  return all;
}

/// Its own answer, known before: every guess is right until one is made wrong on purpose.
Scripted::Script knows(std::vector<Token> whole, std::size_t every_wrong) {
  return
      [whole = std::move(whole), every_wrong](std::span<const Token> text, std::size_t ahead) -> std::optional<Guess> {
        const std::size_t place = text.size() + ahead;
        if (place >= whole.size()) return std::nullopt;
        const bool wrong = every_wrong > 0 && place % every_wrong == 0;
        return Guess{wrong ? (whole[place] + 1) % 250 : whole[place], 0.9};
      };
}

}  // namespace

TEST_CASE("the index of n-grams finds what a search finds", "[speculation]") {
  std::mt19937 random(3);
  for (const unsigned letters : {1U, 2U, 5U, 40U}) {
    NgramIndex index;
    for (int round = 0; round < 2; ++round) {
      index.clear();
      CHECK(index.match().length == 0);
      int matches = 0;
      for (int i = 0; i < 1500; ++i) {
        // Stretches of what was there before, as long as a match is counted and longer.
        const std::size_t back = index.text().size() > 300 && i % 400 > 250 ? 200 : 0;
        index.append(back > 0 ? index.text()[index.text().size() - back] : static_cast<Token>(random() % letters));
        const NgramIndex::Match expected = naive_match(index.text());
        REQUIRE(index.match().length == expected.length);
        if (expected.length > 0) REQUIRE(index.match().next == expected.next);
        matches += expected.length > 0 ? 1 : 0;
      }
      CHECK(matches > 100);
    }
  }
}

TEST_CASE("a rate of hits moves from what was expected to what was seen", "[speculation]") {
  HitRate rate(0.5);
  CHECK(rate.rate() == 0.5);
  rate.saw(true);
  CHECK_THAT(rate.rate(), WithinRel((1 + 2 * 0.5) / 3, 1e-12));
  for (int i = 0; i < 1000; ++i) rate.saw(true);
  // 1 / (1 - 0.98) = 50 guesses count
  CHECK_THAT(rate.rate(), WithinRel((50 + 1) / 52.0, 1e-6));
  for (int i = 0; i < 35; ++i) rate.saw(false);
  CHECK_THAT(rate.rate(), WithinAbs(0.5, 0.02));  // half of the weight
  rate.fade(0);
  CHECK(rate.rate() == 0.5);
}

TEST_CASE("costs of steps are the measured ones where there are any", "[speculation]") {
  StepCosts costs;
  CHECK(costs.one() == 0);
  CHECK(costs.of(1) == 1);
  for (std::size_t n = 2; n <= kMostColumns; ++n) CHECK(costs.of(n) > costs.of(n - 1));
  const double expected_8 = costs.of(8), expected_16 = costs.of(16);
  for (int i = 0; i < 30; ++i) costs.took(1, 0.020);
  CHECK_THAT(costs.one(), WithinRel(0.020, 1e-12));
  CHECK_THAT(costs.of(8), WithinRel(expected_8, 1e-12));
  for (int i = 0; i < 30; ++i) costs.took(8, 0.030);
  CHECK_THAT(costs.of(8), WithinRel(1.5, 1e-9));
  CHECK_THAT(costs.of(16), WithinRel(1.5 * expected_16 / expected_8, 1e-9));  // the nearest that was measured
  CHECK(costs.of(1) == 1);
  costs.took(1, 100);  // another program had the processor
  CHECK(costs.one() < 0.022);
  for (int i = 0; i < 60; ++i) costs.took(1, 0.040);  // the text has become long
  CHECK_THAT(costs.one(), WithinRel(0.040, 0.01));
}

TEST_CASE("answers are the same with drafts of any quality", "[speculation]") {
  const TempDir folder;
  for (const char* arch : {"llama", "qwen35", "qwen3moe"}) {
    INFO(arch);
    const auto model =
        load_tiny(folder, tiny_model({.arch = arch, .layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe}));
    const auto prompt = random_tokens(40, 256, 4);
    std::map<std::string, std::int64_t> accepted;
    for (const auto& [name, asked] : kinds_of_answers(*model)) {
      INFO(name);
      const Shown plain = show(*model, prompt, asked, nullptr);
      std::vector<Token> whole(prompt);
      whole.insert(whole.end(), plain.tokens.begin(), plain.tokens.end());
      const auto compare = [&, &asked = asked](const std::string& drafter, std::unique_ptr<Speculation> s) {
        INFO(drafter);
        SpeculationCounts counts;
        check_same(show(*model, prompt, asked, s.get(), &counts), plain);
        CHECK(counts.accepted <= counts.drafted);
        accepted[drafter] += counts.accepted;
      };
      for (const std::size_t most : {3U, 63U}) {
        const SpeculationOptions fixed{.most = most, .length = Length::Fixed};
        compare("right", speculation(std::make_unique<Scripted>(knows(whole, 0)), fixed));
        compare("sometimes wrong", speculation(std::make_unique<Scripted>(knows(whole, 5)), fixed));
        compare("wrong", speculation(std::make_unique<Scripted>(knows(whole, 1)), fixed));
        compare("ngram", speculation(std::make_unique<NgramDrafter>(), fixed));
      }
      compare("adaptive right", speculation(std::make_unique<Scripted>(knows(whole, 0))));
      compare("adaptive ngram", speculation(std::make_unique<NgramDrafter>()));
      // What was learned in one answer is there in the next one.
      const auto again = speculation(std::make_unique<NgramDrafter>());
      for (int i = 0; i < 2; ++i) check_same(show(*model, prompt, asked, again.get()), plain);
    }
    CHECK(accepted["right"] > 1500);
    CHECK(accepted["sometimes wrong"] > 500);
    CHECK(accepted["wrong"] == 0);
    if (arch != std::string_view("qwen35")) CHECK(accepted["ngram"] > 300);  // that one's texts hardly repeat
  }
}

TEST_CASE("a stop string within a draft ends the answer where it would", "[speculation]") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe}));
  const auto prompt = random_tokens(40, 256, 4);
  Asked asked;
  asked.answer.max_tokens = 80;
  asked.answer.sampling.temperature = 1;
  asked.answer.sampling.seed = 5;
  const std::vector<Token> free = show(*model, prompt, asked, nullptr).tokens;
  for (std::size_t at = 10; at < 30; at += 3) {
    asked.answer.stop_strings = {model->tokenizer().decode(std::span(free).subspan(at, 3))};
    const Shown plain = show(*model, prompt, asked, nullptr);
    std::vector<Token> whole(prompt);
    whole.insert(whole.end(), free.begin(), free.end());
    const auto s = speculation(std::make_unique<Scripted>(knows(whole, 0)), {.most = 9, .length = Length::Fixed});
    check_same(show(*model, prompt, asked, s.get()), plain);
    CHECK((plain.reason == StopReason::StopString || plain.reason == StopReason::Length));
  }
}

TEST_CASE("a token whose logits are not finite may be drafted", "[speculation]") {
  const TempDir folder;
  TinyFile file = tiny_model({.layers = 1, .context = 256, .tokenizer = TinyTokenizer::Bpe});
  const auto path = folder / "model.gguf";
  file.write(path);
  patch(path, "token_embd.weight", 4 * 32 * 9, kNanF32);  // of token 9
  Warnings warnings;
  const auto model = Model::load({.path = path, .backend = "cpu", .threads = 1, .progress = {}}, warnings);
  const std::vector<Token> prompt{20, 30, 40};
  Asked asked;
  asked.answer.max_tokens = 20;
  asked.answer.sampling.temperature = 0;
  asked.answer.sampling.logit_bias = {{9, -100}};
  const auto s = speculation(std::make_unique<Scripted>([](auto, std::size_t) {
                               return Guess{9, 0.9};
                             }),
                             {.most = 3, .length = Length::Fixed});
  SpeculationCounts counts;
  check_same(show(*model, prompt, asked, s.get(), &counts), show(*model, prompt, asked, nullptr));
  CHECK(counts.drafted > 30);
  CHECK(counts.accepted == 0);
}

namespace {

/// A model in which a step of n tokens takes cost(n) and the guesses of a drafter come true as `comes` says; the time
/// that an answer of so many tokens takes, in steps of one token.
double simulated(Speculation& s, int tokens, const std::function<double(std::size_t)>& cost,
                 const std::function<bool()>& comes) {
  double time = 0;
  s.begin({});
  for (int made = 0; made < tokens;) {
    s.append(1);
    ++made;
    const std::span<const Token> draft = s.draft(1000);
    const double took = cost(draft.size() + 1);
    time += took;
    s.stepped(took, Speculation::Step::Usual);
    for (const Token t : std::vector<Token>(draft.begin(), draft.end())) {
      if (!comes()) break;
      s.append(t);
      ++made;
    }
  }
  return time / tokens;
}

double few_columns(std::size_t n) { return 1 + 0.2 * static_cast<double>(n - 1); }

std::unique_ptr<Speculation> guesses_with(double probability, SpeculationOptions options = {}) {
  return speculation(std::make_unique<Scripted>([probability](auto, std::size_t) {
                       return Guess{2, probability};
                     }),
                     options);
}

}  // namespace

TEST_CASE("drafts that never come true cost next to nothing, whatever they promise", "[speculation]") {
  for (const double promised : {0.2, 0.6, 0.9, 0.99}) {
    INFO(promised);
    const auto s = guesses_with(promised);
    const double time = simulated(*s, 500, few_columns, [] { return false; });
    CHECK(time >= 1);
    CHECK(time < 1.03);
  }
  const auto s = guesses_with(0.9);
  CHECK(simulated(*s, 500, few_columns, [] { return false; }) > 1);  // it was tried
}

TEST_CASE("drafts that come true are made as long as they pay", "[speculation]") {
  const auto s = guesses_with(0.99);
  // 32 columns take 7.2 steps
  CHECK(simulated(*s, 500, few_columns, [] { return true; }) < 1.1 * 7.2 / 32);
  CHECK(s->counts().accepted > 450);

  std::mt19937 random(1);
  std::bernoulli_distribution half(0.5);
  const auto even = guesses_with(0.5);
  // Best are 2 guesses: 1.75 tokens for 1.4 steps.
  CHECK(simulated(*even, 5000, few_columns, [&] { return half(random); }) < 1.05 * 1.4 / 1.75);
  const double drafted = static_cast<double>(even->counts().drafted) / static_cast<double>(even->counts().drafts);
  CHECK(drafted < 3);

  // Where each column costs as much as a step of one token, as with many experts, nothing is drafted for long.
  const auto dear = guesses_with(0.9);
  const double time = simulated(
      *dear, 500, [](std::size_t n) { return static_cast<double>(n); }, [] { return true; });
  CHECK(time < 1.03);
}

TEST_CASE("the most and the least of a draft are kept to", "[speculation]") {
  for (const Length length : {Length::Adaptive, Length::Fixed}) {
    const auto s = guesses_with(0.95, {.most = 5, .length = length});
    simulated(*s, 200, few_columns, [] { return true; });
    CHECK(s->counts().drafts > 0);
    CHECK(s->counts().drafted <= 5 * s->counts().drafts);
    const auto none = guesses_with(0.95, {.most = 5, .least = 6, .length = length});
    CHECK(simulated(*none, 200, few_columns, [] { return true; }) == 1);
    CHECK(none->counts().drafted == 0);
    s->begin({});
    s->append(1);
    CHECK(s->draft(0).empty());
  }
}

TEST_CASE("a copy with a replaced word is drafted on behind the word", "[speculation]") {
  std::vector<Token> text;
  for (Token t = 100; t < 200; ++t) text.push_back(t);
  NgramDrafter drafter;
  drafter.begin(text);
  for (Token t = 110; t < 120; ++t) drafter.append(t);
  REQUIRE(drafter.guess({}).has_value());
  CHECK(drafter.guess({})->token == 120);
  drafter.append(7);  // in the place of 120
  REQUIRE(drafter.guess({}).has_value());
  CHECK(drafter.guess({})->token == 121);
  const std::vector<Token> ahead{121, 122};
  CHECK(drafter.guess(ahead)->token == 123);
  drafter.append(8);  // no copy after all
  CHECK_FALSE(drafter.guess({}).has_value());
}

TEST_CASE("a text that repeats itself is drafted beyond its end", "[speculation]") {
  NgramDrafter drafter;
  drafter.begin(std::vector<Token>{9, 1, 2, 3, 1, 2, 3, 1, 2});
  std::vector<Token> ahead;
  for (int i = 0; i < 7; ++i) ahead.push_back(drafter.guess(ahead)->token);
  CHECK(ahead == std::vector<Token>{3, 1, 2, 3, 1, 2, 3});
}

TEST_CASE("a draft model changes nothing, and as its own draft it is always right", "[speculation]") {
  const TempDir folder, other_folder, short_folder;
  const TinyOptions shape{.layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe};
  TinyOptions other_shape = shape, short_shape = shape;
  other_shape.layers = 1;
  other_shape.seed = 2;
  short_shape.context = 64;
  const auto model = load_tiny(folder, tiny_model(shape)), other = load_tiny(other_folder, tiny_model(other_shape)),
             brief = load_tiny(short_folder, tiny_model(short_shape));
  require_same_vocabulary(*model, *other);
  const auto prompt = random_tokens(40, 256, 4);
  const auto drafts_of = [&](Model& draft, SpeculationOptions options, double p_min = 0) {
    return speculation(std::make_unique<ModelDrafter>(*model, draft, ModelDrafter::Options{.p_min = p_min}), options);
  };
  std::int64_t right = 0, checked = 0;
  for (const auto& [name, asked] : kinds_of_answers(*model)) {
    INFO(name);
    const Shown plain = show(*model, prompt, asked, nullptr);
    for (const std::size_t most : {1U, 4U, 17U}) {
      const SpeculationOptions fixed{.most = most, .length = Length::Fixed};
      SpeculationCounts counts;
      check_same(show(*model, prompt, asked, drafts_of(*other, fixed).get()), plain);
      check_same(show(*model, prompt, asked, drafts_of(*model, fixed).get(), &counts), plain);
      if (name == "greedy to the end of the context") {
        right += counts.accepted;
        checked += counts.drafted;
      }
    }
    check_same(show(*model, prompt, asked, drafts_of(*brief, {.most = 7, .length = Length::Fixed}).get()), plain);
    check_same(show(*model, prompt, asked, drafts_of(*model, {}).get()), plain);
    check_same(show(*model, prompt, asked, drafts_of(*other, {}, 0.01).get()), plain);
    std::vector<std::unique_ptr<Drafter>> both;
    both.push_back(std::make_unique<NgramDrafter>());
    both.push_back(std::make_unique<ModelDrafter>(*model, *other, ModelDrafter::Options{}));
    Speculation mixed(std::move(both), {.most = 5});
    for (int i = 0; i < 2; ++i) check_same(show(*model, prompt, asked, &mixed), plain);
  }
  CHECK(checked > 300);
  CHECK(right == checked);
}

TEST_CASE("a draft model that computes what is no number guesses no more and changes nothing", "[speculation]") {
  const TempDir folder, draft_folder;
  TinyFile file = tiny_model({.layers = 1, .context = 256, .tokenizer = TinyTokenizer::Bpe});
  const auto model = load_tiny(folder, file);
  const auto path = draft_folder / "model.gguf";
  file.write(path);
  patch(path, "blk.0.ffn_down.weight", 0, kNanF32);
  Warnings warnings;
  const auto draft = Model::load({.path = path, .backend = "cpu", .threads = 1, .progress = {}}, warnings);
  Asked asked;
  asked.answer.max_tokens = 20;
  asked.answer.sampling.temperature = 0;
  for (const std::size_t length : {3U, 200U}) {  // guesses at once, and behind a prompt that is read first
    const auto prompt = random_tokens(length, 256, 4);
    const auto s = speculation(std::make_unique<ModelDrafter>(*model, *draft, ModelDrafter::Options{}),
                               {.most = 3, .length = Length::Fixed});
    SpeculationCounts counts;
    check_same(show(*model, prompt, asked, s.get(), &counts), show(*model, prompt, asked, nullptr));
    CHECK(counts.drafted == 0);
    const auto faults = s->take_faults();
    REQUIRE(faults.size() == 1);
    CHECK(faults.front().find("non-finite logits") != std::string::npos);
    CHECK(s->take_faults().empty());
  }
}

TEST_CASE("a draft model's context may be shorter than the text", "[speculation]") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 1024, .tokenizer = TinyTokenizer::Bpe}));
  const auto prompt = random_tokens(700, 256, 4);
  Asked asked;
  asked.answer.max_tokens = 200;
  asked.answer.end_token = AnswerOptions::EndToken::Ignored;
  asked.answer.sampling.temperature = 0;
  const Shown plain = show(*model, prompt, asked, nullptr, nullptr, 1024);
  for (const std::int64_t context : {8, 64, 300, 720}) {
    const auto s = speculation(
        std::make_unique<ModelDrafter>(*model, *model, ModelDrafter::Options{.session = {.context = context}}),
        {.most = 6, .length = Length::Fixed});
    SpeculationCounts counts;
    check_same(show(*model, prompt, asked, s.get(), &counts, 1024), plain);
    CHECK(counts.drafted > 100);
    // Another prompt of which it has read nothing, and the first one again.
    check_same(show(*model, std::span(prompt).subspan(100), asked, s.get(), nullptr, 1024),
               show(*model, std::span(prompt).subspan(100), asked, nullptr, nullptr, 1024));
    check_same(show(*model, prompt, asked, s.get(), nullptr, 1024), plain);
  }
}

TEST_CASE("a draft model ends its drafts before what it finds unlikely", "[speculation]") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 256, .tokenizer = TinyTokenizer::Bpe}));
  Asked asked;
  asked.answer.max_tokens = 30;
  asked.answer.sampling.temperature = 0;
  asked.answer.logprobs = 1;
  const auto prompt = random_tokens(20, 256, 4);
  const Shown plain = show(*model, prompt, asked, nullptr);
  std::vector<double> p;
  for (const Logprobs& l : plain.logprobs) p.push_back(std::exp(l.best.front().logprob));
  std::vector<double> sorted = p;
  std::sort(sorted.begin(), sorted.end());
  const double middle = (sorted[14] + sorted[15]) / 2;
  const auto s = speculation(std::make_unique<ModelDrafter>(*model, *model, ModelDrafter::Options{.p_min = middle}),
                             {.most = 40, .length = Length::Fixed});
  SpeculationCounts counts;
  check_same(show(*model, prompt, asked, s.get(), &counts), plain);
  // As many as there are likely tokens behind the first, each right; the last is never needed.
  std::int64_t likely = 0;
  for (std::size_t i = 1; i + 1 < p.size(); ++i) likely += p[i] >= middle ? 1 : 0;
  CHECK(counts.accepted >= likely - 1);
  CHECK(counts.accepted <= likely + 1);
  CHECK(counts.drafted == counts.accepted);
}

TEST_CASE("a draft model with another vocabulary is refused by the first token that differs", "[speculation]") {
  const TempDir folder, other_folder;
  const auto model = load_tiny(folder, tiny_model({.tokenizer = TinyTokenizer::Bpe}));
  const auto other = load_tiny(other_folder, tiny_model({.tokenizer = TinyTokenizer::Spm}));
  try {
    require_same_vocabulary(*model, *other);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(e.parts().file == (other_folder / "model.gguf").string());
    const std::string text = e.what();
    CHECK(text.find("token 0 is \"<unk>\", the model's is \"") != std::string::npos);
  }
}
