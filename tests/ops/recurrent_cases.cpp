// Cases of the op table of layers with a recurrent state, whose sequences go on from step to step.
#include <algorithm>
#include <cmath>
#include <utility>

#include "op_stage.h"

namespace llm::test {
namespace {

/// Sequences that begin, go on in uneven chunks and by single tokens, beside one another.
std::vector<Parts> recurrent_steps() {
  return {{{0, some_tokens(5)}, {2, some_tokens(1, 3)}},
          {{1, some_tokens(33, 5)}, {0, some_tokens(1, 9)}},
          {{2, some_tokens(7, 2)}, {1, some_tokens(1, 8)}, {0, some_tokens(2, 4)}},
          {{1, some_tokens(2, 6)}, {2, some_tokens(1, 7)}},
          {{0, some_tokens(1, 1)}, {1, some_tokens(1, 2)}, {2, some_tokens(1, 3)}}};
}
/// Long enough for the ways that prompts go on a GPU: what a sequence has is cut into pieces there.
std::vector<Parts> recurrent_prompts() {
  return {{{0, some_tokens(70)}, {2, some_tokens(1, 3)}},
          {{1, some_tokens(33, 5)}, {0, some_tokens(66, 9)}},
          {{2, some_tokens(97, 2)}, {1, some_tokens(2, 8)}, {0, some_tokens(1, 4)}}};
}
constexpr int kRecurrentSequences = 3;

int most_tokens(const std::vector<Parts>& steps) {
  int most = 0;
  for (const Parts& step : steps) {
    int all = 0;
    for (const auto& [sequence, tokens] : step) all += static_cast<int>(tokens.size());
    most = std::max(most, all);
  }
  return most;
}

enum class ConvBias { Absent, Present };
OpScene conv_scene(std::int64_t channels, std::int64_t width, const std::vector<Parts>& steps, const ShortConv& op = {},
                   ConvBias with = ConvBias::Absent, DType type = DType::F32) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const Act x = s.input("x", channels, 91);
  const Weight w = s.weight("w", type, {width, channels}, 92);
  const Recurrent state = s.builder.recurrent({0, RecurrentType::Part::Conv, {channels, (width - 1) * op.dilation}});
  const Weight bias = s.weight("bias", DType::F32, {channels}, 150);
  const Act y = s.builder.short_conv(x, w, state, "y", op, with == ConvBias::Present ? &bias : nullptr);
  OpScene scene = std::move(s).finish(y, steps, width);
  scene.n_sequences = kRecurrentSequences;
  return scene;
}

OpScene mean_scene(std::int64_t channels, int width, const std::vector<Parts>& steps) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const Act x = s.input("x", channels, 91);
  const Recurrent state = s.builder.recurrent({0, RecurrentType::Part::Mean, {channels, width - 1}});
  OpScene scene = std::move(s).finish(s.builder.window_mean(x, state, width, "y"), steps, width);
  scene.n_sequences = kRecurrentSequences;
  return scene;
}

/// Rows of neighbours that become one, with parts of the next one or without.
OpScene compress_scene(std::int64_t n, int parts, int stride, const std::vector<Parts>& steps,
                       DType type = DType::F32) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const Act x = s.input("x", parts * n, 91), scores = s.input("scores", parts * n, 94, 3.0f);
  const Weight places = s.weight("places", type, {parts * n, stride}, 92);
  const Index positions = s.builder.step_input(StepInput::Positions);
  const Recurrent state = s.builder.recurrent({0, RecurrentType::Part::Compress, {n, 3, parts}});
  const GraphBuilder::CompressOperands operands{x, scores, places, positions, state};
  OpScene scene = std::move(s).finish(s.builder.compress(operands, "y"), steps, 8 * stride);
  scene.n_sequences = kRecurrentSequences;
  return scene;
}

/// Rows of a table by hashes of tokens, of which one ends what goes before it.
OpScene hash_scene(const HashIds& op, const std::vector<Parts>& steps) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const auto kept = static_cast<std::int64_t>(op.multipliers.size()) - 1;
  const Recurrent state = s.builder.recurrent({0, RecurrentType::Part::Hash, {kept}});
  const Index ids = s.builder.hash_ids(s.builder.step_input(StepInput::Tokens), state, op, "ids");
  const Act rows = s.builder.embed(s.weight("table", DType::F16, {7, 100}, 93), ids, "rows");
  OpScene scene = std::move(s).finish(s.builder.scale(s.builder.flatten_heads(rows, "flat"), 1.0f, "y"), steps, 1);
  scene.observed = {"ids"};
  scene.n_sequences = kRecurrentSequences;
  return scene;
}

enum class Steps : std::uint8_t { OfHeads, OfElements };
struct ScanShape {
  int heads, groups, n, p;
  Steps steps = Steps::OfHeads;
};

OpScene scan_scene(const ScanShape& d, const std::vector<Parts>& steps) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const Act xbc = s.input("xbc", d.heads * d.p + 2 * d.groups * d.n, 151);
  const bool of_elements = d.steps == Steps::OfElements;
  const int steps_of = d.heads * (of_elements ? d.p : 1);
  const Shape of_a{of_elements ? d.n : 1, steps_of}, of_d = of_elements ? Shape{steps_of} : of_a;
  const Act dt = s.input("dt", steps_of, 152, 2.0f);
  std::vector<float> decays = random_values(of_a.elements(), 153);
  for (float& a : decays) a = -std::exp(a);
  s.scene.weights.add("a", {DType::F32, of_a}, decays);
  const GraphBuilder::ScanOperands operands{
      .xbc = xbc,
      .dt = dt,
      .a = s.builder.weight("a", {DType::F32, of_a}),
      .d = s.weight("d", DType::F32, of_d, 154),
      .bias = s.weight("bias", DType::F32, {steps_of}, 155),
      .state = s.builder.recurrent({0, RecurrentType::Part::Scan, {d.p, d.n, d.heads}})};
  const Act heads = s.builder.selective_scan(operands, {.groups = d.groups}, "heads");
  OpScene scene =
      std::move(s).finish(s.builder.scale(s.builder.flatten_heads(heads, "flat"), 1.0f, "y"), steps, 8 * d.n);
  scene.n_sequences = kRecurrentSequences;
  scene.magnitude = std::sqrt(static_cast<double>(d.n));
  return scene;
}

enum class Decays : std::uint8_t { OfHeads, OfRows };
struct DeltaShape {
  int heads, key_heads, dk, dv;
  HeadSharing sharing = HeadSharing::Grouped;
  Decays decays = Decays::OfHeads;
  float floor = 0;
};

OpScene delta_scene(const DeltaShape& d, const std::vector<Parts>& steps) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const Act qkv = s.input("qkv", 2 * d.key_heads * d.dk + d.heads * d.dv, 93);
  const int n_decays = d.heads * (d.decays == Decays::OfRows ? d.dk : 1);
  const Act alpha = s.input("alpha", n_decays, 94, 2.0f), beta = s.input("beta", d.heads, 95, 2.0f);
  std::vector<float> decays = random_values(d.heads, 96);
  for (float& a : decays) a = d.floor < 0 ? std::exp(a) : -std::exp(a);
  s.scene.weights.add("a", {DType::F32, {d.heads}}, decays);
  const GraphBuilder::DeltaOperands operands{
      .qkv = qkv,
      .alpha = alpha,
      .beta = beta,
      .a = s.builder.weight("a", {DType::F32, {d.heads}}),
      .bias = s.weight("bias", DType::F32, {n_decays}, 97),
      .state = s.builder.recurrent({0, RecurrentType::Part::Delta, {d.dv, d.dk, d.heads}})};
  const GatedDelta delta{.key_heads = d.key_heads, .sharing = d.sharing, .eps = 1e-3f, .floor = d.floor};
  const Act heads = s.builder.gated_delta(operands, delta, "heads");
  // Roundings of one token's state are there in all that follow.
  OpScene scene =
      std::move(s).finish(s.builder.scale(s.builder.flatten_heads(heads, "flat"), 1.0f, "y"), steps, 8 * d.dk);
  scene.n_sequences = kRecurrentSequences;
  return scene;
}

OpScene shift_scene(std::int64_t channels, RecurrentType::Part part, const std::vector<Parts>& steps) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const Act x = s.input("x", channels, 91);
  const Recurrent state = s.builder.recurrent({0, part, {channels, 1}});
  OpScene scene = std::move(s).finish(s.builder.token_shift(x, state, "y"), steps, 1);
  scene.n_sequences = kRecurrentSequences;
  return scene;
}

enum class Shares : std::uint8_t { Fixed, More };
OpScene lerp_scene(std::int64_t n, std::int64_t m, Shares shares, int tokens) {
  Stage s(tokens);
  const Act x = s.input("x", n, 91), d = s.input("d", n, 94, 2.0f);
  const Weight w = s.weight("w", DType::F32, {n, m}, 92);
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < m; ++i) names.push_back("y" + std::to_string(i));
  const Act more = s.builder.split_heads(s.input("more", n * m, 95), static_cast<int>(m), "by_vectors");
  const std::vector<Act> y = s.builder.lerp(x, d, w, shares == Shares::More ? &more : nullptr, names);
  OpScene scene = std::move(s).finish(s.builder.scale(y.back(), 1.0f, "out"), full_and_partial(tokens), 3);
  scene.observed = {names.begin(), names.end()};
  return scene;
}

struct WkvShape {
  int n, heads, kv_heads;
};
enum class First : std::uint8_t { Absent, Present };
OpScene wkv6_scene(const WkvShape& d, First with, const std::vector<Parts>& steps) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const Weight first = s.weight("first", DType::F32, {d.n, d.heads}, 96);
  const GraphBuilder::Wkv6Operands operands{
      .r = s.input("r", d.n * d.heads, 91),
      .k = s.input("k", d.n * d.kv_heads, 92),
      .v = s.input("v", d.n * d.kv_heads, 93),
      .w = s.input("w", d.n * d.heads, 94, 2.0f),
      .state = s.builder.recurrent({0, RecurrentType::Part::Wkv, {d.n, d.n, d.heads}}),
      .first = with == First::Present ? &first : nullptr};
  const Act y = s.builder.flatten_heads(s.builder.wkv6(operands, "heads"), "flat");
  OpScene scene = std::move(s).finish(s.builder.scale(y, 1.0f, "y"), steps, 8 * d.n);
  scene.n_sequences = kRecurrentSequences;
  scene.magnitude = std::sqrt(static_cast<double>(d.n));
  return scene;
}

enum class Values : std::uint8_t { Own, Mixed };
OpScene wkv7_scene(int n, int heads, Values values, const std::vector<Parts>& steps) {
  Stage s(most_tokens(steps), kRecurrentSequences);
  const int width = n * heads;
  const GraphBuilder::FirstValues first{s.input("v_first", width, 99), s.input("mix", width, 100, 2.0f)};
  const GraphBuilder::Wkv7Operands operands{.r = s.input("r", width, 91),
                                            .k = s.input("k", width, 92),
                                            .v = s.input("v", width, 93),
                                            .w = s.input("w", width, 94, 3.0f),
                                            .a = s.input("a", width, 95, 2.0f),
                                            .k_k = s.gains("k_k", width, 96),
                                            .k_a = s.gains("k_a", width, 97),
                                            .r_k = s.weight("r_k", DType::F32, {width}, 98),
                                            .state = s.builder.recurrent({0, RecurrentType::Part::Wkv, {n, n, heads}}),
                                            .first = values == Values::Mixed ? &first : nullptr};
  const WkvResults results = s.builder.wkv7(operands, "heads");
  const Act y = s.builder.flatten_heads(results.y, "flat");
  const Act own = s.builder.flatten_heads(results.own, "own");
  // Roundings of one token's state are there in all that follow.
  OpScene scene = std::move(s).finish(s.builder.add(y, own, "y"), steps, 8 * n);
  scene.observed = {"heads", "heads_own"};
  scene.n_sequences = kRecurrentSequences;
  scene.magnitude = std::sqrt(static_cast<double>(n));
  return scene;
}

void add_rwkv(std::vector<OpCase>& cases) {
  for (const std::int64_t channels : {1, 45, 300}) {
    cases.push_back({label("token_shift", {{"channels", channels}}),
                     [=] { return shift_scene(channels, RecurrentType::Part::Shift, recurrent_steps()); }});
    cases.push_back({label("token_shift of prompts", {{"channels", channels}}),
                     [=] { return shift_scene(channels, RecurrentType::Part::ShiftFfn, recurrent_prompts()); }});
  }
  for (const std::int64_t n : {1, 37, 300}) {
    for (const std::int64_t m : {1, 5, 8}) {
      cases.push_back({label("lerp", {{"n", n}, {"m", m}}), [=] { return lerp_scene(n, m, Shares::Fixed, 5); }});
      cases.push_back({label("lerp by more", {{"n", n}, {"m", m}}), [=] { return lerp_scene(n, m, Shares::More, 5); }});
    }
  }
  constexpr WkvShape kShapes[] = {{1, 1, 1},  {7, 3, 3},  {16, 4, 2},  {40, 2, 1},
                                  {64, 2, 2}, {64, 4, 1}, {128, 2, 2}, {100, 1, 1}};
  for (const WkvShape& d : kShapes) {
    const auto name = [&](const char* kind) {
      return label(kind, {{"n", d.n}, {"heads", d.heads}, {"kv_heads", d.kv_heads}});
    };
    cases.push_back({name("wkv6"), [=] { return wkv6_scene(d, First::Present, recurrent_steps()); }});
    cases.push_back({name("wkv6 without a first"), [=] { return wkv6_scene(d, First::Absent, recurrent_steps()); }});
    cases.push_back({name("wkv7"), [=] { return wkv7_scene(d.n, d.heads, Values::Mixed, recurrent_steps()); }});
  }
  for (const int n : {40, 64, 128}) {
    cases.push_back({label("wkv6 of prompts", {{"n", n}}), [=] {
                       return wkv6_scene({n, 2, 1}, First::Present, recurrent_prompts());
                     }});
    cases.push_back({label("wkv6 of prompts without a first", {{"n", n}}), [=] {
                       return wkv6_scene({n, 2, 1}, First::Absent, recurrent_prompts());
                     }});
    for (const Values values : {Values::Own, Values::Mixed})
      cases.push_back({label(values == Values::Own ? "wkv7 of prompts" : "wkv7 of prompts, mixed values", {{"n", n}}),
                       [=] { return wkv7_scene(n, 2, values, recurrent_prompts()); }});
  }
}

}  // namespace

void add_recurrent(std::vector<OpCase>& cases) {
  for (const std::int64_t channels : {1, 16, 45, 300}) {
    for (const std::int64_t width : {2, 4, 7})
      cases.push_back({label("short conv", {{"channels", channels}, {"width", width}}),
                       [=] { return conv_scene(channels, width, recurrent_steps()); }});
  }
  cases.push_back({"short conv of prompts", [] { return conv_scene(300, 4, recurrent_prompts()); }});
  for (const Activation a : {Activation::Silu, Activation::Identity}) {
    cases.push_back({"short conv with a bias, " + std::string(name(a)),
                     [=] { return conv_scene(45, 4, recurrent_steps(), {.activation = a}, ConvBias::Present); }});
    cases.push_back({"short conv of prompts with a bias, " + std::string(name(a)),
                     [=] { return conv_scene(45, 3, recurrent_prompts(), {.activation = a}, ConvBias::Present); }});
  }
  cases.push_back(
      {"short conv alone", [] { return conv_scene(45, 3, recurrent_steps(), {.activation = Activation::Identity}); }});
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    const ShortConv apart{.dilation = 3};
    cases.push_back({"short conv of tokens 3 apart " + std::string(name(type)),
                     [=] { return conv_scene(300, 4, recurrent_steps(), apart, ConvBias::Absent, type); }});
  }
  cases.push_back({"short conv of tokens 2 apart, biased",
                   [] { return conv_scene(45, 3, recurrent_prompts(), {.dilation = 2}, ConvBias::Present); }});
  for (const int width : {2, 4, 16})
    cases.push_back(
        {label("window_mean", {{"width", width}}), [=] { return mean_scene(37, width, recurrent_steps()); }});
  cases.push_back({"window_mean of prompts", [] { return mean_scene(130, 4, recurrent_prompts()); }});
  for (const int parts : {1, 2}) {
    for (const int stride : {2, 4, 5, 32})
      cases.push_back({label("compress", {{"parts", parts}, {"stride", stride}}),
                       [=] { return compress_scene(37, parts, stride, recurrent_steps()); }});
    cases.push_back({label("compress prompts", {{"parts", parts}}),
                     [=] { return compress_scene(130, parts, 16, recurrent_prompts()); }});
    for (const DType type : {DType::F16, DType::Q8_0, DType::Q4_K})
      cases.push_back({label("compress", {{"parts", parts}}, name(type)),
                       [=] { return compress_scene(256, parts, 4, recurrent_steps(), type); }});
  }
  const HashIds pairs{{31415926535897, 27182818284591}, {40, 60}, {0, 40}, 5};
  const HashIds many{
      {31415926535897, 27182818284591, 16180339887499, 3}, {17, 9, 1, 31, 30, 5}, {0, 17, 26, 27, 58, 94}, 3};
  cases.push_back({"hash_ids of pairs", [=] { return hash_scene(pairs, recurrent_steps()); }});
  cases.push_back({"hash_ids of up to four", [=] { return hash_scene(many, recurrent_steps()); }});
  cases.push_back({"hash_ids of prompts", [=] { return hash_scene(many, recurrent_prompts()); }});
  constexpr ScanShape kScans[] = {{1, 1, 1, 1},
                                  {2, 2, 5, 7},
                                  {6, 2, 16, 16},
                                  {6, 3, 18, 40},
                                  {4, 1, 128, 64},
                                  {2, 1, 256, 80},
                                  {4, 2, 67, 33},
                                  {3, 1, 67, 192},
                                  {1, 1, 16, 77, Steps::OfElements},
                                  {2, 1, 18, 40, Steps::OfElements}};
  for (const ScanShape& d : kScans) {
    const char* const kind = d.steps == Steps::OfElements ? "selective scan of elements" : "selective scan";
    cases.push_back({label(kind, {{"heads", d.heads}, {"groups", d.groups}, {"n", d.n}, {"p", d.p}}),
                     [=] { return scan_scene(d, recurrent_steps()); }});
  }
  for (const int n : {67, 128, 200}) {
    cases.push_back({label("selective scan of prompts", {{"n", n}}), [=] {
                       return scan_scene({4, 2, n, 40}, recurrent_prompts());
                     }});
    cases.push_back({label("selective scan of prompts, of elements", {{"n", n}}), [=] {
                       return scan_scene({1, 1, n, 40, Steps::OfElements}, recurrent_prompts());
                     }});
  }
  constexpr DeltaShape kShapes[] = {{1, 1, 1, 1},
                                    {2, 2, 5, 7},
                                    {6, 2, 16, 16},
                                    {6, 2, 18, 40, HeadSharing::Tiled},
                                    {4, 2, 128, 128, HeadSharing::Tiled},
                                    {4, 1, 67, 33},
                                    {3, 3, 18, 40, HeadSharing::Grouped, Decays::OfRows},
                                    {6, 2, 67, 33, HeadSharing::Grouped, Decays::OfRows},
                                    {4, 2, 67, 160},
                                    {2, 2, 70, 64, HeadSharing::Grouped, Decays::OfRows}};
  for (const DeltaShape& d : kShapes) {
    const char* const kind = d.decays == Decays::OfRows        ? "gated delta, decays of rows"
                             : d.sharing == HeadSharing::Tiled ? "gated delta tiled"
                                                               : "gated delta";
    cases.push_back({label(kind, {{"heads", d.heads}, {"key heads", d.key_heads}, {"k", d.dk}, {"v", d.dv}}),
                     [=] { return delta_scene(d, recurrent_steps()); }});
  }
  for (const Decays decays : {Decays::OfHeads, Decays::OfRows}) {
    const char* const kind =
        decays == Decays::OfRows ? "gated delta to a floor, decays of rows" : "gated delta to a floor";
    const DeltaShape d{4, 2, 67, 33, HeadSharing::Grouped, decays, /*floor=*/-5};
    cases.push_back({kind, [=] { return delta_scene(d, recurrent_steps()); }});
    cases.push_back({std::string(kind) + ", prompts", [=] { return delta_scene(d, recurrent_prompts()); }});
  }
  for (const int dk : {67, 128}) {
    cases.push_back({label("gated delta of prompts", {{"k", dk}}), [=] {
                       return delta_scene({4, 2, dk, 40}, recurrent_prompts());
                     }});
    cases.push_back({label("gated delta of prompts, decays of rows", {{"k", dk}}), [=] {
                       return delta_scene({2, 2, dk, 40, HeadSharing::Grouped, Decays::OfRows}, recurrent_prompts());
                     }});
  }
  add_rwkv(cases);
  cases.push_back({"slice", [] {
                     Stage s(5);
                     const Act heads = s.builder.split_heads(s.input("x", 3 * 20, 98), 3, "heads");
                     const Act part = s.builder.slice(heads, {.begin = 7, .n = 11}, "part");
                     return std::move(s).finish(s.builder.scale(part, 1.0f, "y"), full_and_partial(5), 0);
                   }});
}

}  // namespace llm::test
