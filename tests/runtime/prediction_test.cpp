// Drafts by a model's own prediction layer change nothing but time, whether they come true always, sometimes or never;
// and what the layer has read is right again after guesses that did not come, and after texts that went on otherwise.
// Its logits are compared with llama.cpp's by scripts/compare-prediction.
#include <cstring>

#include "graph/passes/passes.h"
#include "loaded.h"
#include "placed.h"
#include "runtime/generator.h"
#include "runtime/prediction_drafter.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

/// How often guesses come true.
enum class Luck { Never, Often, Always };

TinyOptions predicting(const std::string& arch) {
  const bool delta = arch.starts_with("qwen35") || arch == "bailingmoe3";
  return {.arch = arch, .layers = delta ? 4 : 3, .context = 256, .predicting = true, .tokenizer = TinyTokenizer::Bpe};
}

bool ends_in_residual(const std::string& name) {
  for (const char* part : {"attn_output.weight", "ffn_down", "ssm_out.weight"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

/// What layers add to the embedding is scaled down, and the prediction layer takes the embedding alone: where layers
/// add nothing, both know the last token and nothing else.
std::filesystem::path write_predicting(const TempDir& folder, const std::string& arch, Luck luck) {
  const TinyOptions options = predicting(arch);
  TinyFile file = tiny_model(options);
  const auto path = folder / "model.gguf";
  if (luck == Luck::Never) {
    file.write(path);
    return path;
  }
  const std::string layer = "blk." + std::to_string(options.layers - 1) + ".nextn.";
  const std::vector<TinyTensor> tensors = file.tensors();
  for (TinyTensor t : tensors) {
    file.erase_tensor(t.name);
    if (ends_in_residual(t.name)) t.spread *= luck == Luck::Always ? 0.0f : 0.05f;
    if (t.name == layer + "eh_proj.weight" || t.name == layer + "enorm.weight") t.spread = 0;
    file.add_tensor(t);
  }
  file.write(path);
  float one = 1;
  std::vector<std::uint8_t> bytes(sizeof one);
  std::memcpy(bytes.data(), &one, sizeof one);
  const auto n = static_cast<std::size_t>(options.n_embd);
  for (std::size_t i = 0; i < n; ++i) patch(path, layer + "eh_proj.weight", (i * 2 * n + i) * sizeof one, bytes);
  return path;
}

std::unique_ptr<Model> load_predicting(const std::filesystem::path& path, bool predicts = true) {
  Warnings warnings;
  return Model::load({.path = path, .backend = "cpu", .threads = 1, .predicts = predicts, .progress = {}}, warnings);
}

/// A session whose steps a drafter is told of.
struct Drafted {
  Session session;
  PredictionDrafter* drafter;
  Speculation speculation;

  Drafted(Model& model, std::int64_t context, std::size_t most, int sequences = 1)
      : Drafted(model, context, most, sequences,
                std::make_unique<PredictionDrafter>(model, PredictionDrafter::Options{.context = context})) {}

 private:
  Drafted(Model& model, std::int64_t context, std::size_t most, int sequences, std::unique_ptr<PredictionDrafter> own)
      : session(model, {.context = context, .sequences = sequences}),
        drafter(own.get()),
        speculation(list(std::move(own)), {.most = most, .length = SpeculationOptions::Length::Fixed}) {
    session.tell_hidden([this](const HiddenRows& rows) { drafter->saw(rows); });
  }
  static std::vector<std::unique_ptr<Drafter>> list(std::unique_ptr<Drafter> one) {
    std::vector<std::unique_ptr<Drafter>> all;
    all.push_back(std::move(one));
    return all;
  }
};

struct Answered {
  std::vector<Token> tokens;
  std::vector<float> after;  ///< logits of a token behind it
};

Answered answered(Model& model, Session& session, SequenceId id, std::span<const Token> prompt, std::int64_t cached,
                  Speculation* speculation, float temperature, std::int64_t n, std::optional<std::int64_t> keep = {}) {
  GenerateOptions options{.answer = {}, .cached = cached, .keep = keep, .speculation = speculation};
  options.answer.max_tokens = n;
  options.answer.end_token = AnswerOptions::EndToken::Ignored;
  options.answer.sampling.temperature = temperature;
  options.answer.sampling.seed = 11;
  Answered a;
  a.tokens = generate(session, model, id, prompt, options).tokens;
  if (session.length(id) == session.context()) return a;
  const std::vector<Token> next{5};
  const Append work{id, next, Logits::Last};
  const auto logits = session.eval({&work, 1});
  a.after.assign(logits.begin(), logits.end());
  session.rewind(id, session.length(id) - 1);
  return a;
}

void check_equal(const Answered& a, const Answered& b) {
  CHECK(a.tokens == b.tokens);
  CHECK(same_bits(a.after, b.after));
}

const std::vector<std::string> kPredicting{"qwen35", "qwen35moe", "glm4moe", "deepseek2", "bailingmoe3"};

/// Guesses behind a text.
std::vector<Token> guesses(PredictionDrafter& drafter, std::span<const Token> text, std::size_t n) {
  drafter.begin(text);
  REQUIRE(drafter.ready());
  std::vector<Token> ahead;
  while (ahead.size() < n) {
    const auto guess = drafter.guess(ahead);
    if (!guess) break;
    ahead.push_back(guess->token);
  }
  return ahead;
}

/// The same by a drafter that saw the text at once, and nothing else.
std::vector<Token> fresh_guesses(Model& model, std::span<const Token> text, std::size_t n) {
  Drafted fresh(model, 256, n);
  const SequenceId id = fresh.session.create();
  const Append work{id, text.first(text.size() - 1), Logits::Last};
  fresh.session.eval({&work, 1});
  return guesses(*fresh.drafter, text, n);
}

}  // namespace

TEST_CASE("drafts by the prediction layer leave every answer as it is, however often they come true", "[speculation]") {
  for (const std::string& arch : kPredicting) {
    for (const Luck luck : {Luck::Never, Luck::Often, Luck::Always}) {
      INFO(arch << " " << static_cast<int>(luck));
      const TempDir folder;
      const auto path = write_predicting(folder, arch, luck);
      const auto plain = load_predicting(path, false), model = load_predicting(path);
      const auto prompt = random_tokens(70, 256, 3);
      for (const float temperature : {0.0f, 0.9f}) {
        Session session(*plain, {.context = 256});
        const Answered expected = answered(*plain, session, session.create(), prompt, 0, nullptr, temperature, 60);
        Drafted drafted(*model, 256, 4);
        const Answered got = answered(*model, drafted.session, drafted.session.create(), prompt, 0,
                                      &drafted.speculation, temperature, 60);
        check_equal(got, expected);
        const SpeculationCounts& c = drafted.speculation.counts();
        INFO(c.accepted << " of " << c.drafted << " in " << c.drafts);
        CHECK(c.drafted > 0);
        if (temperature > 0) continue;
        if (luck == Luck::Never) CHECK(c.accepted * 4 < c.drafted);
        if (luck == Luck::Often) CHECK((c.accepted > 0 && c.accepted < c.drafted));
        if (luck == Luck::Always)
          CHECK(c.accepted * 5 >= c.drafted * 4);  // the layer likes an end token that is ignored, too
      }
    }
  }
}

TEST_CASE("what the prediction layer has read is the text's after guesses that did not come", "[speculation]") {
  for (const std::string& arch : kPredicting) {
    for (const Luck luck : {Luck::Never, Luck::Often}) {
      INFO(arch << " " << static_cast<int>(luck));
      const TempDir folder;
      const auto model = load_predicting(write_predicting(folder, arch, luck));
      Drafted drafted(*model, 256, 3);
      auto text = random_tokens(90, 256, 5);
      const Answered a =
          answered(*model, drafted.session, drafted.session.create(), text, 0, &drafted.speculation, 0.9f, 40);
      text.insert(text.end(), a.tokens.begin(), a.tokens.end());
      const auto own = guesses(*drafted.drafter, text, 5);
      CHECK(own.size() == 5);
      CHECK(own == fresh_guesses(*model, text, 5));
    }
  }
}

TEST_CASE("guesses that never come make a recurrent state see few tokens again", "[speculation]") {
  const TempDir folder;
  const auto model = load_predicting(write_predicting(folder, "qwen35", Luck::Never));
  Drafted drafted(*model, 256, 1);
  const auto text = random_tokens(50, 256, 5);
  answered(*model, drafted.session, drafted.session.create(), text, 0, &drafted.speculation, 0.9f, 100);
  const SpeculationCounts& c = drafted.speculation.counts();
  INFO(c.drafts << " drafts, " << drafted.session.read_again() << " tokens again");
  CHECK(c.drafts > 70);
  CHECK(drafted.session.read_again() < 5 * c.drafts);  // of all steps it would be half of their number squared
}

TEST_CASE("a text that goes on otherwise, further back or on another branch, is read again from there",
          "[speculation]") {
  for (const std::string& arch : kPredicting) {
    INFO(arch);
    const TempDir folder;
    const auto path = write_predicting(folder, arch, Luck::Often);
    const auto model = load_predicting(path), plain = load_predicting(path, false);
    Drafted drafted(*model, 256, 3, 2);
    Session session(*plain, {.context = 256, .sequences = 2});
    const auto first = random_tokens(80, 256, 5);
    const SequenceId id = drafted.session.create(), plain_id = session.create();
    check_equal(answered(*model, drafted.session, id, first, 0, &drafted.speculation, 0.9f, 20),
                answered(*plain, session, plain_id, first, 0, nullptr, 0.9f, 20));

    // A branch of the text, read from a little before its end; then the first one again.
    auto other = first;
    other.resize(76);
    for (const Token t : random_tokens(30, 256, 6)) other.push_back(t);
    const SequenceId branch = drafted.session.fork(id, 76), plain_branch = session.fork(plain_id, 76);
    const Answered b = answered(*model, drafted.session, branch, other, 76, &drafted.speculation, 0.9f, 20);
    check_equal(b, answered(*plain, session, plain_branch, other, 76, nullptr, 0.9f, 20));
    auto text = other;
    text.insert(text.end(), b.tokens.begin(), b.tokens.end());
    CHECK(guesses(*drafted.drafter, text, 4) == fresh_guesses(*model, text, 4));

    drafted.session.rewind(id, 79);
    session.rewind(plain_id, 79);
    auto again = first;
    again.resize(79);
    for (const Token t : random_tokens(9, 256, 8)) again.push_back(t);
    check_equal(answered(*model, drafted.session, id, again, 79, &drafted.speculation, 0, 30),
                answered(*plain, session, plain_id, again, 79, nullptr, 0, 30));
  }
}

TEST_CASE("a context that is shifted goes on with drafts by the prediction layer", "[speculation]") {
  for (const std::string& arch : kPredicting) {
    INFO(arch);
    const TempDir folder;
    const auto path = write_predicting(folder, arch, Luck::Always);
    const auto model = load_predicting(path), plain = load_predicting(path, false);
    const auto prompt = random_tokens(50, 256, 3);
    Session session(*plain, {.context = 64});
    const Answered expected = answered(*plain, session, session.create(), prompt, 0, nullptr, 0, 120, 4);
    Drafted drafted(*model, 64, 4);
    const Answered got =
        answered(*model, drafted.session, drafted.session.create(), prompt, 0, &drafted.speculation, 0, 120, 4);
    CHECK(got.tokens == expected.tokens);
    INFO(drafted.speculation.describe());
    CHECK(drafted.speculation.counts().accepted > 60);
  }
}

TEST_CASE("behind a beginning that was restored the prediction layer guesses from what it sees", "[speculation]") {
  const TempDir folder;
  const auto model = load_predicting(write_predicting(folder, "glm4moe", Luck::Always));
  const auto text = random_tokens(100, 256, 9);
  Session before(*model, {.context = 256});
  const SequenceId id = before.create();
  const Append work{id, text, Logits::Last};
  before.eval({&work, 1});
  std::vector<std::byte> block(before.cache_block_bytes());

  Drafted drafted(*model, 256, 4);
  const SequenceId restored = drafted.session.create();
  drafted.session.restore(restored, {.tokens = std::span(text).first(90), .block = [&](std::size_t i) {
                                       before.read_block(id, i, block);
                                       return std::span<const std::byte>(block);
                                     }});
  const Answered got = answered(*model, drafted.session, restored, text, 90, &drafted.speculation, 0, 30);
  Session session(*model, {.context = 256});
  check_equal(got, answered(*model, session, session.create(), text, 0, nullptr, 0, 30));
  CHECK(drafted.speculation.counts().accepted > 15);
}

TEST_CASE("the graph with hidden rows has the logits of the graph without, bit for bit", "[speculation]") {
  for (const std::string& arch : kPredicting) {
    INFO(arch);
    const TempDir folder;
    const auto path = write_predicting(folder, arch, Luck::Never);
    const auto model = load_predicting(path), plain = load_predicting(path, false);
    Session with(*model, {.context = 256}), without(*plain, {.context = 256});
    const auto text = random_tokens(100, 256, 2);
    CHECK(same_bits(logits_in_chunks(with, with.create(), text, 33),
                    logits_in_chunks(without, without.create(), text, 7)));
    CHECK(plain->graph({}).outputs().size() == 1);
  }
}

TEST_CASE("a device of its own drafts by the prediction layer if it computes the whole model", "[speculation]") {
  Loader load(tiny_model(predicting("qwen35")));
  load.predicts = true;
  const auto model = load({});
  const auto prompt = random_tokens(70, 256, 3);
  Drafted drafted(*model, 256, 3);
  const Answered got =
      answered(*model, drafted.session, drafted.session.create(), prompt, 0, &drafted.speculation, 0.9f, 40);
  load.predicts = false;
  const auto plain = load({});
  Session session(*plain, {.context = 256});
  check_equal(got, answered(*plain, session, session.create(), prompt, 0, nullptr, 0.9f, 40));
  CHECK(drafted.speculation.counts().drafted > 0);

  load.predicts = true;
  const Error parted = error_of([&] { load({.layers = 2}); });
  CHECK(parted.kind() == ErrorKind::Usage);
  CHECK(std::string(parted.what()).find("one device") != std::string::npos);
}

TEST_CASE("models that cannot draft by prediction layers say why") {
  const TempDir folder;
  const auto problem = [&](const TinyFile& file) -> std::string {
    const auto path = folder / "model.gguf";
    file.write(path);
    try {
      load_predicting(path);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(contains(problem(tiny_model({.arch = "qwen35", .layers = 4})), "no prediction layer"));
  CHECK(contains(problem(tiny_model({.layers = 2})), "no prediction layer"));
  TinyFile other = tiny_model({.arch = "glm4", .layers = 3, .head_dim = 16, .predicting = true});
  CHECK(contains(problem(other), "architecture glm4 are not supported"));
  TinyFile two = tiny_model(predicting("glm4moe"));
  two.set("glm4moe.nextn_predict_layers", std::uint32_t{2});
  CHECK(contains(problem(two), "more than one"));
  TinyFile stripped = tiny_model(predicting("glm4moe"));
  stripped.erase_tensor("blk.2.nextn.eh_proj.weight");
  CHECK(contains(problem(stripped), "blk.2.nextn.eh_proj.weight"));
  CHECK(problem(tiny_model(predicting("glm4moe"))).empty());
}

TEST_CASE("a tensor of a prediction layer that neither graph reads is reported") {
  const TempDir folder;
  TinyFile file = tiny_model(predicting("glm4moe"));
  file.add_tensor({"blk.2.nextn.other.weight", {DType::F32, {32}}});
  const auto path = folder / "model.gguf";
  file.write(path);
  const auto reported = [&](bool predicts) {
    Warnings warnings;
    Model::load({.path = path, .backend = "cpu", .threads = 1, .predicts = predicts, .progress = {}}, warnings);
    return std::ranges::any_of(warnings, [](const auto& w) { return w.code == "unused-tensors"; });
  };
  CHECK(reported(true));
  CHECK_FALSE(reported(false));
}

TEST_CASE("a prediction layer that computes what is no number guesses no more and changes nothing", "[speculation]") {
  const TempDir folder;
  const auto path = write_predicting(folder, "glm4moe", Luck::Always);
  patch(path, "blk.2.nextn.eh_proj.weight", 0, kNanF32);
  const auto model = load_predicting(path), plain = load_predicting(path, false);
  const auto prompt = random_tokens(20, 256, 3);
  Session session(*plain, {.context = 256});
  Drafted drafted(*model, 256, 4);
  check_equal(answered(*model, drafted.session, drafted.session.create(), prompt, 0, &drafted.speculation, 0, 20),
              answered(*plain, session, session.create(), prompt, 0, nullptr, 0, 20));
  CHECK(drafted.speculation.counts().drafted == 0);
  const auto faults = drafted.speculation.take_faults();
  REQUIRE(faults.size() == 1);
  CHECK(faults.front().find("prediction layer") != std::string::npos);
}
