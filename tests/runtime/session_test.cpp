// Loading, limits and faults of a session, and generation over it.
#include "runtime/session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "loaded.h"
#include "runtime/generator.h"
#include "runtime/screening.h"
#include "runtime/session_memory.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

template <class F>
Error error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error");
  return Error(ErrorKind::Internal, "");
}

bool mentions(const Error& e, std::string_view part) {
  return std::string_view(e.what()).find(part) != std::string_view::npos;
}

std::unique_ptr<Model> load(const std::filesystem::path& path, Warnings& warnings) {
  return Model::load({.path = path, .backend = "cpu", .threads = 1, .progress = {}}, warnings);
}

}  // namespace

TEST_CASE("the first value that is not finite is found by its bits") {
  std::vector<float> values(5000, 1.0F);
  CHECK_FALSE(first_non_finite(values));
  values[4999] = std::numeric_limits<float>::max();
  values[1] = std::numeric_limits<float>::denorm_min();
  CHECK_FALSE(first_non_finite(values));
  values[4500] = -std::numeric_limits<float>::infinity();
  CHECK(first_non_finite(values) == 4500u);
  values[1024] = std::numeric_limits<float>::quiet_NaN();
  CHECK(first_non_finite(values) == 1024u);
}

TEST_CASE("NaN in a norm, a bias or a router is refused at load by the tensor's name") {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  for (const char* tensor : {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight"}) {
    tiny_model({.experts = 4}).write(path);
    patch(path, tensor, 4 * 3, kNanF32);
    Warnings warnings;
    const Error e = error_of([&] { load(path, warnings); });
    CHECK(e.kind() == ErrorKind::Model);
    CHECK(mentions(e, tensor));
    CHECK(mentions(e, "element 3 is NaN"));
  }
}

TEST_CASE("a router's table that names no expert is refused at load") {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  tiny_model({.arch = "deepseek4", .layers = 2}).write(path);
  Warnings warnings;
  load(path, warnings);
  patch(path, "blk.0.ffn_gate_tid2eid.weight", 4 * 5, {4, 0, 0, 0});
  const Error e = error_of([&] { load(path, warnings); });
  CHECK(e.kind() == ErrorKind::Model);
  CHECK(mentions(e, "blk.0.ffn_gate_tid2eid.weight"));
  CHECK(mentions(e, "element 5 is 4, which is none of 4 experts"));
}

TEST_CASE("a fault is told of the token that has it, however the prompt is cut") {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  tiny_model({}).write(path);
  constexpr Token kBad = 7;
  Warnings warnings;
  const auto row = GgufFile::open(path, warnings).tensors().find("token_embd.weight")->type.row_bytes();
  patch(path, "token_embd.weight", kBad * row, kNanF32);
  const auto model = load(path, warnings);
  std::vector<Token> text(100, 3);
  text[10] = kBad;
  for (const int batch : {0, 16, 50}) {
    INFO("steps of " << batch);
    Session session(*model, {.context = 128, .batch_tokens = batch});
    const Append work{session.create(), text, Logits::Last};
    const Error e = error_of([&] { session.eval({&work, 1}); });
    INFO(e.what());
    CHECK(mentions(e, "non-finite logits at token 10: first bad value"));
  }
}

TEST_CASE("a matrix is not read at load, its NaN is found where it acts") {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  struct Place {
    const char* tensor;
    const char* named;
  };
  for (const Place place :
       {Place{"token_embd.weight", "token_embd"}, Place{"blk.0.attn_k.weight", "blk.0.attn_k"},
        Place{"blk.0.ffn_down.weight", "blk.0.ffn_down"}, Place{"output.weight", "output.weight"}}) {
    INFO(place.tensor);
    tiny_model({.type = DType::Q4_0}).write(path);
    patch(path, place.tensor, 0, kInfF16);  // the scale of block 0
    Warnings warnings;
    const auto model = load(path, warnings);
    Session session(*model, {.context = 64});
    const SequenceId id = session.create();
    const std::vector<Token> fine{5, 6};
    const Append before{id, fine, Logits::None};
    const std::vector<Token> bad{7, 0, 8};
    const Append work{id, bad, Logits::Last};
    const Error e = error_of([&] {
      session.eval({&before, 1});
      session.eval({&work, 1});
    });
    CHECK(e.kind() == ErrorKind::Numeric);
    CHECK(mentions(e, "non-finite logits at token "));
    CHECK(mentions(e, place.named));
    CHECK(session.length(id) <= 2);  // nothing of the failed step stays
  }
}

TEST_CASE("logits that overflow are an error too") {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  tiny_model().write(path);
  std::vector<std::uint8_t> huge;
  for (int i = 0; i < 32; ++i) huge.insert(huge.end(), {0x99, 0x76, 0x96, 0x7e});  // 1e38 each
  patch(path, "output.weight", 0, huge);
  patch(path, "output_norm.weight", 0, [] {
    std::vector<std::uint8_t> hundred;
    for (int i = 0; i < 32; ++i) hundred.insert(hundred.end(), {0x00, 0x00, 0xc8, 0x42});
    return hundred;
  }());
  Warnings warnings;
  const auto model = load(path, warnings);
  Session session(*model, {.context = 64});
  const std::vector<Token> tokens{1, 5, 6};
  const Append work{session.create(), tokens, Logits::Last};
  const Error e = error_of([&] { session.eval({&work, 1}); });
  CHECK(e.kind() == ErrorKind::Numeric);
  CHECK(mentions(e, "at token 2"));
  CHECK(mentions(e, "output.weight"));
}

TEST_CASE("a sequence that would outgrow the context is refused before anything is computed") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model());
  Session session(*model, {.context = 40, .sequences = 2});
  CHECK(session.context() == 40);
  const SequenceId a = session.create(), b = session.create();
  const auto tokens = random_tokens(41, model->dims().vocab, 1);
  const std::array work{Append{a, std::span(tokens).first(10), Logits::None}, Append{b, tokens, Logits::Last}};
  const Error e = error_of([&] { session.eval(work); });
  CHECK(e.kind() == ErrorKind::Context);
  CHECK(mentions(e, "prompt 41 tokens, context 40"));
  CHECK(session.length(a) == 0);
  CHECK(session.length(b) == 0);
  const Append fits{b, std::span(tokens).first(40), Logits::Last};
  CHECK(session.eval({&fits, 1}).size() == static_cast<std::size_t>(model->dims().vocab));
}

TEST_CASE("a step in the middle has room, where its values leave no hole for what attention needs beside them") {
  const TempDir folder;
  const TinyOptions sinks{.arch = "gpt-oss", .layers = 3, .context = 512};
  TinyOptions narrow_heads = wide("olmoe", DType::Q4_0);
  narrow_heads.d_ff = 1024, narrow_heads.heads = 8, narrow_heads.kv_heads = 1, narrow_heads.head_dim = 32;
  constexpr int kSequences = 9;
  for (const TinyOptions& options : {sinks, narrow_heads}) {
    INFO(options.arch);
    const auto model = load_tiny(folder, tiny_model(options), /*threads=*/2);
    const auto vocab = model->dims().vocab;
    Session together(*model, {.context = 512, .sequences = kSequences}), alone(*model, {.context = 512});
    std::vector<std::vector<Token>> texts;
    std::vector<Append> work;
    for (unsigned i = 0; i < kSequences; ++i) texts.push_back(random_tokens(20, vocab, i));
    for (const auto& text : texts) work.push_back({together.create(), text, Logits::Last});
    const auto rows = together.eval(work);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Append one{alone.create(), texts[i], Logits::Last};
      CHECK(same_bits(alone.eval({&one, 1}), rows.subspan(i * static_cast<std::size_t>(vocab)).first(vocab)));
      alone.remove(one.sequence);
    }
  }
}

TEST_CASE("cache memory is counted by blocks in use") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 3, .context = 512}));
  Session session(*model, {.context = 512, .cache = {DType::F16, DType::F32}});
  CHECK(session.cache_bytes_per_position() == 3 * 2 * 8 * (2 + 4));
  CHECK(session.cache_bytes_in_use() == 0);
  const SequenceId id = session.create();
  const auto tokens = random_tokens(65, model->dims().vocab, 1);
  const Append work{id, tokens, Logits::None};
  CHECK(session.eval({&work, 1}).empty());
  CHECK(session.cache_bytes_in_use() == 2 * 64 * session.cache_bytes_per_position());
  session.rewind(id, 64);
  CHECK(session.cache_bytes_in_use() == 64 * session.cache_bytes_per_position());
}

TEST_CASE("the memory that a session asks for has a row of logits for every sequence, and one that nobody wants") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model());
  for (const int sequences : {1, 40}) {
    const SessionOptions o{.context = 64, .sequences = sequences};
    const std::uint64_t workspace =
        model->backend().memory(model->graphs(largest_bucket(model->backend(), o))).front().workspace;
    const auto row = static_cast<std::uint64_t>(model->dims().vocab) * sizeof(float);
    CHECK(memory_request(*model, o).memories.front().work_bytes ==
          workspace + static_cast<std::uint64_t>(sequences + 1) * row);
  }
}

TEST_CASE("a context of 2^32 - 1 in the file ends in a session that fits") {
  const TempDir folder;
  TinyFile file = tiny_model();
  file.set("llama.context_length", std::uint32_t{0xffffffff});
  const auto model = load_tiny(folder, file);
  Session session(*model, {});
  CHECK(session.context() >= 64);
  CHECK(session.context() < (std::int64_t{1} << 31));
}

TEST_CASE("tensors that nothing uses give one warning") {
  const TempDir folder;
  TinyFile file = tiny_model();
  for (int i = 0; i < 20; ++i) file.add_tensor({"extra." + std::to_string(i), {DType::F32, {8}}});
  const auto path = folder / "m.gguf";
  file.write(path);
  Warnings warnings;
  load(path, warnings);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].code == "unused-tensors");
  CHECK(warnings[0].text.find("20 tensors") != std::string::npos);
  CHECK(warnings[0].text.find("extra.0") != std::string::npos);
}

TEST_CASE("a scale that no product applies is an error, and so are divisors that no angle has") {
  const TempDir folder;
  for (const auto& [name, words] : {std::pair{"blk.0.attn_q.weight.scale", "scales a weight"},
                                    {"blk.0.attn_q.weight_scale", "scales a weight"},
                                    {"blk.0.attn_norm.scale", "scales a weight"},
                                    {"rope_factors_long.weight", "changes the rotary angles"}}) {
    INFO(name);
    TinyFile file = tiny_model();
    file.add_tensor({name, {DType::F32, {1}}});
    const auto path = folder / "m.gguf";
    file.write(path);
    Warnings warnings;
    CHECK_THROWS_WITH(load(path, warnings), contains(name) && contains(words));
  }
}

TEST_CASE("sizes of a model are those of the weights it reads") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.experts = 4, .experts_used = 2}));
  // vocabulary 267, width 32, hidden 64: embedding and head, 3 norms, q and output, k and v, router, 3 stacks of 4
  // experts
  const std::uint64_t embedding = 267 * 32, norms = 3 * 32, attention = 2 * 32 * 32 + 2 * 32 * 16, router = 32 * 4;
  const std::uint64_t experts = 4 * 3 * 32 * 64;
  CHECK(model->parameter_count() == 2 * embedding + norms + attention + router + experts);
  CHECK(model->weight_bytes() == 4 * model->parameter_count());
  CHECK(model->weight_bytes_per_token() == 4 * (32 + embedding + norms + attention + router + experts / 2));
}

TEST_CASE("a token reads as many of the experts beside others as it is routed to, too") {
  const TempDir folder;
  // 2 of 8 experts, and of 4 small ones, each of 2 neighbours, as many
  const TinyFile file = tiny_model({.arch = "grovemoe", .experts = 8, .experts_used = 2});
  std::uint64_t expected = 0;
  for (const TinyTensor& t : file.tensors()) {
    const std::uint64_t bytes = t.type.bytes();
    if (t.name == "token_embd.weight")
      expected += t.type.row_bytes();
    else
      expected += t.name.find("_exps") != std::string::npos     ? bytes / 8 * 2
                  : t.name.find("_chexps") != std::string::npos ? bytes / 4 * 2
                                                                : bytes;
  }
  CHECK(load_tiny(folder, file)->weight_bytes_per_token() == expected);
}

TEST_CASE("a token reads the weights of layers as often as it goes through them") {
  const TempDir folder;
  TinyFile file = tiny_model({.arch = "nanbeige", .layers = 2});
  file.set("nanbeige.skip_loop_final_norm", true);
  file.set("nanbeige.num_loops", std::uint32_t{1});
  const auto once = load_tiny(folder, file);
  file.set("nanbeige.num_loops", std::uint32_t{3});
  const auto thrice = load_tiny(folder, file);
  CHECK(thrice->parameter_count() == once->parameter_count());
  CHECK(thrice->weight_bytes() == once->weight_bytes());
  // vocabulary 267, width 32: all but the table, the head and the last norm is in layers
  const std::uint64_t layers = once->weight_bytes() - 4 * (2 * 267 * 32 + 32);
  CHECK(thrice->weight_bytes_per_token() == once->weight_bytes_per_token() + 2 * layers);
}

TEST_CASE("generation is the loop of sampling and evaluating, in any chunks of the prompt") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 2, .context = 1024}));
  const auto prompt = random_tokens(600, model->dims().vocab, 2);
  GenerateOptions options;
  options.answer.max_tokens = 30;
  options.answer.sampling = {.seed = 11, .temperature = 1};
  options.answer.end_token = AnswerOptions::EndToken::Ignored;
  Session session(*model, {.context = 1024, .sequences = 2});
  std::string text;
  std::vector<std::int64_t> progress;
  options.step = [&](const Answer&, const AnswerText& piece) { text += piece.text; };
  options.progress = [&](std::int64_t done, std::int64_t total) {
    CHECK(total == 600);
    progress.push_back(done);
  };
  const auto result = generate(session, *model, session.create(), prompt, options);
  CHECK(result.reason == StopReason::Length);
  CHECK(result.prompt_tokens == 600);
  CHECK(result.generated_tokens == 30);
  REQUIRE(progress.size() >= 2);
  CHECK(progress.back() == 600);

  // The same by hand, token by token.
  const SequenceId id = session.create();
  SamplerOptions sampling = options.answer.sampling;
  for (Token t = 0; t < static_cast<Token>(model->tokenizer().n_vocab()); ++t) {
    if (model->tokenizer().is_end_of_generation(t)) {
      sampling.logit_bias.push_back({t, -std::numeric_limits<float>::infinity()});
    }
  }
  Sampler sampler(sampling);
  std::vector<Token> all = prompt;
  for (const Token t : prompt) sampler.accept(t);
  for (std::size_t i = 0; i < 630; ++i) {
    const Append work{id, {&all[i], 1}, Logits::Last};
    const auto logits = session.eval({&work, 1});
    if (i + 1 < 600 || all.size() == 630) continue;
    all.push_back(sampler.sample(logits, i - 599));
    sampler.accept(all.back());
  }
  StreamDecoder decoder(model->tokenizer());
  for (std::size_t i = 592; i < 600; ++i) (void)decoder.push(all[i]);
  std::string expected;
  for (std::size_t i = 600; i < 630; ++i) expected += decoder.push(all[i]);
  expected += decoder.finish();
  CHECK(text == expected);
}

TEST_CASE("generation ends for each of its reasons") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 64}));
  const auto prompt = random_tokens(10, model->dims().vocab, 2);
  Session session(*model, {.context = 20, .sequences = 3});
  GenerateOptions options;
  options.answer.sampling = {.seed = 3, .temperature = 1};
  options.answer.end_token = AnswerOptions::EndToken::Ignored;

  auto result = generate(session, *model, session.create(), prompt, options);
  CHECK(result.reason == StopReason::ContextFull);
  CHECK(result.generated_tokens == 11);  // the last one is given out without a place in the context

  std::atomic<bool> stop{true};
  options.cancel = &stop;
  result = generate(session, *model, session.create(), prompt, options);
  CHECK(result.reason == StopReason::Cancelled);
  CHECK(result.generated_tokens == 0);

  options.cancel = nullptr;
  options.answer.max_tokens = 0;
  result = generate(session, *model, session.create(), prompt, options);
  CHECK(result.reason == StopReason::Length);
  CHECK(result.generated_tokens == 0);

  const auto too_long = random_tokens(21, model->dims().vocab, 2);
  session.remove(0);
  const Error e = error_of([&] { generate(session, *model, session.create(), too_long, options); });
  CHECK(e.kind() == ErrorKind::Context);
  CHECK(mentions(e, "prompt 21 tokens, context 20"));
}

TEST_CASE("a full context goes on without the older half of what it need not keep") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 2, .context = 64}));
  const auto prompt = random_tokens(10, model->dims().vocab, 2);
  Session session(*model, {.context = 20, .sequences = 2});
  GenerateOptions options;
  options.keep = 3;
  options.answer.max_tokens = 40;
  options.answer.sampling.temperature = 0;
  options.answer.end_token = AnswerOptions::EndToken::Ignored;
  std::vector<Token> sampled;
  options.step = [&](const Answer& a, const AnswerText&) { sampled.assign(a.tokens().begin(), a.tokens().end()); };
  const auto result = generate(session, *model, session.create(), prompt, options);
  CHECK(result.reason == StopReason::Length);
  REQUIRE(sampled.size() == 40);

  // By hand, every token from an evaluation of the whole window: of 20 positions 3 stay, 8 of the other 17 go.
  std::vector<Token> window = prompt, expected;
  while (expected.size() < 40) {
    if (window.size() == 21) window.erase(window.begin() + 3, window.begin() + 3 + 8);
    const SequenceId id = session.create();
    const Append work{id, window, Logits::Last};
    const auto logits = session.eval({&work, 1});
    std::vector<float> row(logits.begin(), logits.end());
    for (Token t = 0; t < static_cast<Token>(model->tokenizer().n_vocab()); ++t) {
      if (model->tokenizer().is_end_of_generation(t)) row[static_cast<std::size_t>(t)] = -1e30F;
    }
    row.resize(model->tokenizer().n_vocab());
    expected.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
    window.push_back(expected.back());
    session.remove(id);
  }
  CHECK(sampled == expected);
}

TEST_CASE("what a shift reads again is read in steps, between which the answer can be stopped") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 64}));
  Session session(*model, {.context = 20, .batch_tokens = 4});
  std::atomic<bool> stop{false};
  GenerateOptions options;
  options.cancel = &stop;
  options.keep = 3;
  options.answer.end_token = AnswerOptions::EndToken::Ignored;
  options.step = [&](const Answer& a, const AnswerText&) {
    stop = a.tokens().size() == 11;
  };  // for which there is no room
  const SequenceId id = session.create();
  const auto result = generate(session, *model, id, random_tokens(10, model->dims().vocab, 2), options);
  CHECK(result.reason == StopReason::Cancelled);
  CHECK(result.generated_tokens == 11);
  CHECK(session.length(id) == 3 + 4);
}

TEST_CASE("an answer past its deadline ends for that reason") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.layers = 1, .context = 64}));
  Session session(*model, {.context = 64});
  GenerateOptions options;
  options.deadline = std::chrono::steady_clock::now();
  const auto result = generate(session, *model, session.create(), random_tokens(4, 200, 2), options);
  CHECK(result.reason == StopReason::TimeUp);
  CHECK(result.generated_tokens == 0);
}

TEST_CASE("positions that have embeddings are the longest context") {
  const TempDir folder;
  const auto model = load_tiny(folder, tiny_model({.arch = "gpt2", .context = 80}));
  CHECK(Session(*model, {}).context() == 80);
  Session session(*model, {.context = 80});
  const auto tokens = random_tokens(80, model->dims().vocab, 5);
  const Append work{session.create(), tokens, Logits::Last};
  CHECK_NOTHROW(session.eval({&work, 1}));
  const Error e = error_of([&] { Session(*model, {.context = 81}); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(mentions(e, "81 tokens is longer than the 80 positions"));
}

TEST_CASE("a backend that does not exist is named") {
  const TempDir folder;
  const Error e = error_of([&] { load_tiny(folder, tiny_model(), 1, "abacus"); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(mentions(e, "abacus"));
}
