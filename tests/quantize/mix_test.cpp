// The choice of types: against llama.cpp's for whole models, and what a user sets by hand.
#include "quantize/mix.h"

#include <map>

#include "base/error.h"
#include "support/catch.h"
#include "tensor/dtype.h"

namespace llm::test {
namespace {

struct Family {
  std::string arch = "llama";
  int layers = 32, heads = 32, kv_heads = 32, experts = 0;
  bool tied = false;
  int width = 256, d_ff = 256;
  bool fused_qkv = false;
};

/// As SHAPES of scripts/check-mixes.
const std::map<std::string, Family> kFamilies = {
    {"llama 8B, 4 heads per value", {.kv_heads = 8}},
    {"llama 70B", {.layers = 80, .heads = 64, .kv_heads = 8}},
    {"llama tied, 22 layers", {.layers = 22, .kv_heads = 4, .tied = true}},
    {"mixtral 8x7B", {.kv_heads = 8, .experts = 8}},
    {"olmoe, 64 experts", {.arch = "olmoe", .layers = 16, .heads = 16, .kv_heads = 16, .experts = 64}},
    {"falcon", {.arch = "falcon", .heads = 71, .kv_heads = 1, .fused_qkv = true}},
    {"rows of 576 and 1536", {.layers = 30, .heads = 9, .kv_heads = 3, .tied = true, .width = 576, .d_ff = 1536}},
};

struct OwnedTensor {
  std::string name;
  TensorType type;
};

std::vector<OwnedTensor> tensors_of(const Family& f) {
  std::vector<OwnedTensor> out;
  const auto matrix = [&](const std::string& name, int columns, int rows = 2, int outer = 1) {
    Shape shape{columns, rows};
    if (outer > 1) shape.push_back(outer);
    out.push_back({name, {DType::F16, shape}});
  };
  const auto vector = [&](const std::string& name) { out.push_back({name, {DType::F32, {f.width}}}); };
  matrix("token_embd.weight", f.width, 4);
  vector("output_norm.weight");
  if (!f.tied) matrix("output.weight", f.width, 4);
  for (int i = 0; i < f.layers; ++i) {
    const std::string b = "blk." + std::to_string(i) + ".";
    vector(b + "attn_norm.weight");
    vector(b + "ffn_norm.weight");
    if (f.fused_qkv) matrix(b + "attn_qkv.weight", f.width);
    if (!f.fused_qkv)
      for (const char* part : {"attn_q", "attn_k", "attn_v"}) matrix(b + part + ".weight", f.width);
    matrix(b + "attn_output.weight", f.width);
    if (f.experts > 0) matrix(b + "ffn_gate_inp.weight", f.width, f.experts);
    const std::string suffix = f.experts > 0 ? "_exps.weight" : ".weight";
    for (const char* part : {"ffn_gate", "ffn_up"}) matrix(b + part + suffix, f.width, 2, std::max(1, f.experts));
    matrix(b + "ffn_down" + suffix, f.d_ff, 2, std::max(1, f.experts));
  }
  return out;
}

std::vector<NamedTensor> views(const std::vector<OwnedTensor>& tensors) {
  std::vector<NamedTensor> out;
  for (const OwnedTensor& t : tensors) out.push_back({t.name, t.type});
  return out;
}

std::vector<TypeChoice> choose(const Family& f, std::string_view mix, const MixOptions& options = {}) {
  const std::vector<OwnedTensor> tensors = tensors_of(f);
  const MixModel model{f.arch, f.layers, f.experts, f.heads, f.kv_heads};
  return choose_types(*find_mix(mix), model, views(tensors), options);
}

DType type_of(const Family& f, std::string_view mix, std::string_view tensor, const MixOptions& options = {}) {
  const std::vector<OwnedTensor> tensors = tensors_of(f);
  const std::vector<TypeChoice> choices = choose(f, mix, options);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == tensor) return choices[i].type;
  FAIL("no such tensor");
  return DType::F32;
}

std::uint64_t hash(const Family& f, std::string_view mix, bool has_importance) {
  const std::vector<OwnedTensor> tensors = tensors_of(f);
  const std::vector<TypeChoice> choices = choose(f, mix, {.has_importance = has_importance});
  std::uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (const char c : tensors[i].name + " " + std::string(name(choices[i].type)) + "\n")
      h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

struct Golden {
  const char *family, *mix;
  std::uint64_t without, with;  ///< an importance matrix; 0: llama.cpp refuses
};
constexpr Golden kGolden[] = {
#define X(family, mix, without, with) {family, mix, without, with},
#include "mixes.inc"
#undef X
};

}  // namespace

TEST_CASE("every mix chooses llama.cpp's types for every tensor of every family", "[mix]") {
  std::size_t families = 0;
  for (const Golden& g : kGolden) {
    INFO(g.family << ", " << g.mix);
    REQUIRE(find_mix(g.mix) != nullptr);
    const Family& f = kFamilies.at(g.family);
    if (g.without != 0) CHECK(hash(f, g.mix, false) == g.without);
    if (g.with != 0) CHECK(hash(f, g.mix, true) == g.with);
    families += g.mix == std::string("Q4_K_M") ? 1 : 0;
  }
  CHECK(families == kFamilies.size());
}

TEST_CASE("mixes are found in any case, and K mixes without a size are medium", "[mix]") {
  CHECK(find_mix("q4_k_m") == find_mix("Q4_K_M"));
  CHECK(find_mix("Q4_K")->file_type == FileType::Q4_K_M);
  CHECK(find_mix("q3_k")->file_type == FileType::Q3_K_M);
  CHECK(find_mix("Q5_K")->file_type == FileType::Q5_K_M);
  CHECK(find_mix("Q4_K_L") == nullptr);
  CHECK(find_mix("") == nullptr);
}

TEST_CASE("types set by hand", "[mix]") {
  const Family f{.kv_heads = 8};
  const MixOptions by_pattern{.overrides = {{"ffn_(up|gate)", DType::Q8_0}, {"ffn", DType::Q5_0}}};
  CHECK(type_of(f, "Q4_K_M", "blk.3.ffn_up.weight", by_pattern) == DType::Q8_0);
  CHECK(type_of(f, "Q4_K_M", "blk.3.ffn_down.weight", by_pattern) == DType::Q5_0);
  CHECK(type_of(f, "Q4_K_M", "blk.3.attn_q.weight", by_pattern) == DType::Q4_K);
  CHECK(type_of(f, "Q4_K_M", "blk.3.ffn_norm.weight", by_pattern) == DType::F32);  // no matrix

  MixOptions ends{.output = DType::Q8_0, .token_embedding = DType::Q5_1};
  CHECK(type_of(f, "Q4_K_M", "output.weight", ends) == DType::Q8_0);
  CHECK(type_of(f, "Q4_K_M", "token_embd.weight", ends) == DType::Q5_1);
  const Family tied{.tied = true};
  CHECK(type_of(tied, "Q4_K_M", "token_embd.weight", {.output = DType::Q8_0}) == DType::Q8_0);

  CHECK(type_of(f, "Q4_K_M", "output.weight", {.leave_output = true}) == DType::F16);
  for (const TypeChoice& c : choose(f, "Q4_K_M", {.pure = true}))
    CHECK((c.type == DType::Q4_K || c.type == DType::F32));
  CHECK_THROWS_AS(choose(f, "Q4_K_M", {.overrides = {{"a(", DType::Q8_0}}}), Error);
  CHECK_THROWS_AS(choose(f, "Q4_K_M", {.overrides = {{std::string(100'000, '('), DType::Q8_0}}}), Error);
}

TEST_CASE("what is asked for by name counts, whatever the mix", "[mix]") {
  const Family f{.kv_heads = 8}, tied{.tied = true};
  for (const MixOptions& plain : {MixOptions{}, MixOptions{.pure = true}}) {
    for (const char* mix : {"F16", "BF16", "F32", "Q4_0"}) {
      INFO(mix);
      MixOptions options = plain;
      options.overrides = {{"attn_q", DType::Q8_0}};
      CHECK(type_of(f, mix, "blk.3.attn_q.weight", options) == DType::Q8_0);
      options.output = DType::Q5_0;
      CHECK(type_of(f, mix, "output.weight", options) == DType::Q5_0);
      CHECK(type_of(tied, mix, "token_embd.weight", options) == DType::Q5_0);
    }
  }
}

TEST_CASE("choices tell which pattern matched", "[mix]") {
  const Family f{.kv_heads = 8};
  const std::vector<OwnedTensor> tensors = tensors_of(f);
  const std::vector<TypeChoice> choices =
      choose(f, "Q4_K_M", {.overrides = {{"attn_norm", DType::Q8_0}, {"attn_", DType::Q5_0}, {"_q", DType::Q8_0}}});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    INFO(name);
    const bool attention = name.find("attn_") != std::string::npos && !name.ends_with("norm.weight");
    CHECK(choices[i].matched == (attention ? std::optional<std::size_t>(1) : std::nullopt));
  }
}

TEST_CASE("one row, and integers, are no matrix of weights", "[mix]") {
  // llama.cpp counts dimensions up to the last that is not 1.
  const std::vector<NamedTensor> tensors{{"blk.0.ffn_up.weight", {DType::F32, Shape{256, 1}}},
                                         {"blk.0.ffn_up.weight", {DType::F32, Shape{256, 1, 1}}},
                                         {"blk.0.ffn_up.weight", {DType::F32, Shape{256, 1, 2}}},
                                         {"blk.0.ids.weight", {DType::I32, Shape{256, 4}}}};
  const auto choices = choose_types(*find_mix("Q4_0"), {"llama", 1, 0, 1, 1}, tensors, {});
  CHECK(choices[0].type == DType::F32);
  CHECK(choices[1].type == DType::F32);
  CHECK(choices[2].type == DType::Q4_0);
  CHECK(choices[3].type == DType::I32);
}

TEST_CASE("rows that are not whole blocks fall back, and say what was wanted", "[mix]") {
  const auto choice = [](DType type, int columns) {
    const std::vector<NamedTensor> tensors{{"blk.0.attn_q.weight", {DType::F16, Shape{columns, 2}}}};
    return choose_types(*find_mix("Q4_0"), {"llama", 1, 0, 1, 1}, tensors, {.overrides = {{"attn_q", type}}}).front();
  };
  CHECK(choice(DType::Q4_K, 320).type == DType::Q5_0);
  CHECK(choice(DType::Q4_K, 320).wanted == DType::Q4_K);
  CHECK(choice(DType::Q5_K, 320).type == DType::Q5_1);
  CHECK(choice(DType::Q6_K, 320).type == DType::Q8_0);
  CHECK(choice(DType::IQ4_XS, 320).type == DType::IQ4_NL);
  CHECK(choice(DType::TQ2_0, 320).type == DType::Q4_0);
  CHECK(choice(DType::Q6_K, 48).type == DType::F16);
  CHECK(choice(DType::Q4_0, 48).type == DType::F16);
  CHECK(choice(DType::F32, 48).type == DType::F32);
}

TEST_CASE("types below 3 bits need an importance matrix, but for what is looked up", "[mix]") {
  const Family f{.kv_heads = 8};
  const std::vector<OwnedTensor> tensors = tensors_of(f);
  const std::vector<TypeChoice> iq2 = choose(f, "IQ2_XS"), q2 = choose(f, "Q2_K"), q2s = choose(f, "Q2_K_S");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    const bool embedding = tensors[i].name == "token_embd.weight" || tensors[i].name == "output.weight";
    CHECK(iq2[i].needs_importance == (iq2[i].type == DType::IQ2_XS && !embedding));
    CHECK_FALSE(q2[i].needs_importance);
    CHECK(q2s[i].needs_importance == (q2s[i].type == DType::Q2_K && !embedding));
  }
}

}  // namespace llm::test
