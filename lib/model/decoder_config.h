// Hyper-parameters that every decoder-only family shares, read and validated from one table before any is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"
#include "graph/op.h"
#include "model/arch.h"

namespace llm {

/// Glu::limit and gate_limit; 0: none.
struct GluLimits {
  float all = 0, gate = all;
};
/// Of gates before they are activated: silu(min(x, limit)) = min(silu(x), silu(limit)), since silu grows above 0.
GluLimits limits_of_gates(float limit);

struct MoeConfig {
  int experts = 0;
  int active = 0;
  std::int64_t d_ff = 0;      ///< of one expert
  std::int64_t d_shared = 0;  ///< of the expert that all tokens share; 0: there is none
  Gating gate = Gating::Softmax;
  RouteWeights weights = RouteWeights::AsGated;
  float scale = 1;
  int groups = 1, groups_used = 1, group_best = 2;
  Activation activation = Activation::Silu;
  GluLimits limit = {}, shared_limit = {};  ///< of the experts, and of the one that all tokens share
  int leading_dense = 0;                    ///< layers that have no experts
  int period = 1;                           ///< of those behind them, every so manieth layer has experts
  bool is_in(int layer) const { return layer >= leading_dense && (layer + 1) % period == 0; }
};

/// What layers may differ in.
struct LayerSizes {
  int heads = 0, kv_heads = 0;  ///< a layer that does not attend has no kv_heads
  std::int64_t d_ff = 0;        ///< of the dense feed-forward network; 0: the file gives none
};

struct DecoderConfig {
  std::string architecture;
  std::int64_t vocab = 0, context = 0, n_embd = 0;
  int n_layers = 0;
  std::vector<LayerSizes> layers = {};  ///< of every layer; a model has none, since layers may differ
  int head_dim = 0;                     ///< of keys
  int head_dim_v = 0;                   ///< of values
  float norm_eps = 0;
  float attention_scale = 0;  ///< attention.scale, or 1/sqrt(head_dim)
  float score_cap = 0;        ///< of attention, for families that read it; 0: none
  float max_bias = 0;         ///< of ALiBi, for families that have it; 0: none
  int window = 0;             ///< attention.sliding_window; 0 sees all
  KeyWindow::Form window_form = KeyWindow::Form::Sliding;
  std::vector<bool> local = {};  ///< layers that the window counts for, by read_local_layers(); empty: all
  RopeTable rope;
  std::optional<MoeConfig> moe;          ///< filled by families that have experts
  std::vector<std::string> unread = {};  ///< patterns of tensors of layers that leave_prediction_layers_out() took away

  std::vector<LayerSizes> ahead = {};  ///< of these layers, which are numbered behind the model's own

  const LayerSizes& of(int layer) const {
    return layer < n_layers ? layers[static_cast<std::size_t>(layer)]
                            : ahead[static_cast<std::size_t>(layer - n_layers)];
  }
  /// Of each size the largest that any layer has: what reports say of a model, and the size where all have the same.
  LayerSizes most() const;
  bool attends(int layer) const { return of(layer).kv_heads > 0; }
  ModelDims dims() const;
  bool is_local(int layer) const { return window > 0 && (local.empty() || local[static_cast<std::size_t>(layer)]); }
  KeyWindow window_of(int layer) const { return is_local(layer) ? KeyWindow(window, window_form) : KeyWindow(); }
};

/// Keys that a family reads itself, or in which its layers differ.
using OwnKeys = std::initializer_list<std::string_view>;

/// Keys under `arch`.: ranges and relations by the loader contract; throws ErrorKind::Model naming the key. Keys that
/// would change the computation in a way that no family here follows are refused, never ignored, but for those of
/// `own`. attention.layer_norm_rms_epsilon may be among these, and then is not read; where rope.dimension_count is, it
/// may be 0. So may be attention.head_count, attention.head_count_kv and feed_forward_length: in such a key layers may
/// differ, and may have 0, of which require_all_attend() and its neighbours say what it means to the family. At least
/// one layer attends.
DecoderConfig read_decoder_config(const Metadata&, std::string_view arch, OwnKeys own = {});
/// The same of families whose layers are all dense and see all positions.
DecoderConfig read_dense_config(const Metadata&, std::string_view arch, OwnKeys own = {});
/// The same of those of them whose norms subtract the mean, and whose epsilon is attention.layer_norm_epsilon.
DecoderConfig read_layer_norm_config(const Metadata&, std::string_view arch, OwnKeys own = {});
/// The same of models in which no layer attends, whose files have 0 for heads and for widths of feed-forward networks.
/// `own`: perhaps feed_forward_length, which then is one for all layers; and attention.layer_norm_rms_epsilon, whose
/// place attention.layer_norm_epsilon then takes.
DecoderConfig read_recurrent_config(const Metadata&, std::string_view arch, OwnKeys own = {});

// Of families whose layers differ.

/// Refuses layers without heads of queries or keys.
void require_all_attend(const Metadata&, const DecoderConfig&);
/// Refuses layers without a feed-forward network.
void require_all_feed(const Metadata&, const DecoderConfig&);
/// Refuses layers that attend by another number of heads than others that attend.
void require_alike_heads(const Metadata&, const DecoderConfig&);

/// attention.layer_norm_epsilon, for families whose norms subtract the mean.
float read_layer_norm_epsilon(const Metadata&, const DecoderConfig&);

/// attention.sliding_window_pattern, for families in which some layers see all positions: a flag for each layer, or a
/// period, of whose layers the last one sees all. `period` is the family's where the file does not say.
void read_local_layers(const Metadata&, DecoderConfig&, int period);
/// The same for families whose files have a window and a flag for each layer.
void require_local_layers(const Metadata&, DecoderConfig&);

/// rope.freq_base_swa, by which layers with a window turn; `otherwise` where the file does not say.
float read_local_base(const Metadata&, const DecoderConfig&, float otherwise);

/// Expert keys, for families that have experts; nothing if expert_count is absent or 0. `d_ff` is an expert's width
/// where the file has no expert_feed_forward_length, 0 if the family's files always have it. `weights` is the family's
/// rule.
std::optional<MoeConfig> read_moe_config(const Metadata&, const DecoderConfig&, std::int64_t d_ff,
                                         RouteWeights weights);
/// The same for families that are nothing without experts: expert_count is required.
MoeConfig require_moe_config(const Metadata&, const DecoderConfig&, std::int64_t d_ff, RouteWeights weights);

// Keys of single families' experts, for those that name them as their own; each needs c.moe.

/// expert_gating_func; `otherwise` where the file does not say.
void read_gating(const Metadata&, DecoderConfig& c, Gating otherwise);
/// expert_shared_feed_forward_length, of all shared experts together; 0 where the file does not say.
std::int64_t read_shared_width(const Metadata&, const DecoderConfig&);
/// expert_shared_count experts in one, each of the width of the others or of read_shared_width().
void read_shared_experts(const Metadata&, DecoderConfig& c);
/// leading_dense_block_count.
void read_leading_dense(const Metadata&, DecoderConfig& c);
/// expert_group_count and expert_group_used_count.
void read_expert_groups(const Metadata&, DecoderConfig& c);
/// All of them but the groups, of the kind that DeepSeek V3 has: behind the dense layers experts by sigmoids, and some
/// that all tokens share.
void read_sigmoid_experts(const Metadata&, DecoderConfig& c, RouteWeights weights = RouteWeights::AsGated);

/// `key`, limits as Glu has them: one for all layers or one for each; `otherwise` where the file does not say.
std::vector<float> read_limits(const Metadata&, const DecoderConfig&, std::string_view key, float otherwise = 0);

/// nextn_predict_layers: the last blocks of the file guess tokens further on. They are no part of the model's graph:
/// their tensors are those of c.unread. Where the family has a graph of them (model/prediction.h), they are numbered on
/// behind the model's layers.
void leave_prediction_layers_out(const Metadata&, DecoderConfig& c);

/// What single families multiply with: the embedding, each block's result before it is added, and the logits, which are
/// divided by theirs.
struct Scales {
  float embedding = 1, residual = 1, logits = 1;
};
/// embedding_scale, residual_scale and logit_scale; `otherwise` where the file does not say.
Scales read_scales(const Metadata&, const DecoderConfig&, const Scales& otherwise = {});

// Keys of single families' attention.

/// attention.clamp_kqv, what no element of queries, keys and values exceeds; 0: there is no such limit.
float read_clamp(const Metadata&, const DecoderConfig&);

/// attention.max_alibi_bias; `otherwise` where the file does not say.
float read_max_bias(const Metadata&, const DecoderConfig&, float otherwise);
/// attention.temperature_scale: how queries grow with the position; nothing where the file has none or 0. The length
/// is attention.temperature_length, or the context that rope.scaling.original_context_length says.
std::optional<PositionScale> read_position_scale(const Metadata&, const DecoderConfig&);
/// Which of two tensors has the divisors of the rotary frequencies, for families with a set for long contexts and one
/// for short ones: keys in the cache are turned once, so a model has one for all positions. It is the long one if the
/// context may be longer than the one that the short set is for.
std::string_view longrope_factors(const Metadata&, const DecoderConfig&);
/// rope.scaling.yarn_log_multiplier m, of families whose files mean by it that YaRN's magnitude is divided by 1 + 0.1 m
/// ln(factor).
void read_log_multiplier(const Metadata&, DecoderConfig&);

/// For families whose layers are all dense: refuses a file that counts experts.
void refuse_experts(const Metadata&, const DecoderConfig&);
/// For families that always see all positions: refuses a window that would be narrower than the context, clears others.
void refuse_window(const Metadata&, DecoderConfig&);

}  // namespace llm
