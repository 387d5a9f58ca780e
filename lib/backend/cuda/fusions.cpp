#include "backend/cuda/fusions.h"

#include <algorithm>
#include <array>
#include <variant>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/column_products.h"

namespace llm::cuda {
namespace {

class Finder {
 public:
  Finder(const Graph& g, const TokenKernels& kernels)
      : g_(g), kernels_(kernels), readers_(g.values().size(), 0), maker_(g.values().size()) {
    for (std::size_t i = 0; i < g.nodes().size(); ++i) {
      for (const std::uint32_t v : g.nodes()[i].in) ++readers_[v];
      for (const std::uint32_t v : g.nodes()[i].out) maker_[v] = i;
    }
    for (const std::uint32_t v : g.outputs()) ++readers_[v];
  }

  std::optional<RopeAppendNodes> rope_append(std::size_t append) const {
    if (g_.nodes()[append].in.size() == 2) return std::nullopt;  // to an index, which queries of another kind read
    const auto rope_k = sole_use<Rope>(g_.nodes()[append].in[0]);
    const auto rope_q = rope_k ? rope_like(*rope_k, append) : std::nullopt;
    if (!rope_q || g_.info(g_.nodes()[append].in[0]).type.shape[0] > kBlockK) return std::nullopt;
    const std::uint32_t q = g_.nodes()[*rope_q].in[0], k = g_.nodes()[*rope_k].in[0];
    RopeAppendNodes found{*rope_q, *rope_k, append, std::nullopt, q, k, attention_behind(*rope_q, append)};
    const auto norm_q = sole_use<RmsNorm>(q), norm_k = sole_use<RmsNorm>(k);
    const auto has_weight = [&](std::size_t norm) {
      const Node& node = g_.nodes()[norm];
      return node.in.size() == 2 && g_.info(node.in[1]).type.shape.n_dims() == 1;
    };
    const bool alike = norm_q && norm_k && g_.nodes()[*norm_q].op == g_.nodes()[*norm_k].op;
    if (alike && has_weight(*norm_q) && has_weight(*norm_k)) {
      RopeAppendNodes with_norms = found;
      with_norms.norms = {*norm_q, *norm_k};
      with_norms.q = g_.nodes()[*norm_q].in[0];
      with_norms.k = g_.nodes()[*norm_k].in[0];
      if (neighbours(with_norms)) return with_norms;
    }
    return neighbours(found) ? std::optional(found) : std::nullopt;
  }

  std::optional<CombineNormNodes> combine_norm(std::size_t combine) const {
    const std::uint32_t sum = g_.nodes()[combine].out[0];
    if (readers_[sum] != 1 || combine + 1 == g_.nodes().size()) return std::nullopt;
    const Node& next = g_.nodes()[combine + 1];
    if (!std::holds_alternative<AddRmsNorm>(next.op)) return std::nullopt;
    if (next.in[1] == sum) return CombineNormNodes{combine, combine + 1, next.in[0]};
    if (next.in[0] == sum) return CombineNormNodes{combine, combine + 1, next.in[1]};
    return std::nullopt;
  }

  std::optional<TokenExpertsNodes> token_experts(std::size_t combine) const {
    if (kernels_.takes_token_experts == nullptr || !one_column(g_.nodes()[combine].out[0])) return std::nullopt;
    const auto found = experts_before(combine);
    if (!found || g_.nodes()[found->down].out.size() != 1) return std::nullopt;
    return kernels_.takes_token_experts(shapes_of(*found)) ? found : std::nullopt;
  }

  /// `found`: all experts of tokens, and of the nodes before.
  std::optional<OwnColumn> own_column(std::size_t linear, const Fusions& found) const {
    const Node& node = g_.nodes()[linear];
    const std::uint32_t x = node.in[0];
    const auto& maker = maker_[x];
    if (kernels_.makes_columns == nullptr || !maker || !one_column(x) || !rest_are_experts(x, found))
      return std::nullopt;
    const std::vector<MatrixType> matrices = matrices_of(node);
    if (!kernels_.makes_columns(matrices)) return std::nullopt;
    const Node& before = g_.nodes()[*maker];
    OwnColumn own{linear, std::nullopt, readers_[x] > 1, gate_behind(linear)};
    if (std::holds_alternative<Glu>(before.op)) {  // its own kernel writes forms
      if (!found.gates(*maker)) return std::nullopt;
    } else if (std::holds_alternative<RmsNorm>(before.op) ||
               (std::holds_alternative<AddRmsNorm>(before.op) && before.out[1] == x)) {
      if (*maker + 1 != linear || found.combines(*maker) || before.in.size() == 1) return std::nullopt;
      if (kernels_.makes_norms(matrices)) own.norm = *maker;
    }
    if (own.shared && !own.norm) return std::nullopt;
    return own;
  }

 private:
  std::vector<MatrixType> matrices_of(const Node& node) const {
    std::vector<MatrixType> matrices;
    for (const ProductOperands& p : product_operands(node.op)) matrices.push_back(matrix_type(node.in[p.weight]));
    return matrices;
  }

  /// Of one expert's, if there are several.
  MatrixType matrix_type(std::uint32_t weight) const {
    const TensorType& type = g_.info(weight).type;
    return {device_type(type.dtype), type.shape[0], type.shape[1]};
  }

  bool one_column(std::uint32_t x) const { return g_.info(x).type.shape.elements() == g_.info(x).type.shape[0]; }

  /// Whether all that read the value, but for one, are experts of a token.
  bool rest_are_experts(std::uint32_t x, const Fusions& found) const {
    const auto reads = std::count_if(found.token_experts.begin(), found.token_experts.end(),
                                     [&](const auto& m) { return g_.nodes()[m.gate_up].in[0] == x; });
    return readers_[x] == 1 + reads;
  }

  /// Of the nodes of one token's experts, those of this Combine.
  std::optional<TokenExpertsNodes> experts_before(std::size_t combine) const {
    const Node& node = g_.nodes()[combine];
    const auto down = sole_use<ExpertLinear>(node.in[0]), route = sole_use<Route>(node.in[1]);
    if (!down || !route) return std::nullopt;
    const auto glu = sole_use<Glu>(g_.nodes()[*down].in[0]);
    if (!glu) return std::nullopt;
    const auto gate_up = sole_use<ExpertLinear>(g_.nodes()[*glu].in[0]);
    if (!gate_up || !gates(*gate_up, *glu)) return std::nullopt;
    const std::uint32_t ids = g_.nodes()[*route].out[0];
    const bool routed = g_.nodes()[*gate_up].in[1] == ids && g_.nodes()[*down].in[1] == ids && readers_[ids] == 2;
    if (!routed) return std::nullopt;
    return TokenExpertsNodes{*route, *gate_up, *glu, *down, combine, chooses(*route)};
  }

  bool chooses(std::size_t route) const {
    const Node& node = g_.nodes()[route];
    const std::int64_t experts = g_.info(node.in[0]).type.shape[0];
    return chooses_token_experts(std::get<Route>(node.op), node.in.size() > 1, static_cast<int>(experts));
  }

  ExpertShapes shapes_of(const TokenExpertsNodes& m) const {
    const Node &gate_up = g_.nodes()[m.gate_up], &down = g_.nodes()[m.down];
    const auto first = product_operands(gate_up.op), second = product_operands(down.op);
    const std::uint32_t last = down.in[second[0].weight];
    return {.gate = matrix_type(gate_up.in[first[0].weight]),
            .up = matrix_type(gate_up.in[first[1].weight]),
            .down = matrix_type(last),
            .top_k = std::get<Route>(g_.nodes()[m.route].op).top_k};
  }

  /// Products of one column know the activations that dense layers have.
  std::optional<std::size_t> gate_behind(std::size_t linear) const {
    const std::size_t next = linear + 1;
    if (next >= g_.nodes().size() || !gates(linear, next)) return std::nullopt;
    const Activation activation = std::get<Glu>(g_.nodes()[next].op).activation;
    if (activation == Activation::ClampedSilu || activation == Activation::Relu) return std::nullopt;
    return next;
  }

  /// Whether a node is the Glu that alone reads the two results of a node of products, both of one type.
  bool gates(std::size_t product, std::size_t glu) const {
    const Node &node = g_.nodes()[product], &next = g_.nodes()[glu];
    const auto* const activation = std::get_if<Glu>(&next.op);
    if (node.out.size() != 2 || activation == nullptr || next.in[0] == next.in[1]) return false;
    if (activation->limit > 0) return false;
    // Of no feed-forward network.
    switch (activation->activation) {
      case Activation::Sigmoid:
      case Activation::Softplus:
      case Activation::Identity:
        return false;
      default:
        break;
    }
    if (!std::is_permutation(next.in.begin(), next.in.end(), node.out.begin(), node.out.end())) return false;
    const auto operands = product_operands(node.op);
    return readers_[next.in[0]] == 1 && readers_[next.in[1]] == 1 &&
           g_.info(node.in[operands[0].weight]).type.dtype == g_.info(node.in[operands[1].weight]).type.dtype;
  }

  /// The node that makes a value, if it is of this kind and the value is used once.
  template <class Op>
  std::optional<std::size_t> sole_use(std::uint32_t value) const {
    const auto& node = maker_[value];
    const bool found = node && readers_[value] == 1 && std::holds_alternative<Op>(g_.nodes()[*node].op);
    return found ? node : std::nullopt;
  }

  /// Of one token.
  std::optional<std::size_t> attention_behind(std::size_t rope_q, std::size_t append) const {
    const std::size_t next = append + 1;
    if (g_.bucket().tokens != 1 || next == g_.nodes().size()) return std::nullopt;
    const Node& node = g_.nodes()[next];
    const std::uint32_t rotated = g_.nodes()[rope_q].out[0];
    const bool reads_both = std::holds_alternative<Attention>(node.op) && node.in[0] == rotated &&
                            node.in[1] == g_.nodes()[append].out[0] &&
                            g_.info(node.in[1]).cache.access == CacheType::Access::Whole;
    return reads_both && readers_[rotated] == 1 ? std::optional(next) : std::nullopt;
  }

  /// The last other rope before `end` that turns heads of the same width by the same angles.
  std::optional<std::size_t> rope_like(std::size_t rope, std::size_t end) const {
    const Node& wanted = g_.nodes()[rope];
    for (std::size_t i = end; i-- > 0;) {
      const Node& node = g_.nodes()[i];
      if (i == rope || !(std::holds_alternative<Rope>(node.op))) continue;
      const bool same = node.op == wanted.op && node.in[1] == wanted.in[1] &&
                        g_.info(node.in[0]).type.shape[0] == g_.info(wanted.in[0]).type.shape[0];
      return same ? std::optional(i) : std::nullopt;
    }
    return std::nullopt;
  }

  /// Whether from the first node to the last nothing else runs than reshapes of what is there before.
  bool neighbours(const RopeAppendNodes& m) const {
    std::vector<std::size_t> members = {m.rope_q, m.rope_k, m.append};
    if (m.norms) members.insert(members.end(), {m.norms->q, m.norms->k});
    const auto is_member = [&](std::size_t i) { return std::find(members.begin(), members.end(), i) != members.end(); };
    for (std::size_t i = *std::min_element(members.begin(), members.end()); i < m.append; ++i) {
      if (is_member(i)) continue;
      const Node& node = g_.nodes()[i];
      const auto& maker = maker_[node.in[0]];
      if (!std::holds_alternative<Reshape>(node.op) || (maker && is_member(*maker))) return false;
    }
    return true;
  }

  const Graph& g_;
  TokenKernels kernels_;
  std::vector<int> readers_;
  std::vector<std::optional<std::size_t>> maker_;
};

}  // namespace

bool Fusions::makes_column(std::size_t node) const {
  return std::any_of(own_columns.begin(), own_columns.end(), [&](const OwnColumn& o) { return o.linear == node; });
}
bool Fusions::gates(std::size_t node) const {
  return std::any_of(own_columns.begin(), own_columns.end(), [&](const OwnColumn& o) { return o.glu == node; });
}
bool Fusions::combines(std::size_t node) const {
  return std::any_of(combine_norms.begin(), combine_norms.end(),
                     [&](const CombineNormNodes& m) { return m.norm == node; });
}

TokenKernels token_kernels() { return {makes_columns, makes_norms, takes_token_experts}; }

Fusions find_fusions(const Graph& g, const TokenKernels& kernels) {
  Fusions found;
  const Finder finder(g, kernels);
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    if (!std::holds_alternative<Combine>(g.nodes()[i].op)) continue;
    if (const auto match = finder.token_experts(i)) found.token_experts.push_back(*match);
  }
  const auto of_token = [&](std::size_t combine) {
    return std::any_of(found.token_experts.begin(), found.token_experts.end(),
                       [&](const TokenExpertsNodes& m) { return m.combine == combine; });
  };
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    const Op& op = g.nodes()[i].op;
    if (std::holds_alternative<KvAppend>(op)) {
      if (const auto match = finder.rope_append(i)) found.rope_appends.push_back(*match);
    } else if (std::holds_alternative<Combine>(op) && !of_token(i)) {
      if (const auto match = finder.combine_norm(i)) found.combine_norms.push_back(*match);
    } else if (std::holds_alternative<Linear>(op)) {
      if (const auto match = finder.own_column(i, found)) found.own_columns.push_back(*match);
    }
  }
  return found;
}

Graph keep_single_rows(Graph g) {
  if (g.bucket().tokens != 1 || g.bucket().outputs != 1) return g;
  for (Node& node : g.mutable_nodes()) {
    const bool output = std::find(g.outputs().begin(), g.outputs().end(), node.out[0]) != g.outputs().end();
    if (!std::holds_alternative<Rows>(node.op) || output) continue;
    node.op = Reshape{};
    node.in.resize(1);
  }
  return g;
}

std::vector<LateUse> late_uses(const Graph& g, const Fusions& fusions) {
  std::vector<LateUse> uses;
  for (const RopeAppendNodes& m : fusions.rope_appends) {
    for (const std::uint32_t value : {m.q, m.k, g.nodes()[m.append].in[1], g.nodes()[m.rope_q].in[1]})
      uses.push_back({value, m.attention.value_or(m.append)});
  }
  for (const CombineNormNodes& m : fusions.combine_norms) {
    for (const std::uint32_t value : g.nodes()[m.combine].in) uses.push_back({value, m.norm});
  }
  for (const TokenExpertsNodes& m : fusions.token_experts) {
    uses.push_back({g.nodes()[m.gate_up].in[0], m.glu});
    if (m.chooses) uses.push_back({g.nodes()[m.route].in[0], m.glu});
    uses.push_back({g.nodes()[m.down].in[0], m.combine});
    for (const std::uint32_t value : g.nodes()[m.route].out) uses.push_back({value, m.combine});
  }
  for (const OwnColumn& m : fusions.own_columns) {
    const Node& first = g.nodes()[m.norm.value_or(m.linear)];
    for (const std::uint32_t value : first.in) uses.push_back({value, m.last()});
    if (std::holds_alternative<AddRmsNorm>(first.op)) uses.push_back({first.out[0], m.last()});  // the sum is written
  }
  return uses;
}

}  // namespace llm::cuda
