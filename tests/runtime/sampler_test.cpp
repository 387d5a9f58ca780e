// Every sampler against its definition (sampler_definitions.h), alone and in chains of any order; what they remember;
// the draws by statistics.
#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "loaded.h"
#include "runtime/logit_scan.h"
#include "runtime/sampler_stages.h"
#include "sampler_definitions.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 5) * 0x1p-27; }
  double between(double low, double high) { return low + (high - low) * uniform(); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(uniform() * static_cast<double>(n)); }
  /// Two uniforms make one that is normal enough to have a few likely tokens among many.
  std::vector<float> logits(std::size_t n, double spread = 3) {
    std::vector<float> all(n);
    for (float& l : all)
      l = static_cast<float>(spread * std::sqrt(-2 * std::log(1 - uniform())) *
                             std::cos(2 * 3.14159265358979 * uniform()));
    return all;
  }
  std::vector<Token> tokens(std::size_t n, std::size_t vocab) {
    std::vector<Token> all(n);
    for (Token& t : all) t = static_cast<Token>(below(vocab));
    return all;
  }
  template <class T>
  void shuffle(std::vector<T>& all) {
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(i)]);
  }

 private:
  std::mt19937 engine_;
};

/// Everything off: the softmax itself.
SamplerOptions off(float temperature = 1) {
  SamplerOptions o;
  o.temperature = temperature;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

/// The same tokens with the same logits, in any order.
void check_same(std::span<const Candidate> found, Scores expected) {
  std::vector<Candidate> ours(found.begin(), found.end());
  std::sort(ours.begin(), ours.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
  std::sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
  REQUIRE(ours.size() == expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double off = std::abs(static_cast<double>(ours[i].logit) - expected[i].logit);
    if (ours[i].token != expected[i].token || !(off < 2e-6 * (1 + std::abs(expected[i].logit)))) ++wrong;
  }
  REQUIRE(wrong == 0);
}

std::shared_ptr<const SequenceBreakers> single_breakers(const std::vector<Token>& tokens) {
  SequenceBreakers b;
  for (const Token t : tokens) b.tails[t] = {{}};
  return std::make_shared<const SequenceBreakers>(std::move(b));
}

std::vector<Token> tokens_of(std::span<const Candidate> candidates) {
  std::vector<Token> tokens;
  for (const auto& c : candidates) tokens.push_back(c.token);
  return tokens;
}

/// Vocabularies with what is awkward: ties, tokens that may not be, odd sizes, nearly flat and nearly certain ones.
std::vector<std::vector<float>> awkward_logits() {
  Random random(5);
  std::vector<std::vector<float>> all;
  for (const std::size_t n : {1U, 2U, 3U, 63U, 64U, 65U, 1000U, 20011U}) {
    all.push_back(random.logits(n));
    all.push_back(random.logits(n, 0.05));
    all.push_back(random.logits(n, 20));
    std::vector<float> tied = random.logits(n);
    for (float& l : tied) l = std::round(l);
    all.push_back(tied);
    std::vector<float> banned = random.logits(n);
    for (std::size_t i = 1; i < n; i += 2) banned[i] = kNever;
    all.push_back(banned);
    std::vector<float> far(n, -1e30F);
    far[n / 2] = 1e30F;
    all.push_back(far);
  }
  return all;
}

}  // namespace

TEST_CASE("filters keep what their definitions keep, from a vocabulary and from a list") {
  for (const auto& logits : awkward_logits()) {
    INFO("vocabulary of " << logits.size());
    for (const int keep : {0, 5}) {
      const auto compare = [&](auto change, auto define) {
        SamplerOptions o = off();
        o.min_keep = keep;
        change(o);
        const auto min_keep = static_cast<std::size_t>(keep);
        Sampler whole(o);
        check_same(whole.candidates(logits), define(scores_of(logits), min_keep));
        o.order.insert(o.order.begin(), SamplerKind::TopK);
        if (o.top_k > 0) return;
        o.top_k = 400;
        Sampler listed(o);
        check_same(listed.candidates(logits), define(define_top_k(scores_of(logits), 400), min_keep));
      };
      for (const int k : {1, 2, 40, 1000, 30000}) {
        compare([k](SamplerOptions& o) { o.top_k = k; }, [k](Scores s, std::size_t) { return define_top_k(s, k); });
      }
      for (const float p : {0.0F, 0.01F, 0.5F, 0.9F, 0.95F, 0.999F}) {
        const auto d = static_cast<double>(p);
        compare([p](SamplerOptions& o) { o.top_p = p; },
                [d](Scores s, std::size_t m) { return define_top_p(s, d, m); });
        compare([p](SamplerOptions& o) { o.typical_p = p; },
                [d](Scores s, std::size_t m) { return define_typical(s, d, m); });
      }
      for (const float p : {0.001F, 0.05F, 0.3F}) {
        const auto d = static_cast<double>(p);
        compare([p](SamplerOptions& o) { o.min_p = p; },
                [d](Scores s, std::size_t m) { return define_min_p(s, d, m); });
        compare([p](SamplerOptions& o) { o.xtc_probability = 1, o.xtc_threshold = p; },
                [d](Scores s, std::size_t m) { return define_xtc(s, d, m); });
      }
      for (const float n : {0.3F, 1.0F, 2.5F}) {
        const auto d = static_cast<double>(n);
        compare([n](SamplerOptions& o) { o.top_n_sigma = n; },
                [d](Scores s, std::size_t) { return define_top_n_sigma(s, d); });
      }
    }
  }
}

TEST_CASE("chains of any order give what their definitions give one after the other") {
  Random random(77);
  for (int round = 0; round < 300; ++round) {
    INFO("round " << round);
    const std::size_t vocab = 2 + random.below(3000);
    const auto logits = random.logits(vocab, random.between(0.5, 6));
    const auto maybe = [&](double value, double otherwise) {
      return static_cast<float>(random.uniform() < 0.6 ? value : otherwise);
    };
    SamplerOptions o;
    o.temperature = maybe(random.between(0.2, 2), 1);
    o.dynatemp_range = maybe(random.between(0.1, 1), 0);
    o.dynatemp_exponent = static_cast<float>(random.between(0.5, 2));
    o.top_k = static_cast<int>(maybe(static_cast<double>(1 + random.below(300)), 0));
    o.top_p = maybe(random.between(0.3, 0.99), 1);
    o.min_p = maybe(random.between(0.01, 0.3), 0);
    o.typical_p = maybe(random.between(0.3, 0.99), 1);
    o.top_n_sigma = maybe(random.between(0.5, 3), -1);
    o.xtc_probability = maybe(1, 0);
    o.xtc_threshold = static_cast<float>(random.between(0.02, 0.6));
    o.repeat_penalty = maybe(random.between(0.8, 1.5), 1);
    o.presence_penalty = maybe(random.between(-1, 1), 0);
    o.frequency_penalty = maybe(random.between(-0.5, 0.5), 0);
    o.repeat_last_n = static_cast<int>(random.below(80)) - 1;
    o.dry_multiplier = maybe(random.between(0.5, 2), 0);
    o.dry_base = static_cast<float>(random.between(1, 2));
    o.dry_allowed_length = static_cast<int>(1 + random.below(3));
    o.dry_penalty_last_n = static_cast<int>(random.below(120)) - 1;
    o.min_keep = static_cast<int>(random.below(4));
    random.shuffle(o.order);
    if (random.uniform() < 0.3) o.order.pop_back();
    const std::vector<Token> breakers{0};
    const auto history = random.tokens(random.below(150), std::min<std::size_t>(vocab, 1 + random.below(8)));
    Sampler sampler(o, 0, single_breakers(breakers));
    for (const Token t : history) sampler.accept(t);
    SamplerOptions defined = o;
    if (o.dry_penalty_last_n == 0) defined.dry_multiplier = 0;
    check_same(sampler.candidates(logits), define_chain(logits, defined, history, breakers, o.xtc_probability > 0));
  }
}

TEST_CASE("top-k, and what follows it, is in order") {
  Random random(1);
  auto logits = random.logits(5000);
  for (std::size_t i = 0; i + 1 < logits.size(); i += 3) logits[i] = logits[i + 1];  // ties
  SamplerOptions o = off();
  o.top_k = 40;
  o.min_p = 0.05F;
  Scores expected = define_min_p(define_top_k(scores_of(logits), 40), 0.05, 0);
  Sampler sampler(o);
  std::vector<Token> order;
  for (const Scored& s : expected) order.push_back(s.token);
  CHECK(tokens_of(sampler.candidates(logits)) == order);
}

TEST_CASE("a temperature of 0 takes the likeliest of what is left, of equal ones the lowest id") {
  Sampler greedy(off(0));
  CHECK(greedy.sample(std::vector<float>(100, 0.0F), 0) == 0);
  CHECK(greedy.sample(std::vector<float>{1, 5, 2, 5}, 3) == 1);
  CHECK(greedy.sample(std::vector<float>{-3, -2, -1}, 0) == 2);
  Random random(9);
  for (int round = 0; round < 100; ++round) {
    const auto logits = random.logits(500);
    SamplerOptions o;  // with top-k, top-p and min-p
    o.temperature = 0;
    o.typical_p = 0.3F;
    o.xtc_probability = round % 2 == 0 ? 1.0F : 0.0F;
    random.shuffle(o.order);
    Sampler sampler(o);
    const Scores left = define_chain(logits, o, {}, {}, round % 2 == 0);
    REQUIRE(left.size() == 1);
    CHECK(sampler.sample(logits, 0) == left[0].token);
  }
}

TEST_CASE("penalties weaken each recent token, as often as it occurs") {
  SamplerOptions o = off();
  o.repeat_last_n = 3;
  o.repeat_penalty = 2;
  o.presence_penalty = 0.25F;
  o.frequency_penalty = 0.5F;
  Sampler sampler(o);
  const std::vector<float> logits{4, 3, -1, 0};
  const auto after = [&](std::vector<Token> history) {
    sampler.rewind(0);
    for (const Token t : history) sampler.accept(t);
    std::vector<float> all;
    for (const auto& c : sampler.candidates(logits)) all.push_back(c.logit);
    return all;
  };
  CHECK(after({}) == logits);
  CHECK(after({0}) == std::vector<float>{4 / 2 - 0.75F, 3, -1, 0});
  CHECK(after({0, 0, 2}) == std::vector<float>{4 / 2 - 1.25F, 3, -1 * 2 - 0.75F, 0});
  CHECK(after({1, 0, 0, 2}) == std::vector<float>{4 / 2 - 1.25F, 3, -1 * 2 - 0.75F, 0});  // 1 has left the window
  o.repeat_last_n = 0;
  Sampler none(o);
  none.accept(0);
  CHECK(none.candidates(logits)[0].logit == 4);
}

TEST_CASE("a penalty that overflows leaves a candidate") {
  SamplerOptions o = off();
  o.repeat_penalty = 100;
  Sampler sampler(o);
  sampler.accept(0);
  sampler.accept(1);
  CHECK(sampler.candidates(std::vector<float>{-3e38F, -2e38F}).size() == 2);
}

TEST_CASE("dry punishes what would prolong a repetition") {
  // The end "1 2 3" stood at the beginning, followed by 4; "2 3" also before 5; "3" before 6, which is too short.
  const std::vector<Token> history{1, 2, 3, 4, 2, 3, 5, 3, 6, 1, 2, 3};
  SamplerOptions o = off();
  o.dry_multiplier = 1;
  o.dry_base = 2;
  const std::vector<float> logits(8, 0.0F);
  const auto after = [&](std::vector<Token> breakers, int last_n) {
    o.dry_penalty_last_n = last_n;
    Sampler sampler(o, 0, single_breakers(breakers));
    for (const Token t : history) sampler.accept(t);
    std::vector<float> all;
    for (const auto& c : sampler.candidates(logits)) all.push_back(c.logit);
    return all;
  };
  CHECK(after({}, 64) == std::vector<float>{0, 0, 0, 0, -2, -1, 0, 0});
  CHECK(after({}, -1) == std::vector<float>{0, 0, 0, 0, -2, -1, 0, 0});
  CHECK(after({}, 9) == std::vector<float>{0, 0, 0, 0, 0, -1, 0, 0});
  CHECK(after({}, 0) == logits);
  CHECK(after({1}, 64) == std::vector<float>{0, 0, 0, 0, -1, -1, 0, 0});  // not across 1
  CHECK(after({3}, 64) == logits);
  CHECK(after({4}, 64) == std::vector<float>{0, 0, 0, 0, 0, -1, 0, 0});  // a breaker itself is free

  // A breaker of two tokens, 1 and 2: what follows it counts.
  SequenceBreakers pair;
  pair.tails[1] = {{2}};
  o.dry_penalty_last_n = 64;
  o.dry_allowed_length = 1;
  Sampler sampler(o, 0, std::make_shared<const SequenceBreakers>(pair));
  for (const Token t : history) sampler.accept(t);
  std::vector<float> all;
  for (const auto& c : sampler.candidates(logits)) all.push_back(c.logit);
  CHECK(all == std::vector<float>{0, 0, 0, 0, -1, -1, -1, 0});
}

TEST_CASE("sequence breakers are found wherever tokens spell them") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.tokenizer = TinyTokenizer::Bpe}));
  const Tokenizer& tokenizer = model->tokenizer();
  const auto token = [&](std::string_view text) {
    const auto tokens = tokenizer.encode(text, {.add_special = false, .parse_special = false});
    REQUIRE(tokens.size() == 1);
    return tokens[0];
  };
  const Token a = token("a"), b = token("b"), c = token("c"), ab = token("ab"), abc = token("abc"), x = token("x");
  using Tails = std::vector<std::vector<Token>>;
  const std::vector<std::string> strings{"bcx", "b", ""};
  const SequenceBreakers found = find_sequence_breakers(tokenizer, strings);
  REQUIRE(found.tails.size() == 3);
  CHECK(found.tails.at(b) == Tails{{c, x}, {}});
  CHECK(found.tails.at(ab) == Tails{{c, x}, {}});
  CHECK(found.tails.at(abc) == Tails{{x}, {}});
  CHECK(find_sequence_breakers(tokenizer, {}).tails.empty());
  const std::vector<std::string> twice{"aab", "aaab"};  // "a" begins both
  CHECK(find_sequence_breakers(tokenizer, twice).tails.at(a) == Tails{{ab}, {a, ab}});
}

TEST_CASE("xtc happens as often as its probability says, whatever the token drawn") {
  SamplerOptions o = off();
  o.seed = 11;
  o.xtc_probability = 0.3F;
  o.xtc_threshold = 0.1F;
  Sampler sampler(o);
  const std::vector<float> logits{2, 2, 1, 0, 0};
  constexpr int kDraws = 20000;
  int excluded = 0;
  double product = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const bool gone = sampler.candidates(logits, i).size() < logits.size();
    excluded += gone ? 1 : 0;
    product += gone ? counter_uniform(o.seed, 0, i) - 0.5 : 0;
  }
  CHECK(std::abs(excluded - kDraws * 0.3) < 5 * std::sqrt(kDraws * 0.3 * 0.7));
  CHECK(std::abs(product) < 5 * std::sqrt(kDraws * 0.3 / 12));  // independent of the draw of the token
}

TEST_CASE("the dynamic temperature follows the entropy") {
  const auto temperature = [](const std::vector<float>& logits, double exponent) {
    Candidates c;
    c.reset(logits);
    return dynamic_temperature(c, 1, 0.6, exponent);
  };
  CHECK(temperature(std::vector<float>(1000, 2.0F), 1) == Approx(1.6));  // all alike
  CHECK(temperature({100, 0, 0, 0}, 1) == Approx(0.4));                  // certain
  // Two tokens with 3/4 and 1/4: their entropy in bits is the relative one.
  const double h = 0.75 * std::log2(4 / 3.0) + 0.25 * 2;
  CHECK(temperature({std::log(3.0F), 0}, 1) == Approx(0.4 + 1.2 * h));
  CHECK(temperature({std::log(3.0F), 0}, 2) == Approx(0.4 + 1.2 * h * h));
  CHECK(temperature({1}, 1) == 1);
  CHECK(temperature({std::log(3.0F), 0, kNever}, 1) == Approx(0.4 + 1.2 * h));
}

TEST_CASE("mirostat 1 finds Zipf's exponent and keeps as many as the paper's k") {
  constexpr std::size_t kVocab = 5000;
  for (const double s : {0.8, 1.1, 1.5}) {
    std::vector<float> logits;
    for (std::size_t i = 1; i <= kVocab; ++i) logits.push_back(static_cast<float>(-s * std::log(i)));
    for (const double mu : {2.0, 5.0, 8.0}) {
      Candidates c;
      c.reset(logits);
      keep_mirostat_1(c, mu, kVocab);
      const double e = s - 1;
      const double k = std::pow(e * std::exp2(mu) / (1 - std::pow(static_cast<double>(kVocab), -e)), 1 / s);
      INFO("s " << s << ", mu " << mu << ", k " << k);
      CHECK(std::abs(static_cast<double>(c.size()) - std::max(1.0, std::floor(k))) <= (k > 1000 ? 2 : 1));
    }
  }
  Candidates flat;
  const std::vector<float> ten(10, 1.0F), one{1};
  flat.reset(ten);  // exponent 0: as many as there are
  keep_mirostat_1(flat, 5, 10);
  CHECK(flat.size() == 10);
  flat.reset(one);
  keep_mirostat_1(flat, 5, 1);
  CHECK(flat.size() == 1);
}

TEST_CASE("mirostat 2 keeps what is no more surprising than mu, and mu follows the surprise") {
  SamplerOptions o;
  o.temperature = 1;
  o.mirostat = 2;
  o.mirostat_tau = 1;
  o.mirostat_eta = 0.5F;
  Sampler sampler(o);
  CHECK(sampler.mu() == 2);
  sampler.accept(7);  // of the prompt: teaches nothing
  CHECK(sampler.mu() == 2);
  // 1/2, 1/4, 1/8, 1/8: surprises of 1, 2, 3, 3 bits
  const std::vector<float> logits{std::log(4.0F), std::log(2.0F), 0, 0};
  CHECK(tokens_of(sampler.candidates(logits)) == std::vector<Token>{0, 1});
  sampler.accept(1);  // 1/3 of what is left
  const double after_one = 2 - 0.5 * (std::log2(3.0) - 1);
  CHECK(sampler.mu() == Approx(after_one).epsilon(1e-9));
  CHECK(tokens_of(sampler.candidates(logits)) == std::vector<Token>{0});
  sampler.accept(0);  // certain
  CHECK(sampler.mu() == Approx(after_one + 0.5).epsilon(1e-9));
  (void)sampler.candidates(logits);
  sampler.accept(3);  // was no candidate
  CHECK(sampler.mu() == Approx(after_one + 0.5).epsilon(1e-9));
  sampler.rewind(2);
  CHECK(sampler.mu() == Approx(after_one).epsilon(1e-9));
  sampler.rewind(0);
  CHECK(sampler.mu() == 2);
}

TEST_CASE("a bound on the surprise that nothing keeps leaves the likeliest") {
  const std::vector<float> logits{1, 3, 3, 2};
  for (const double mu : {-3.0, -1000.0}) {
    Candidates one, two;
    one.reset(logits);
    two.reset(logits);
    keep_mirostat_1(one, mu, logits.size());
    keep_mirostat_2(two, mu);
    CHECK(tokens_of(one.list()) == std::vector<Token>{1});
    CHECK(tokens_of(two.list()) == std::vector<Token>{1});
  }
}

TEST_CASE("after going back, everything is as if it had not been") {
  Random random(13);
  const std::size_t vocab = 300;
  for (const int mirostat : {0, 1, 2}) {
    SamplerOptions o;
    o.seed = 5;
    o.mirostat = mirostat;
    o.repeat_penalty = 1.2F;
    o.frequency_penalty = 0.1F;
    o.repeat_last_n = 5;
    o.dry_multiplier = 1;
    o.xtc_probability = 0.5F;
    Sampler straight(o), winding(o);
    for (std::uint64_t i = 0; i < 60; ++i) {
      const auto logits = random.logits(vocab);
      for (std::size_t extra = 0, n = random.below(8); extra < n; ++extra) {  // a guess that is not taken
        const auto guessed = random.logits(vocab);
        winding.accept(random.uniform() < 0.5 ? winding.sample(guessed, i + extra)
                                              : static_cast<Token>(random.below(vocab)));
      }
      const std::size_t back = std::min<std::size_t>(random.below(4), straight.accepted());
      winding.rewind(straight.accepted());
      const Token a = straight.sample(logits, i), b = winding.sample(logits, i);
      REQUIRE(a == b);
      straight.accept(a);
      winding.accept(b);
      CHECK(straight.mu() == winding.mu());
      if (back > 2) {
        straight.rewind(straight.accepted() - back);
        winding.rewind(straight.accepted());
      }
    }
  }
}

TEST_CASE("biases are added, and what is forbidden is not sampled unless nothing else is left") {
  SamplerOptions o = off(0);
  o.logit_bias = {{1, kNever}, {3, -10}, {2, 1}, {2, 1}, {99, 5}, {-1, 5}};
  Sampler greedy(o);
  CHECK(greedy.sample(std::vector<float>{2.5F, 9, 1, 8}, 0) == 2);
  o.temperature = 1;
  o.top_k = 2;
  o.logit_bias = {{1, kNever}, {3, kNever}};
  CHECK(tokens_of(Sampler(o).candidates(std::vector<float>{0, 9, 1, 8})) == std::vector<Token>{2, 0});
  o.logit_bias = {{0, kNever}, {1, kNever}, {2, kNever}, {3, kNever}};
  CHECK(Sampler(o).sample(std::vector<float>{0, 9, 1, 8}, 0) == 1);
  o.logit_bias = {{1, 100}, {3, std::numeric_limits<float>::infinity()}};
  o.forbidden = {1, 3, 99};
  CHECK(tokens_of(Sampler(o).candidates(std::vector<float>{0, 9, 1, 8})) == std::vector<Token>{2, 0});
  o.logit_bias.clear();
  CHECK(tokens_of(Sampler(o).candidates(std::vector<float>{0, 9, 1, 8})) == std::vector<Token>{2, 0});
  o.forbidden = {0, 1, 2, 3};
  CHECK(Sampler(o).sample(std::vector<float>{0, 9, 1, 8}, 0) == 1);
}

TEST_CASE("a draw depends on seed, row and index alone") {
  const auto logits = Random(4).logits(500);
  SamplerOptions o = off();
  o.seed = 42;
  Sampler a(o, 3), b(o, 3), other_row(o, 4);
  o.seed = 43;
  Sampler other_seed(o, 3);
  int rows_differ = 0, seeds_differ = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Token t = a.sample(logits, i);
    rows_differ += other_row.sample(logits, i) != t ? 1 : 0;
    seeds_differ += other_seed.sample(logits, i) != t ? 1 : 0;
  }
  CHECK(rows_differ > 25);
  CHECK(seeds_differ > 25);
  std::vector<Token> forward, backward;
  for (std::uint64_t i = 0; i < 50; ++i) forward.push_back(a.sample(logits, i));
  for (std::uint64_t i = 50; i-- > 0;) backward.insert(backward.begin(), b.sample(logits, i));
  CHECK(forward == backward);
}

TEST_CASE("draws have the probabilities of the softmax") {
  Random random(21);
  struct Case {
    std::size_t vocab;
    int top_k;
    float temperature;
  };
  for (const Case c : {Case{5, 0, 0.7F}, Case{5, 4, 1.3F}, Case{3000, 0, 1}, Case{3000, 50, 0.8F}}) {
    const auto logits = random.logits(c.vocab, 2);
    SamplerOptions o = off(c.temperature);
    o.seed = 1234;
    o.top_k = c.top_k;
    Sampler sampler(o);
    const Scores left = define_chain(logits, o, {}, {}, false);
    const auto p = probabilities(left);
    constexpr int kDraws = 40000;
    std::map<Token, int> count;
    for (int i = 0; i < kDraws; ++i) ++count[sampler.sample(logits, static_cast<std::uint64_t>(i))];
    // Chi-square over tokens that are expected 10 times or more, the rest together.
    double chi = 0, rest_expected = 0, rest_found = 0;
    int degrees = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double expected = kDraws * p[i], found = count[left[i].token];
      if (expected < 10) {
        rest_expected += expected;
        rest_found += found;
        continue;
      }
      chi += (found - expected) * (found - expected) / expected;
      ++degrees;
    }
    if (rest_expected >= 10) {
      chi += (rest_found - rest_expected) * (rest_found - rest_expected) / rest_expected;
    } else {
      --degrees;
    }
    INFO("vocabulary " << c.vocab << ", chi " << chi << " at " << degrees);
    CHECK(chi < degrees + 5 * std::sqrt(2.0 * degrees));
    CHECK(chi > degrees - 5 * std::sqrt(2.0 * degrees));
  }
}

TEST_CASE("huge and tiny logits do not overflow a draw") {
  for (const int k : {0, 2}) {
    SamplerOptions o = off(0.001F);
    o.top_k = k;
    Sampler sampler(o);
    CHECK(sampler.sample(std::vector<float>{3e38F, -3e38F, 0}, 0) == 0);
    CHECK(sampler.sample(std::vector<float>{-3e38F, -3e38F, -3.1e38F}, 0) < 2);
  }
}
