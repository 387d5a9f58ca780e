// The operations of a graph: attribute structs without data, collected in the variant Op.
// Few and transformer-sized. Each op's inputs, outputs and shapes stand beside it ([width, ..., rows], dimension 0
// contiguous); its exact meaning is the scalar code in backend/reference.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/key_window.h"
#include "graph/xielu_curve.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace llm {

/// (table [d, rows], tokens or positions) -> [d, tokens]; (table, ids [heads, tokens]) -> [d, heads, tokens]
struct Embed {
  friend bool operator==(const Embed&, const Embed&) = default;
};

/// One weight of a Linear or an ExpertLinear, of a storage type of its own: y = (w x) * scale + bias, of which the last
/// two may be absent.
struct Product {
  bool bias = false;
  bool scale = false;
  ActFormat activation = ActFormat::F32;  ///< set by a backend's legalize pass; F32 leaves x as it is
  friend bool operator==(const Product&, const Product&) = default;
};

/// Products that share their input: (x [k, rows], w_i [k, n_i] ..., then bias_i [n_i] of those that have one, then
/// scale_i [1] of those that have one) -> y_i [n_i, rows]
struct Linear {
  std::vector<Product> products;
  friend bool operator==(const Linear&, const Linear&) = default;
};

/// (x [n, ..., rows] [, w [n] [, bias [n]]]) -> (x - mean(x)) * w / sqrt(variance(x) + eps) + bias over dimension 0.
/// Where x is [n, m, rows], w and bias may have [n, m] elements of their own.
struct LayerNorm {
  float eps = 0;
  friend bool operator==(const LayerNorm&, const LayerNorm&) = default;
};

/// (x [n, ..., rows] [, w [n]]) -> x * w / sqrt(mean(x^2) + eps) over dimension 0. Where x is [n, m, rows], w may have
/// [n, m] elements of its own.
struct RmsNorm {
  float eps = 0;
  friend bool operator==(const RmsNorm&, const RmsNorm&) = default;
};

/// (a, b, w [n]) -> (a + b, RmsNorm(a + b, w)): the residual stream and the next block's input in one pass
struct AddRmsNorm {
  float eps = 0;
  friend bool operator==(const AddRmsNorm&, const AddRmsNorm&) = default;
};

enum class Activation : std::uint8_t {
  Silu,
  Gelu,
  ClampedSilu,  ///< of gpt-oss: g * sigmoid(1.702 g) with g = min(gate, 7), and for up min(max(up, -7), 7) + 1
  Relu,         ///< max(gate, 0)
  Sigmoid,
  Softplus,  ///< ln(1 + e^gate)
  Identity,  ///< gate * up
};
inline constexpr float kClampedSiluSlope = 1.702f, kClampedSiluLimit = 7;
std::string_view name(Activation);
/// (gate [n, ..., rows] or [1, ..., rows], up [n, ..., rows]) -> activation(gate) * up; a single gate is that of all n.
/// With a limit, of Silu alone: min(silu(gate), gate_limit) * min(max(up, -limit), limit).
struct Glu {
  Activation activation = Activation::Silu;
  float limit = 0;           ///< 0: none
  float gate_limit = limit;  ///< above 0 where `limit` is
  friend bool operator==(const Glu&, const Glu&) = default;
};

/// (tokens, state [n - 1]) -> ids [heads, tokens], rows of a table by hashes of the tokens that a sequence ends with: n
/// of them at most, n the number of multipliers. Some heads, as many of each, go by the last 2 tokens, the next by the
/// last 3, and so on: with t_i the token i places back, head h has the id offset_h + (t_0 m_0 xor t_1 m_1 xor ... mod
/// size_h), products of 64 bits. Behind the first `stop` among t_1, t_2, ... and before a sequence's first token, all
/// tokens are `stop`. The state holds the sequence's last n - 1 tokens, the oldest first, each as its number + 1;
/// before the first one there are zeros.
struct HashIds {
  std::vector<std::uint64_t> multipliers;
  std::vector<std::int32_t> sizes, offsets;  ///< of every head
  std::int32_t stop = 0;
  friend bool operator==(const HashIds&, const HashIds&) = default;
};
/// What a state of floats holds exactly, and multipliers.
inline constexpr std::int64_t kMostHashedTokens = (1 << 24) - 1, kMostMultipliers = 16;

/// Of one operand: activations without a gate.
enum class Nonlinearity : std::uint8_t {
  Gelu,         ///< as Activation::Gelu
  SquaredRelu,  ///< max(x, 0)^2 (arXiv:2109.08668)
  Clamp,        ///< min(max(x, -limit), limit)
  Xielu,        ///< XieluCurve
  Sigmoid,
};
std::string_view name(Nonlinearity);
/// (x) -> f(x)
struct Activate {
  Nonlinearity function = Nonlinearity::Gelu;
  float limit = 0;        ///< Clamp
  XieluCurve xielu = {};  ///< Xielu
  friend bool operator==(const Activate&, const Activate&) = default;
};

enum class RopePairing : std::uint8_t {
  Interleaved,  ///< elements 2i and 2i+1 turn together
  Halves,       ///< elements i and i + n_rot/2 turn together
};
enum class RopeScaling : std::uint8_t { None, Linear, Yarn };

/// Angles of every token once per step: (positions [, factors [n_rot/2 or more]]) -> [n_rot, tokens], cos and sin of
/// pair i at 2i and 2i+1. angle_i(pos) = pos * theta_i, theta_i = base^(-2i/n_rot) / factor_i, then scaled: Linear
/// divides by `factor`; Yarn mixes the divided and the original angle per pair by a ramp and multiplies cos and sin by
/// its magnitude, 1 + 0.1 ln(factor) (YaRN, arXiv:2309.00071).
struct RopeTable {
  int n_rot = 0;
  float base = 10000;
  RopeScaling scaling = RopeScaling::None;
  float factor = 1;
  float original_context = 0;  ///< Yarn: the context that the model was trained with
  float beta_fast = 32, beta_slow = 1;
  float extrapolation = 1;     ///< Yarn: multiplies the original angle's share of the mix
  float attention_factor = 1;  ///< multiplies cos and sin, whatever the scaling
  int offset = 0;              ///< added to positions
  bool back = false;           ///< angles are negative: what undoes a rotation
  friend bool operator==(const RopeTable&, const RopeTable&) = default;
};

/// (positions) -> [1, tokens], what queries are multiplied with so that scores grow with the position: 1 + slope *
/// log(1 + floor((pos + offset) / length)).
struct PositionScale {
  float slope = 0;
  int length = 1;
  int offset = 0;
  friend bool operator==(const PositionScale&, const PositionScale&) = default;
};

/// (x [head_dim, heads, tokens], table [n_rot, tokens]) -> the same shape, the first n_rot elements of each head
/// rotated
struct Rope {
  RopePairing pairing = RopePairing::Interleaved;
  int n_rot = 0;
  friend bool operator==(const Rope&, const Rope&) = default;
};

/// (k [head_dim, kv_heads, tokens], v [head_dim_v, kv_heads, tokens], cache) -> the cache with the step's rows stored
/// at its slots. Where the cache is of keys alone there is no v; of positions of its stride the last one's row alone is
/// kept.
struct KvAppend {
  friend bool operator==(const KvAppend&, const KvAppend&) = default;
};

/// (q [head_dim, heads, tokens] [, w [heads, tokens]], index) -> positions [top_k, tokens]: the keys that a token is to
/// attend to, the lightning indexer of DeepSeek V3.2 (arXiv:2512.02556). Of those up to its own, keys read back from
/// the index, the top_k with the greatest sums over the heads of w * max(q . key, 0), w 1 where there is none, of equal
/// ones the earlier; a sum that is NaN counts as -infinity. They are in ascending order, behind them -1.
/// An index of a stride s has a key for each s positions, which are chosen together: the (top_k + 1) / s - 1 best of
/// those that lie up to the token, and all behind the last of these. So of a token that sees no more than top_k, all.
/// Or, Choice::Keys, -> keys [top_k, tokens]: the best of the index's own keys by their numbers, none behind the last.
struct SelectKeys {
  enum class Choice : std::uint8_t { Positions, Keys };
  int top_k = 0;
  Choice choice = Choice::Positions;
  ActFormat query = ActFormat::F32;  ///< as in Attention
  friend bool operator==(const SelectKeys&, const SelectKeys&) = default;
};

/// (q [head_dim, heads, tokens], index) -> positions [top_k, heads, tokens]: the keys that a token is to attend to, of
/// each head others (MiniMax-M3). Of the keys up to its own, read back from the index, it is whole blocks of `block`
/// positions: the last `local` ones, of which its own is one, and those with the greatest of the q . key in them, of
/// equal ones the earlier; top_k / block together. A product that is NaN counts as -infinity. The positions are in
/// ascending order up to the token's own, behind them -1. So of a token that sees no more than top_k, all.
struct SelectBlocks {
  int top_k = 0, block = 1, local = 1;
  ActFormat query = ActFormat::F32;  ///< as in Attention
  friend bool operator==(const SelectBlocks&, const SelectBlocks&) = default;
};

/// (q [head_dim, heads, tokens], cache [, sinks [heads]]) -> [head_dim_v, heads, tokens]. Causal inside each sequence,
/// keys and values read back from the cache, query head h uses KV head h / (heads / kv_heads). The cache may be that of
/// an earlier layer. A score s becomes soft_cap * tanh(s / soft_cap), then s - alibi_slope() * distance of the key. A
/// head's sink is the score of one more key that every token sees, whose value is 0 (arXiv:2309.17453).
/// (q, cache, positions [top_k, tokens]), with a cache whose access is Selected: of these keys alone, as SelectKeys
/// gives them, perhaps an earlier layer's; then there are no windows, sinks or ALiBi. Or with positions [top_k,
/// kv_heads, tokens], as SelectBlocks gives them: the heads of each KV head attend to others.
struct Attention {
  float scale = 0;
  float soft_cap = 0;                ///< of scores, which stay below it; 0: none
  float max_bias = 0;                ///< of ALiBi; 0: none
  KeyWindow window = {};             ///< the keys that are seen
  ActFormat query = ActFormat::F32;  ///< of queries where the cache's keys are quantised; a backend's to set
  friend bool operator==(const Attention&, const Attention&) = default;
};
/// Selections of a token, by the shape of their positions.
inline std::int64_t selections_of(const Shape& positions) { return positions.n_dims() == 3 ? positions[1] : 1; }
/// (q [head_dim, heads, tokens], cache, compressed cache, sinks [heads] [, keys [top_k, tokens]]) -> [head_dim, heads,
/// tokens]: in one softmax, the keys of the window and those of the compressed cache, all whose positions lie up to the
/// token, or of these the ones that SelectKeys gives by their numbers. Compressed keys are their own values. Both
/// caches have one head, of the same size.
struct CompressedAttention {
  float scale = 0;
  KeyWindow window = {};             ///< of the keys that are not compressed
  ActFormat query = ActFormat::F32;  ///< as in Attention
  friend bool operator==(const CompressedAttention&, const CompressedAttention&) = default;
};
/// ALiBi (arXiv:2108.12409): slopes fall from head to head by the same factor, down to 2^-max_bias. Of heads whose
/// number is no power of two, those beyond one have slopes halfway between the first.
float alibi_slope(float max_bias, int heads, int head);

/// (x [channels, tokens], w [width, channels], state [channels, (width - 1) * dilation] [, bias [channels]]) -> y
/// [channels, tokens], a causal convolution along each sequence: y_t = activation(sum_i w_i x_(t - (width - 1 - i) *
/// dilation) + bias). The state holds the sequence's last rows of x, oldest first; before its first token there are
/// zeros.
struct ShortConv {
  Activation activation = Activation::Silu;  ///< or Identity
  int dilation = 1;
  friend bool operator==(const ShortConv&, const ShortConv&) = default;
};

/// (x [channels, tokens], state [channels, width - 1]) -> y [channels, tokens]: the mean of a sequence's last `width`
/// rows of x, a ShortConv whose weights are all the same.
struct WindowMean {
  int width = 0;
  friend bool operator==(const WindowMean&, const WindowMean&) = default;
};

/// (x [f * n, tokens], scores [f * n, tokens], w [f * n, stride], positions, state [n, 3, f]) -> y [n, tokens]:
/// each `stride` neighbouring positions of a sequence become one row, which the last of them has; the others' are 0. A
/// row is the mean of theirs, each element by the softmax of its scores plus w of the position's place among its
/// neighbours. With f = 2 parts, the second is that of a position's own row, the first that of the next one,
/// which so overlaps with the one before. Of each part the state holds the greatest score, the sum of the weights that
/// it makes 1, and the weighted sum; zeros before the first.
struct Compress {
  friend bool operator==(const Compress&, const Compress&) = default;
};

/// Which key head a value head goes with.
enum class HeadSharing : std::uint8_t {
  Grouped,  ///< value head h: key head h / (value_heads / key_heads)
  Tiled,    ///< value head h: key head h % key_heads
};
/// (qkv [2 * key_heads * dk + value_heads * dv, tokens], alpha [value_heads or dk * value_heads, tokens], beta
/// [value_heads, tokens], a [value_heads], bias as long as alpha, state [dv, dk, value_heads]) -> y [dv, value_heads,
/// tokens]: the gated delta rule (arXiv:2412.06464) along each sequence, whose state begins with zeros. Of a token, qkv
/// holds the heads of q, those of k and those of v, one after another. With q and k divided by sqrt(|.|^2 + eps), q by
/// sqrt(dk) as well, for each value head: S = exp(a * softplus(alpha + bias)) S, then S += k (sigmoid(beta) (v - S^T
/// k))^T, then y = S^T q. Where a head has dk of alpha, each row of S decays by its own (Kimi Delta Attention,
/// arXiv:2510.26692). With a floor, S decays by exp(floor * sigmoid(|a| * (alpha + bias))) instead, never by more than
/// exp(floor).
struct GatedDelta {
  int key_heads = 0;
  HeadSharing sharing = HeadSharing::Grouped;
  float eps = 0;
  float floor = 0;  ///< below 0, or 0: none
  friend bool operator==(const GatedDelta&, const GatedDelta&) = default;
};

/// (xbc [heads * p + 2 * groups * n, tokens], dt [heads, tokens], a [1, heads], d [1, heads], bias [heads], state [p,
/// n, heads]) -> y [p, heads, tokens]: the selective state space of Mamba-2 (arXiv:2405.21060) along each sequence,
/// whose state begins with zeros. Of a token, xbc holds the heads of x, the groups of B and those of C, one after
/// another; head h goes with group h / (heads / groups). With s = softplus(dt + bias), for each head: S = exp(a s) S +
/// B (s x)^T, then y = S^T C + d x. Or, as Mamba has it (arXiv:2312.00752), each element of x has a step and a d of its
/// own and each element of S an a: dt [p * heads, tokens], a [n, p * heads], d and bias [p * heads].
struct SelectiveScan {
  int groups = 1;
  friend bool operator==(const SelectiveScan&, const SelectiveScan&) = default;
};
/// Whether a scan is one of elements with steps of their own, by the shapes of a and of the state.
inline bool scans_elements(const Shape& a, const Shape& state) {
  return a != Shape{1, state[2]} && a == Shape{state[1], state[0] * state[2]};
}

/// (x [channels, tokens], state [channels, 1]) -> [channels, tokens], how a sequence's row before differs: x_(t - 1) -
/// x_t. The state holds the last row of x; before the first one there are zeros.
struct TokenShift {
  friend bool operator==(const TokenShift&, const TokenShift&) = default;
};

/// (x [n, rows], d [n, rows], w [n, m] [, more [n, m, rows]]) -> m results [n, rows]: x + d * (w_j + more_j)
struct Lerp {
  friend bool operator==(const Lerp&, const Lerp&) = default;
};
inline constexpr std::int64_t kMostLerps = 8;  ///< m

/// (r [n * heads, tokens], k, v [n * kv_heads, tokens], w [n * heads, tokens], state [n, n, heads] [, first [n,
/// heads]]) -> y [n, heads, tokens]: the recurrence of RWKV-6 (arXiv:2404.05892) along each sequence, whose state
/// begins with zeros. For each head, with d = exp(-exp(w)): y = (S + (first * k) v^T)^T r, then S = diag(d) S + k v^T.
/// Without `first`, gated linear attention (arXiv:2312.06635): S = diag(d) S + ((1 - d) * k) v^T, then y = S^T r /
/// sqrt(n). Head h goes with the keys and values of head h / (heads / kv_heads).
struct Wkv6 {
  friend bool operator==(const Wkv6&, const Wkv6&) = default;
};

/// (r, k, v, w, a [n * heads, tokens], k_k, k_a, r_k [n * heads], state [n, n, heads] [, v_first, mix [n * heads,
/// tokens]]) -> (y, own [n, heads, tokens]): the recurrence of RWKV-7 (arXiv:2503.14456) along each sequence, whose
/// state begins with zeros. For each head, with rate = sigmoid(a), u = k * k_k / |k * k_k|, d = exp(-kWkvDecay *
/// sigmoid(w)), k' = k * (1 + (rate - 1) * k_a), v' = v + (v_first - v) * sigmoid(mix): S = diag(d) S - (rate * u)
/// (S^T u)^T + k' v'^T, of S as it was on the right, then y = S^T r. Beside it, own = (sum of r * k' * r_k) v'.
struct Wkv7 {
  friend bool operator==(const Wkv7&, const Wkv7&) = default;
};
inline constexpr float kWkvDecay = 0.60653066f;  ///< exp(-1/2), the most that a state's logarithm decays by
inline constexpr float kLeastWkvKey = 1e-24f;    ///< the square of the length that a shorter key counts as

enum class Gating : std::uint8_t {
  Softmax,
  Sigmoid,
  RootSoftplus,  ///< sqrt(ln(1 + e^logit))
};
std::string_view name(Gating);
enum class RouteWeights : std::uint8_t {
  AsGated,       ///< the gate's value of each chosen expert
  Renormalized,  ///< divided by their sum over the chosen experts
  NearBest,  ///< of each choice, softmax's value among the experts not chosen before it whose logits are near its own
};
/// Of logits l at most t: near it if (t - l) / max(|l|, t) is no more (arXiv:2409.12136, at inference).
inline constexpr float kNearBest = 0.02f;
/// (logits [experts, tokens] [, bias [experts]]) -> (expert ids [top_k, tokens], weights [top_k, tokens]), best first,
/// ties to the lowest id. Best is the gate's value plus the bias, which the weights know nothing of. Of experts in
/// groups, as many in each, those of the best `groups_used` groups alone are chosen from; a group is as good as the sum
/// of its `group_best` best experts (arXiv:2412.19437), ties to the first. A NaN among a token's logits makes all of
/// its weights NaN, chosen or not; its ids stay valid and distinct.
/// (logits, table [top_k, vocab] of I32, tokens) -> the same, the ids being the row of the table of each token.
struct Route {
  int top_k = 0;
  Gating gating = Gating::Softmax;
  RouteWeights weights = RouteWeights::AsGated;
  float scale = 1;
  int groups = 1, groups_used = 1, group_best = 2;
  friend bool operator==(const Route&, const Route&) = default;
};
/// Chosen gates may all be next to nothing, by a sigmoid or where a bias chose: added to their sum before they are
/// divided by it.
inline constexpr float kLeastGates = 1e-20f;

/// (x [k, tokens] or [k, top_k, tokens], expert ids, w_i [k, n_i, experts] ..., then bias_i [n_i, experts] and scale_i
/// [experts] as in Linear) -> y_i [n_i, top_k, tokens]
struct ExpertLinear {
  std::vector<Product> products;
  friend bool operator==(const ExpertLinear&, const ExpertLinear&) = default;
};

/// (x [n, top_k, tokens], weights [top_k, tokens]) -> [n, tokens]: the weighted sum in the order of the routes
struct Combine {
  friend bool operator==(const Combine&, const Combine&) = default;
};

/// (x [n, m, rows], w [m, k, rows]) -> y [n, k, rows]: of a row's m vectors, k sums: y_j = sum_i w_ij x_i
struct StreamMix {
  friend bool operator==(const StreamMix&, const StreamMix&) = default;
};

/// (x [n, m, rows], y [n, rows] [, w [m, rows]]) -> [n, m, rows]: x_i + (1 + w_i) y to a row's vectors from the
/// `first` on, the others as they are
struct StreamAdd {
  int first = 0;
  friend bool operator==(const StreamAdd&, const StreamAdd&) = default;
};

/// (x [(2 + m) * m, rows], scales [3], biases [(2 + m) * m]) -> (read [m, 1, rows], write [m, rows], mix [m, m, rows]),
/// how a part of a layer works with m vectors (manifold-constrained hyper-connections, arXiv:2512.24880): read and mix
/// are weights of a StreamMix, write those of a StreamAdd. With z = x * scale + bias, one scale for each of the three:
/// read = sigmoid(z) + eps, write = 2 sigmoid(z) - 1. The m numbers that z has for each vector of mix say how it is
/// shared out: their softmax plus eps, divided in turns, `iterations` times, by the sums over the vectors and by those
/// over the shares, plus eps, with those over the vectors first and last (Sinkhorn).
/// (x [m, rows], scales [1], biases [m]) -> read alone.
struct StreamWeights {
  float eps = 0;
  int iterations = 1;
  friend bool operator==(const StreamWeights&, const StreamWeights&) = default;
};
inline constexpr std::int64_t kMostStreams = 16;  ///< of a StreamWeights
/// m of (2 + m) * m weights; 0 if there is none.
std::int64_t stream_count(std::int64_t weights);

/// (x [n, m, rows], gate [n, m, rows]) -> [n, rows]: the mean of a row's vectors, each element times sigmoid(gate)
struct StreamMean {
  friend bool operator==(const StreamMean&, const StreamMean&) = default;
};

/// (x [n, m, rows], last [n, rows], w [n]) -> [n, rows]: the mean of a row's m vectors and of a last one, each by its
/// share of a softmax over all: that of x_i . w / sqrt(mean(x_i^2) + eps) (what Kimi K3 calls attention residuals)
struct StreamBlend {
  float eps = 0;
  friend bool operator==(const StreamBlend&, const StreamBlend&) = default;
};
inline constexpr std::int64_t kMostBlended = 64;  ///< m of a StreamBlend

/// (a [n, m, rows], b [n, m, rows]) -> [m, rows]: how well vectors go together (Engram, arXiv:2601.07372),
/// sigmoid(root) with s = a_i . b_i / sqrt(n), root = sqrt(max(|s|, kLeastMatch)) with the sign of s, 0 where s is 0
struct MatchGate {
  friend bool operator==(const MatchGate&, const MatchGate&) = default;
};
inline constexpr float kLeastMatch = 1e-6f;

/// (x [n, rows]) -> max(0, x - (mean + deviations * s)), s^2 = sum((x - mean)^2) / (n - 1) of a row: of a normal
/// distribution, the share that lies so far out stays
struct GaussianTop {
  float deviations = 0;
  friend bool operator==(const GaussianTop&, const GaussianTop&) = default;
};

/// (a, b) -> a + b
struct Add {
  friend bool operator==(const Add&, const Add&) = default;
};

/// (x [n, ..., rows] [, w [1] or [n]]) -> x * factor * w; of x [n, m, rows], w may be [1, m], a number for each vector
struct Scale {
  float factor = 1;
  friend bool operator==(const Scale&, const Scale&) = default;
};
inline bool scales_vectors(const Shape& w) { return w[0] == 1 && w[1] > 1; }

/// (x) -> cap * tanh(x / cap)
struct SoftCap {
  float cap = 1;
  friend bool operator==(const SoftCap&, const SoftCap&) = default;
};

/// (x) -> the caller's function of each element, called from one thread, in order; what it throws ends the step. Two
/// Map ops are the same if their names are.
struct Map {
  std::string name;
  std::shared_ptr<const std::function<float(float)>> function;
  friend bool operator==(const Map& a, const Map& b) { return a.name == b.name; }
};

/// (x [n, ..., tokens], out_rows) -> [n, ..., outputs]: the rows whose results are wanted
struct Rows {
  friend bool operator==(const Rows&, const Rows&) = default;
};

/// (x [m, ..., rows]) -> [n, ..., rows]: elements [begin, begin + n) of dimension 0
struct Slice {
  std::int64_t begin = 0, n = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// (a [m, heads, rows], b [n, heads or 1, rows]) -> [m + n, heads, rows]: each head of a, behind it that of b or b's
/// only one
struct Concat {
  friend bool operator==(const Concat&, const Concat&) = default;
};

/// (x [n, heads, rows]) -> ids [heads, rows], those of the heads: by them an ExpertLinear multiplies each head of x by
/// a matrix of its own
struct HeadIds {
  friend bool operator==(const HeadIds&, const HeadIds&) = default;
};

/// (ids [top_k, rows]) -> [top_k, rows], ids / size: which of the groups of so many neighbouring experts each is in
struct GroupIds {
  int size = 1;
  friend bool operator==(const GroupIds&, const GroupIds&) = default;
};

/// (x [m, rows]) -> x, but for elements [begin, begin + n) of each row, which are the lowest number that there is:
/// logits of tokens that are never to come
struct Silence {
  std::int64_t begin = 0, n = 0;
  friend bool operator==(const Silence&, const Silence&) = default;
};

/// (x) -> the same data under another shape; rows stay rows
struct Reshape {
  friend bool operator==(const Reshape&, const Reshape&) = default;
};

using AnyOp =
    std::variant<Embed, HashIds, Linear, LayerNorm, RmsNorm, AddRmsNorm, Glu, Activate, RopeTable, PositionScale, Rope,
                 KvAppend, SelectKeys, SelectBlocks, Attention, CompressedAttention, ShortConv, WindowMean, Compress,
                 GatedDelta, SelectiveScan, TokenShift, Lerp, Wkv6, Wkv7, Route, ExpertLinear, Combine, StreamMix,
                 StreamAdd, StreamWeights, StreamMean, StreamBlend, MatchGate, GaussianTop, Add, Scale, SoftCap, Map,
                 Rows, Slice, Concat, HeadIds, GroupIds, Silence, Reshape>;
/// An op. What copies, moves and ends one goes by its kind, so it is compiled once, in op.cpp.
struct Op : AnyOp {
  using AnyOp::AnyOp;
  Op(const Op&);
  Op(Op&&) noexcept;
  Op& operator=(const Op&);
  Op& operator=(Op&&) noexcept;
  ~Op();
};

/// The products of a Linear or an ExpertLinear; of any other op none.
std::span<const Product> products(const Op&);
std::span<Product> products(Op&);
/// Which operands of the node belong to a product; 0, the place of x, for what it lacks.
struct ProductOperands {
  std::size_t weight = 0, bias = 0, scale = 0;
};
std::vector<ProductOperands> product_operands(const Op&);

std::string_view name(const Op&);
/// Attributes in words for printing: "eps=1e-05"; empty if there are none.
std::string attributes(const Op&);

/// Which part of the model a node belongs to, so that a placement rule can move, say, the experts alone.
enum class Role : std::uint8_t { Embed, Attention, Ffn, Router, Experts, Head };
std::string_view name(Role);

}  // namespace llm
