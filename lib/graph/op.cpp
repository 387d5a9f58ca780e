#include "graph/op.h"

#include <bit>
#include <cmath>
#include <cstdio>

namespace llm {
namespace {

std::string number(float x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(x));
  return text;
}

std::string window_text(const KeyWindow& w) {
  return (w.form == KeyWindow::Form::Chunked ? " chunk=" : " window=") + std::to_string(w.length);
}

struct Name {
  std::string_view operator()(const Embed&) const { return "embed"; }
  std::string_view operator()(const HashIds&) const { return "hash_ids"; }
  std::string_view operator()(const Linear&) const { return "linear"; }
  std::string_view operator()(const LayerNorm&) const { return "layer_norm"; }
  std::string_view operator()(const RmsNorm&) const { return "rms_norm"; }
  std::string_view operator()(const AddRmsNorm&) const { return "add_rms_norm"; }
  std::string_view operator()(const Glu&) const { return "glu"; }
  std::string_view operator()(const Activate&) const { return "activate"; }
  std::string_view operator()(const RopeTable&) const { return "rope_table"; }
  std::string_view operator()(const PositionScale&) const { return "position_scale"; }
  std::string_view operator()(const Rope&) const { return "rope"; }
  std::string_view operator()(const KvAppend&) const { return "kv_append"; }
  std::string_view operator()(const SelectKeys&) const { return "select_keys"; }
  std::string_view operator()(const Attention&) const { return "attention"; }
  std::string_view operator()(const CompressedAttention&) const { return "compressed_attention"; }
  std::string_view operator()(const ShortConv&) const { return "short_conv"; }
  std::string_view operator()(const SelectBlocks&) const { return "select_blocks"; }
  std::string_view operator()(const WindowMean&) const { return "window_mean"; }
  std::string_view operator()(const Compress&) const { return "compress"; }
  std::string_view operator()(const GatedDelta&) const { return "gated_delta"; }
  std::string_view operator()(const SelectiveScan&) const { return "selective_scan"; }
  std::string_view operator()(const TokenShift&) const { return "token_shift"; }
  std::string_view operator()(const Lerp&) const { return "lerp"; }
  std::string_view operator()(const Wkv6&) const { return "wkv6"; }
  std::string_view operator()(const Wkv7&) const { return "wkv7"; }
  std::string_view operator()(const Route&) const { return "route"; }
  std::string_view operator()(const ExpertLinear&) const { return "expert_linear"; }
  std::string_view operator()(const Combine&) const { return "combine"; }
  std::string_view operator()(const StreamMix&) const { return "stream_mix"; }
  std::string_view operator()(const StreamAdd&) const { return "stream_add"; }
  std::string_view operator()(const StreamWeights&) const { return "stream_weights"; }
  std::string_view operator()(const StreamMean&) const { return "stream_mean"; }
  std::string_view operator()(const StreamBlend&) const { return "stream_blend"; }
  std::string_view operator()(const MatchGate&) const { return "match_gate"; }
  std::string_view operator()(const GaussianTop&) const { return "gaussian_top"; }
  std::string_view operator()(const Add&) const { return "add"; }
  std::string_view operator()(const Scale&) const { return "scale"; }
  std::string_view operator()(const SoftCap&) const { return "soft_cap"; }
  std::string_view operator()(const Map&) const { return "map"; }
  std::string_view operator()(const Rows&) const { return "rows"; }
  std::string_view operator()(const Slice&) const { return "slice"; }
  std::string_view operator()(const Concat&) const { return "concat"; }
  std::string_view operator()(const HeadIds&) const { return "head_ids"; }
  std::string_view operator()(const GroupIds&) const { return "group_ids"; }
  std::string_view operator()(const Silence&) const { return "silence"; }
  std::string_view operator()(const Reshape&) const { return "reshape"; }
};

/// Complete: two ops with equal names and attributes compute the same.
struct Attributes {
  template <class T>
  std::string operator()(const T&) const {
    return {};
  }
  std::string operator()(const HashIds& a) const {
    std::string text = "stop=" + std::to_string(a.stop) + " multipliers=";
    for (const std::uint64_t m : a.multipliers) text += std::to_string(m) + ",";
    text += " heads=";
    for (std::size_t h = 0; h < a.sizes.size(); ++h)
      text += std::to_string(a.sizes[h]) + "+" + std::to_string(a.offsets[h]) + ",";
    return text;
  }
  std::string operator()(const Linear& a) const {
    std::string text;
    for (const Product& p : a.products) {
      if (!text.empty()) text += ' ';
      text += llm::name(p.activation);
      if (p.scale) text += "*scale";
      if (p.bias) text += "+bias";
    }
    return text;
  }
  std::string operator()(const LayerNorm& a) const { return "eps=" + number(a.eps); }
  std::string operator()(const RmsNorm& a) const { return "eps=" + number(a.eps); }
  std::string operator()(const AddRmsNorm& a) const { return "eps=" + number(a.eps); }
  std::string operator()(const Glu& a) const {
    return std::string(llm::name(a.activation)) + (a.limit > 0 ? " limit=" + number(a.limit) : "") +
           (a.gate_limit != a.limit ? " gate_limit=" + number(a.gate_limit) : "");
  }
  std::string operator()(const Activate& a) const {
    std::string text(llm::name(a.function));
    if (a.function == Nonlinearity::Clamp) text += " limit=" + number(a.limit);
    if (a.function == Nonlinearity::Xielu)
      text += " positive=" + number(a.xielu.positive) + " negative=" + number(a.xielu.negative) +
              " slope=" + number(a.xielu.slope) + " below=" + number(a.xielu.below);
    return text;
  }
  std::string operator()(const RopeTable& a) const {
    std::string text = "n_rot=" + std::to_string(a.n_rot) + " base=" + number(a.base);
    if (a.scaling == RopeScaling::Linear) text += " linear factor=" + number(a.factor);
    if (a.scaling == RopeScaling::Yarn) {
      text += " yarn factor=" + number(a.factor) + " original_context=" + number(a.original_context) +
              " beta=" + number(a.beta_fast) + ".." + number(a.beta_slow) +
              (a.extrapolation != 1 ? " extrapolation=" + number(a.extrapolation) : "");
    }
    if (a.scaling == RopeScaling::Yarn || a.attention_factor != 1)
      text += " attention_factor=" + number(a.attention_factor);
    if (a.offset != 0) text += " offset=" + std::to_string(a.offset);
    if (a.back) text += " back";
    return text;
  }
  std::string operator()(const PositionScale& a) const {
    return "slope=" + number(a.slope) + " length=" + std::to_string(a.length) +
           (a.offset != 0 ? " offset=" + std::to_string(a.offset) : "");
  }
  std::string operator()(const Rope& a) const {
    return std::string(a.pairing == RopePairing::Interleaved ? "interleaved" : "halves") +
           " n_rot=" + std::to_string(a.n_rot);
  }
  std::string operator()(const SelectKeys& a) const {
    return "top_k=" + std::to_string(a.top_k) + (a.choice == SelectKeys::Choice::Keys ? " keys" : "") +
           (a.query != ActFormat::F32 ? " query=" + std::string(llm::name(a.query)) : "");
  }
  std::string operator()(const SelectBlocks& a) const {
    std::string text = "top_k=" + std::to_string(a.top_k) + " block=" + std::to_string(a.block);
    if (a.local > 1) text += " local=" + std::to_string(a.local);
    if (a.query != ActFormat::F32) text += " query=" + std::string(llm::name(a.query));
    return text;
  }
  std::string operator()(const Attention& a) const {
    return "scale=" + number(a.scale) + (a.soft_cap != 0 ? " soft_cap=" + number(a.soft_cap) : "") +
           (a.max_bias != 0 ? " max_bias=" + number(a.max_bias) : "") + (a.window.length ? window_text(a.window) : "") +
           (a.query != ActFormat::F32 ? " query=" + std::string(llm::name(a.query)) : "");
  }
  std::string operator()(const CompressedAttention& a) const {
    return "scale=" + number(a.scale) + (a.window.length ? window_text(a.window) : "") +
           (a.query != ActFormat::F32 ? " query=" + std::string(llm::name(a.query)) : "");
  }
  std::string operator()(const ShortConv& a) const {
    std::string text = a.activation == Activation::Silu ? std::string() : std::string(llm::name(a.activation));
    if (a.dilation != 1) text += std::string(text.empty() ? "" : " ") + "dilation=" + std::to_string(a.dilation);
    return text;
  }
  std::string operator()(const WindowMean& a) const { return "width=" + std::to_string(a.width); }
  std::string operator()(const SelectiveScan& a) const { return "groups=" + std::to_string(a.groups); }
  std::string operator()(const GatedDelta& a) const {
    return "key_heads=" + std::to_string(a.key_heads) + (a.sharing == HeadSharing::Tiled ? " tiled" : " grouped") +
           " eps=" + number(a.eps) + (a.floor < 0 ? " floor=" + number(a.floor) : "");
  }
  std::string operator()(const Route& a) const {
    std::string text = std::string(llm::name(a.gating)) + " top_k=" + std::to_string(a.top_k);
    if (a.weights == RouteWeights::Renormalized) text += " renormalized";
    if (a.weights == RouteWeights::NearBest) text += " near_best";
    if (a.scale != 1) text += " scale=" + number(a.scale);
    if (a.groups > 1) {
      text += " groups=" + std::to_string(a.groups_used) + "/" + std::to_string(a.groups) +
              " group_best=" + std::to_string(a.group_best);
    }
    return text;
  }
  std::string operator()(const ExpertLinear& a) const { return (*this)(Linear{a.products}); }
  std::string operator()(const StreamAdd& a) const { return "first=" + std::to_string(a.first); }
  std::string operator()(const StreamWeights& a) const {
    return "eps=" + number(a.eps) + " iterations=" + std::to_string(a.iterations);
  }
  std::string operator()(const StreamBlend& a) const { return "eps=" + number(a.eps); }
  std::string operator()(const GroupIds& a) const { return "size=" + std::to_string(a.size); }
  std::string operator()(const Silence& a) const {
    return "begin=" + std::to_string(a.begin) + " n=" + std::to_string(a.n);
  }
  std::string operator()(const GaussianTop& a) const { return "deviations=" + number(a.deviations); }
  std::string operator()(const Scale& a) const { return "factor=" + number(a.factor); }
  std::string operator()(const SoftCap& a) const { return "cap=" + number(a.cap); }
  std::string operator()(const Map& a) const { return a.name; }
  std::string operator()(const Slice& a) const {
    return "begin=" + std::to_string(a.begin) + " n=" + std::to_string(a.n);
  }
};

template <class Products, class AnyOp>
Products products_of(AnyOp& op) {
  if (auto* linear = std::get_if<Linear>(&op)) return linear->products;
  if (auto* experts = std::get_if<ExpertLinear>(&op)) return experts->products;
  return {};
}

}  // namespace

std::span<const Product> products(const Op& op) { return products_of<std::span<const Product>>(op); }
std::span<Product> products(Op& op) { return products_of<std::span<Product>>(op); }

std::vector<ProductOperands> product_operands(const Op& op) {
  const std::span<const Product> all = products(op);
  std::vector<ProductOperands> operands(all.size());
  std::size_t next = std::holds_alternative<ExpertLinear>(op) ? 2 : 1;  // after x, and the ids of the experts
  for (auto& o : operands) o.weight = next++;
  for (std::size_t i = 0; i < all.size(); ++i) operands[i].bias = all[i].bias ? next++ : 0;
  for (std::size_t i = 0; i < all.size(); ++i) operands[i].scale = all[i].scale ? next++ : 0;
  return operands;
}

Op::Op(const Op&) = default;
Op::Op(Op&&) noexcept = default;
Op& Op::operator=(const Op&) = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

std::string_view name(const Op& op) { return std::visit(Name{}, op); }
std::string attributes(const Op& op) { return std::visit(Attributes{}, op); }

std::string_view name(Activation a) {
  switch (a) {
    case Activation::Silu:
      return "silu";
    case Activation::Gelu:
      return "gelu";
    case Activation::ClampedSilu:
      return "clamped silu";
    case Activation::Relu:
      return "relu";
    case Activation::Sigmoid:
      return "sigmoid";
    case Activation::Softplus:
      return "softplus";
    case Activation::Identity:
      return "identity";
  }
  return "";
}

float alibi_slope(float max_bias, int heads, int head) {
  const int whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  const int steps = head < whole ? 2 * (head + 1) : 2 * (head - whole) + 1;  // halves of the factor's
  return std::exp2(-max_bias * static_cast<float>(steps) / static_cast<float>(2 * whole));
}

std::int64_t stream_count(std::int64_t weights) {
  std::int64_t m = 1;
  while ((2 + m) * m < weights) ++m;
  return (2 + m) * m == weights ? m : 0;
}

std::string_view name(Nonlinearity f) {
  switch (f) {
    case Nonlinearity::Gelu:
      return "gelu";
    case Nonlinearity::SquaredRelu:
      return "squared relu";
    case Nonlinearity::Clamp:
      return "clamp";
    case Nonlinearity::Xielu:
      return "xielu";
    case Nonlinearity::Sigmoid:
      return "sigmoid";
  }
  return "";
}

std::string_view name(Gating g) {
  switch (g) {
    case Gating::Softmax:
      return "softmax";
    case Gating::Sigmoid:
      return "sigmoid";
    case Gating::RootSoftplus:
      return "root softplus";
  }
  return "";
}

std::string_view name(Role role) {
  switch (role) {
    case Role::Embed:
      return "embed";
    case Role::Attention:
      return "attention";
    case Role::Ffn:
      return "ffn";
    case Role::Router:
      return "router";
    case Role::Experts:
      return "experts";
    case Role::Head:
      return "head";
  }
  return "?";
}

}  // namespace llm
