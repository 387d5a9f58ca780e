#include <type_traits>
#include <variant>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace llm {
namespace {

template <class T, class... Ops>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Ops> || ...);

/// Each row of the result depends on the same row of the operands alone.
template <class T>
inline constexpr bool kRowByRow =
    kIsOneOf<T, Linear, LayerNorm, RmsNorm, AddRmsNorm, Glu, Activate, Rope, Lerp, Route, ExpertLinear, Combine,
             StreamMix, StreamAdd, StreamWeights, StreamMean, StreamBlend, MatchGate, GaussianTop, Add, Scale, SoftCap,
             Map, Slice, Concat, HeadIds, GroupIds, Silence, Reshape>;

/// What begins with step inputs, attends or goes on along a sequence, or selects rows itself.
template <class T>
inline constexpr bool kAcrossRows = kIsOneOf<T, Embed, HashIds, RopeTable, PositionScale, KvAppend, SelectKeys,
                                             SelectBlocks, Attention, CompressedAttention, ShortConv, WindowMean,
                                             Compress, GatedDelta, SelectiveScan, TokenShift, Wkv6, Wkv7, Rows>;

bool row_wise(const Op& op) {
  return std::visit(
      []<class T>(const T&) {
        static_assert(kRowByRow<T> != kAcrossRows<T>, "an op that does not say whether it works row by row");
        return kRowByRow<T>;
      },
      op);
}

class RowsEarly {
 public:
  explicit RowsEarly(const Graph& g) : g_(g), uses_(g), result_(g), moved_(g.nodes().size(), false) {}

  Graph run() {
    find_moved();
    for (std::uint32_t v = 0; v < g_.values().size(); ++v) replaced_.push_back(v);
    for (std::size_t i = 0; i < g_.nodes().size(); ++i) emit(i);
    std::vector<std::uint32_t> outputs;
    for (std::uint32_t v : g_.outputs()) outputs.push_back(replaced_[v]);
    result_.mutable_nodes() = std::move(nodes_);
    result_.set_outputs(std::move(outputs));
    return std::move(result_);
  }

 private:
  bool is_rows(std::size_t i) const { return std::holds_alternative<Rows>(g_.nodes()[i].op); }

  /// Nodes whose results are read by row selections alone, directly or through other such nodes.
  void find_moved() {
    for (const Node& n : g_.nodes()) {
      if (std::holds_alternative<Rows>(n.op)) out_rows_ = n.in[1];
    }
    for (std::size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = g_.nodes()[i];
      if (!row_wise(n.op)) continue;
      bool only_rows = true, read = false;
      for (std::uint32_t v : n.out) {
        if (uses_.output[v] || g_.info(v).rows != RowSpace::Tokens) only_rows = false;
        for (std::size_t c : uses_.consumers[v]) {
          read = true;
          only_rows = only_rows && (is_rows(c) || moved_[c]);
        }
      }
      moved_[i] = only_rows && read;
    }
  }

  void emit(std::size_t i) {
    Node n = g_.nodes()[i];
    if (is_rows(i)) {
      const std::uint32_t from = replaced_[n.in[0]];
      const bool already = result_.info(from).rows == RowSpace::Outputs;
      replaced_[n.out[0]] = already ? from : selected(from, n);
      return;
    }
    for (std::uint32_t& v : n.in) {
      v = replaced_[v];
      if (moved_[i] && result_.info(v).rows == RowSpace::Tokens) v = selected(v, n);
    }
    if (moved_[i]) {
      for (std::uint32_t v : n.out) select_type(v);
    }
    nodes_.push_back(std::move(n));
  }

  void select_type(std::uint32_t v) {
    ValueInfo& info = result_.mutable_values()[v];
    info.rows = RowSpace::Outputs;
    info.type.shape = with_outputs(info.type.shape);
  }

  Shape with_outputs(const Shape& s) const {
    Shape shape;
    for (int d = 0; d + 1 < s.n_dims(); ++d) shape.push_back(s[d]);
    shape.push_back(g_.bucket().outputs);
    return shape;
  }

  /// The wanted rows of `v`, selected once, right before its first reader `at`.
  std::uint32_t selected(std::uint32_t v, const Node& at) {
    for (const auto& [from, to] : selections_) {
      if (from == v) return to;
    }
    const ValueInfo& info = result_.info(v);
    const std::uint32_t to = result_.add_value({.kind = ValueKind::Result,
                                                .name = info.name + ".wanted",
                                                .type = {info.type.dtype, with_outputs(info.type.shape)},
                                                .rows = RowSpace::Outputs});
    nodes_.push_back({.op = Rows{}, .in = {v, out_rows_}, .out = {to}, .layer = at.layer, .role = at.role});
    selections_.emplace_back(v, to);
    return to;
  }

  const Graph& g_;
  const Uses uses_;
  Graph result_;
  std::vector<bool> moved_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> replaced_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> selections_;
  std::uint32_t out_rows_ = 0;  ///< the step input; read only where a selection exists
};

}  // namespace

Graph rows_early(const Graph& g) { return RowsEarly(g).run(); }

}  // namespace llm
