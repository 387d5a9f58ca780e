// Appends nodes to a graph; every function checks its operands' shapes and throws ErrorKind::Internal naming the op and
// both shapes. (Shapes of weights were checked against the file by model/net before they come here.)
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace llm {

class GraphBuilder {
 public:
  explicit GraphBuilder(Bucket bucket);

  /// Layer number, role and name prefix ("blk.3.") of the nodes that follow.
  void set_place(int layer, Role role, std::string prefix);

  Index step_input(StepInput);                       ///< one value per kind, made on first use
  Act given(std::string name, std::int64_t n);       ///< [n, tokens], which the caller binds
  Weight weight(std::string name, TensorType type);  ///< one value per name
  Cache cache(CacheType type);
  Recurrent recurrent(RecurrentType type);

  Act embed(Weight table, Index tokens, std::string_view name);
  Index hash_ids(Index tokens, Recurrent state, HashIds attributes, std::string_view name);
  struct LinearOperand {
    Weight weight;
    const Weight* bias = nullptr;
    std::string_view name;
    const Weight* scale = nullptr;
  };
  Act linear(Act x, LinearOperand operand);
  Act layer_norm(Act x, Weight w, const Weight* bias, float eps, std::string_view name);
  Act unit_layer_norm(Act x, float eps, std::string_view name);  ///< without a weight
  Act rms_norm(Act x, Weight w, float eps, std::string_view name);
  Act unit_rms_norm(Act x, float eps, std::string_view name);  ///< without a weight
  Act glu(const Glu& attributes, Act gate, Act up, std::string_view name);
  Act glu(Activation activation, Act gate, Act up, std::string_view name) {
    return glu(Glu{activation}, gate, up, name);
  }
  Act activate(const Activate& attributes, Act x, std::string_view name);
  Act rope_table(const RopeTable& attributes, Index positions, const Weight* factors, std::string_view name);
  Act position_scale(const PositionScale& attributes, Index positions, std::string_view name);
  Act rope(Act x, Act table, RopePairing pairing, std::string_view name);
  Cache kv_append(Act k, Act v, Cache cache, std::string_view name);
  Cache index_append(Act k, Cache index, std::string_view name);
  Index select_keys(Act q, Act w, Cache index, int top_k, std::string_view name);
  Index select_keys(Act q, Cache index, int top_k, std::string_view name);
  Index choose_keys(Act q, Act w, Cache index, int top_k, std::string_view name);  ///< SelectKeys::Choice::Keys
  Index select_blocks(Act q, Cache index, const SelectBlocks& attributes, std::string_view name);
  Act attention(Act q, Cache cache, const Attention& attributes, std::string_view name, const Weight* sinks = nullptr);
  Act selected_attention(Act q, Cache cache, Index positions, const Attention& attributes, std::string_view name);
  struct CompressedOperands {
    Act q;
    Cache cache, compressed;
    Weight sinks;
    const Index* keys = nullptr;
  };
  Act compressed_attention(const CompressedOperands& operands, const CompressedAttention& attributes,
                           std::string_view name);
  Act short_conv(Act x, Weight w, Recurrent state, std::string_view name, const ShortConv& attributes = {},
                 const Weight* bias = nullptr);
  Act window_mean(Act x, Recurrent state, int width, std::string_view name);
  struct CompressOperands {
    Act x, scores;
    Weight places;
    Index positions;
    Recurrent state;
  };
  Act compress(const CompressOperands& operands, std::string_view name);
  struct DeltaOperands {
    Act qkv, alpha, beta;
    Weight a, bias;
    Recurrent state;
  };
  Act gated_delta(const DeltaOperands& operands, const GatedDelta& attributes, std::string_view name);
  struct ScanOperands {
    Act xbc, dt;
    Weight a, d, bias;
    Recurrent state;
  };
  Act selective_scan(const ScanOperands& operands, const SelectiveScan& attributes, std::string_view name);
  Act token_shift(Act x, Recurrent state, std::string_view name);
  /// One result for each of `names`, which are as many as w has; `more` may be null.
  std::vector<Act> lerp(Act x, Act d, Weight w, const Act* more, std::span<const std::string> names);
  struct Wkv6Operands {
    Act r, k, v, w;
    Recurrent state;
    const Weight* first = nullptr;
  };
  Act wkv6(const Wkv6Operands& operands, std::string_view name);
  struct FirstValues {
    Act v, mix;
  };
  struct Wkv7Operands {
    Act r, k, v, w, a;
    Weight k_k, k_a, r_k;
    Recurrent state;
    const FirstValues* first = nullptr;
  };
  WkvResults wkv7(const Wkv7Operands& operands, std::string_view name);
  Routes route(Act logits, const Route& attributes, std::string_view name, const Weight* bias = nullptr);
  Routes route_by_table(Act logits, Weight table, Index tokens, const Route& attributes, std::string_view name);
  Act expert_linear(Act x, Index expert, LinearOperand operand);
  Act combine(Act x, Act weights, std::string_view name);
  Act stream_mix(Act x, Act w, std::string_view name);
  Act stream_add(Act x, Act y, const Act* w, const StreamAdd& attributes, std::string_view name);
  StreamShares stream_weights(Act x, Weight scales, Weight biases, const StreamWeights& attributes,
                              std::string_view name);
  /// StreamWeights with one scale.
  Act stream_read(Act x, Weight scale, Weight biases, const StreamWeights& attributes, std::string_view name);
  Act stream_mean(Act x, Act gate, std::string_view name);
  Act stream_blend(Act x, Act last, Weight w, const StreamBlend& attributes, std::string_view name);
  Act match_gate(Act a, Act b, std::string_view name);
  Act gaussian_top(Act x, float deviations, std::string_view name);
  Act add(Act a, Act b, std::string_view name);
  Act scale(Act x, float factor, std::string_view name);
  Act scale(Act x, Weight w, std::string_view name);
  Act soft_cap(Act x, float cap, std::string_view name);
  Act map(Act x, Map function, std::string_view name);
  Act rows(Act x, Index out_rows, std::string_view name);
  Act slice(Act x, const Slice& attributes, std::string_view name);
  Act concat(Act a, Act b, std::string_view name);
  Index head_ids(Act x, std::string_view name);
  Index group_ids(Index ids, int size, std::string_view name);
  Act silence(Act x, const Silence& attributes, std::string_view name);
  /// [heads * head_dim, tokens] -> [head_dim, heads, tokens]
  Act split_heads(Act x, int heads, std::string_view name);
  /// [head_dim, heads, tokens] -> [heads * head_dim, tokens]
  Act flatten_heads(Act x, std::string_view name);

  const TensorType& type(Value v) const { return graph_.type(v); }
  const Graph& graph() const { return graph_; }
  /// The outputs, the logits first.
  Graph finish(std::span<const Act> outputs) &&;
  Graph finish(Act logits) && { return std::move(*this).finish({&logits, 1}); }

 private:
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
  Act result(TensorType type, RowSpace rows, std::string_view name);
  template <std::size_t N>
  std::array<std::uint32_t, N> append(Op op, std::vector<std::uint32_t> in,
                                      const std::array<std::string_view, N>& names);
  std::vector<std::uint32_t> append_all(Op op, std::vector<std::uint32_t> in, std::span<const std::string_view> names);
  Act append_one(Op op, std::vector<std::uint32_t> in, std::string_view name);
  void node(Op op, std::vector<std::uint32_t> in, std::vector<std::uint32_t> out);
  Cache append_rows(std::vector<std::uint32_t> in, std::string_view name);
  /// `in`: what comes before the weight
  template <class Op>
  Act product(std::vector<std::uint32_t> in, const LinearOperand& operand);
  Act reshape(Act x, Shape shape, std::string_view name);

  Graph graph_;
  std::unordered_map<std::string, std::uint32_t> weights_;  ///< of those in it, by name
  int layer_ = -1;
  Role role_ = Role::Embed;
  std::string prefix_;
};

}  // namespace llm
