// A result does not depend on its neighbours: on the cpu backend the logits of a sequence have the same bits however
// its prompt was cut, with any thread count, beside any other sequence, after rewinds and forks, watched or not.
#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "loaded.h"
#include "models/registry.h"
#include "support/catch.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr std::size_t kLongPrompt = 300;  // more than one 256-key chunk of attention, several cache blocks

std::vector<ModelCase> cases() {
  TinyOptions llama{.arch = "llama", .layers = 2, .context = 512};
  TinyOptions window = llama;
  window.window = 70;
  TinyOptions experts = llama;
  experts.experts = 4;
  TinyOptions mixed = wide("qwen3", DType::Q4_K);
  mixed.types = {
      {"blk.*.attn_v.weight", DType::Q6_K}, {"blk.*.ffn_down.weight", DType::Q6_K}, {"output.weight", DType::Q8_0}};
  TinyOptions olmo3 = wide("olmo2", DType::Q4_K), gemma2 = wide("gemma2", DType::Q4_K);
  olmo3.window = gemma2.window = 70;
  TinyOptions gemma4 = wide("gemma4", DType::Q6_K, 3);
  gemma4.experts = 4;
  return {
      {"llama F32, F32 cache", llama, {DType::F32, DType::F32}},
      {"llama F32, BF16 cache", llama, {DType::BF16, DType::BF16}},
      {"llama F32, F8_E4M3 cache", llama, {DType::F8_E4M3, DType::F8_E4M3}},
      {"llama window F16", window},
      {"llama Q4_K, Q8_0 cache", wide("llama", DType::Q4_K), {DType::Q8_0, DType::Q8_0}},
      {"qwen3 F32, Q8_0 and Q4_0 cache", wide("qwen3", DType::F32), {DType::Q8_0, DType::Q4_0}},
      {"llama Q8_0, Q5_1 and IQ4_NL cache", wide("llama", DType::Q8_0), {DType::Q5_1, DType::IQ4_NL}},
      {"llama experts", experts},
      {"llama Q4_0", {.arch = "llama", .layers = 2, .context = 512, .type = DType::Q4_0}},
      {"llama Q5_1", {.arch = "llama", .layers = 2, .context = 512, .type = DType::Q5_1}},
      {"qwen2 Q8_0", {.arch = "qwen2", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"qwen2 BF16", {.arch = "qwen2", .layers = 2, .context = 512, .type = DType::BF16}},
      {"qwen3 Q4_K and others", mixed},
      {"qwen3moe Q4_K", wide("qwen3moe", DType::Q4_K)},
      {"qwen3moe F16", {.arch = "qwen3moe", .layers = 2, .context = 512, .type = DType::F16}},
      {"olmoe Q6_K", wide("olmoe", DType::Q6_K)},
      {"gpt-oss MXFP4", {.arch = "gpt-oss", .layers = 3, .context = 512, .type = DType::MXFP4}},
      {"gpt-oss F16, Q8_0 cache", wide("gpt-oss", DType::F16, 3), {DType::Q8_0, DType::Q8_0}},
      {"olmo2 window Q4_K", olmo3},
      {"gemma2 Q4_K", gemma2},
      {"gemma2 F32, Q8_0 cache", wide("gemma2", DType::F32), {DType::Q8_0, DType::Q8_0}},
      {"gemma4 Q8_0", {.arch = "gemma4", .layers = 4, .context = 512, .type = DType::Q8_0}},
      {"gemma4 experts Q6_K, Q8_0 cache", gemma4, {DType::Q8_0, DType::Q8_0}},
      {"gemma3n Q8_0", {.arch = "gemma3n", .layers = 4, .context = 512, .type = DType::Q8_0}},
      {"llama4 Q8_0", {.arch = "llama4", .layers = 4, .context = 512, .type = DType::Q8_0, .window = 70}},
      {"afmoe Q4_K", wide("afmoe", DType::Q4_K, 3)},
      {"cohere2 F16", {.arch = "cohere2", .layers = 3, .context = 512, .type = DType::F16}},
      {"granitemoe Q8_0", {.arch = "granitemoe", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"deepseek2 Q8_0", {.arch = "deepseek2", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"deepseek2 Q8_0, keys and values of heads",
       {.arch = "deepseek2", .layers = 2, .context = 512, .type = DType::Q8_0, .tied = true}},
      {"bailingmoe2 Q4_K", wide("bailingmoe2", DType::Q4_K)},
      {"qwen35 F32", {.arch = "qwen35", .layers = 3, .context = 512}},
      {"qwen3next Q8_0", {.arch = "qwen3next", .layers = 2, .head_dim = 16, .context = 512, .type = DType::Q8_0}},
      {"qwen35moe Q5_1", {.arch = "qwen35moe", .layers = 2, .head_dim = 16, .context = 512, .type = DType::Q5_1}},
      {"qwen4exp F32", {.arch = "qwen4exp", .layers = 4, .context = 512}},
      {"qwen4exp Q8_0, Q8_0 cache",
       {.arch = "qwen4exp", .layers = 2, .head_dim = 32, .context = 512, .type = DType::Q8_0},
       {DType::Q8_0, DType::Q8_0}},
      {"lfm2 Q8_0", {.arch = "lfm2", .layers = 4, .context = 512, .type = DType::Q8_0}},
      {"granitehybrid F32", {.arch = "granitehybrid", .layers = 4, .context = 512}},
      {"falcon-h1 Q8_0", {.arch = "falcon-h1", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"nemotron_h_moe Q5_1", {.arch = "nemotron_h_moe", .layers = 5, .context = 512, .type = DType::Q5_1}},
      {"gpt2 Q8_0", {.arch = "gpt2", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"apertus Q8_0", {.arch = "apertus", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"deci Q8_0", {.arch = "deci", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"mpt Q8_0, Q8_0 cache", wide("mpt", DType::Q8_0), {DType::Q8_0, DType::Q8_0}},
      {"step35 F32", {.arch = "step35", .layers = 4, .context = 512, .window = 70}},
      {"mimo2 Q8_0", {.arch = "mimo2", .layers = 3, .context = 512, .type = DType::Q8_0, .window = 70}},
      {"mamba2 Q8_0", {.arch = "mamba2", .layers = 3, .context = 512, .type = DType::Q8_0}},
      {"olmoe Q4_1", {.arch = "olmoe", .layers = 2, .context = 512, .type = DType::Q4_1}},
      {"kimi-linear F32", {.arch = "kimi-linear", .layers = 4, .context = 512}},
      {"bailingmoe3 Q8_0", {.arch = "bailingmoe3", .layers = 4, .context = 512, .type = DType::Q8_0}},
      {"minimax-m3 Q8_0", {.arch = "minimax-m3", .layers = 3, .context = 512, .type = DType::Q8_0}},
      {"dots3note Q8_0", {.arch = "dots3note", .layers = 3, .context = 512, .type = DType::Q8_0, .window = 70}},
      {"plamo2 Q8_0", {.arch = "plamo2", .layers = 4, .context = 512, .type = DType::Q8_0}},
      {"talkie Q8_0", {.arch = "talkie", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"kimi-k3 Q8_0", {.arch = "kimi-k3", .layers = 4, .context = 512, .type = DType::Q8_0}},
      {"glm5-next F32", {.arch = "glm5-next", .layers = 4, .context = 512}},
      {"glm5-next Q8_0", {.arch = "glm5-next", .layers = 2, .context = 512, .type = DType::Q8_0, .window = 64}},
      {"grovemoe Q4_0", {.arch = "grovemoe", .layers = 2, .context = 512, .type = DType::Q4_0}},
      {"maple F16", {.arch = "maple", .layers = 4, .context = 512, .type = DType::F16, .window = 70}},
      {"deepseek32 F32", {.arch = "deepseek32", .layers = 2, .context = 512}},
      {"deepseek32 Q4_K, Q8_0 cache", wide("deepseek32", DType::Q4_K), {DType::Q8_0, DType::Q8_0}},
      {"deepseek4 F32", {.arch = "deepseek4", .layers = 3, .context = 512}},
      {"deepseek4 Q8_0, Q8_0 cache",
       {.arch = "deepseek4", .layers = 2, .context = 512, .type = DType::Q8_0, .window = 70},
       {DType::Q8_0, DType::Q8_0}},
      {"glm-dsa Q8_0, 270 keys", {.arch = "glm-dsa", .layers = 3, .context = 512, .type = DType::Q8_0, .window = 270}},
      {"laguna F32", {.arch = "laguna", .layers = 4, .context = 512, .window = 70}},
      {"arctic Q8_0", {.arch = "arctic", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"granite_swa F16", {.arch = "granite_swa", .layers = 3, .context = 512, .type = DType::F16, .window = 70}},
      {"nanbeige Q8_0", {.arch = "nanbeige", .layers = 2, .context = 512, .type = DType::Q8_0}},
      {"rwkv6 Q8_0", {.arch = "rwkv6", .layers = 3, .context = 512, .type = DType::Q8_0}},
      {"rwkv6qwen2 Q8_0", {.arch = "rwkv6qwen2", .layers = 3, .head_dim = 16, .context = 512, .type = DType::Q8_0}},
      {"rwkv7 F32", {.arch = "rwkv7", .layers = 3, .context = 512}},
      {"arwkv7 Q8_0", {.arch = "arwkv7", .layers = 3, .head_dim = 32, .context = 512, .type = DType::Q8_0}},
      {"mamba Q8_0", {.arch = "mamba", .layers = 3, .context = 512, .type = DType::Q8_0}},
      {"jamba Q8_0", {.arch = "jamba", .layers = 4, .context = 512, .experts = 4, .type = DType::Q8_0}},
      {"phimoe Q8_0", {.arch = "phimoe", .layers = 2, .context = 512, .type = DType::Q8_0}},
  };
}

class EverythingObserver final : public Observer {
 public:
  bool wants_value(std::string_view) override { return true; }
  void value(std::string_view name, const TensorView&) override { seen.insert(std::string(name)); }
  bool wants_timings() override { return true; }
  void timing(const StepTiming&) override { ++timings; }
  std::set<std::string> seen;
  int timings = 0;
};

/// What the second layer's attention, or what it has in place of that, ends in.
bool saw_a_mix(const EverythingObserver& watcher) {
  return std::ranges::any_of(std::array{"attn_output", "attn_output_b", "ssm_out", "time_mix_output"},
                             [&](const char* name) { return watcher.seen.count("blk.1." + std::string(name)) > 0; });
}

}  // namespace

TEST_CASE("logits have the same bits whatever is around them") {
  const TempDir folder;
  for (const ModelCase& c : cases()) {
    INFO(c.name);
    const TinyFile file = tiny_model(c.options);
    const auto model = load_tiny(folder, file, 1);
    const auto vocab = static_cast<std::size_t>(model->dims().vocab);
    const auto prompt = random_tokens(kLongPrompt, model->dims().vocab, 1);
    const SessionOptions options{.context = 400, .sequences = 4, .batch_tokens = 512, .cache = c.cache};
    Session session(*model, options);
    const SequenceId first = session.create();
    const std::vector<float> expected = logits_in_chunks(session, first, prompt, kLongPrompt);
    REQUIRE(expected.size() == kLongPrompt * vocab);
    const std::span<const float> last_row = std::span(expected).last(vocab);

    for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
      INFO("chunks of " << chunk);
      session.rewind(first, 0);
      CHECK(same_bits(logits_in_chunks(session, first, prompt, chunk), expected));
    }
    {
      INFO("small steps inside one call");
      SessionOptions small = options;
      small.batch_tokens = 48;
      Session other(*model, small);
      CHECK(same_bits(logits_in_chunks(other, other.create(), prompt, kLongPrompt), expected));
    }
    {
      INFO("only the last row wanted");
      session.rewind(first, 0);
      const Append work{first, prompt, Logits::Last};
      CHECK(same_bits(session.eval({&work, 1}), last_row));
    }
    {
      INFO("after other tokens were taken back");
      session.rewind(first, 130);
      const auto wrong = random_tokens(90, model->dims().vocab, 9);
      logits_in_chunks(session, first, wrong, 90);
      session.rewind(first, 130);
      const auto rest = logits_in_chunks(session, first, std::span(prompt).subspan(130), 100);
      CHECK(same_bits(rest, std::span(expected).subspan(130 * vocab)));
    }
    {
      INFO("fork inside a block, both go on");
      const SequenceId fork = session.fork(first, 100);
      session.rewind(first, 100);
      const auto other = random_tokens(50, model->dims().vocab, 5);
      const std::array work{Append{first, other, Logits::None},
                            Append{fork, std::span(prompt).subspan(100), Logits::All}};
      CHECK(same_bits(session.eval(work), std::span(expected).subspan(100 * vocab)));
      session.remove(fork);
    }
    {
      INFO("beside other sequences");
      session.rewind(first, 0);
      const SequenceId left = session.create(), right = session.create();
      const auto before = random_tokens(33, model->dims().vocab, 6), after = random_tokens(150, model->dims().vocab, 7);
      std::vector<float> got;
      for (std::size_t i = 0; i < kLongPrompt; i += 60) {
        const std::array work{Append{left, std::span(before).subspan(i / 60 * 6, 6), Logits::None},
                              Append{first, std::span(prompt).subspan(i, 60), Logits::All},
                              Append{right, std::span(after).subspan(i / 2, 30), Logits::Last}};
        const auto rows = session.eval(work);
        REQUIRE(rows.size() == 61 * vocab);
        got.insert(got.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(60 * vocab));
      }
      CHECK(same_bits(got, expected));
      session.remove(left);
      session.remove(right);
    }
    {
      INFO("watched");
      session.rewind(first, 0);
      EverythingObserver watcher;
      session.observer = &watcher;
      CHECK(same_bits(logits_in_chunks(session, first, prompt, 250), expected));
      session.observer = nullptr;
      CHECK(saw_a_mix(watcher));
      CHECK(watcher.timings > 10);
    }
    {
      INFO("two threads");
      const auto two = load_tiny(folder, file, 2);
      Session other(*two, options);
      const SequenceId id = other.create();
      CHECK(same_bits(logits_in_chunks(other, id, prompt, kLongPrompt), expected));
      other.rewind(id, 250);
      CHECK(same_bits(logits_in_chunks(other, id, std::span(prompt).subspan(250), 1),
                      std::span(expected).subspan(250 * vocab)));
    }
    for (const auto& [of_tokens, of_prompts] : {std::pair{1, 3}, std::pair{3, 1}}) {
      INFO(of_tokens << " threads for tokens, " << of_prompts << " for prompts");
      Warnings warnings;
      const auto both = Model::load({.path = folder / "model.gguf",
                                     .threads = of_tokens,
                                     .prompt_threads = of_prompts,
                                     .bytes_per_thread = 0,
                                     .prepare = {},
                                     .progress = {}},
                                    warnings);
      CHECK(both->backend().describe().ends_with(", " + std::to_string(of_prompts) + " for prompts"));
      Session other(*both, options);
      const SequenceId id = other.create();
      CHECK(same_bits(logits_in_chunks(other, id, prompt, kLongPrompt), expected));
      other.rewind(id, 250);
      CHECK(same_bits(logits_in_chunks(other, id, std::span(prompt).subspan(250), 3),
                      std::span(expected).subspan(250 * vocab)));
    }
  }
}

TEST_CASE("logits have the same bits for any cut of the prompt on every instruction set") {
  const TempDir folder;
  TinyOptions options = wide("qwen3moe", DType::Q4_K);
  options.layers = 4;
  options.types = {{"blk.0.*", DType::Q8_0},
                   {"blk.1.*", DType::Q5_0},
                   {"blk.2.*", DType::Q6_K},
                   {"blk.3.*", DType::BF16},
                   {"output.weight", DType::F16}};
  const TinyFile file = tiny_model(options);
  int ran = 0;
  for (const std::string isa : {"portable", "avx2", "avx2vnni", "avx512", "avx512bf16", "amx", "neon", "neondotprod"}) {
    INFO(isa);
    std::unique_ptr<Model> model;
    try {
      model = load_tiny(folder, file, 2, "cpu", isa);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      continue;  // not this machine's
    }
    ++ran;
    const auto prompt = random_tokens(70, model->dims().vocab, 1);
    Session session(*model, {.context = 128});
    const SequenceId id = session.create();
    const auto expected = logits_in_chunks(session, id, prompt, 70);
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{3}, std::size_t{17}}) {
      INFO("chunks of " << chunk);
      session.rewind(id, 0);
      CHECK(same_bits(logits_in_chunks(session, id, prompt, chunk), expected));
    }
  }
  CHECK(ran >= 1);
}

TEST_CASE("backends agree on F32 models") {
  const TempDir folder;
  for (const Architecture& a : architectures()) {
    INFO(a.name);
    const TinyFile file = tiny_model({.arch = std::string(a.name), .layers = 3, .context = 128});
    std::vector<std::vector<float>> logits;
    for (const std::string backend : {"reference", "cpu", "blas", "cuda"}) {
      std::unique_ptr<Model> model;
      try {
        model = load_tiny(folder, file, 1, backend);
      } catch (const Error& e) {
        if (backend == "cpu" || e.kind() != ErrorKind::Device) throw;
        continue;  // built without it, or no GPU
      }
      Session session(*model, {.context = 128, .cache = {DType::F32, DType::F32}});
      logits.push_back(logits_in_chunks(session, session.create(), random_tokens(100, model->dims().vocab, 3), 37));
    }
    REQUIRE(logits.size() >= 2);
    float largest = 0;
    for (const float f : logits[0]) largest = std::max(largest, std::abs(f));
    for (std::size_t b = 1; b < logits.size(); ++b) {
      REQUIRE(logits[b].size() == logits[0].size());
      float worst = 0;
      for (std::size_t i = 0; i < logits[0].size(); ++i) worst = std::max(worst, std::abs(logits[b][i] - logits[0][i]));
      CHECK(worst <= 2e-5F * largest);
    }
  }
}

TEST_CASE("on a GPU, logits have the same bits for any steps of up to 64 tokens") {
  const TempDir folder;
  for (const ModelCase& c : cases()) {
    INFO(c.name);
    const TinyFile file = tiny_model(c.options);
    std::unique_ptr<Model> model;
    try {
      model = load_tiny(folder, file, 1, "cuda");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      std::printf("skipped: %s\n", e.what());
      return;
    }
    const SessionOptions options{.context = 400, .sequences = 4, .batch_tokens = 64, .cache = c.cache};
    std::unique_ptr<Session> session;
    try {
      session = std::make_unique<Session>(*model, options);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Usage) throw;
      continue;  // a type of cache that is refused there
    }
    const auto vocab = static_cast<std::size_t>(model->dims().vocab);
    const auto prompt = random_tokens(kLongPrompt, model->dims().vocab, 1);
    const SequenceId first = session->create();
    const std::vector<float> expected = logits_in_chunks(*session, first, prompt, 64);
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{33}}) {
      INFO("chunks of " << chunk);
      session->rewind(first, 0);
      CHECK(same_bits(logits_in_chunks(*session, first, prompt, chunk), expected));
    }
    {
      INFO("beside another sequence");
      session->rewind(first, 0);
      const SequenceId other = session->create();
      const auto beside = random_tokens(kLongPrompt, model->dims().vocab, 6);
      std::vector<float> got;
      for (std::size_t i = 0; i < kLongPrompt; i += 30) {
        const std::array work{Append{other, std::span(beside).subspan(i, 20), Logits::Last},
                              Append{first, std::span(prompt).subspan(i, 30), Logits::All}};
        const auto rows = session->eval(work);
        got.insert(got.end(), rows.begin() + static_cast<std::ptrdiff_t>(vocab), rows.end());
      }
      CHECK(same_bits(got, expected));
    }
    {
      INFO("watched");
      session->rewind(first, 0);
      EverythingObserver watcher;
      session->observer = &watcher;
      CHECK(same_bits(logits_in_chunks(*session, first, prompt, 50), expected));
      session->observer = nullptr;
      CHECK(saw_a_mix(watcher));
    }
    {
      INFO("blocks written back");
      const std::size_t bytes = session->cache_block_bytes();
      std::vector<std::vector<std::byte>> blocks;
      for (std::size_t b = 0; b * kBlockPositions < 250; ++b) {
        blocks.emplace_back(bytes);
        session->read_block(first, b, blocks.back());
      }
      const SequenceId copy = session->fork(first, 0);
      session->restore(copy, {.tokens = std::span(prompt).first(250),
                              .block = [&](std::size_t b) { return std::span<const std::byte>(blocks[b]); }});
      const auto rest = logits_in_chunks(*session, copy, std::span(prompt).subspan(250), 50);
      CHECK(same_bits(rest, std::span(expected).subspan(250 * vocab)));
    }
  }
}

TEST_CASE("on a GPU, experts in steps of many sequences agree with the reference") {
  constexpr int kSequences = 20, kSteps = 3;
  const TempDir folder;
  for (const DType type : {DType::Q4_K, DType::Q8_0}) {
    INFO(name(type));
    TinyOptions options = wide("qwen3moe", DType::F32);
    options.types = {{"blk.*.ffn_*_exps.weight", type}};
    options.experts = options.experts_used = 4;  // no rounding lets another one win
    const TinyFile file = tiny_model(options);
    const auto logits = [&](const std::string& backend) {
      const auto model = load_tiny(folder, file, 1, backend);
      Session session(*model, {.context = 64, .sequences = kSequences, .cache = {DType::F32, DType::F32}});
      const auto tokens = random_tokens(kSequences * kSteps, model->dims().vocab, 9);
      std::vector<SequenceId> sequences;
      for (int s = 0; s < kSequences; ++s) sequences.push_back(session.create());
      std::vector<float> all;
      for (std::size_t step = 0; step < kSteps; ++step) {
        std::vector<Append> work;
        for (std::size_t s = 0; s < kSequences; ++s)
          work.push_back({sequences[s], std::span(tokens).subspan(step * kSequences + s, 1), Logits::Last});
        const auto rows = session.eval(work);
        all.insert(all.end(), rows.begin(), rows.end());
      }
      return all;
    };
    std::vector<float> got;
    try {
      got = logits("cuda");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      std::printf("skipped: %s\n", e.what());
      return;
    }
    const std::vector<float> expected = logits("reference");
    REQUIRE(got.size() == expected.size());
    float largest = 0, worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      worst = std::max(worst, std::abs(got[i] - expected[i]));
    }
    CHECK(worst <= 1e-3F * largest);  // activations of F16 in two of the model's products
  }
}

TEST_CASE("on a GPU that is asked to be deterministic, logits have the same bits for any steps at all") {
  const TempDir folder;
  for (const ModelCase& c : cases()) {
    INFO(c.name);
    const auto path = folder / "model.gguf";
    tiny_model(c.options).write(path);
    Warnings warnings;
    std::unique_ptr<Model> model;
    try {
      model =
          Model::load({.path = path, .backend = "cuda", .threads = 1, .deterministic = true, .progress = {}}, warnings);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      std::printf("skipped: %s\n", e.what());
      return;
    }
    Session session(*model, {.context = 400, .sequences = 2, .cache = c.cache});
    CHECK(session.batch_tokens() > 64);
    const auto prompt = random_tokens(kLongPrompt, model->dims().vocab, 1);
    const SequenceId first = session.create();
    const std::vector<float> expected = logits_in_chunks(session, first, prompt, kLongPrompt);
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{70}, std::size_t{150}}) {
      INFO("chunks of " << chunk);
      session.rewind(first, 0);
      CHECK(same_bits(logits_in_chunks(session, first, prompt, chunk), expected));
    }
  }
}
