#include "model/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "model/hyper_parameters.h"
#include "model/rope.h"

namespace llm {
namespace {

// The table: what each key may hold. Relations between keys stand in the functions below.
constexpr std::int64_t kMaxU32 = std::numeric_limits<std::uint32_t>::max();
constexpr IntegerRule kContext{"context_length", 1, kMaxU32};
constexpr IntegerRule kEmbedding{"embedding_length", 1, 1 << 24};
constexpr IntegerRule kBlocks{"block_count", 1, 1024};
constexpr IntegerRule kFeedForward{"feed_forward_length", 1, 1 << 28};
constexpr IntegerRule kHeads{"attention.head_count", 1, 4096};
constexpr std::string_view kKvHeads = "attention.head_count_kv";
constexpr IntegerRule kKeyLength{"attention.key_length", 1, 1 << 16};
constexpr IntegerRule kValueLength{"attention.value_length", 1, 1 << 16};
constexpr IntegerRule kWindow{"attention.sliding_window", 0, kMaxU32};
constexpr std::string_view kScalingType = "rope.scaling.type";
constexpr std::string_view kWindowPattern = "attention.sliding_window_pattern";
constexpr RealRule kNormEpsilon{"attention.layer_norm_rms_epsilon", 0, 1};
constexpr RealRule kLayerNormEpsilon{"attention.layer_norm_epsilon", 0, 1};
constexpr RealRule kAttentionScale{"attention.scale", 0, kUnbounded};
constexpr IntegerRule kVocab{"vocab_size", 1, std::numeric_limits<std::int32_t>::max()};
constexpr IntegerRule kExperts{"expert_count", 0, 4096};
constexpr IntegerRule kExpertsUsed{"expert_used_count", 0, kMaxU32};
constexpr IntegerRule kExpertFeedForward{"expert_feed_forward_length", 0, 1 << 28};
constexpr IntegerRule kGating{"expert_gating_func", 0, kMaxU32};
constexpr RealRule kExpertScale{"expert_weights_scale", 0, kUnbounded};
constexpr std::string_view kExpertsNormalized = "expert_weights_norm";
constexpr IntegerRule kShared{"expert_shared_count", 0, 1024};
constexpr IntegerRule kSharedFeedForward{"expert_shared_feed_forward_length", 0, 1 << 28};
constexpr IntegerRule kGroups{"expert_group_count", 0, 4096};
constexpr RealRule kClamp{"attention.clamp_kqv", 0, kUnbounded};
constexpr RealRule kMaxBias{"attention.max_alibi_bias", 0, kUnbounded};
constexpr RealRule kTemperatureScale{"attention.temperature_scale", 0, kUnbounded};
constexpr IntegerRule kTemperatureLength{"attention.temperature_length", 0, kMaxU32};
constexpr IntegerRule kOriginal{"rope.scaling.original_context_length", 0, kMaxU32};
constexpr RealRule kLogMultiplier{"rope.scaling.yarn_log_multiplier", 0, kUnbounded};
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

/// Keys of other families' features with the values that leave a model alone: 0 is what writers put who list every key.
struct Neutral {
  std::string_view key;
  double value, other;
};
constexpr Neutral kForeign[] = {
    {"attn_logit_softcapping", 0, 0},
    {"attention.causal", 1, 1},
    {"attention.indexer.top_k", 0, 0},
    {kClamp.key, 0, 0},
    {kMaxBias.key, 0, 0},
    {"attention.output_scale", 0, 1},
    {kWindowPattern, 0, 0},
    {kTemperatureScale.key, 0, 0},
    {"attention.shared_kv_layers", 0, 0},
    {"attention.value_scale", 0, 1},
    {"embedding_length_per_layer_input", 0, 0},
    {"embedding_scale", 0, 1},
    {kGating.key, 0, 1},  // not set, softmax
    {kGroups.key, 0, 1},
    {"expert_latent_length", 0, 0},
    {kShared.key, 0, 0},
    {kSharedFeedForward.key, 0, 0},
    {"final_logit_softcapping", 0, 0},
    {"interleave_moe_layer_step", 0, 1},
    {"leading_dense_block_count", 0, 0},
    {"logit_scale", 0, 1},
    {"moe_every_n_layers", 0, 1},
    {"nextn_predict_layers", 0, 0},
    {"residual_scale", 0, 1},
    {"rope.scaling.alpha", 0, 0},
    {kLogMultiplier.key, 0, 0},
    {"router_logit_softcapping", 0, 0},
    {"use_parallel_residual", 0, 0},
};

/// Rows of the embedding table: one per token of the vocabulary.
std::int64_t read_vocab(const HyperParameters& hp) {
  const Metadata::Entry* tokens = hp.metadata().find(kTokens);
  if (!tokens && hp.has(kVocab.key)) return hp.integer(kVocab);
  if (!tokens) hp.metadata().fail(kTokens, "is missing");
  if (tokens->type != GgufType::Array || tokens->count == 0 || tokens->count > static_cast<std::uint64_t>(kVocab.max))
    hp.metadata().fail(kTokens, "an array of 1 to " + std::to_string(kVocab.max) + " strings is required");
  return static_cast<std::int64_t>(tokens->count);
}

DecoderConfig read_sizes(const HyperParameters& hp) {
  DecoderConfig c;
  c.architecture = hp.arch();
  c.vocab = read_vocab(hp);
  c.context = hp.integer(kContext);
  c.n_embd = hp.integer(kEmbedding);
  c.n_layers = static_cast<int>(hp.integer(kBlocks));
  return c;
}

/// The keys of LayerSizes. Where layers may differ in one, each may have 0.
class LayersReader {
 public:
  LayersReader(const HyperParameters& hp, DecoderConfig& c) : hp_(hp), c_(c) {
    c_.layers.resize(static_cast<std::size_t>(c_.n_layers));
  }

  void widths(bool may_differ) {
    if (may_differ) return each({kFeedForward.key, 0, kFeedForward.max}, &LayerSizes::d_ff);
    if (hp_.has(kExpertFeedForward.key) && !hp_.has(kFeedForward.key)) return;
    all(hp_.same_in_all(kFeedForward, c_.n_layers), &LayerSizes::d_ff);
  }

  void heads(bool may_differ) {
    if (!may_differ) return all(hp_.same_in_all(kHeads, c_.n_layers), &LayerSizes::heads);
    each({kHeads.key, 0, kHeads.max}, &LayerSizes::heads);
    if (c_.most().heads == 0) fail_none_attends(kHeads.key);
  }

  /// `heads_differ`: those of queries, which have been read.
  void kv_heads(bool may_differ, bool heads_differ) {
    const int most = c_.most().heads;
    if (may_differ) {
      each({kKvHeads, 0, heads_differ ? kHeads.max : most}, &LayerSizes::kv_heads);
      if (c_.most().kv_heads == 0) fail_none_attends(kKvHeads);
    } else {
      all(hp_.optional_same_in_all({kKvHeads, 1, most}, c_.n_layers).value_or(most), &LayerSizes::kv_heads);
    }
    for (int i = 0; i < c_.n_layers; ++i) require_divides(i, may_differ);
  }

 private:
  template <class Size>
  void each(const IntegerRule& rule, Size LayerSizes::*member) {
    const std::vector<std::int64_t> values = hp_.in_each(rule, c_.n_layers);
    for (std::size_t i = 0; i < values.size(); ++i) c_.layers[i].*member = static_cast<Size>(values[i]);
  }
  template <class Size>
  void all(std::int64_t value, Size LayerSizes::*member) {
    for (LayerSizes& layer : c_.layers) layer.*member = static_cast<Size>(value);
  }
  void require_divides(int layer, bool may_differ) const {
    const auto& [heads, kv_heads, d_ff] = c_.of(layer);
    if (kv_heads == 0 || (heads > 0 && heads % kv_heads == 0)) return;
    hp_.fail(kKvHeads, "value " + std::to_string(kv_heads) + " does not divide head_count " + std::to_string(heads) +
                           (may_differ ? " of layer " + std::to_string(layer) : ""));
  }
  [[noreturn]] void fail_none_attends(std::string_view key) const {
    hp_.fail(key, "is 0 in every layer: a model of which none attends is not supported");
  }
  const HyperParameters& hp_;
  DecoderConfig& c_;
};

int head_length(const HyperParameters& hp, const IntegerRule& rule, const DecoderConfig& c) {
  if (const auto given = hp.optional_integer(rule)) return static_cast<int>(*given);
  const int heads = c.most().heads;
  if (c.n_embd % heads != 0)
    hp.fail(kHeads.key, "value " + std::to_string(heads) + " does not divide embedding_length " +
                            std::to_string(c.n_embd) + ", and " + std::string(rule.key) + " is not given");
  return static_cast<int>(c.n_embd / heads);
}

/// The heads of queries are known.
void read_attention(const HyperParameters& hp, DecoderConfig& c) {
  c.head_dim = head_length(hp, kKeyLength, c);
  c.head_dim_v = head_length(hp, kValueLength, c);
  c.attention_scale = hp.nonzero_real(kAttentionScale).value_or(1.0f / std::sqrt(static_cast<float>(c.head_dim)));
  const std::int64_t window = hp.optional_integer(kWindow).value_or(0);
  c.window = static_cast<int>(std::min<std::int64_t>(window, std::numeric_limits<int>::max()));
}

/// read_decoder_config() with keys in any number.
DecoderConfig read_config(const Metadata& md, std::string_view arch, std::span<const std::string_view> own) {
  const HyperParameters hp(md, arch);
  const auto is_own = [&](std::string_view key) { return std::ranges::find(own, key) != own.end(); };
  DecoderConfig c = read_sizes(hp);
  LayersReader layers(hp, c);
  layers.widths(is_own(kFeedForward.key));
  layers.heads(is_own(kHeads.key));
  read_attention(hp, c);
  layers.kv_heads(is_own(kKvHeads), is_own(kHeads.key));
  if (!is_own(kNormEpsilon.key)) c.norm_eps = hp.real(kNormEpsilon);
  c.rope = read_rope(hp, c.head_dim, c.context, is_own("rope.dimension_count"));
  if (hp.text(kScalingType, "") == "longrope" && !is_own(kScalingType))
    hp.fail(kScalingType, "\"longrope\" is not supported for " + c.architecture);
  for (const Neutral& n : kForeign) {
    if (!is_own(n.key)) hp.expect_neutral(n.key, n.value, n.other);
  }
  return c;
}

}  // namespace

LayerSizes DecoderConfig::most() const {
  LayerSizes most;
  for (const LayerSizes& layer : layers)
    most = {.heads = std::max(most.heads, layer.heads),
            .kv_heads = std::max(most.kv_heads, layer.kv_heads),
            .d_ff = std::max(most.d_ff, layer.d_ff)};
  return most;
}

ModelDims DecoderConfig::dims() const {
  return {.architecture = architecture,
          .vocab = vocab,
          .context = context,
          .n_embd = n_embd,
          .n_layers = n_layers,
          .heads = most().heads,
          .kv_heads = most().kv_heads,
          .experts = moe ? moe->experts : 0,
          .experts_used = moe ? moe->active : 0};
}

DecoderConfig read_recurrent_config(const Metadata& md, std::string_view arch, OwnKeys own) {
  const HyperParameters hp(md, arch);
  const auto is_own = [&](std::string_view key) { return std::find(own.begin(), own.end(), key) != own.end(); };
  DecoderConfig c = read_sizes(hp);
  c.norm_eps = is_own(kNormEpsilon.key) ? read_layer_norm_epsilon(md, c) : hp.real(kNormEpsilon);
  c.layers.resize(static_cast<std::size_t>(c.n_layers));
  if (is_own(kFeedForward.key)) {
    const std::int64_t width = hp.same_in_all(kFeedForward, c.n_layers);
    for (LayerSizes& layer : c.layers) layer.d_ff = width;
  } else {
    hp.expect_neutral(kFeedForward.key, 0, 0);
  }
  hp.expect_neutral(kHeads.key, 0, 0);
  for (const Neutral& n : kForeign) hp.expect_neutral(n.key, n.value, n.other);
  refuse_experts(md, c);
  return c;
}

DecoderConfig read_decoder_config(const Metadata& md, std::string_view arch, OwnKeys own) {
  return read_config(md, arch, own);
}

DecoderConfig read_dense_config(const Metadata& md, std::string_view arch, OwnKeys own) {
  DecoderConfig c = read_decoder_config(md, arch, own);
  refuse_experts(md, c);
  refuse_window(md, c);
  return c;
}

DecoderConfig read_layer_norm_config(const Metadata& md, std::string_view arch, OwnKeys own) {
  std::vector<std::string_view> keys(own);
  keys.push_back(kNormEpsilon.key);
  DecoderConfig c = read_config(md, arch, keys);
  refuse_experts(md, c);
  refuse_window(md, c);
  c.norm_eps = read_layer_norm_epsilon(md, c);
  return c;
}

void require_all_attend(const Metadata& md, const DecoderConfig& c) {
  for (int i = 0; i < c.n_layers; ++i)
    if (!c.attends(i))
      HyperParameters(md, c.architecture)
          .fail(c.of(i).heads == 0 ? kHeads.key : kKvHeads,
                "is 0 for layer " + std::to_string(i) + ", and all layers attend");
}

void require_all_feed(const Metadata& md, const DecoderConfig& c) {
  for (int i = 0; i < c.n_layers; ++i)
    if (c.of(i).d_ff == 0)
      HyperParameters(md, c.architecture)
          .fail(kFeedForward.key,
                "is 0 for layer " + std::to_string(i) + ", and all layers have a feed-forward network");
}

void require_alike_heads(const Metadata& md, const DecoderConfig& c) {
  const int most = c.most().kv_heads;
  for (const LayerSizes& layer : c.layers)
    if (layer.kv_heads != 0 && layer.kv_heads != most)
      HyperParameters(md, c.architecture)
          .fail(kKvHeads, "is " + std::to_string(layer.kv_heads) + " and " + std::to_string(most) +
                              ": layers that attend by different heads are not supported for this architecture");
}

float read_layer_norm_epsilon(const Metadata& md, const DecoderConfig& c) {
  return HyperParameters(md, c.architecture).real(kLayerNormEpsilon);
}

void read_local_layers(const Metadata& md, DecoderConfig& c, int period) {
  const HyperParameters hp(md, c.architecture);
  c.local.resize(static_cast<std::size_t>(c.n_layers));
  if (const auto flags = hp.optional_flags(kWindowPattern, c.n_layers)) {
    c.local = *flags;
    return;
  }
  const std::int64_t every = hp.optional_integer({kWindowPattern, 1, kBlocks.max}).value_or(period);
  for (int i = 0; i < c.n_layers; ++i) c.local[static_cast<std::size_t>(i)] = i % every != every - 1;
}

void require_local_layers(const Metadata& md, DecoderConfig& c) {
  const HyperParameters hp(md, c.architecture);
  hp.integer({kWindow.key, 1, kMaxU32});
  const auto flags = hp.optional_flags(kWindowPattern, c.n_layers);
  if (!flags) hp.fail(kWindowPattern, "an array with a flag for each layer is required");
  c.local = *flags;
}

float read_local_base(const Metadata& md, const DecoderConfig& c, float otherwise) {
  return HyperParameters(md, c.architecture).optional_real({"rope.freq_base_swa", 0, kUnbounded}).value_or(otherwise);
}

std::optional<MoeConfig> read_moe_config(const Metadata& md, const DecoderConfig& c, std::int64_t d_ff,
                                         RouteWeights weights) {
  const HyperParameters hp(md, c.architecture);
  MoeConfig m;
  m.experts = static_cast<int>(hp.optional_integer(kExperts).value_or(0));
  if (m.experts == 0) {
    refuse_experts(md, c);
    return std::nullopt;
  }
  const IntegerRule used_rule{kExpertsUsed.key, 1, m.experts};
  m.active = static_cast<int>(hp.same_in_all(used_rule, c.n_layers));
  m.d_ff = hp.optional_same_in_all(kExpertFeedForward, c.n_layers).value_or(0);
  if (m.d_ff == 0) m.d_ff = d_ff;
  if (m.d_ff == 0) hp.fail(kExpertFeedForward.key, "is missing");
  // Only true says something: writers that list every key put false for families that always normalise, too.
  m.weights = hp.flag(kExpertsNormalized, false) ? RouteWeights::Renormalized : weights;
  m.scale = hp.nonzero_real(kExpertScale).value_or(1.0f);
  return m;
}

MoeConfig require_moe_config(const Metadata& md, const DecoderConfig& c, std::int64_t d_ff, RouteWeights weights) {
  HyperParameters(md, c.architecture).integer({kExperts.key, 1, kExperts.max});
  return *read_moe_config(md, c, d_ff, weights);
}

void read_gating(const Metadata& md, DecoderConfig& c, Gating otherwise) {
  const HyperParameters hp(md, c.architecture);
  const std::int64_t value = hp.optional_integer(kGating).value_or(0);
  if (value > 2)
    hp.fail(kGating.key, "value " + std::to_string(value) + " is not supported, only 1 (softmax) and 2 (sigmoid)");
  c.moe->gate = value == 0 ? otherwise : value == 1 ? Gating::Softmax : Gating::Sigmoid;
}

std::int64_t read_shared_width(const Metadata& md, const DecoderConfig& c) {
  return HyperParameters(md, c.architecture).optional_integer(kSharedFeedForward).value_or(0);
}

void read_shared_experts(const Metadata& md, DecoderConfig& c) {
  const HyperParameters hp(md, c.architecture);
  const std::int64_t width = read_shared_width(md, c);
  c.moe->d_shared = hp.optional_integer(kShared).value_or(0) * (width > 0 ? width : c.moe->d_ff);
}

void read_leading_dense(const Metadata& md, DecoderConfig& c) {
  const IntegerRule rule{"leading_dense_block_count", 0, kBlocks.max};
  c.moe->leading_dense = static_cast<int>(HyperParameters(md, c.architecture).optional_integer(rule).value_or(0));
}

void read_expert_groups(const Metadata& md, DecoderConfig& c) {
  const HyperParameters hp(md, c.architecture);
  MoeConfig& m = *c.moe;
  m.groups = std::max(1, static_cast<int>(hp.optional_integer(kGroups).value_or(1)));
  if (m.groups == 1) return;
  const int of_group = m.experts / m.groups;
  if (m.experts % m.groups != 0 || of_group < m.group_best)
    hp.fail(kGroups.key, "value " + std::to_string(m.groups) + " does not share out " + std::to_string(m.experts) +
                             " experts in groups of at least " + std::to_string(m.group_best));
  const IntegerRule used{"expert_group_used_count", 1, m.groups};
  m.groups_used = static_cast<int>(hp.integer(used));
  if (m.groups_used * of_group < m.active)
    hp.fail(used.key, "value " + std::to_string(m.groups_used) + ": that many groups of " + std::to_string(of_group) +
                          " experts do not hold expert_used_count, " + std::to_string(m.active));
}

void read_sigmoid_experts(const Metadata& md, DecoderConfig& c, RouteWeights weights) {
  c.moe = require_moe_config(md, c, /*d_ff=*/0, weights);
  read_gating(md, c, Gating::Sigmoid);
  read_shared_experts(md, c);
  read_leading_dense(md, c);
}

GluLimits limits_of_gates(float limit) { return {limit, limit > 0 ? limit / (1 + std::exp(-limit)) : 0.0f}; }

std::vector<float> read_limits(const Metadata& md, const DecoderConfig& c, std::string_view key, float otherwise) {
  const HyperParameters hp(md, c.architecture);
  std::vector<float> limits(static_cast<std::size_t>(c.n_layers), otherwise);
  if (!hp.has(key)) return limits;
  limits = md.one_or_each<float>(hp.key(key), limits.size());
  for (const float limit : limits)
    if (!std::isfinite(limit) || limit < 0)
      hp.fail(key, "value " + value_text(limit) + " is not a finite number from 0 on");
  return limits;
}

void leave_prediction_layers_out(const Metadata& md, DecoderConfig& c) {
  const IntegerRule rule{"nextn_predict_layers", 0, c.n_layers - 1};
  const std::int64_t n = HyperParameters(md, c.architecture).optional_integer(rule).value_or(0);
  for (std::int64_t i = 0; i < n; ++i) c.unread.push_back("blk." + std::to_string(--c.n_layers) + ".*");
  c.ahead.assign(c.layers.begin() + c.n_layers, c.layers.end());
  c.layers.resize(static_cast<std::size_t>(c.n_layers));
}

Scales read_scales(const Metadata& md, const DecoderConfig& c, const Scales& otherwise) {
  const HyperParameters hp(md, c.architecture);
  const auto read = [&](std::string_view key, float absent) {
    return hp.nonzero_real({key, 0, kUnbounded}).value_or(absent);
  };
  return {.embedding = read("embedding_scale", otherwise.embedding),
          .residual = read("residual_scale", otherwise.residual),
          .logits = read("logit_scale", otherwise.logits)};
}

float read_clamp(const Metadata& md, const DecoderConfig& c) {
  return HyperParameters(md, c.architecture).nonzero_real(kClamp).value_or(0.0f);
}

float read_max_bias(const Metadata& md, const DecoderConfig& c, float otherwise) {
  const HyperParameters hp(md, c.architecture);
  return hp.has(kMaxBias.key) ? hp.nonzero_real(kMaxBias).value_or(0.0f) : otherwise;
}

std::optional<PositionScale> read_position_scale(const Metadata& md, const DecoderConfig& c) {
  const HyperParameters hp(md, c.architecture);
  const float slope = hp.nonzero_real(kTemperatureScale).value_or(0.0f);
  if (slope == 0) return std::nullopt;
  const std::int64_t given = hp.optional_integer(kTemperatureLength).value_or(0);
  const std::int64_t original = hp.optional_integer(kOriginal).value_or(0);
  const std::int64_t length = given > 0 ? given : original > 0 ? original : c.context;
  return PositionScale{.slope = slope,
                       .length = static_cast<int>(std::min<std::int64_t>(length, std::numeric_limits<int>::max()))};
}

std::string_view longrope_factors(const Metadata& md, const DecoderConfig& c) {
  const std::int64_t original = HyperParameters(md, c.architecture).optional_integer(kOriginal).value_or(0);
  return original > 0 && c.context > original ? "rope_factors_long" : "rope_factors_short";
}

void read_log_multiplier(const Metadata& md, DecoderConfig& c) {
  const float multiplier = HyperParameters(md, c.architecture).nonzero_real(kLogMultiplier).value_or(0.0f);
  if (c.rope.scaling == RopeScaling::Yarn) c.rope.attention_factor /= 1 + 0.1f * multiplier * std::log(c.rope.factor);
}

void refuse_experts(const Metadata& md, const DecoderConfig& c) {
  const HyperParameters hp(md, c.architecture);
  for (const IntegerRule& rule : {kExperts, kExpertsUsed})
    if (const auto n = hp.optional_same_in_all(rule, c.n_layers).value_or(0); n != 0)
      hp.fail(rule.key, "value " + std::to_string(n) + ", but this is a " + c.architecture + " model without experts");
}

void refuse_window(const Metadata& md, DecoderConfig& c) {
  if (c.window > 0 && c.window < c.context)
    HyperParameters(md, c.architecture)
        .fail(kWindow.key, "value " + std::to_string(c.window) + " is below context_length " +
                               std::to_string(c.context) + ": a window is not supported for " + c.architecture);
  c.window = 0;
}

}  // namespace llm
