// Layers with a recurrent state. A sequence's tokens are taken one after another, in tiles of channels or of columns of
// values that know nothing of each other: no bit depends on how a prompt was cut or who computed what.
#include "backend/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/step.h"
#include "backend/host/ops.h"
#include "base/error.h"
#include "tensor/decode.h"

namespace llm::cpu {
namespace {

/// A ShortConv; or a WindowMean or a TokenShift, whose weights are the instruction's own.
class ConvInstruction final : public Instruction {
 public:
  ConvInstruction(const InstructionSite& site, const ShortConv& op)
      : x_(site.in[0]),
        w_(site.in[1]),
        state_(site.in[2]),
        bias_(site.optional_in(3)),
        y_(site.out[0]),
        fn_(site.kernels.short_conv),
        what_("short_conv"),
        w_type_(site.in_info(1).type.dtype),
        queues_(site.threads) {
    args_.silu = op.activation == Activation::Silu;
    args_.width = site.in_info(1).type.shape[0];
    args_.dilation = op.dilation;
    count_channels(site);
  }
  ConvInstruction(const InstructionSite& site, const WindowMean& op)
      : x_(site.in[0]),
        state_(site.in[1]),
        y_(site.out[0]),
        fn_(site.kernels.short_conv),
        what_("window_mean"),
        queues_(site.threads) {
    args_.silu = false;
    args_.width = op.width;
    count_channels(site);
    own_.assign(static_cast<std::size_t>(args_.channels * args_.width), 1 / static_cast<float>(op.width));
  }
  ConvInstruction(const InstructionSite& site, const TokenShift&)
      : x_(site.in[0]),
        state_(site.in[1]),
        y_(site.out[0]),
        fn_(site.kernels.short_conv),
        what_("token_shift"),
        queues_(site.threads) {
    args_.silu = false;
    args_.width = 2;
    count_channels(site);
    for (std::int64_t i = 0; i < args_.channels; ++i) own_.insert(own_.end(), {1.0f, -1.0f});
  }

  void run(const Frame& f, const Worker& w) override {
    const std::int64_t tasks = parts_ * std::ssize(f.step->sequences);
    ShareQueues::Share share = queues_.open(f.turn, w, tasks);
    for (std::int64_t task = share.take(); task < tasks; task = share.take()) {
      const std::int64_t begin = task % parts_ * kChannels, end = std::min(begin + kChannels, args_.channels);
      ShortConvArgs a = args_for(f, static_cast<std::size_t>(task / parts_));
      a.w = weights(f, w, begin, end);
      fn_(a, begin, end);
    }
  }
  std::string describe() const override {
    return std::string(what_) + " of " + std::to_string(args_.channels) + " channels, width " +
           std::to_string(args_.width) + (args_.dilation > 1 ? ", dilation " + std::to_string(args_.dilation) : "");
  }

 private:
  static constexpr std::int64_t kChannels = 128;  ///< of a task: eight lines of a row

  void count_channels(const InstructionSite& site) {
    args_.channels = site.in_info(0).type.shape[0];
    parts_ = (args_.channels + kChannels - 1) / kChannels;
  }

  /// Those of channels [begin, end) are at their places.
  const float* weights(const Frame& f, const Worker& w, std::int64_t begin, std::int64_t end) const {
    static_assert(kChannels * kMaxConvWidth * sizeof(float) <= kScratchBytes);
    if (!own_.empty()) return own_.data();
    if (w_type_ == DType::F32) return f.f32(w_);
    const std::size_t bytes = static_cast<std::size_t>(begin * args_.width) * info(w_type_).block_bytes;
    auto* const decoded = reinterpret_cast<float*>(w.scratch);
    decode(w_type_, f.slots[w_].data + bytes, decoded, (end - begin) * args_.width);
    return decoded - begin * args_.width;
  }

  ShortConvArgs args_for(const Frame& f, std::size_t sequence) const {
    const SequenceSpan& span = f.step->sequences[sequence];
    const StateMove& move = f.step->states[sequence];
    ShortConvArgs a = args_;
    a.x = f.f32(x_) + span.first_token * a.channels;
    a.y = f.f32(y_) + span.first_token * a.channels;
    a.bias = f.optional(bias_);
    a.from = slot_of(f, state_, move.from, a.kept() * a.channels);
    a.to = slot_of(f, state_, move.to, a.kept() * a.channels);
    a.tokens = span.n_tokens;
    return a;
  }

  int x_, w_ = InstructionSite::kAbsent, state_, bias_ = InstructionSite::kAbsent, y_;
  ShortConvFn fn_;
  const char* what_;
  ShortConvArgs args_;
  DType w_type_ = DType::F32;
  std::vector<float> own_;
  std::int64_t parts_ = 0;
  ShareQueues queues_;
};

class CompressInstruction final : public Instruction {
 public:
  explicit CompressInstruction(const InstructionSite& site)
      : x_(site.in[0]),
        scores_(site.in[1]),
        places_(site.in[2]),
        positions_(site.in[3]),
        state_(site.in[4]),
        y_(site.out[0]),
        fn_(site.kernels.compress),
        places_type_(site.in_info(2).type),
        queues_(site.threads) {
    const Shape& state = site.in_info(4).recurrent.shape;
    args_.n = state[0];
    args_.parts = state[2];
    args_.stride = site.in_info(2).type.shape[1];
    shares_ = (args_.n + kElements - 1) / kElements;
  }

  void run(const Frame& f, const Worker& w) override {
    const std::int64_t tasks = shares_ * std::ssize(f.step->sequences);
    ShareQueues::Share share = queues_.open(f.turn, w, tasks);
    for (std::int64_t task = share.take(); task < tasks; task = share.take()) {
      const std::int64_t begin = task % shares_ * kElements;
      CompressArgs a = args_for(f, static_cast<std::size_t>(task / shares_));
      a.places = places(f, w, a);
      fn_(a, begin, std::min(begin + kElements, args_.n));
    }
  }
  std::string describe() const override {
    return "compress " + std::to_string(args_.stride) + " rows of " + std::to_string(args_.n) +
           (args_.parts > 1 ? ", overlapping" : "");
  }

 private:
  static constexpr std::int64_t kElements = 64;  ///< of a task: four lines of a row

  /// Rows that the tokens need are at their places.
  const float* places(const Frame& f, const Worker& w, const CompressArgs& a) const {
    if (places_type_.dtype == DType::F32) return f.f32(places_);
    const std::int64_t width = a.parts * a.n;
    auto* const decoded = reinterpret_cast<float*>(w.scratch);
    for (std::int64_t t = 0; t < std::min(a.tokens, a.stride); ++t) {
      const std::int64_t place = a.positions[t] % a.stride;
      const std::size_t bytes = static_cast<std::size_t>(place) * places_type_.row_bytes();
      decode(places_type_.dtype, f.slots[places_].data + bytes, decoded + place * width, width);
    }
    return decoded;
  }

  CompressArgs args_for(const Frame& f, std::size_t sequence) const {
    const SequenceSpan& span = f.step->sequences[sequence];
    const StateMove& move = f.step->states[sequence];
    CompressArgs a = args_;
    const std::int64_t width = a.parts * a.n;
    a.x = f.f32(x_) + span.first_token * width;
    a.scores = f.f32(scores_) + span.first_token * width;
    a.positions = f.i32(positions_) + span.first_token;
    a.from = slot_of(f, state_, move.from, 3 * width);
    a.to = slot_of(f, state_, move.to, 3 * width);
    a.y = f.f32(y_) + span.first_token * a.n;
    a.tokens = span.n_tokens;
    return a;
  }

  int x_, scores_, places_, positions_, state_, y_;
  CompressFn fn_;
  TensorType places_type_;
  CompressArgs args_;
  std::int64_t shares_ = 0;
  ShareQueues queues_;
};

/// One thread: few operations, and a token's go by those before it.
class HashIdsInstruction final : public Instruction {
 public:
  explicit HashIdsInstruction(const InstructionSite& site)
      : op_(std::get<HashIds>(site.node.op)), tokens_(site.in[0]), state_(site.in[1]), ids_(site.out[0]) {}
  void run(const Frame& f, const Worker& w) override {
    if (w.thread != 0) return;
    const auto kept = static_cast<std::int64_t>(op_.multipliers.size()) - 1;
    for (std::size_t s = 0; s < f.step->sequences.size(); ++s) {
      const SequenceSpan& span = f.step->sequences[s];
      const StateMove& move = f.step->states[s];
      host::hash_ids(op_, {f.i32(tokens_) + span.first_token, static_cast<std::size_t>(span.n_tokens)},
                     slot_of(f, state_, move.from, kept), slot_of(f, state_, move.to, kept),
                     f.i32(ids_) + span.first_token * std::ssize(op_.sizes));
    }
  }
  std::string describe() const override { return "hash_ids heads=" + std::to_string(op_.sizes.size()); }

 private:
  HashIds op_;
  int tokens_, state_, ids_;
};

void check_gates_fit(std::int64_t heads) {
  check(2 * static_cast<std::size_t>(heads) * sizeof(float) <= kScratchBytes, "a token's gates fit the scratch");
}

/// Gates of some heads of a token while they are computed, in a thread's scratch: the decays, and the rates or steps.
struct GateRows {
  GateRows(const Worker& w, std::int64_t n) : n(n), decays(reinterpret_cast<float*>(w.scratch)), others(decays + n) {}
  /// As kernels read them.
  void interleave(float* gates) const {
    for (std::int64_t i = 0; i < n; ++i) gates[2 * i] = decays[i], gates[2 * i + 1] = others[i];
  }

  std::int64_t n;
  float *decays, *others;
};

class GatedDeltaInstruction final : public Instruction {
 public:
  explicit GatedDeltaInstruction(const InstructionSite& site)
      : in_(site.in),
        y_(site.out[0]),
        scratch_(site.scratch),
        op_(std::get<GatedDelta>(site.node.op)),
        kernels_(site.kernels),
        queues_(site.threads) {
    const Shape& state = site.in_info(5).recurrent.shape;
    dv_ = state[0], dk_ = state[1], heads_ = state[2];
    check_gates_fit(heads_);
    width_ = site.in_info(0).type.shape[0];
    of_rows_ = site.in_info(1).type.shape[0] != heads_;
    // Of length: x / sqrt(|x|^2 + eps) is the root mean square norm with weights of 1 / sqrt(n) and eps / n.
    const auto n = static_cast<double>(dk_);
    q_weights_.assign(static_cast<std::size_t>(dk_), static_cast<float>(1 / n));
    k_weights_.assign(static_cast<std::size_t>(dk_), static_cast<float>(1 / std::sqrt(n)));
    norm_eps_ = static_cast<float>(static_cast<double>(op_.eps) / n);
  }

  void run(const Frame& f, const Worker& w) override {
    const auto [begin, end] = w.share(f.rows.tokens * op_.key_heads);
    for (std::int64_t item = begin; item < end; ++item) prepare(f, w, item / op_.key_heads, item % op_.key_heads);
    w.sync();
    const ColumnTasks tasks(f, dv_, heads_);
    ShareQueues::Share share = queues_.open(f.turn, w, tasks.n);
    for (std::int64_t task = share.take(); task < tasks.n; task = share.take())
      kernels_.gated_delta(args_for(f, tasks.sequence(task), tasks.head(task)), tasks.begin(task), tasks.end(task),
                           w.scratch);
  }
  std::string describe() const override {
    return "gated_delta heads=" + std::to_string(heads_) + "/" + std::to_string(op_.key_heads) + " state " +
           std::to_string(dk_) + "x" + std::to_string(dv_) + (of_rows_ ? ", decays of rows" : "") + ", tiles of " +
           std::to_string(kDeltaColumns) + " columns";
  }

 private:
  /// Of a token: q and k of its key heads, then decay and rate of its value heads, then perhaps decays of their rows.
  std::int64_t row() const { return 2 * (op_.key_heads * dk_ + heads_) + (of_rows_ ? heads_ * dk_ : 0); }
  float* prepared(const Frame& f, std::int64_t token) const {
    return reinterpret_cast<float*>(f.slots[scratch_].data) + token * row();
  }
  float* gates(const Frame& f, std::int64_t token) const { return prepared(f, token) + 2 * op_.key_heads * dk_; }

  float* decays(const Frame& f, std::int64_t token) const { return gates(f, token) + 2 * heads_; }
  /// Of `n` value heads from `first` on.
  void decays_of_rows(const Frame& f, std::int64_t token, std::int64_t first, std::int64_t n) const {
    float* const to = decays(f, token) + first * dk_;
    const auto by_heads = [&] {
      for (std::int64_t h = 0; h < n; ++h)
        kernels_.scale(to + h * dk_, to + h * dk_, dk_, gate_factor(f.f32(in_[3])[first + h]));
    };
    kernels_.add(f.f32(in_[1]) + (token * heads_ + first) * dk_, f.f32(in_[4]) + first * dk_, to, n * dk_);
    to_decays(to, n * dk_, by_heads);
  }
  /// What sums of alpha and bias are multiplied with.
  float gate_factor(float a) const { return op_.floor < 0 ? std::abs(a) : a; }
  /// alpha + bias; `by_a` multiplies by gate_factor() of a.
  template <class ByA>
  void to_decays(float* x, std::int64_t n, const ByA& by_a) const {
    if (op_.floor < 0) {
      by_a();
      kernels_.sigmoid(x, x, n);
      kernels_.scale(x, x, n, op_.floor);
    } else {
      kernels_.softplus(x, x, n);
      by_a();
    }
    kernels_.exp(x, x, n);
  }

  /// A key head of a token, and its share of the value heads' gates.
  void prepare(const Frame& f, const Worker& w, std::int64_t token, std::int64_t key_head) const {
    const float* const q = f.f32(in_[0]) + token * width_ + key_head * dk_;
    const std::int64_t to_k = op_.key_heads * dk_, shared = heads_ / op_.key_heads;
    float* const to = prepared(f, token) + key_head * dk_;
    kernels_.rms_norm(q, q_weights_.data(), to, dk_, norm_eps_);
    kernels_.rms_norm(q + to_k, k_weights_.data(), to + to_k, dk_, norm_eps_);
    const std::int64_t first = key_head * shared, here = token * heads_ + first;
    const GateRows rows(w, shared);
    kernels_.sigmoid(f.f32(in_[2]) + here, rows.others, shared);
    if (of_rows_) {
      decays_of_rows(f, token, first, shared);
      std::fill_n(rows.decays, shared, 1.0f);  // nobody reads them
    } else {
      kernels_.add(f.f32(in_[1]) + here, f.f32(in_[4]) + first, rows.decays, shared);
      to_decays(rows.decays, shared, [&] {
        for (std::int64_t h = 0; h < shared; ++h) rows.decays[h] *= gate_factor(f.f32(in_[3])[first + h]);
      });
    }
    rows.interleave(gates(f, token) + 2 * first);
  }

  GatedDeltaArgs args_for(const Frame& f, std::size_t sequence, std::int64_t head) const {
    const SequenceSpan& span = f.step->sequences[sequence];
    const StateMove& move = f.step->states[sequence];
    const std::int64_t key_head =
        op_.sharing == HeadSharing::Tiled ? head % op_.key_heads : head / (heads_ / op_.key_heads);
    const std::int64_t size = dk_ * dv_, first = span.first_token;
    const auto state = [&](std::int32_t slot) {
      float* const all = slot_of(f, in_[5], slot, heads_ * size);
      return all == nullptr ? nullptr : all + head * size;
    };
    const float* const q = prepared(f, first) + key_head * dk_;
    return {.q = q,
            .k = q + op_.key_heads * dk_,
            .v = f.f32(in_[0]) + first * width_ + 2 * op_.key_heads * dk_ + head * dv_,
            .gates = gates(f, first) + 2 * head,
            .decays = of_rows_ ? decays(f, first) + head * dk_ : nullptr,
            .y = f.f32(y_) + (first * heads_ + head) * dv_,
            .from = state(move.from),
            .to = state(move.to),
            .ld_key = row(),
            .ld_v = width_,
            .ld_gates = row(),
            .ld_y = heads_ * dv_,
            .dk = dk_,
            .dv = dv_,
            .tokens = span.n_tokens};
  }

  std::vector<int> in_;
  int y_, scratch_;
  GatedDelta op_;
  const Kernels& kernels_;
  std::int64_t dk_ = 0, dv_ = 0, heads_ = 0, width_ = 0;
  bool of_rows_ = false;  ///< decays
  std::vector<float> q_weights_, k_weights_;
  float norm_eps_ = 0;
  ShareQueues queues_;
};

class SelectiveScanInstruction final : public Instruction {
 public:
  explicit SelectiveScanInstruction(const InstructionSite& site)
      : in_(site.in),
        y_(site.out[0]),
        scratch_(site.scratch),
        groups_(std::get<SelectiveScan>(site.node.op).groups),
        width_(site.in_info(0).type.shape[0]),
        kernels_(site.kernels),
        queues_(site.threads) {
    const Shape& state = site.in_info(5).recurrent.shape;
    p_ = state[0], n_ = state[1], heads_ = state[2];
    check_gates_fit(heads_);
    of_elements_ = scans_elements(site.in_info(2).type.shape, state);
  }

  void run(const Frame& f, const Worker& w) override {
    const auto [begin, end] = w.share(f.rows.tokens);
    for (std::int64_t token = begin; token < end; ++token) prepare(f, w, token);
    w.sync();
    const ColumnTasks tasks(f, p_, heads_);
    ShareQueues::Share share = queues_.open(f.turn, w, tasks.n);
    for (std::int64_t task = share.take(); task < tasks.n; task = share.take())
      kernels_.selective_scan(args_for(f, tasks.sequence(task), tasks.head(task)), tasks.begin(task), tasks.end(task),
                              w.scratch);
  }
  std::string describe() const override {
    return "selective_scan heads=" + std::to_string(heads_) + "/" + std::to_string(groups_) + " state " +
           std::to_string(n_) + "x" + std::to_string(p_) + ", tiles of " + std::to_string(kDeltaColumns) + " columns";
  }

 private:
  /// Of a token.
  std::int64_t steps() const { return heads_ * (of_elements_ ? p_ : 1); }
  /// Decay and step of each token's heads, or steps of its elements.
  float* gates(const Frame& f) const { return reinterpret_cast<float*>(f.slots[scratch_].data); }

  void prepare(const Frame& f, const Worker& w, std::int64_t token) const {
    const float* const dt = f.f32(in_[1]) + token * steps();
    if (of_elements_) {
      float* const to = gates(f) + token * steps();
      kernels_.add(dt, f.f32(in_[4]), to, steps());
      kernels_.softplus(to, to, steps());
      return;
    }
    const GateRows rows(w, heads_);
    kernels_.add(dt, f.f32(in_[4]), rows.others, heads_);
    kernels_.softplus(rows.others, rows.others, heads_);
    kernels_.mul(f.f32(in_[2]), rows.others, rows.decays, heads_);
    kernels_.exp(rows.decays, rows.decays, heads_);
    rows.interleave(gates(f) + 2 * token * heads_);
  }

  SelectiveScanArgs args_for(const Frame& f, std::size_t sequence, std::int64_t head) const {
    const SequenceSpan& span = f.step->sequences[sequence];
    const StateMove& move = f.step->states[sequence];
    const std::int64_t size = n_ * p_, first = span.first_token;
    const auto state = [&](std::int32_t slot) {
      float* const all = slot_of(f, in_[5], slot, heads_ * size);
      return all == nullptr ? nullptr : all + head * size;
    };
    const float* const x = f.f32(in_[0]) + first * width_;
    const float* const b = x + heads_ * p_ + head / (heads_ / groups_) * n_;
    const std::int64_t row = of_elements_ ? steps() : 2 * heads_, own = of_elements_ ? head * p_ : head;
    return {.x = x + head * p_,
            .b = b,
            .c = b + groups_ * n_,
            .gates = gates(f) + first * row + (of_elements_ ? own : 2 * head),
            .a = of_elements_ ? f.f32(in_[2]) + own * n_ : nullptr,
            .skips = f.f32(in_[3]) + own,
            .y = f.f32(y_) + (first * heads_ + head) * p_,
            .from = state(move.from),
            .to = state(move.to),
            .ld_in = width_,
            .ld_gates = row,
            .ld_y = heads_ * p_,
            .n = n_,
            .p = p_,
            .tokens = span.n_tokens};
  }

  std::vector<int> in_;
  int y_, scratch_;
  std::int64_t groups_, width_;
  const Kernels& kernels_;
  std::int64_t n_ = 0, p_ = 0, heads_ = 0;
  bool of_elements_ = false;
  ShareQueues queues_;
};

}  // namespace

std::size_t gated_delta_scratch_bytes(const Graph& g, const Node& n) {
  const Shape& state = g.info(n.in[5]).recurrent.shape;
  const std::int64_t decays = g.info(n.in[1]).type.shape[0];
  const std::int64_t row =
      2 * (std::get<GatedDelta>(n.op).key_heads * state[1] + state[2]) + (decays != state[2] ? decays : 0);
  return static_cast<std::size_t>(g.bucket().tokens * row) * sizeof(float);
}

std::unique_ptr<Instruction> make_short_conv(const InstructionSite& site) {
  return std::make_unique<ConvInstruction>(site, std::get<ShortConv>(site.node.op));
}
std::unique_ptr<Instruction> make_window_mean(const InstructionSite& site) {
  return std::make_unique<ConvInstruction>(site, std::get<WindowMean>(site.node.op));
}
std::unique_ptr<Instruction> make_token_shift(const InstructionSite& site) {
  return std::make_unique<ConvInstruction>(site, std::get<TokenShift>(site.node.op));
}
std::unique_ptr<Instruction> make_compress(const InstructionSite& site) {
  return std::make_unique<CompressInstruction>(site);
}
std::unique_ptr<Instruction> make_hash_ids(const InstructionSite& site) {
  return std::make_unique<HashIdsInstruction>(site);
}

std::size_t selective_scan_scratch_bytes(const Graph& g, const Node& n) {
  const Shape& state = g.info(n.in[5]).recurrent.shape;
  const bool of_elements = scans_elements(g.info(n.in[2]).type.shape, state);
  return static_cast<std::size_t>(g.bucket().tokens * state[2] * (of_elements ? state[0] : 2)) * sizeof(float);
}

std::unique_ptr<Instruction> make_selective_scan(const InstructionSite& site) {
  return std::make_unique<SelectiveScanInstruction>(site);
}

std::unique_ptr<Instruction> make_gated_delta(const InstructionSite& site) {
  return std::make_unique<GatedDeltaInstruction>(site);
}

}  // namespace llm::cpu
