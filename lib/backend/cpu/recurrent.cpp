// Layers with a recurrent state. A sequence's tokens are taken one after another, in tiles of channels or of columns of
// values that know nothing of each other: no bit depends on how a prompt was cut or who computed what.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/step.h"
#include "backend/host/ops.h"

namespace llm::cpu {
namespace {

/// A recurrent state in a slot; null for slot -1.
float* slot_of(const Frame& f, int state, std::int32_t slot, std::int64_t elements) {
  return slot < 0 ? nullptr : f.f32(state) + slot * elements;
}

class ShortConvInstruction final : public Instruction {
 public:
  explicit ShortConvInstruction(const InstructionSite& site)
      : x_(site.in[0]),
        w_(site.in[1]),
        state_(site.in[2]),
        bias_(site.optional_in(3)),
        y_(site.out[0]),
        fn_(site.kernels.short_conv) {
    args_.silu = std::get<ShortConv>(site.node.op).activation == Activation::Silu;
    args_.channels = site.in_info(0).type.shape[0];
    args_.width = site.in_info(1).type.shape[0];
    parts_ = (args_.channels + kChannels - 1) / kChannels;
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    const std::int64_t tasks = parts_ * std::ssize(f.step->sequences);
    for (std::int64_t task = queue.take(); task < tasks; task = queue.take()) {
      const std::int64_t begin = task % parts_ * kChannels;
      fn_(args_for(f, static_cast<std::size_t>(task / parts_)), begin, std::min(begin + kChannels, args_.channels));
    }
  }
  std::string describe() const override {
    return "short_conv of " + std::to_string(args_.channels) + " channels, width " + std::to_string(args_.width);
  }

 private:
  static constexpr std::int64_t kChannels = 128;  ///< of a task: eight lines of a row

  ShortConvArgs args_for(const Frame& f, std::size_t sequence) const {
    const SequenceSpan& span = f.step->sequences[sequence];
    const StateMove& move = f.step->states[sequence];
    ShortConvArgs a = args_;
    a.x = f.f32(x_) + span.first_token * a.channels;
    a.y = f.f32(y_) + span.first_token * a.channels;
    a.w = f.f32(w_);
    a.bias = f.optional(bias_);
    a.from = slot_of(f, state_, move.from, (a.width - 1) * a.channels);
    a.to = slot_of(f, state_, move.to, (a.width - 1) * a.channels);
    a.tokens = span.n_tokens;
    return a;
  }

  int x_, w_, state_, bias_, y_;
  ShortConvFn fn_;
  ShortConvArgs args_;
  std::int64_t parts_ = 0;
  TaskQueues queues_;
};

class GatedDeltaInstruction final : public Instruction {
 public:
  explicit GatedDeltaInstruction(const InstructionSite& site)
      : in_(site.in),
        y_(site.out[0]),
        scratch_(site.scratch),
        op_(std::get<GatedDelta>(site.node.op)),
        rms_norm_(site.kernels.rms_norm),
        fn_(site.kernels.gated_delta) {
    const Shape& state = site.in_info(5).recurrent.shape;
    dv_ = state[0], dk_ = state[1], heads_ = state[2];
    parts_ = (dv_ + kDeltaColumns - 1) / kDeltaColumns;
    width_ = site.in_info(0).type.shape[0];
    of_rows_ = site.in_info(1).type.shape[0] != heads_;
    // Of length: x / sqrt(|x|^2 + eps) is the root mean square norm with weights of 1 / sqrt(n) and eps / n.
    const auto n = static_cast<double>(dk_);
    q_weights_.assign(static_cast<std::size_t>(dk_), static_cast<float>(1 / n));
    k_weights_.assign(static_cast<std::size_t>(dk_), static_cast<float>(1 / std::sqrt(n)));
    norm_eps_ = static_cast<float>(static_cast<double>(op_.eps) / n);
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    const auto [begin, end] = w.share(f.rows.tokens * op_.key_heads);
    for (std::int64_t item = begin; item < end; ++item) prepare(f, item / op_.key_heads, item % op_.key_heads);
    w.sync();
    const std::int64_t tasks = parts_ * heads_ * std::ssize(f.step->sequences);
    for (std::int64_t task = queue.take(); task < tasks; task = queue.take()) {
      const std::int64_t head = task / parts_ % heads_;
      fn_(args_for(f, static_cast<std::size_t>(task / parts_ / heads_), head), task % parts_ * kDeltaColumns,
          w.scratch);
    }
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
  /// `n` decays of value head h, from the token's alpha on.
  void decay(const Frame& f, std::int64_t token, std::int64_t from, std::int64_t n, std::int64_t h, float* to) const {
    const float* const alpha = f.f32(in_[1]) + token * heads_ * (of_rows_ ? dk_ : 1) + from;
    const float* const bias = f.f32(in_[4]) + from;
    const float a = f.f32(in_[3])[h];
    for (std::int64_t i = 0; i < n; ++i) to[i] = std::exp(a * host::softplus(alpha[i] + bias[i]));
  }

  /// A key head of a token, and its share of the value heads' gates.
  void prepare(const Frame& f, std::int64_t token, std::int64_t key_head) const {
    const float* const q = f.f32(in_[0]) + token * width_ + key_head * dk_;
    const std::int64_t to_k = op_.key_heads * dk_, shared = heads_ / op_.key_heads;
    float* const to = prepared(f, token) + key_head * dk_;
    rms_norm_(q, q_weights_.data(), to, dk_, norm_eps_);
    rms_norm_(q + to_k, k_weights_.data(), to + to_k, dk_, norm_eps_);
    for (std::int64_t h = key_head * shared; h < (key_head + 1) * shared; ++h) {
      if (of_rows_)
        decay(f, token, h * dk_, dk_, h, decays(f, token) + h * dk_);
      else
        decay(f, token, h, 1, h, gates(f, token) + 2 * h);
      gates(f, token)[2 * h + 1] = host::sigmoid(f.f32(in_[2])[token * heads_ + h]);
    }
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
  RmsNormFn rms_norm_;
  GatedDeltaFn fn_;
  std::int64_t dk_ = 0, dv_ = 0, heads_ = 0, parts_ = 0, width_ = 0;
  bool of_rows_ = false;  ///< decays
  std::vector<float> q_weights_, k_weights_;
  float norm_eps_ = 0;
  TaskQueues queues_;
};

class SelectiveScanInstruction final : public Instruction {
 public:
  explicit SelectiveScanInstruction(const InstructionSite& site)
      : in_(site.in),
        y_(site.out[0]),
        scratch_(site.scratch),
        groups_(std::get<SelectiveScan>(site.node.op).groups),
        width_(site.in_info(0).type.shape[0]),
        fn_(site.kernels.selective_scan) {
    const Shape& state = site.in_info(5).recurrent.shape;
    p_ = state[0], n_ = state[1], heads_ = state[2];
    of_elements_ = scans_elements(site.in_info(2).type.shape, state);
    parts_ = (p_ + kDeltaColumns - 1) / kDeltaColumns;
  }

  void run(const Frame& f, const Worker& w) override {
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    const auto [begin, end] = w.share(f.rows.tokens * steps());
    for (std::int64_t item = begin; item < end; ++item) prepare(f, item, item % steps());
    w.sync();
    const std::int64_t tasks = parts_ * heads_ * std::ssize(f.step->sequences);
    for (std::int64_t task = queue.take(); task < tasks; task = queue.take()) {
      const std::int64_t head = task / parts_ % heads_;
      fn_(args_for(f, static_cast<std::size_t>(task / parts_ / heads_), head), task % parts_ * kDeltaColumns,
          w.scratch);
    }
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

  void prepare(const Frame& f, std::int64_t item, std::int64_t of_token) const {
    const float step = host::softplus(f.f32(in_[1])[item] + f.f32(in_[4])[of_token]);
    if (of_elements_) {
      gates(f)[item] = step;
      return;
    }
    gates(f)[2 * item] = std::exp(f.f32(in_[2])[of_token] * step);
    gates(f)[2 * item + 1] = step;
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
  SelectiveScanFn fn_;
  std::int64_t n_ = 0, p_ = 0, heads_ = 0, parts_ = 0;
  bool of_elements_ = false;
  TaskQueues queues_;
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
  return std::make_unique<ShortConvInstruction>(site);
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
