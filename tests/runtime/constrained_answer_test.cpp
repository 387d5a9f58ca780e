// Answers that are held to a form: whatever the model, the seed and the chain, the text has it.
#include <nlohmann/json.hpp>
#include <set>

#include "constrain/token_masks.h"
#include "loaded.h"
#include "runtime/generator.h"
#include "runtime/scheduler.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

std::shared_ptr<TokenMasks> masks(Grammar grammar, const Model& model) {
  return std::make_shared<TokenMasks>(std::make_shared<const Grammar>(std::move(grammar)),
                                      std::make_shared<const TokenTree>(model.tokenizer()));
}

constexpr const char* kSchema = R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},
  "n":{"type":"integer","minimum":0,"maximum":99},"tags":{"type":"array","items":{"enum":["é","b"]},"maxItems":3}},
  "required":["name","n"]})";

struct Written {
  std::string text;
  GenerateResult result;
};

Written write(Session& session, Model& model, AnswerOptions options, std::span<const Token> prompt) {
  Written w;
  GenerateOptions generation;
  generation.answer = std::move(options);
  const SequenceId id = session.create();
  generation.step = [&](const Answer&, const AnswerText& piece) { w.text += piece.text; };
  w.result = generate(session, model, id, prompt, generation);
  session.remove(id);
  return w;
}

void check_object(const std::string& text) {
  INFO(text);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json.at("name").is_string());
  CHECK(json.at("n").get<int>() >= 0);
  CHECK(json.at("n").get<int>() <= 99);
  for (const auto& [key, value] : json.items()) CHECK(std::set<std::string>{"name", "n", "tags"}.count(key) == 1);
}

}  // namespace

TEST_CASE("an answer that was cut while its prompt was read has not its form", "[constraint]") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 4096}));
  const auto prompt = random_tokens(5, model->dims().vocab, 2);
  Session session(*model, {.context = 1024, .sequences = 2});
  const auto late = [&](const char* form) {
    GenerateOptions options;
    options.deadline = Clock::now();
    options.answer.constraint = masks(grammar_from_regex(form), *model);
    return generate(session, *model, session.create(), prompt, options);
  };
  const GenerateResult cut = late("a+");
  CHECK(cut.reason == StopReason::TimeUp);
  CHECK(cut.tokens.empty());
  CHECK_FALSE(cut.form_is_whole);
  CHECK(late("a*").form_is_whole);  // which nothing has, too
}

TEST_CASE("every answer under a schema is valid", "[constraint]") {
  const TempDir folder;
  for (const TinyTokenizer tokenizer : {TinyTokenizer::Spm, TinyTokenizer::Bpe}) {
    const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 4096, .tokenizer = tokenizer}));
    Warnings warnings;
    const auto constraint = masks(grammar_from_json_schema(kSchema, warnings), *model);
    const auto prompt = random_tokens(5, model->dims().vocab, 2);
    Session session(*model, {.context = 1024, .sequences = 2});
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      AnswerOptions options;
      options.constraint = constraint;
      options.sampling = {.seed = seed, .temperature = seed % 3 == 0 ? 0.0F : 1.5F, .top_k = 0, .top_p = 1, .min_p = 0};
      // Both ways of ending: at the last brace in any case, since nothing may follow it.
      if (seed % 2 == 0) options.end_token = AnswerOptions::EndToken::Ignored;
      if (seed % 5 == 4) options.sampling.mirostat = 2;
      const Written w = write(session, *model, options, prompt);
      CHECK(w.result.reason == StopReason::EndOfGeneration);
      check_object(w.text);
    }
  }
}

TEST_CASE("a forbidden token is not sampled however it is favoured, and a ban leaves what the form needs",
          "[constraint]") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 256, .tokenizer = TinyTokenizer::Bpe}));
  const auto prompt = random_tokens(5, model->dims().vocab, 2);
  Session session(*model, {.context = 256, .sequences = 2});
  const std::vector<std::string> choices{"yes", "no"};
  AnswerOptions options;
  options.constraint = masks(grammar_from_choices(choices), *model);
  options.sampling = {.seed = 1, .temperature = 1};
  for (const Token t : model->tokenizer().encode("yzq", {.add_special = false}))
    options.sampling.logit_bias.push_back({t, 50});
  CHECK(write(session, *model, options, prompt).text == "yes");
  for (LogitBias& b : options.sampling.logit_bias) b.bias = -std::numeric_limits<float>::infinity();
  CHECK(write(session, *model, options, prompt).text == "no");
  options.constraint = masks(grammar_from_regex("y{3}"), *model);
  CHECK(write(session, *model, options, prompt).text == "yyy");
}

TEST_CASE("a length cuts a constrained answer where it stands", "[constraint]") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 256}));
  const auto prompt = random_tokens(5, model->dims().vocab, 2);
  Session session(*model, {.context = 256, .sequences = 2});
  AnswerOptions options;
  options.max_tokens = 7;
  options.constraint = masks(grammar_from_regex("[a-z]{50}"), *model);
  const Written w = write(session, *model, options, prompt);
  CHECK(w.result.reason == StopReason::Length);
  CHECK(w.result.generated_tokens == 7);
  CHECK(w.text.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos);
}

TEST_CASE("rows of a batch keep their own places in a form they share", "[constraint]") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 4096}));
  Warnings warnings;
  const auto constraint = masks(grammar_from_json_schema(kSchema, warnings), *model);
  std::vector<BatchRow> rows;
  for (std::uint64_t i = 0; i < 12; ++i) {
    AnswerOptions options;
    options.constraint = constraint;
    options.sampling = {.seed = 7, .temperature = 1};
    options.row = i;
    rows.push_back({random_tokens(3 + i, model->dims().vocab, static_cast<unsigned>(i)), options});
  }
  constexpr int kParallel = 4;
  Session session(*model, {.context = 1024, .sequences = batch_sequences(kParallel)});
  std::size_t finished = 0;
  run_batch(*model, session, rows, kParallel,
            {.finished =
                 [&](BatchResult&& r) {
                   ++finished;
                   CHECK_FALSE(r.error);
                   CHECK(r.reason == StopReason::EndOfGeneration);
                   check_object(r.text);
                   const Written alone = [&] {
                     Session own(*model, {.context = 1024, .sequences = 1});
                     return write(own, *model, *rows[r.row].answer, *rows[r.row].prompt);
                   }();
                   CHECK(alone.text == r.text);
                 },
             .progress = {}});
  CHECK(finished == rows.size());
}

TEST_CASE("a row whose form the vocabulary cannot write fails alone", "[constraint]") {
  const TempDir folder;
  const TinyFile file = tiny_model({.layers = 1, .context = 256, .tokenizer = TinyTokenizer::SpmSansZ});
  const auto model = load_tiny(folder, file);
  std::vector<BatchRow> rows;
  for (const char* pattern : {"yes", "yz", "no"}) {
    AnswerOptions options;
    options.constraint = masks(grammar_from_regex(pattern), *model);
    rows.push_back({random_tokens(3, model->dims().vocab, 1), options});
  }
  Session session(*model, {.context = 64, .sequences = batch_sequences(2)});
  std::vector<std::string> texts(rows.size());
  run_batch(*model, session, rows, 2,
            {.finished =
                 [&](BatchResult&& r) {
                   CHECK(r.error.has_value() == (r.row == 1));
                   texts[r.row] = r.error ? r.error->what() : r.text;
                 },
             .progress = {}});
  CHECK(texts[0] == "yes");
  CHECK(texts[1] ==
        "the form of the answer: this model's vocabulary cannot write it: no token begins with what must come next "
        "(\"z\")");
  CHECK(texts[2] == "no");
  CHECK(session.cache_bytes_in_use() == 0);
}
