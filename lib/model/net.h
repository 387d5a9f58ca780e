// What a family's forward() writes its model with: layers of named weights, declared where they are used, over a graph
// builder. Tensor names are the file's; shapes are checked against the file here, so a wrong file ends in an error that
// names the tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gguf/file.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "model/lora.h"
#include "model/stored_weight.h"

namespace llm {

/// The inputs of every step.
struct Step {
  Index tokens, positions, out_rows;
};

/// Rotary angles of this step, computed once for all layers.
struct Rotary {
  Act table;  ///< [n_rot, tokens]
  RopePairing pairing;
};

class Net;

/// Nodes of one part of one layer: prefixes names with "blk.N." and carries the role.
class Scope {
 public:
  int layer() const { return layer_; }
  /// Whether the file has `name`.weight, for what only some files of a family have.
  bool has(std::string_view name) const;
  /// Of the file's `name`.weight, for what comes in several sizes; 0 if the file has none.
  std::int64_t rows(std::string_view name) const;
  /// Whether the file has this tensor.
  bool has_tensor(std::string_view name) const;
  /// Not a reference: the next node moves what it would point to.
  Shape shape(Value) const;
  /// The same layer under another role.
  Scope with(Role role) const { return Scope(net_, layer_, role, weights_of_); }

  /// x [k, rows] -> [n, rows] by `name`.weight [k, n], times `name`.scale [1], plus `name`.bias [n], if the file has
  /// them.
  Act linear(std::string_view name, Act x, std::int64_t n);
  /// The same by rows of `fused`.weight [k, all], for files that keep several products in one tensor.
  Act linear_rows(std::string_view name, std::string_view fused, std::int64_t all, Act x, RowRange rows);
  /// By `name`.weight alone, for families in which `name`.scale is something else.
  Act unscaled_linear(std::string_view name, Act x, std::int64_t n);
  /// By `name`.weight, plus `bias`.weight [n].
  Act biased_linear(std::string_view name, Act x, std::int64_t n, std::string_view bias);
  /// Normalises dimension 0 by `name`.weight.
  Act rms_norm(std::string_view name, Act x, float eps);
  /// By the tensor of this name.
  Act rms_norm(std::string_view name, Act x, float eps, std::string_view tensor);
  /// By nothing: the root of the mean square becomes 1.
  Act unit_rms_norm(std::string_view name, Act x, float eps);
  /// With `name`.bias if the file has it.
  Act layer_norm(std::string_view name, Act x, float eps);
  /// By nothing: the mean becomes 0 and the variance 1.
  Act unit_layer_norm(std::string_view name, Act x, float eps);
  /// x [n, heads, tokens] by `name`.weight [n, heads], which some files have as [n * heads], with `name`.bias, as long,
  /// if the file has it.
  Act head_layer_norm(std::string_view name, Act x, float eps);
  /// x [k, heads, rows] -> [n, heads, rows], each head by a matrix of its own: `name`.weight [k, n, heads].
  Act head_linear(std::string_view name, Act x, std::int64_t n);
  /// The same by one matrix [k, n * heads] of the file, the heads' one after another.
  Act group_linear(std::string_view name, Act x, std::int64_t n);
  Act split_heads(std::string_view name, Act x, int heads);
  Act flatten_heads(std::string_view name, Act x);
  /// Elements of dimension 0.
  Act slice(std::string_view name, Act x, const Slice&);
  Act concat(std::string_view name, Act a, Act b);
  Act rope(std::string_view name, Act x, const Rotary&);
  Cache kv_append(Act k, Act v);                  ///< k, v [head_dim, kv_heads, tokens]; one cache per layer
  Act attention(Act q, Cache, const Attention&);  ///< over this layer's cache or an earlier one's
  /// The same as kv_append() and attention() where each token attends to selected keys alone.
  Cache selected_kv_append(Act k, Act v);
  Act selected_attention(Act q, Cache, Index positions, const Attention&);
  /// k [head_dim, 1, tokens]; one index per layer
  Cache index_append(Act k, int stride = 1);
  Index select_keys(Act q, Act w, Cache index, int top_k);
  Index select_keys(Act q, Cache index, int top_k);
  Index choose_keys(Act q, Act w, Cache index, int top_k);  ///< SelectKeys::Choice::Keys
  /// Rows of a Compress, [head_dim, 1, tokens], as keys that stand for `stride` positions each; one such cache per
  /// layer.
  Cache compressed_append(Act k, int stride);
  /// With `sinks`.weight [heads]; to all compressed keys, or to those of `keys`.
  Act compressed_attention(Act q, Cache cache, Cache compressed, const CompressedAttention&, std::string_view sinks,
                           const Index* keys = nullptr);
  Index select_blocks(Act q, Cache index, const SelectBlocks&);
  /// With `sinks`.weight [heads].
  Act attention(Act q, Cache, const Attention&, std::string_view sinks);
  /// x [n, heads, tokens] by `name`.weight [n, heads], which some files have as [n * heads].
  Act head_rms_norm(std::string_view name, Act x, float eps);
  /// Rows of the file's table `name`.weight [n, rows], which it has as many of as `ids` may name: [n, heads, tokens].
  Act embed_hashed(std::string_view name, std::int64_t n, Index tokens, const HashIds& ids);
  /// By `name`.weight [width, channels], with `name`.bias if the file has it.
  Act short_conv(std::string_view name, Act x, int width, const ShortConv& attributes = {},
                 RecurrentType::Part part = RecurrentType::Part::Conv);
  Act window_mean(std::string_view name, Act x, int width);
  /// With `places`.weight [width of x, stride]: rows of n elements.
  Act compress(std::string_view name, Act x, Act scores, std::string_view places, std::int64_t n, int stride,
               RecurrentType::Part part);
  /// With ssm_a [value_heads] and ssm_dt.bias, as long as alpha; `state` [dv, dk, value_heads].
  Act gated_delta(Act qkv, Act alpha, Act beta, const GatedDelta&, Shape state);
  /// With ssm_a, ssm_d [1, heads] or [heads] and ssm_dt.bias [heads], or as many as dt has, each element of x with its
  /// own;
  /// `state` [p, n, heads].
  Act selective_scan(Act xbc, Act dt, const SelectiveScan&, Shape state);
  /// How the row of x before differs.
  Act token_shift(std::string_view name, Act x, RecurrentType::Part part);
  /// x + d * (w_j + more_j) for each j, w `weight`.weight [n, m], which files have as [n, 1, 1, m]; named by `names`, m
  /// of them. `more` [n, m, tokens] may be null.
  std::vector<Act> lerp(std::span<const std::string> names, Act x, Act d, std::string_view weight,
                        const Act* more = nullptr);
  /// Heads of n elements, with `first`.weight [n, heads] or, where that is empty, without.
  Act wkv6(Act r, Act k, Act v, Act w, std::int64_t n, std::string_view first);
  struct Wkv7Operands {
    Act r, k, v, w, a;
    const GraphBuilder::FirstValues* first = nullptr;
  };
  /// Heads of n elements, by time_mix_k_k, time_mix_k_a and time_mix_r_k.
  WkvResults wkv7(const Wkv7Operands&, std::int64_t n);
  Act glu(Activation, Act gate, Act up, std::string_view name = "ffn_glu");
  Act glu(const Glu&, Act gate, Act up, std::string_view name);
  Act activate(std::string_view name, const Activate&, Act x);
  Act stream_mix(std::string_view name, Act x, Act w);
  Act stream_add(std::string_view name, Act x, Act y, const StreamAdd&);
  Act stream_add(std::string_view name, Act x, Act y, Act w, const StreamAdd&);
  /// With `scales`.weight [3] and `biases`.weight, as long as a row of x.
  StreamShares stream_weights(std::string_view name, Act x, std::string_view scales, std::string_view biases,
                              const StreamWeights&);
  /// With `scale`.weight [1].
  Act stream_read(std::string_view name, Act x, std::string_view scale, std::string_view biases, const StreamWeights&);
  Act stream_mean(std::string_view name, Act x, Act gate);
  /// With `w`.weight [n].
  Act stream_blend(std::string_view name, Act x, Act last, const StreamBlend&, std::string_view w);
  Act match_gate(std::string_view name, Act a, Act b);
  Act gaussian_top(std::string_view name, Act x, float deviations);
  Act add(std::string_view name, Act a, Act b);
  Act scale(std::string_view name, Act x, float factor);
  /// By `weight`.weight [1] if the file has it.
  Act scale(std::string_view name, Act x, std::string_view weight);
  /// Each vector by `weight`.weight [n].
  Act scale_elements(std::string_view name, Act x, std::string_view weight);
  /// Each head of x [n, heads, tokens] by a number of its own, `weight`.weight [1, heads].
  Act scale_heads(std::string_view name, Act x, std::string_view weight);
  Act soft_cap(std::string_view name, Act x, float cap);
  Routes route(std::string_view name, Act logits, const Route&);
  /// With `bias`.bias [experts], which the choice alone knows, if the file has it; some converters leave out the end.
  Routes route(std::string_view name, Act logits, const Route&, std::string_view bias);
  /// By the rows of `table`.weight [top_k, vocab] of I32.
  Routes route_by_table(std::string_view name, Act logits, const Route&, std::string_view table, std::int64_t vocab);
  /// Declares `name`.weight [k, n, experts] ahead of its use.
  Weight expert_weight(std::string_view name, std::int64_t k, std::int64_t n, int experts);
  /// And by `name`.scale [experts] and `name`.bias [n, experts] if the file has them.
  Act expert_linear(std::string_view name, Act x, const Routes&, Weight);
  Act combine(std::string_view name, Act x, const Routes&);
  Index group_ids(std::string_view name, Index ids, int size);
  Act silence(std::string_view name, Act x, const Silence&);

 private:
  friend class Net;
  Scope(Net& net, int layer, Role role, int weights_of)
      : net_(net), layer_(layer), role_(role), weights_of_(weights_of) {}
  std::string full_name(std::string_view name) const;
  GraphBuilder& place();
  CacheType cache_of(Act k, Act v) const;
  Net& net_;
  int layer_;
  Role role_;
  int weights_of_;
};

class Net {
 public:
  enum class Outputs : std::uint8_t { Logits, LogitsAndHidden };
  /// What a weight gives is changed by the adapters that have a pair for it.
  Net(const GgufFile& file, Bucket bucket, std::span<const LoraAdapter> adapters = {},
      Outputs outputs = Outputs::Logits);

  Step step();
  /// `factors` names an optional tensor of per-pair factors (Llama 3.1+: "rope_freqs"); empty if the family has none.
  /// `name`: of the table, for families with more than one.
  Rotary rotary(const RopeTable& attributes, RopePairing pairing, std::string_view factors = {},
                std::string_view name = "rope_table");
  /// The same with a tensor that has more factors than there are pairs, which go by the first ones.
  Rotary rotary(const RopeTable& attributes, RopePairing pairing, std::string_view factors, std::int64_t n_factors,
                std::string_view name);
  /// What queries are multiplied with, for families whose scores grow with the position.
  Act position_scale(const PositionScale& attributes);
  /// Rows of `name`.weight, or of the output's matrix `tied_to` where the file has none.
  Act embed(std::string_view name, Index tokens, std::int64_t vocab, std::int64_t n_embd,
            std::string_view tied_to = {});
  /// Whether what the head reads is an output, too: give_hidden(), which is nothing otherwise.
  bool gives_hidden() const { return outputs_ == Outputs::LogitsAndHidden; }
  void give_hidden(Act x);
  /// [n_embd, tokens]: of each token the hidden state of the one before it, which the caller has from another graph.
  Act hidden_before(std::int64_t n_embd) { return builder_.given("hidden_before", n_embd); }
  Scope layer(int i, Role role) { return layer(i, role, i); }
  /// With the weights of another layer, -1: of none, for models that go through their layers again.
  Scope layer(int i, Role role, int weights_of) { return Scope(*this, i, role, weights_of); }
  Scope top(Role role) { return layer(-1, role); }
  /// The rows of x whose results are wanted.
  Act rows(Act x, Index out_rows);
  /// Logits by `name`.weight, or by the embedding table `tied_to` where the file has none.
  Act head(std::string_view name, Act x, std::int64_t vocab, std::string_view tied_to);

  /// The finished graph, not yet optimised.
  Graph finish(Act logits) &&;
  /// Throws ErrorKind::Model for a pair of an adapter that changes nothing which was built.
  void require_adapters_used() const;
  /// Tensors of the file that no node used and that are not in `ignorable` (shell patterns).
  std::vector<std::string> unused(std::span<const std::string> ignorable) const;

 private:
  friend class Scope;
  /// Declares a weight: missing, of another shape, or of a type that cannot serve throws ErrorKind::Model.
  Weight matrix(const std::string& name, Shape shape);
  /// Which files have under another shape, of the same rows in the same order.
  Weight matrix_as(const std::string& name, const Shape& shape, const Shape& in_file);
  Weight table_of_ids(const std::string& name, const Shape& shape);
  Weight f32(const std::string& name, const Shape& shape);
  /// Which some files have under another shape, of the same elements in the same order.
  Weight f32_as(const std::string& name, const Shape& shape, const Shape& also);
  /// The same of F32, F16 or BF16.
  Weight floats_as(const std::string& name, const Shape& shape, const Shape& also);
  void require_f32(const std::string& name, const Shape& shape);
  std::optional<Weight> optional_f32(const std::string& name, const Shape& shape);
  /// A product's weight and what the file has beside it.
  struct Product {
    Weight weight;
    std::optional<Weight> bias, scale;
    std::string_view name;
    GraphBuilder::LinearOperand operand() const {
      return {.weight = weight, .bias = bias ? &*bias : nullptr, .name = name, .scale = scale ? &*scale : nullptr};
    }
  };
  Product product(const Scope& scope, std::string_view name, Weight weight, const Shape& bias, const Shape& scale);
  Act linear(Scope& scope, Act x, const Product&);
  /// A pair of an adapter's for one weight.
  struct Adaptation {
    Weight a, b;
    float factor;
    std::string suffix;  ///< LoraAdapter::suffix()
  };
  /// Those for the weight of that name and shape, in the order of the adapters; without those of factor 0, which are
  /// checked all the same.
  /// `rows`: of the weight, where it is not the whole.
  std::vector<Adaptation> adaptations(const std::string& target, const Shape& weight, LoraAdapter::ShapeRule require,
                                      std::optional<RowRange> rows = {});
  /// y and what they add to it. `down` gives A's product with what y was made of, `up` that of B with the result.
  template <class Down, class Up>
  Act adapted(std::string_view name, Act y, std::span<const Adaptation>, const Down& down, const Up& up);
  const TensorInfo& require(const std::string& name, const Shape& shape);
  [[noreturn]] void fail_missing(const std::string& name) const;
  bool has(const std::string& name) const { return file_.tensors().find(name) != nullptr; }

  const GgufFile& file_;
  GraphBuilder builder_;
  std::unordered_set<std::string> used_, adapted_;  ///< adapted_: weights whose pairs were looked for
  std::span<const LoraAdapter> adapters_;
  Outputs outputs_;
  std::optional<Act> hidden_;
};

}  // namespace llm
