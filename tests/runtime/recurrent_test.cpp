// Sequences with recurrent states: their book-keeping against texts that stand for the states, and sessions that fork,
// take back, fail and run ahead against evaluations of the whole text.
#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "loaded.h"
#include "runtime/generator.h"
#include "runtime/recurrent_states.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

/// What a backend would do: a slot holds the text whose state it is.
class Texts {
 public:
  Texts(int sequences, bool ahead) : states_(recurrent_slots(sequences, ahead), sequences) {}

  void create(int id) {
    states_.create(id);
    of_[id].clear();
  }
  void remove(int id) {
    states_.remove(id);
    of_.erase(id);
  }
  void fork(int from, int to, std::size_t length) {
    states_.fork(from, to, static_cast<std::int64_t>(length));
    of_[to].assign(of_.at(from).begin(), of_.at(from).begin() + static_cast<std::ptrdiff_t>(length));
  }
  void truncate(int id, std::size_t length) {
    states_.truncate(id, static_cast<std::int64_t>(length));
    of_.at(id).resize(length);
  }
  /// A step of `n` tokens, of which some may be those that the state missed, for each of the sequences.
  void step(const std::vector<std::pair<int, std::size_t>>& work, std::mt19937& random) {
    states_.next_step();
    std::vector<StateMove> moves;
    std::vector<std::vector<int>> left;
    for (const auto& [id, n] : work) {
      std::vector<int>& text = of_.at(id);
      const auto seen = static_cast<std::size_t>(states_.seen(id));
      REQUIRE(seen <= text.size());
      while (text.size() < seen + n) text.push_back(static_cast<int>(random() % 1000));
      moves.push_back(states_.advance(id, static_cast<std::int64_t>(n)));
      const std::vector<int> read = moves.back().from < 0 ? std::vector<int>{} : slots_.at(moves.back().from);
      const auto end = text.begin() + static_cast<std::ptrdiff_t>(seen);
      REQUIRE(std::equal(read.begin(), read.end(), text.begin(), end));
      left.emplace_back(text.begin(), end + static_cast<std::ptrdiff_t>(n));
    }
    for (std::size_t i = 0; i < moves.size(); ++i) {
      for (std::size_t j = 0; j < moves.size(); ++j)
        REQUIRE((i == j || (moves[i].to != moves[j].to && moves[i].from != moves[j].to)));
    }
    for (std::size_t i = 0; i < moves.size(); ++i) slots_[moves[i].to] = std::move(left[i]);
  }
  RecurrentStates& states() { return states_; }
  std::size_t length(int id) const { return of_.at(id).size(); }
  std::vector<int> ids() const {
    std::vector<int> all;
    for (const auto& [id, text] : of_) all.push_back(id);
    return all;
  }

 private:
  RecurrentStates states_;
  std::map<int, std::vector<int>> of_;
  std::map<std::int32_t, std::vector<int>> slots_;
};

std::vector<float> whole(Model& model, std::span<const Token> text) {
  Session session(model, {.context = 512});
  return logits_in_chunks(session, session.create(), text, text.size());
}

TinyFile tiny_recurrent() { return tiny_model({.arch = "qwen35", .layers = 3, .context = 512}); }

}  // namespace

TEST_CASE("a step reads what its sequence remembers, whatever was forked, forgotten and held before") {
  constexpr int kSequences = 5;
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    Texts texts(kSequences, seed % 2 == 0);
    for (int round = 0; round < 3000; ++round) {
      const std::vector<int> ids = texts.ids();
      const int any = ids.empty() ? -1 : ids[below(ids.size())];
      int unused = 0;
      while (std::ranges::count(ids, unused) > 0) ++unused;
      switch (random() % 8) {
        case 0:
          if (unused < kSequences) texts.create(unused);
          break;
        case 1:
          if (any >= 0 && unused < kSequences) texts.fork(any, unused, below(texts.length(any) + 1));
          break;
        case 2:
          if (any >= 0) texts.truncate(any, below(texts.length(any) + 1));
          break;
        case 3:
          if (any >= 0 && below(4) == 0) texts.remove(any);
          break;
        default: {
          std::vector<std::pair<int, std::size_t>> work;
          for (const int id : ids) {
            if (below(2) == 0) continue;
            work.emplace_back(id, 1 + (below(2) == 0 ? below(90) : 0));
            const std::int64_t held = texts.states().seen(id);
            texts.states().hold(id, held);
          }
          const std::size_t steps = 1 + below(3);
          std::vector<std::int64_t> before;
          for (const auto& [id, n] : work) before.push_back(texts.states().seen(id));
          for (std::size_t i = 0; i < steps; ++i) texts.step(work, random);
          for (std::size_t i = 0; i < work.size(); ++i) {  // what was held is there
            const auto kept = texts.states().kept(work[i].first);
            const bool there = std::ranges::any_of(kept, [&](const auto& k) { return k.length == before[i]; });
            REQUIRE((there || before[i] == 0));
            texts.states().release(work[i].first);
          }
        }
      }
    }
  }
}

TEST_CASE("a token goes on in the slot of the state before it, unless somebody needs that") {
  RecurrentStates states(recurrent_slots(2, false), 2);
  const auto advance = [&](std::int64_t n) {
    states.next_step();
    return states.advance(0, n);
  };
  const auto in_place = [&] {
    const StateMove m = advance(1);
    return m.from == m.to;
  };
  states.create(0);
  (void)advance(30);
  CHECK_FALSE(in_place());  // the prompt's state is kept
  CHECK(in_place());
  CHECK(in_place());
  CHECK(states.seen(0) == 33);
  SECTION("held") {
    states.hold(0, 33);
    CHECK_FALSE(in_place());
    CHECK_FALSE(in_place());
    states.release(0);
    CHECK(in_place());
  }
  SECTION("of two sequences") {
    states.fork(0, 1, 33);
    CHECK_FALSE(in_place());
    CHECK(in_place());
    CHECK(states.seen(1) == 33);
  }
  SECTION("taken back by a token, as a draft model is over and over") {
    states.truncate(0, 32);
    CHECK(states.seen(0) == 30);
    (void)advance(2);
    CHECK_FALSE(in_place());
    CHECK_FALSE(in_place());
    states.truncate(0, 33);
    CHECK(states.seen(0) == 33);
  }
}

TEST_CASE("a text goes on from any place, and little before that is read again") {
  const TempDir folder;
  const char* const backend = GENERATE("cpu", "reference");
  const auto model = load_tiny(folder, tiny_recurrent(), 1, backend);
  const auto vocab = static_cast<std::size_t>(model->dims().vocab);
  const auto text = random_tokens(260, model->dims().vocab, 1);
  const std::vector<float> expected = whole(*model, text);
  Session session(*model, {.context = 512, .sequences = 3});
  const SequenceId id = session.create();
  const Append prompt{id, std::span(text).first(250), Logits::Last};
  (void)session.eval({&prompt, 1});
  CHECK(session.read_again() == 0);
  for (std::size_t i = 250; i < 260; ++i) (void)logits_in_chunks(session, id, std::span(text).subspan(i, 1), 1);
  // As a chat does that writes the last answer anew, with a few other tokens in front of it.
  session.rewind(id, 247);
  CHECK(same_bits(logits_in_chunks(session, id, std::span(text).subspan(247), 13),
                  std::span(expected).subspan(247 * vocab)));
  CHECK(session.read_again() > 0);
  CHECK(session.read_again() <= 80);
  for (const std::size_t place : {259u, 250u, 249u, 192u, 191u, 64u, 1u, 0u}) {
    INFO(place);
    session.rewind(id, static_cast<std::int64_t>(place));
    CHECK(session.length(id) == static_cast<std::int64_t>(place));
    CHECK(same_bits(logits_in_chunks(session, id, std::span(text).subspan(place), 64),
                    std::span(expected).subspan(place * vocab)));
  }
  SECTION("forks") {
    for (const std::size_t place : {260u, 200u, 33u}) {
      INFO(place);
      const SequenceId fork = session.fork(id, static_cast<std::int64_t>(place));
      const std::vector<Token> more = random_tokens(5, model->dims().vocab, 7);
      std::vector<Token> all(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place));
      all.insert(all.end(), more.begin(), more.end());
      const std::array work{Append{id, more, Logits::All}, Append{fork, more, Logits::All}};
      const auto rows = session.eval(work);
      CHECK(same_bits(rows.last(5 * vocab), std::span<const float>(whole(*model, all)).last(5 * vocab)));
      session.rewind(id, 260);
      session.remove(fork);
    }
  }
}

TEST_CASE("a state stays behind inside of a prompt, not of a text whose logits are all wanted") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_recurrent());
  const auto text = random_tokens(150, model->dims().vocab, 1);
  Session session(*model, {.context = 512, .sequences = 2});
  const SequenceId prompt = session.create(), all = session.create();
  const Append last{prompt, text, Logits::Last}, every{all, text, Logits::All};
  (void)session.eval({&last, 1});
  (void)session.eval({&every, 1});
  CHECK(session.remembered(prompt) == std::vector<std::int64_t>{128, 150});
  CHECK(session.remembered(all) == std::vector<std::int64_t>{150});
}

TEST_CASE("a step that fails leaves the states of before it") {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  tiny_recurrent().write(path);
  patch(path, "token_embd.weight", 7 * 32 * sizeof(float), kNanF32);  // of token 7
  Warnings warnings;
  const auto model = Model::load({.path = path, .backend = "cpu", .threads = 1, .progress = {}}, warnings);
  auto text = random_tokens(40, model->dims().vocab, 3);
  std::ranges::replace(text, 7, 8);
  const std::vector<float> expected = whole(*model, text);
  for (const int batch_tokens : {512, 4}) {
    INFO(batch_tokens);
    Session session(*model, {.context = 128, .batch_tokens = batch_tokens});
    const SequenceId id = session.create();
    (void)logits_in_chunks(session, id, std::span(text).first(21), 9);
    std::vector<Token> bad(text.begin() + 21, text.end());
    bad.push_back(7);
    const Append work{id, bad, Logits::Last};
    CHECK_THROWS_AS(session.eval({&work, 1}), Error);
    CHECK(session.length(id) == 21);
    const std::vector<float> rest = logits_in_chunks(session, id, std::span(text).subspan(21), 10);
    CHECK(same_bits(rest, std::span(expected).last(rest.size())));
    CHECK(session.read_again() == 0);
  }
}

TEST_CASE("an answer is the same whether steps run ahead or not, and a full context shifts") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_recurrent(), 1, "reference");
  const auto prompt = random_tokens(30, model->dims().vocab, 2);
  const auto answered = [&](std::optional<int> logprobs, Session& session, SequenceId id) {
    GenerateOptions options;
    options.keep = 4;
    options.answer.max_tokens = 60;
    options.answer.sampling = {.seed = 5, .temperature = 1};
    options.answer.end_token = AnswerOptions::EndToken::Ignored;
    options.answer.logprobs = logprobs;  // takes the logits
    return generate(session, *model, id, prompt, options).tokens;
  };
  Session ahead(*model, {.context = 64}), behind(*model, {.context = 64});
  const SequenceId id = ahead.create();
  const std::vector<Token> tokens = answered({}, ahead, id);
  CHECK(tokens == answered(0, behind, behind.create()));
  // And again in the sequence that is there, from a place inside of it.
  ahead.rewind(id, 0);
  CHECK(tokens == answered({}, ahead, id));
}

TEST_CASE("a fault of one token names what it was computed from, though its state went on in place") {
  const TempDir folder;
  const auto path = folder / "bad.gguf";
  tiny_recurrent().write(path);
  patch(path, "token_embd.weight", (7 * 32 + 3) * sizeof(float), kNanF32);
  Warnings warnings;
  const auto model = Model::load({.path = path, .backend = "cpu", .threads = 1, .progress = {}}, warnings);
  const std::vector<Token> text{5, 6, 8, 9, 10, 11, 12};
  Session session(*model, {.context = 512});
  const SequenceId id = session.create();
  (void)logits_in_chunks(session, id, std::span(text).first(4), 4);
  (void)logits_in_chunks(session, id, std::span(text).subspan(4, 2), 1);  // the second goes on in the first one's state
  const Token bad = 7;
  const Append work{id, {&bad, 1}, Logits::Last};
  try {
    session.eval({&work, 1});
    FAIL("there is no fault");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Numeric);
    const std::string message = e.what();
    INFO(message);
    CHECK(message.find("non-finite logits at token 6: first bad value") != std::string::npos);
    CHECK(message.find("token_embd.weight") != std::string::npos);
  }
  CHECK(session.length(id) == 6);
  const std::vector<float> rest = logits_in_chunks(session, id, std::span(text).last(1), 1);
  const std::vector<float> expected = whole(*model, text);
  CHECK(same_bits(rest, std::span(expected).last(rest.size())));
}
