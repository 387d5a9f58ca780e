// The recurrences of RWKV. What a token has for the rows of a head's state is made first, by tokens and heads; then a
// sequence's tokens are taken one after another, in tiles of columns that know nothing of each other: no bit depends on
// how a prompt was cut or who computed what.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/recurrent.h"
#include "backend/cpu/step.h"

namespace llm::cpu {
namespace {

/// What both have in common: heads of n elements, and rows in the node's scratch of what is made of each token.
class WkvInstruction : public Instruction {
 public:
  void run(const Frame& f, const Worker& w) override {
    const auto [begin, end] = w.share(f.rows.tokens * heads_);
    for (std::int64_t item = begin; item < end; ++item) prepare(f, w, item / heads_, item % heads_);
    w.sync();
    const ColumnTasks tasks(f, n_, heads_);
    ShareQueues::Share share = queues_.open(f.turn, w, tasks.n);
    for (std::int64_t task = share.take(); task < tasks.n; task = share.take())
      kernels_.wkv(args_for(f, tasks.sequence(task), tasks.head(task)), tasks.begin(task), tasks.end(task), w.scratch);
  }
  std::string describe() const override {
    return text_ + " heads=" + std::to_string(heads_) + " of " + std::to_string(n_) + ", tiles of " +
           std::to_string(kDeltaColumns) + " columns";
  }

 protected:
  /// `state`: the operand; `made`: rows of the width that a token has in the scratch.
  WkvInstruction(const InstructionSite& site, std::string text, std::size_t state, std::int64_t made)
      : in_(site.in),
        out_(site.out),
        kernels_(site.kernels),
        n_(site.in_info(state).recurrent.shape[0]),
        heads_(site.in_info(state).recurrent.shape[2]),
        text_(std::move(text)),
        state_(site.in[state]),
        scratch_(site.scratch),
        made_(made),
        queues_(site.threads) {}

  /// Makes what the token has for one head.
  virtual void prepare(const Frame&, const Worker&, std::int64_t token, std::int64_t head) const = 0;
  /// Adds the operands, from the first of the tokens on, of one head.
  virtual void add_operands(const Frame&, std::int64_t first, std::int64_t head, WkvArgs&) const = 0;

  std::int64_t width() const { return n_ * heads_; }
  /// Row i of what is made of a token, of one head.
  float* made(const Frame& f, std::int64_t token, std::int64_t i, std::int64_t head) const {
    return reinterpret_cast<float*>(f.slots[scratch_].data) + (token * made_ + i) * width() + head * n_;
  }
  /// Of an operand or a result that is as wide as all heads.
  float* of_head(const Frame& f, int slot, std::int64_t token, std::int64_t head) const {
    return f.f32(slot) + token * width() + head * n_;
  }

  std::vector<int> in_, out_;
  const Kernels& kernels_;
  std::int64_t n_, heads_;

 private:
  WkvArgs args_for(const Frame& f, std::size_t sequence, std::int64_t head) const {
    const SequenceSpan& span = f.step->sequences[sequence];
    const StateMove& move = f.step->states[sequence];
    const std::int64_t size = n_ * n_, first = span.first_token;
    const auto state = [&](std::int32_t slot) {
      float* const all = slot_of(f, state_, slot, heads_ * size);
      return all == nullptr ? nullptr : all + head * size;
    };
    WkvArgs a{.r = of_head(f, in_[0], first, head),
              .decays = made(f, first, 0, head),
              .y = of_head(f, out_[0], first, head),
              .from = state(move.from),
              .to = state(move.to),
              .ld_r = width(),
              .ld_k = width(),
              .ld_v = width(),
              .ld_made = made_ * width(),
              .ld_y = width(),
              .n = n_,
              .tokens = span.n_tokens};
    add_operands(f, first, head, a);
    return a;
  }

  std::string text_;
  int state_, scratch_;
  std::int64_t made_;
  ShareQueues queues_;
};

/// Decays, and what k becomes.
constexpr std::int64_t kMadeOfWkv6 = 2;

class Wkv6Instruction final : public WkvInstruction {
 public:
  explicit Wkv6Instruction(const InstructionSite& site)
      : WkvInstruction(site, "wkv6", 4, kMadeOfWkv6),
        first_(site.optional_in(5)),
        key_width_(site.in_info(1).type.shape[0]) {}

 private:
  void prepare(const Frame& f, const Worker&, std::int64_t token, std::int64_t head) const override {
    float *const decays = made(f, token, 0, head), *const keys = made(f, token, 1, head);
    const float* const k = key(f, in_[1], token, head);
    kernels_.exp(of_head(f, in_[3], token, head), decays, n_);
    kernels_.scale(decays, decays, n_, -1);
    kernels_.exp(decays, decays, n_);
    if (const float* const first = f.optional(first_)) return kernels_.mul(first + head * n_, k, keys, n_);
    kernels_.mul(decays, k, keys, n_);
    kernels_.scale(keys, keys, n_, -1);
    kernels_.add(k, keys, keys, n_);
  }
  void add_operands(const Frame& f, std::int64_t first, std::int64_t head, WkvArgs& a) const override {
    const float* const keys = made(f, first, 1, head);
    a.v = key(f, in_[2], first, head);
    a.ld_v = key_width_;
    if (f.optional(first_) != nullptr) {
      a.first = keys;
      a.k = key(f, in_[1], first, head);
      a.ld_k = key_width_;
    } else {
      a.k = keys;
      a.ld_k = a.ld_made;
      a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(n_)));
    }
  }
  /// Of the keys or values, which several heads may share.
  const float* key(const Frame& f, int slot, std::int64_t token, std::int64_t head) const {
    return f.f32(slot) + token * key_width_ + head / (width() / key_width_) * n_;
  }

  int first_;
  std::int64_t key_width_;
};

/// Decays, keys, what is removed and by what, and perhaps values.
constexpr std::int64_t kMadeOfWkv7 = 4;
bool mixes_values(const Node& node) { return node.in.size() > 9; }

class Wkv7Instruction final : public WkvInstruction {
 public:
  explicit Wkv7Instruction(const InstructionSite& site)
      : WkvInstruction(site, "wkv7", 8, kMadeOfWkv7 + (mixes_values(site.node) ? 1 : 0)),
        mixes_(mixes_values(site.node)),
        // Of length: x / sqrt(|x|^2 + eps) is the root mean square norm with weights of 1 / sqrt(n) and eps / n.
        unit_(static_cast<std::size_t>(n_), static_cast<float>(1 / std::sqrt(static_cast<double>(n_)))),
        eps_(static_cast<float>(kLeastWkvKey / static_cast<double>(n_))) {}

 private:
  void prepare(const Frame& f, const Worker& w, std::int64_t token, std::int64_t head) const override {
    const auto operand = [&](std::size_t i) { return of_head(f, in_[i], token, head); };
    const auto weight = [&](std::size_t i) { return f.f32(in_[i]) + head * n_; };
    const auto row = [&](std::int64_t i) { return made(f, token, i, head); };
    float *const decays = row(0), *const keys = row(1), *const removed = row(2), *const added = row(3);
    float *const some = reinterpret_cast<float*>(w.scratch), *const rates = some + n_;

    kernels_.sigmoid(operand(3), decays, n_);
    kernels_.scale(decays, decays, n_, -kWkvDecay);
    kernels_.exp(decays, decays, n_);

    kernels_.mul(operand(1), weight(5), some, n_);
    kernels_.rms_norm(some, unit_.data(), removed, n_, eps_);
    kernels_.sigmoid(operand(4), rates, n_);
    kernels_.mul(rates, removed, added, n_);

    kernels_.mul(operand(1), weight(6), some, n_);
    kernels_.mul(rates, some, keys, n_);
    kernels_.axpy(-1, some, keys, n_);
    kernels_.add(operand(1), keys, keys, n_);

    if (mixes_) mix_values(operand, row(4), some);
    kernels_.mul(operand(0), keys, some, n_);
    kernels_.mul(some, weight(7), some, n_);
    const auto own = static_cast<float>(std::accumulate(some, some + n_, 0.0));
    kernels_.scale(mixes_ ? row(4) : operand(2), of_head(f, out_[1], token, head), n_, own);
  }
  template <class Operand>
  void mix_values(const Operand& operand, float* values, float* some) const {
    std::copy_n(operand(9), n_, values);
    kernels_.axpy(-1, operand(2), values, n_);
    kernels_.sigmoid(operand(10), some, n_);
    kernels_.mul(some, values, values, n_);
    kernels_.add(operand(2), values, values, n_);
  }
  void add_operands(const Frame& f, std::int64_t first, std::int64_t head, WkvArgs& a) const override {
    a.k = made(f, first, 1, head);
    a.ld_k = a.ld_made;
    a.removed = made(f, first, 2, head);
    a.added = made(f, first, 3, head);
    a.v = mixes_ ? made(f, first, 4, head) : of_head(f, in_[2], first, head);
    if (mixes_) a.ld_v = a.ld_made;
  }

  bool mixes_;
  std::vector<float> unit_;
  float eps_;
};

std::size_t made_bytes(const Graph& g, const Node& n, std::int64_t rows) {
  return static_cast<std::size_t>(g.bucket().tokens * rows * g.info(n.in[0]).type.shape[0]) * sizeof(float);
}

}  // namespace

std::size_t wkv6_scratch_bytes(const Graph& g, const Node& n) { return made_bytes(g, n, kMadeOfWkv6); }
std::size_t wkv7_scratch_bytes(const Graph& g, const Node& n) {
  return made_bytes(g, n, kMadeOfWkv7 + (mixes_values(n) ? 1 : 0));
}

std::unique_ptr<Instruction> make_wkv6(const InstructionSite& site) { return std::make_unique<Wkv6Instruction>(site); }
std::unique_ptr<Instruction> make_wkv7(const InstructionSite& site) { return std::make_unique<Wkv7Instruction>(site); }

}  // namespace llm::cpu
