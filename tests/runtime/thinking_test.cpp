// Answers that think, token by token. The tests play the model: the logits after each token have one likeliest token,
// the next of a text that is spelt out here, so that what is said of each is known from the text alone.
#include "constrain/token_masks.h"
#include "loaded.h"
#include "runtime/answer.h"
#include "support/catch.h"
#include "text/reasoning.h"

using namespace llm;
using namespace llm::test;

namespace {

using Kind = TokenKind;

/// Bytes, "ab", "abc" and the control token <|end|>, with marks of formats behind them.
class Bench {
 public:
  explicit Bench(std::vector<std::pair<std::string, Kind>> marks = {}, TinyTokenizer tokenizer = TinyTokenizer::Bpe) {
    model_ = load_tiny(folder_, tiny_model({.context = 4096, .tokenizer = tokenizer}));
    if (marks.empty()) return;
    const Tokenizer& plain = model_->tokenizer();
    std::vector<std::string> texts;
    std::vector<std::int32_t> kinds;
    for (Token t = 0; static_cast<std::size_t>(t) < plain.n_vocab(); ++t) {
      texts.emplace_back(plain.token_text(t));
      kinds.push_back(static_cast<std::int32_t>(plain.kind(t)));
    }
    for (const auto& [text, kind] : marks) {
      texts.push_back(text);
      kinds.push_back(static_cast<std::int32_t>(kind));
    }
    const auto n = static_cast<std::int64_t>(texts.size());
    TinyFile file = tiny_model({.context = 4096, .tokenizer = tokenizer});
    file.set_array("tokenizer.ggml.tokens", texts);
    file.set_array("tokenizer.ggml.token_type", kinds);
    for (const char* tensor : {"token_embd.weight", "output.weight"}) file.resize(tensor, {32, n});
    model_ = load_tiny(folder_, file);
  }

  const Model& model() const { return *model_; }
  /// Of a text as a model might write it: marks are their tokens where there are such.
  std::vector<Token> tokens(std::string_view text) const {
    return model_->tokenizer().encode(text, {.add_special = false, .parse_special = true});
  }
  std::vector<Token> bytes(std::string_view text) const {
    std::vector<Token> all;
    for (const char c : text) {
      const auto one = tokens(std::string(1, c));
      all.push_back(one.back());
    }
    return all;
  }
  Token end() const {
    for (Token t = 0;; ++t) {
      if (model_->tokenizer().is_end_of_generation(t)) return t;
    }
  }
  std::shared_ptr<TokenMasks> masks(Grammar grammar) const {
    return std::make_shared<TokenMasks>(std::make_shared<const Grammar>(std::move(grammar)),
                                        std::make_shared<const TokenTree>(model_->tokenizer()));
  }

 private:
  TempDir folder_;
  std::unique_ptr<Model> model_;
};

struct Played {
  std::string thinking, text, all;  ///< `all`: of the tokens, marks included
  std::size_t tokens = 0;
  std::int64_t thinking_tokens = 0;
  std::optional<StopReason> reason;
};

/// The model wants these tokens, one after the other, whatever else comes between; then it wants to end.
Played play(const Bench& bench, AnswerOptions options, const std::vector<Token>& wanted, std::size_t most = 200) {
  options.sampling.temperature = 0;
  const std::vector<Token> prompt = bench.tokens("a");
  Answer answer(bench.model(), std::move(options), prompt);
  Played p;
  const auto vocab = static_cast<std::size_t>(bench.model().dims().vocab);
  std::size_t next = 0;
  while (!answer.ended() && answer.tokens().size() < most) {
    std::vector<float> logits(vocab);
    const Token want = next < wanted.size() ? wanted[next] : bench.end();
    logits[static_cast<std::size_t>(want)] = 10;
    const std::size_t before = answer.tokens().size();
    answer.sample(logits);
    const bool took = answer.tokens().size() > before && answer.tokens().back() == want;
    if (took) ++next;
    const AnswerText piece = answer.take_text();
    p.thinking += piece.thinking;
    p.text += piece.text;
  }
  if (!answer.ended()) answer.end(StopReason::Cancelled);
  const AnswerText rest = answer.take_text();
  p.thinking += rest.thinking;
  p.text += rest.text;
  p.tokens = answer.tokens().size();
  p.all = bench.model().tokenizer().spelling(answer.tokens());
  p.thinking_tokens = answer.thinking_tokens();
  p.reason = answer.reason();
  return p;
}

AnswerOptions thinks(ReasoningPhase begins, std::int64_t budget = -1,
                     const ReasoningMarkers& markers = usual_reasoning_markers()) {
  AnswerOptions options;
  options.reasoning = {.markers = markers, .begins = begins, .budget = budget};
  return options;
}

constexpr auto Before = ReasoningPhase::Before, Inside = ReasoningPhase::Inside;
const std::string kHarmony = "<|channel|>analysis<|message|>";

}  // namespace

TEST_CASE("an answer gives its thinking apart from its text", "[thinking]") {
  const Bench bench;
  for (const bool in_bytes : {false, true}) {
    const std::string text = "<think>\nhm, abc \n</think>\n\nYes.";
    const auto tokens = in_bytes ? bench.bytes(text) : bench.tokens(text);
    const Played p = play(bench, thinks(Before), tokens);
    CHECK(p.thinking == "hm, abc");
    CHECK(p.text == "Yes.");
    CHECK(p.reason == StopReason::EndOfGeneration);
    CHECK(p.all == text);
    // All tokens up to the end of the mark.
    const std::string thought = "<think>\nhm, abc \n</think>";
    if (in_bytes) CHECK(p.thinking_tokens == static_cast<std::int64_t>(thought.size()));
  }
  AnswerOptions whole = thinks(Before);
  whole.reasoning->text = ReasoningOptions::Text::Everything;
  const Played p = play(bench, whole, bench.bytes("<think>a</think>\nb"));
  CHECK(p.thinking == "a");
  CHECK(p.text == "<think>a</think>\nb");
  CHECK(play(bench, thinks(Before), bench.bytes("no <think>")).text == "no <think>");
  CHECK(play(bench, thinks(Before), bench.bytes("no <think>")).thinking_tokens == 0);
  CHECK(play(bench, thinks(Inside), bench.bytes("only this")).thinking == "only this");
}

TEST_CASE("marks that are control tokens divide an answer, other control tokens give no text", "[thinking]") {
  const Bench bench({{"[THINK]", Kind::Control}, {"[/THINK]", Kind::Control}, {"<|other|>", Kind::Control}});
  const ReasoningMarkers marks = reasoning_markers_in("[/THINK]").value();
  const Played p = play(bench, thinks(Before, -1, marks), bench.tokens("[THINK]hm<|other|>m[/THINK]Yes<|other|>"));
  CHECK(p.thinking == "hmm");
  CHECK(p.text == "Yes");
  CHECK(p.thinking_tokens == 6);
  const Bench harmony({{"<|start|>", Kind::Control},
                       {"<|channel|>", Kind::Control},
                       {"<|message|>", Kind::Control},
                       {"<|return|>", Kind::Control},
                       {"<|call|>", Kind::Control}});
  const ReasoningMarkers channels = reasoning_markers_in(kHarmony).value();
  const std::string text = kHarmony + "hm<|end|><|start|>assistant<|channel|>final<|message|>Yes";
  const Played q = play(harmony, thinks(Before, -1, channels), harmony.tokens(text));
  CHECK(q.thinking == "hm");
  CHECK(q.text == "Yes");
  CHECK(q.reason == StopReason::EndOfGeneration);
  // A call of a tool: its header has the function's name.
  const std::string call = "<|channel|>commentary to=functions.f json<|message|>{}";
  const Played r =
      play(harmony, thinks(Before, -1, channels), harmony.tokens(kHarmony + "hm<|end|><|start|>assistant" + call));
  CHECK(r.thinking == "hm");
  CHECK(r.text == call);
}

TEST_CASE("a budget ends the thinking after so many tokens", "[thinking]") {
  const Bench bench;
  const auto wanted = bench.bytes("<think>0123456789</think>Yes.");
  // What the model wanted to think next is the answer: it has not been asked for anything else.
  for (const std::int64_t budget : {0, 1, 4}) {
    const Played p = play(bench, thinks(Before, budget), wanted, 60);
    const std::string thought = std::string("0123456789").substr(0, static_cast<std::size_t>(budget));
    CHECK(p.thinking == thought);
    CHECK(p.all.starts_with("<think>" + thought + "\n</think>"));
    CHECK(p.text.starts_with(std::string("0123456789").substr(thought.size())));
  }
  for (const std::int64_t budget : {10, 11, 1000, -1}) {
    const Played p = play(bench, thinks(Before, budget), bench.bytes("<think>012345678</think>Yes."));
    CHECK(p.all == "<think>012345678</think>Yes.");
  }
  const Played none = play(bench, thinks(Inside, 0), bench.bytes("Yes."));
  CHECK(none.all == "</think>Yes.");
  CHECK(none.text == "Yes.");
  CHECK(none.thinking.empty());
  AnswerOptions told = thinks(Inside, 2);
  told.reasoning->budget_message = "Enough.\n";
  CHECK(play(bench, told, bench.bytes("01</think>Yes.")).all.starts_with("01Enough.\n</think>"));
  CHECK(play(bench, thinks(Inside, 3), bench.bytes("0</think>Yes.")).all.starts_with("0</think>"));  // its own, begun
  AnswerOptions short_one = thinks(Inside, 2);
  short_one.max_tokens = 4;
  const Played cut = play(bench, short_one, wanted);
  CHECK(cut.reason == StopReason::Length);
  CHECK(cut.tokens == 4);
}

TEST_CASE("a budget cuts no character, but does not wait for one that never ends", "[thinking]") {
  const Bench bench;
  const std::string text = "a\xf0\x9f\x98\x80z";  // one character of 4 tokens
  for (const std::int64_t budget : {2, 3, 4, 5}) {
    INFO(budget);
    CHECK(play(bench, thinks(Inside, budget), bench.bytes(text + "</think>b"), 40).thinking == "a\xf0\x9f\x98\x80");
  }
  CHECK(play(bench, thinks(Inside, 1), bench.bytes(text), 40).thinking == "a");
  const Played never = play(bench, thinks(Inside, 1), bench.bytes(std::string(50, '\xf0')), 20);
  CHECK(never.all.find("</think>") != std::string::npos);
  CHECK(never.all.find("</think>") <= 4 + 1);
}

TEST_CASE("messages of their own are ended with the header of the answer", "[thinking]") {
  const Bench bench({{"<|start|>", Kind::Control},
                     {"<|channel|>", Kind::Control},
                     {"<|message|>", Kind::Control},
                     {"<|return|>", Kind::Control},
                     {"<|call|>", Kind::Control}});
  const ReasoningMarkers channels = reasoning_markers_in(kHarmony).value();
  const Played p = play(bench, thinks(Before, 2, channels), bench.tokens(kHarmony + "zzYes"));
  CHECK(p.all == kHarmony + "zz<|end|><|start|>assistant<|channel|>final<|message|>Yes");
  CHECK(p.thinking == "zz");
  CHECK(p.text == "Yes");
}

TEST_CASE("stop strings end the answer, not the thinking", "[thinking]") {
  const Bench bench;
  AnswerOptions options = thinks(Before);
  options.stop_strings = {"X"};
  const Played p = play(bench, options, bench.bytes("<think>aXb</think>cXd"));
  CHECK(p.thinking == "aXb");
  CHECK(p.text == "c");
  CHECK(p.reason == StopReason::StopString);
  options.stop_strings = {"</think>"};
  const Played thought = play(bench, options, bench.bytes("<think>a</think>c"));
  CHECK(thought.thinking == "a");
  CHECK(thought.text.empty());
  CHECK(thought.reason == StopReason::StopString);
}

TEST_CASE("a form holds for the answer and begins behind the thinking", "[thinking]") {
  const Bench bench({{"<think>", Kind::UserDefined}}), plain;
  const auto object = [&] { return bench.masks(grammar_from_regex(R"(\{"n":[0-9]\})")); };
  const auto run = [&](ReasoningPhase begins, const std::string& wanted, std::int64_t budget = -1) {
    AnswerOptions options = thinks(begins, budget);
    options.constraint = object();
    return play(bench, options, bench.tokens(wanted));
  };
  for (const auto begins : {Before, Inside}) {
    const std::string mark = begins == Before ? "<think>" : "";
    const Played p = run(begins, mark + "{no</think>{\"n\":7}");
    CHECK(p.thinking == "{no");
    CHECK(p.text == "{\"n\":7}");
    CHECK(p.all == mark + "{no</think>\n\n{\"n\":7}");  // what the format has between the two is put in
    CHECK(p.reason == StopReason::EndOfGeneration);
    CHECK(run(begins, mark + "a</think>\n\n{\"n\":7}").text == "{\"n\":7}");
    // A model that ends in its thinking, or that runs out of it, still answers.
    const Played ended = run(begins, mark + "hm");
    CHECK(ended.thinking == "hm");
    CHECK(ended.text.size() == 7);
    CHECK(run(begins, mark + "0123456789", 4).text.size() == 7);
    CHECK(run(begins, mark + "0123456789", 4).thinking == "0123");
  }
  CHECK(run(ReasoningPhase::After, "\n\n{\"n\":7}").all.starts_with("{\"n\":"));  // the template ended it
  // Without thinking: the first byte is the answer's, and what is no mark after all must have the form.
  const Played direct = run(Before, "{\"n\":7}");
  CHECK(direct.text == "{\"n\":7}");
  CHECK(direct.thinking_tokens == 0);
  CHECK(run(Before, "hello").text.size() == 7);
  // Where the mark is no token the first byte is the answer's: "<" may mean anything.
  AnswerOptions spelt = thinks(Before);
  spelt.constraint = plain.masks(grammar_from_regex("<thin[gk]>?s?"));
  const Played text = play(plain, spelt, plain.bytes("<think>s"));
  CHECK(text.text == "<think>s");
  CHECK(text.thinking_tokens == 0);
}

TEST_CASE("a token that ends the thinking and begins the answer is cut", "[thinking]") {
  const Bench bench({{">{", Kind::Normal}, {"k>\n", Kind::Normal}});
  const auto token = [&](const std::string& text) {
    for (Token t = 0;; ++t) {
      if (bench.model().tokenizer().token_text(t) == text) return t;
    }
  };
  AnswerOptions options = thinks(Inside);
  options.constraint = bench.masks(grammar_from_regex(R"(\[1\])"));
  std::vector<Token> wanted = bench.bytes("a</think");
  wanted.push_back(token(">{"));
  const Played p = play(bench, options, wanted);
  CHECK(p.thinking == "a");
  CHECK(p.text == "[1]");
  CHECK(p.all == "a</think>\n\n[1]");
}

TEST_CASE("a form that holds for everything does so from the first byte, thinking or not", "[thinking]") {
  const Bench bench;
  AnswerOptions options = thinks(Before, 1);
  options.reasoning->form = ReasoningOptions::Form::Everything;
  options.constraint = bench.masks(grammar_from_regex("<think>hm</think>yes"));
  const Played p = play(bench, options, {});
  CHECK(p.thinking == "hm");
  CHECK(p.text == "yes");
}

TEST_CASE("what was begun counts", "[thinking]") {
  const Bench bench;
  for (const std::string& text : {std::string("<think>ab</think>\n\ncd"), std::string("plain text")}) {
    const Played whole = play(bench, thinks(Before), bench.bytes(text));
    for (std::size_t at = 0; at < text.size(); ++at) {
      INFO(at);
      AnswerOptions options = thinks(Before);
      options.reasoning->begun = text.substr(0, at);
      const Played rest = play(bench, options, bench.bytes(text.substr(at)));
      CHECK(whole.thinking.ends_with(rest.thinking));
      CHECK(whole.text.ends_with(rest.text));
      ReasoningParser parser(usual_reasoning_markers(), Before);
      const ReasoningParser::Parts begun = parser.push(text.substr(0, at));
      CHECK(begun.thinking + rest.thinking == whole.thinking);
      CHECK(begun.answer + rest.text == whole.text);
    }
  }
}

TEST_CASE("a vocabulary that begins texts with a space puts none into a mark", "[thinking]") {
  const Bench bench({}, TinyTokenizer::Spm);
  const Played p = play(bench, thinks(Inside, 2), bench.bytes("ab"), 40);
  CHECK(p.all.starts_with("ab\n</think>"));
}

TEST_CASE("a backend draws no token where one may be put in", "[thinking]") {
  const Bench bench;
  AnswerOptions options = thinks(Inside, 2);
  options.sampling.temperature = 0;
  AnswerOptions free = thinks(Inside);
  free.sampling.temperature = 0;
  const std::vector<Token> prompt = bench.tokens("a"), text = bench.bytes("012");
  Answer limited(bench.model(), options, prompt), unlimited(bench.model(), free, prompt);
  REQUIRE(unlimited.rule(0));
  CHECK(limited.rule(0));
  CHECK(limited.rule(1));  // the second token of the thinking
  limited.take(text[0]);
  CHECK(limited.rule(0));
  CHECK_FALSE(limited.rule(1));  // the third is the mark's
  limited.take(text[1]);
  CHECK_FALSE(limited.rule(0));
  std::vector<float> logits(static_cast<std::size_t>(bench.model().dims().vocab));
  while (limited.take_text().text.empty() && limited.tokens().size() < 30) {
    if (limited.rule(0)) {
      limited.take(text[2]);
    } else {
      limited.sample(logits);
    }
  }
  CHECK(bench.model().tokenizer().spelling(limited.tokens()) == "01\n</think>2");
}
