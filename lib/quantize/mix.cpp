// The choices as tables: a row names a part of the model, some mixes, a place in the model and a type; the first row
// that fits counts, and the base type where none does.
#include "quantize/mix.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/name_pattern.h"
#include "quantize/quantize.h"

namespace llm {
namespace {

constexpr Mix kMixes[] = {
    {"F32", FileType::F32, DType::F32, "as it was trained, or larger"},
    {"F16", FileType::F16, DType::F16, "16 bits a weight"},
    {"BF16", FileType::BF16, DType::BF16, "16 bits a weight, the range of F32"},
    {"Q8_0", FileType::Q8_0, DType::Q8_0, "8.5 bits a weight: all but lossless"},
    {"Q6_K", FileType::Q6_K, DType::Q6_K, "6.6 bits"},
    {"Q5_K_M", FileType::Q5_K_M, DType::Q5_K, "5.5 bits, the more sensitive half of some tensors Q6_K"},
    {"Q5_K_S", FileType::Q5_K_S, DType::Q5_K, "5.5 bits"},
    {"Q5_1", FileType::Q5_1, DType::Q5_1, "6 bits, older"},
    {"Q5_0", FileType::Q5_0, DType::Q5_0, "5.5 bits, older"},
    {"Q4_K_M", FileType::Q4_K_M, DType::Q4_K, "4.5 bits, the more sensitive half of some tensors Q6_K: the usual one"},
    {"Q4_K_S", FileType::Q4_K_S, DType::Q4_K, "4.5 bits, a little of it Q5_K"},
    {"IQ4_NL", FileType::IQ4_NL, DType::IQ4_NL, "4.5 bits, unevenly spaced values"},
    {"IQ4_XS", FileType::IQ4_XS, DType::IQ4_XS, "4.25 bits, unevenly spaced values"},
    {"Q4_1", FileType::Q4_1, DType::Q4_1, "5 bits, older"},
    {"Q4_0", FileType::Q4_0, DType::Q4_0, "4.5 bits, older"},
    {"MXFP4_MOE", FileType::MXFP4_MOE, DType::MXFP4, "experts in MXFP4 (4.25 bits), everything else Q8_0"},
    {"Q3_K_L", FileType::Q3_K_L, DType::Q3_K, "3.4 bits, the sensitive tensors Q5_K"},
    {"Q3_K_M", FileType::Q3_K_M, DType::Q3_K, "3.4 bits, the sensitive tensors Q4_K and Q5_K"},
    {"Q3_K_S", FileType::Q3_K_S, DType::Q3_K, "3.4 bits"},
    {"IQ3_M", FileType::IQ3_M, DType::IQ3_S, "3.4 bits, the sensitive tensors Q4_K"},
    {"IQ3_S", FileType::IQ3_S, DType::IQ3_S, "3.4 bits"},
    {"IQ3_XS", FileType::IQ3_XS, DType::IQ3_S, "3.4 and 3.06 bits; needs an importance matrix"},
    {"IQ3_XXS", FileType::IQ3_XXS, DType::IQ3_XXS, "3.06 bits; needs an importance matrix"},
    {"Q2_K", FileType::Q2_K, DType::Q2_K, "2.6 bits, the sensitive tensors Q3_K"},
    {"Q2_K_S", FileType::Q2_K_S, DType::Q2_K, "2.6 bits; needs an importance matrix"},
    {"IQ2_M", FileType::IQ2_M, DType::IQ2_S, "2.5 bits, the sensitive tensors IQ3_S; needs an importance matrix"},
    {"IQ2_S", FileType::IQ2_S, DType::IQ2_XS, "2.3 bits, the sensitive tensors IQ3_S; needs an importance matrix"},
    {"IQ2_XS", FileType::IQ2_XS, DType::IQ2_XS, "2.3 bits; needs an importance matrix"},
    {"IQ2_XXS", FileType::IQ2_XXS, DType::IQ2_XXS, "2.06 bits; needs an importance matrix"},
    {"IQ1_M", FileType::IQ1_M, DType::IQ1_M, "1.75 bits; needs an importance matrix"},
    {"IQ1_S", FileType::IQ1_S, DType::IQ1_S, "1.56 bits; needs an importance matrix"},
    {"Q2_0", FileType::Q2_0, DType::Q2_0, "2.25 bits, for models trained with four values a weight"},
    {"TQ2_0", FileType::TQ2_0, DType::TQ2_0, "2.06 bits, for models trained with three values a weight"},
    {"TQ1_0", FileType::TQ1_0, DType::TQ1_0, "1.69 bits, for models trained with three values a weight"},
    {"Q1_0", FileType::Q1_0, DType::Q1_0, "1.125 bits, for models trained with two values a weight"},
};

struct MixAlias {
  std::string_view name, meant;
};
constexpr MixAlias kAliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

/// Kinds of tensors, by what their names hold.
enum class Part : std::uint8_t {
  Output,
  TokenEmbedding,
  AttnV,
  AttnK,
  AttnQ,
  AttnOutput,
  FfnUp,
  FfnGate,
  FfnDown,
  Other
};

struct PartName {
  std::string_view text;
  Part part;
};
/// In this order; what is stored together with the values is as sensitive as they are.
constexpr PartName kPartNames[] = {
    {"attn_qkv.weight", Part::AttnV}, {"attn_kv_b.weight", Part::AttnV}, {"attn_v.weight", Part::AttnV},
    {"attn_k.weight", Part::AttnK},   {"attn_q.weight", Part::AttnQ},    {"attn_output.weight", Part::AttnOutput},
    {"ffn_up", Part::FfnUp},          {"ffn_gate", Part::FfnGate},       {"ffn_down", Part::FfnDown},
};

Part part_of(std::string_view name) {
  if (name == "output.weight") return Part::Output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Part::TokenEmbedding;
  for (const PartName& p : kPartNames) {
    if (name.find(p.text) != std::string_view::npos) return p.part;
  }
  return Part::Other;
}

/// Matrices that stay as they are: small, and much depends on them. Empty architecture: of all.
struct KeptName {
  std::string_view architecture, text;
};
constexpr KeptName kKept[] = {
    {"", "_norm.weight"},
    {"", "ffn_gate_inp.weight"},
    {"", "ffn_gate_tid2eid.weight"},
    {"", "altup"},
    {"", "laurel"},
    {"", "per_layer_model_proj"},
    {"", "position_embd.weight"},
    {"", "token_types.weight"},
    {"", "ssm_conv1d"},
    {"", "shortconv.conv.weight"},
    {"", "indexer.k_proj.weight"},
    {"", "indexer.q_proj.weight"},
    {"", "time_mix_first.weight"},
    {"", "time_mix_w0.weight"},
    {"", "time_mix_w1.weight"},
    {"", "time_mix_w2.weight"},
    {"", "time_mix_v0.weight"},
    {"", "time_mix_v1.weight"},
    {"", "time_mix_v2.weight"},
    {"", "time_mix_a0.weight"},
    {"", "time_mix_a1.weight"},
    {"", "time_mix_a2.weight"},
    {"", "time_mix_g1.weight"},
    {"", "time_mix_g2.weight"},
    {"", "time_mix_decay_w1.weight"},
    {"", "time_mix_decay_w2.weight"},
    {"", "time_mix_lerp_fused.weight"},
    {"", "attn_rel_b.weight"},
    {"", ".position_embd"},
    {"", "sam.pos_embd"},
    {"", "sam.neck."},
    {"", "sam.net_"},
    {"", ".rel_pos"},
    {"", ".patch_embd"},
    {"", ".patch_merger"},
    {"", "a.rvq.codebook"},
    {"", "mm.a.code_embd"},
    {"glm5-next", "hc_"},
    {"glm5-next", "indexer.attn_q_b"},
    {"glm5-next", "indexer.attn_k"},
    {"glm5-next", "indexer.proj"},
    {"glm5-next", "indexer_compressor_gate"},
    {"glm5-next", "indexer_compressor_ape"},
    {"glm5-next", "ssm_f_a.weight"},
    {"glm5-next", "ssm_f_b.weight"},
    {"glm5-next", "ssm_g_a.weight"},
    {"glm5-next", "ssm_g_b.weight"},
    {"glm5-next", "ssm_beta.weight"},
    {"glm5-next", "attn_kv_a_mqa.weight"},
    {"glm5-next", "attn_k_b.weight"},
    {"glm5-next", "attn_v_b.weight"},
};

/// One row is no matrix, however many dimensions the file gives it, and integers are no weights.
bool is_quantised(const NamedTensor& t, const MixModel& model) {
  const bool weights = info(t.type.dtype).use == DTypeUse::Weight;
  if (!weights || t.type.shape.rows() < 2 || !t.name.ends_with("weight")) return false;
  return std::ranges::none_of(kKept, [&](const KeptName& k) {
    return (k.architecture.empty() || k.architecture == model.architecture) &&
           t.name.find(k.text) != std::string_view::npos;
  });
}

/// Where a tensor is, as far as choices depend on it.
struct Place {
  int index;   ///< of its layer; of a mix below 3 bits and for AttnV: how many of its part came before
  int layers;  ///< of which there are so many
  const MixModel& model;
  bool has_importance;

  int heads_per_kv() const { return model.kv_heads == 0 ? 0 : model.heads / model.kv_heads; }
  bool falcon() const { return model.architecture == "falcon"; }
};

using Condition = bool (*)(const Place&);
bool always(const Place&) { return true; }
bool first_2(const Place& p) { return p.index < 2; }
bool first_4(const Place& p) { return p.index < 4; }
bool first_8th(const Place& p) { return p.index < p.layers / 8; }
bool first_16th(const Place& p) { return p.index < p.layers / 16; }
bool middle(const Place& p) { return p.index >= p.layers / 8 && p.index < 7 * p.layers / 8; }
/// The first and last eighth of the layers, and of those between every third.
bool outer_and_every_third(const Place& p) { return !middle(p) || (p.index - p.layers / 8) % 3 == 2; }
bool grouped(const Place& p) { return p.heads_per_kv() >= 4; }
bool experts_8(const Place& p) { return p.model.experts == 8; }
bool plain(const Place& p) { return !experts_8(p) && !p.falcon(); }
bool falcon(const Place& p) { return p.falcon(); }
bool grouped_or_experts(const Place& p) { return grouped(p) || p.model.experts >= 4; }
bool not_falcon(const Place& p) { return !p.falcon(); }
bool no_importance(const Place& p) { return !p.has_importance; }
bool first_8th_no_importance(const Place& p) { return first_8th(p) && !p.has_importance; }
bool first_8th_importance(const Place& p) { return first_8th(p) && p.has_importance; }
bool first_8th_not_falcon(const Place& p) { return first_8th(p) && !p.falcon(); }
bool first_16th_of_falcon(const Place& p) { return first_16th(p) && p.falcon(); }
bool outer_of_falcon(const Place& p) { return outer_and_every_third(p) && p.falcon(); }
bool outer_not_falcon(const Place& p) { return outer_and_every_third(p) && !p.falcon(); }
bool outer_of_experts_8(const Place& p) { return outer_and_every_third(p) && experts_8(p); }

using Mixes = std::uint64_t;
template <class... T>
constexpr Mixes of(T... types) {
  return (... | (Mixes{1} << static_cast<std::uint32_t>(types)));
}

using F = FileType;
using D = DType;
constexpr Mixes kAll = ~Mixes{0};
constexpr Mixes kIq2Large = of(F::IQ2_S, F::IQ2_M);
constexpr Mixes kBelow3Bits = of(F::IQ1_S, F::IQ1_M, F::IQ2_XXS, F::IQ2_XS) | kIq2Large;
/// Mixes that give the attention of eight experts more: it is small beside them.
constexpr Mixes kExpertsOutput = of(F::Q2_K, F::IQ3_XS, F::IQ3_XXS, F::Q3_K_S, F::Q3_K_M, F::IQ4_NL, F::Q4_K_S,
                                    F::Q4_K_M, F::IQ3_S, F::IQ3_M, F::IQ4_XS);

struct Rule {
  Part part;
  Mixes mixes;
  Condition when;
  DType type;
};
constexpr Rule kRules[] = {
    {Part::TokenEmbedding, of(F::IQ1_S, F::IQ1_M, F::IQ2_XXS, F::IQ2_XS), always, D::Q2_K},
    {Part::TokenEmbedding, kIq2Large | of(F::IQ3_XXS), always, D::IQ3_S},
    {Part::TokenEmbedding, of(F::TQ1_0, F::TQ2_0, F::Q2_0), always, D::Q4_K},

    {Part::AttnV, kBelow3Bits, grouped_or_experts, D::Q4_K},
    {Part::AttnV, kIq2Large, always, D::IQ3_S},
    {Part::AttnV, kBelow3Bits, always, D::Q2_K},
    {Part::AttnV, kAll, experts_8, D::Q8_0},
    {Part::AttnV, of(F::Q2_K, F::Q2_K_S, F::IQ3_XXS, F::IQ3_XS, F::IQ3_S), grouped, D::Q4_K},
    {Part::AttnV, of(F::Q2_K), always, D::Q3_K},
    {Part::AttnV, of(F::IQ3_XXS), no_importance, D::IQ3_S},
    {Part::AttnV, of(F::IQ3_M), always, D::Q4_K},
    {Part::AttnV, of(F::Q3_K_M), first_2, D::Q5_K},
    {Part::AttnV, of(F::Q3_K_M), always, D::Q4_K},
    {Part::AttnV, of(F::Q3_K_L), always, D::Q5_K},
    {Part::AttnV, of(F::IQ4_NL, F::IQ4_XS), grouped, D::Q5_K},
    {Part::AttnV, of(F::Q4_K_M, F::Q5_K_M), outer_and_every_third, D::Q6_K},
    {Part::AttnV, of(F::Q4_K_S), first_4, D::Q5_K},

    {Part::AttnK, kBelow3Bits, experts_8, D::Q4_K},
    {Part::AttnK, kAll & ~kBelow3Bits, experts_8, D::Q8_0},
    {Part::AttnK, of(F::IQ3_XS), always, D::IQ3_XXS},
    {Part::AttnK, of(F::IQ3_XXS), always, D::IQ2_S},
    {Part::AttnQ, of(F::IQ3_XS), always, D::IQ3_XXS},
    {Part::AttnQ, of(F::IQ3_XXS), always, D::IQ2_S},

    {Part::AttnOutput, kBelow3Bits, experts_8, D::Q5_K},
    {Part::AttnOutput, of(F::IQ1_S, F::IQ1_M), always, D::IQ2_XXS},
    {Part::AttnOutput, kIq2Large, always, D::IQ3_S},
    {Part::AttnOutput, of(F::Q3_K_L), falcon, D::Q4_K},
    {Part::AttnOutput, kExpertsOutput, experts_8, D::Q5_K},
    {Part::AttnOutput, of(F::Q2_K), plain, D::Q3_K},
    {Part::AttnOutput, of(F::IQ3_XXS), plain, D::IQ3_S},
    {Part::AttnOutput, of(F::Q3_K_M, F::IQ3_M), plain, D::Q4_K},
    {Part::AttnOutput, of(F::Q3_K_L), plain, D::Q5_K},

    {Part::FfnDown, kIq2Large, first_8th, D::IQ3_S},
    {Part::FfnDown, kBelow3Bits, first_8th, D::Q2_K},
    {Part::FfnDown, of(F::Q2_K), always, D::Q3_K},
    {Part::FfnDown, of(F::Q2_K_S), first_8th, D::Q4_K},
    {Part::FfnDown, of(F::IQ3_XXS), first_8th_no_importance, D::Q4_K},
    {Part::FfnDown, of(F::IQ3_XXS), no_importance, D::Q3_K},
    {Part::FfnDown, of(F::Q3_K_M), first_16th, D::Q5_K},
    {Part::FfnDown, of(F::Q3_K_M), not_falcon, D::Q4_K},
    {Part::FfnDown, of(F::Q3_K_M), outer_and_every_third, D::Q4_K},
    {Part::FfnDown, of(F::IQ3_M), first_8th, D::Q4_K},
    {Part::FfnDown, of(F::IQ3_M), outer_of_experts_8, D::Q4_K},
    {Part::FfnDown, of(F::Q3_K_L), not_falcon, D::Q5_K},
    {Part::FfnDown, of(F::Q3_K_L), always, D::Q4_K},
    {Part::FfnDown, of(F::Q4_K_M), first_16th_of_falcon, D::Q6_K},
    {Part::FfnDown, of(F::Q4_K_M), outer_of_falcon, D::Q5_K},
    {Part::FfnDown, of(F::Q4_K_M), outer_not_falcon, D::Q6_K},
    {Part::FfnDown, of(F::IQ4_NL, F::IQ4_XS), first_8th_no_importance, D::Q5_K},
    {Part::FfnDown, of(F::Q5_K_M), outer_and_every_third, D::Q6_K},
    {Part::FfnDown, of(F::Q4_K_S), first_8th_not_falcon, D::Q5_K},
    {Part::FfnDown, of(F::Q4_0), first_8th_importance, D::Q4_1},
    {Part::FfnDown, of(F::Q5_0), first_8th_importance, D::Q5_1},

    {Part::FfnGate, of(F::IQ3_XS), middle, D::IQ3_XXS},
    {Part::FfnUp, of(F::IQ3_XS), middle, D::IQ3_XXS},
};

bool holds(Mixes mixes, FileType type) { return (mixes & of(type)) != 0; }

DType by_rules(Part part, const Mix& mix, const Place& place) {
  for (const Rule& r : kRules) {
    if (r.part == part && holds(r.mixes, mix.file_type) && r.when(place)) return r.type;
  }
  return mix.base;
}

/// Llama 2 and 3 of 70 billion weights, Qwen2 of 72, and their like: 8 heads share each of the values' matrices, which
/// are small and matter more.
bool is_70b(const MixModel& m) {
  if (m.architecture == "llama") return m.layers == 80 && m.heads != m.kv_heads && m.experts != 8;
  if (m.architecture == "jais2") return m.layers == 68;
  return m.layers == 80 && (m.architecture == "qwen2" || m.architecture == "deci" || m.architecture == "olmo");
}

/// Of the matrix that gives the logits.
DType output_type(const Mix& mix, const MixModel& model, const TensorType& type) {
  constexpr Mixes kQ5 = kBelow3Bits | of(F::IQ3_XXS);
  const bool whole_blocks = type.shape[0] % info(mix.base).block_elems == 0;
  if (mix.file_type == F::MXFP4_MOE || mix.base == D::Q8_0 || model.architecture == "falcon" || !whole_blocks)
    return D::Q8_0;
  return holds(kQ5, mix.file_type) ? D::Q5_K : D::Q6_K;
}

/// MXFP4_MOE: experts are stacked in a third dimension; bailingmoe3 has others that are.
DType mxfp4_type(Part part, const MixModel& model, const TensorType& type) {
  const bool ffn = part == Part::FfnUp || part == Part::FfnGate || part == Part::FfnDown;
  const bool experts = type.shape[2] > 1 && (model.architecture != "bailingmoe3" || ffn);
  return experts ? D::MXFP4 : D::Q8_0;
}

/// These of glm5-next are never below Q8_0.
bool is_delicate(std::string_view name, const MixModel& model) {
  constexpr std::array kDelicate{"attn_q_a", "attn_q_b", "nextn.eh_proj"};
  return model.architecture == "glm5-next" &&
         std::ranges::any_of(kDelicate, [&](const char* text) { return name.find(text) != std::string_view::npos; });
}

/// What takes the place of a type whose blocks do not fit into rows of n; F16 fits always.
DType fitting(DType type, std::int64_t n) {
  const auto fits = [n](DType t) { return n % info(t).block_elems == 0; };
  if (fits(type)) return type;
  const auto smaller = [type] {
    switch (type) {
      case D::IQ1_S:
      case D::IQ1_M:
      case D::IQ2_XXS:
      case D::IQ2_XS:
      case D::IQ2_S:
      case D::IQ3_XXS:
      case D::IQ3_S:
      case D::IQ4_XS:
        return D::IQ4_NL;
      case D::Q1_0:
      case D::Q2_0:
      case D::Q2_K:
      case D::Q3_K:
      case D::TQ1_0:
      case D::TQ2_0:
        return D::Q4_0;
      case D::Q4_K:
        return D::Q5_0;
      case D::Q5_K:
        return D::Q5_1;
      case D::Q6_K:
        return D::Q8_0;
      case D::NVFP4:
        return D::MXFP4;
      default:
        return D::F16;
    }
  }();
  return fits(smaller) ? smaller : D::F16;
}

/// N of "blk.N."; -1 if the name does not begin so.
int layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const bool number = error == std::errc{} && end != name.data() + name.size() && *end == '.';
  return number ? layer : -1;
}

/// Tensors by layer, then by name: the order in which places are counted.
std::vector<std::size_t> counting_order(std::span<const NamedTensor> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(layer_of(tensors[i].name), tensors[i].name); });
  return order;
}

class Chooser {
 public:
  Chooser(const Mix& mix, const MixModel& model, std::span<const NamedTensor> tensors, const MixOptions& options)
      : mix_(mix), model_(model), options_(options) {
    for (const NamedTensor& t : tensors) {
      values_ += part_of(t.name) == Part::AttnV ? 1 : 0;
      tied_ = tied_ && part_of(t.name) != Part::Output;
    }
    for (const TypeOverride& o : options.overrides) patterns_.emplace_back(o.pattern);
  }

  TypeChoice choose(const NamedTensor& t) {
    const Part part = part_of(t.name);
    const bool kept = !is_quantised(t, model_) || (part == Part::Output && options_.leave_output);
    if (kept) return {t.type.dtype, t.type.dtype};
    const std::optional<std::size_t> matched = first_match(t.name);
    const DType wanted =
        wanted_type(part, t, matched ? std::optional(options_.overrides[*matched].type) : std::nullopt);
    const DType type = fitting(wanted, t.type.shape[0]);
    const bool embedding = part == Part::Output || part == Part::TokenEmbedding;
    const bool q2_k_s = mix_.file_type == F::Q2_K_S && type == D::Q2_K;
    return {type, wanted, !embedding && (needs_importance(type) || q2_k_s), matched};
  }

 private:
  std::optional<std::size_t> first_match(std::string_view name) const {
    const auto first = std::ranges::find_if(patterns_, [name](const NamePattern& p) { return p.matches(name); });
    if (first == patterns_.end()) return std::nullopt;
    return static_cast<std::size_t>(first - patterns_.begin());
  }

  /// `named`: by an override.
  DType wanted_type(Part part, const NamedTensor& t, std::optional<DType> named) {
    if (part == Part::TokenEmbedding && options_.token_embedding) {
      // The large table of each layer's embeddings follows, unless it is named.
      const bool own = t.name != "token_embd.weight" && named;
      if (!own) return *options_.token_embedding;
    }
    if (part == Part::Output && options_.output) return *options_.output;
    if (named) return *named;
    const bool logits = part == Part::Output || (part == Part::TokenEmbedding && tied_);
    if (logits && options_.output) return *options_.output;
    if (options_.pure || !info(mix_.base).quantized()) return mix_.base;
    if (is_delicate(t.name, model_)) return D::Q8_0;
    if (logits) return output_type(mix_, model_, t.type);
    if (mix_.file_type == F::MXFP4_MOE) return mxfp4_type(part, model_, t.type);
    const DType type = by_rules(part, mix_, place(part, t.name));
    const bool more = part == Part::AttnV && is_70b(model_) && !holds(kBelow3Bits, mix_.file_type);
    return more && (type == D::Q3_K || type == D::Q4_K) ? D::Q5_K : type;
  }

  Place place(Part part, std::string_view name) {
    int index = counts_[static_cast<std::size_t>(part)]++;
    const bool by_name = part == Part::FfnUp || part == Part::FfnGate || part == Part::FfnDown;
    // With experts a layer has several of them in files that do not stack them.
    if (by_name && model_.experts > 1 && !holds(kBelow3Bits, mix_.file_type) && layer_of(name) >= 0)
      index = layer_of(name);
    return {index, part == Part::AttnV ? values_ : model_.layers, model_, options_.has_importance};
  }

  const Mix& mix_;
  const MixModel& model_;
  const MixOptions& options_;
  std::vector<NamePattern> patterns_;  ///< of the overrides
  int values_ = 0;                     ///< tensors of AttnV
  bool tied_ = true;
  std::array<int, 10> counts_{};
};

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

/// The first of one value per layer, or the one for all.
int first_of(const Metadata& md, const std::string& key) {
  const Metadata::Entry* e = md.find(key);
  if (e == nullptr) return 0;
  if (e->type != GgufType::Array) return md.get<int>(key);
  const std::vector<std::int64_t> values = md.array<std::int64_t>(key);
  const bool fits = !values.empty() && values.front() >= 0 && values.front() <= std::numeric_limits<int>::max();
  return fits ? static_cast<int>(values.front()) : 0;
}

}  // namespace

std::span<const Mix> mixes() { return kMixes; }

const Mix* find_mix(std::string_view name) {
  std::string wanted = upper_case(name);
  const auto alias = std::ranges::find(kAliases, wanted, &MixAlias::name);
  if (alias != std::end(kAliases)) wanted = alias->meant;
  const auto mix = std::ranges::find(kMixes, wanted, &Mix::name);
  return mix == std::end(kMixes) ? nullptr : mix;
}

MixModel read_mix_model(const Metadata& md) {
  MixModel m;
  m.architecture = md.get<std::string_view>("general.architecture");
  m.layers = md.get_or<int>(m.architecture + ".block_count", 0);
  m.experts = md.get_or<int>(m.architecture + ".expert_count", 0);
  m.heads = first_of(md, m.architecture + ".attention.head_count");
  const std::string kv_heads = m.architecture + ".attention.head_count_kv";
  m.kv_heads = md.has(kv_heads) ? first_of(md, kv_heads) : m.heads;
  return m;
}

std::vector<TypeChoice> choose_types(const Mix& mix, const MixModel& model, std::span<const NamedTensor> tensors,
                                     const MixOptions& options) {
  Chooser chooser(mix, model, tensors, options);
  std::vector<TypeChoice> choices(tensors.size());
  for (const std::size_t i : counting_order(tensors)) choices[i] = chooser.choose(tensors[i]);
  return choices;
}

}  // namespace llm
