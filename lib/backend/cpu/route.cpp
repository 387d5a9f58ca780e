// Which experts each token goes to. Ids are distinct and in range whatever the logits are; a NaN among them makes every
// weight NaN, so that the fault shows in the logits instead of in the choice.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "backend/cpu/step.h"
#include "backend/host/ops.h"
#include "base/error.h"

namespace llm::cpu {
namespace {

/// The score of experts in groups that are not used, which no bias gives one.
constexpr float kLeftOut = std::numeric_limits<float>::quiet_NaN();

/// Of one token.
struct Gates {
  const float* logits;
  float* values;  ///< [experts]
  float* scores;  ///< [experts] what the choice goes by
  float sum;      ///< of all values, which NaN makes NaN
};

Gates softmax(const Kernels& k, const float* logits, std::int64_t experts, float* values, float* scores) {
  float top = -std::numeric_limits<float>::infinity(), sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) top = std::max(top, logits[e]);
  for (std::int64_t e = 0; e < experts; ++e) values[e] = logits[e] - top;
  k.exp(values, values, experts);
  for (std::int64_t e = 0; e < experts; ++e) sum += values[e];
  for (std::int64_t e = 0; e < experts; ++e) values[e] /= sum;
  return {logits, values, scores, sum};
}

Gates sigmoid(const Kernels& k, const float* logits, std::int64_t experts, float* values, float* scores) {
  float sum = 0;
  k.sigmoid(logits, values, experts);
  for (std::int64_t e = 0; e < experts; ++e) sum += values[e];
  return {logits, values, scores, sum};
}

Gates root_softplus(const Kernels& k, const float* logits, std::int64_t experts, float* values, float* scores) {
  float sum = 0;
  k.softplus(logits, values, experts);
  for (std::int64_t e = 0; e < experts; ++e) sum += values[e] = std::sqrt(values[e]);
  return {logits, values, scores, sum};
}

using GatesFn = Gates (*)(const Kernels&, const float* logits, std::int64_t experts, float* values, float* scores);
GatesFn gates_for(Gating gating) {
  switch (gating) {
    case Gating::Softmax:
      return softmax;
    case Gating::Sigmoid:
      return sigmoid;
    case Gating::RootSoftplus:
      return root_softplus;
  }
  return nullptr;
}

/// Logits where nothing is added to the gates: two that differ may have the same gate.
void score(const Gates& g, std::int64_t experts, const float* bias, int groups) {
  if (bias != nullptr)
    std::transform(g.values, g.values + experts, bias, g.scores, std::plus<>());
  else
    std::copy_n(groups > 1 ? g.values : g.logits, experts, g.scores);
}

/// The sum of the `count` largest of n scores.
float sum_of_best(const float* scores, std::int64_t n, int count) {
  float sum = 0;
  std::int64_t last = -1;  // taken before this one: larger, or as large and earlier
  for (int i = 0; i < count; ++i) {
    std::int64_t best = -1;
    for (std::int64_t j = 0; j < n; ++j) {
      const bool left = last < 0 || scores[j] < scores[last] || (scores[j] == scores[last] && j > last);
      if (left && (best < 0 || scores[j] > scores[best])) best = j;
    }
    if (best < 0) return std::numeric_limits<float>::quiet_NaN();
    sum += scores[last = best];
  }
  return sum;
}

/// Leaves the worst group out until as many are left as are used; of equal ones the last.
void leave_groups_out(const Route& op, const Gates& g, std::int64_t experts) {
  const std::int64_t n = experts / op.groups;
  for (int left = op.groups; left > op.groups_used; --left) {
    std::int64_t worst = -1;
    float least = 0;
    for (std::int64_t first = 0; first < experts; first += n) {
      if (std::isnan(g.scores[first])) continue;
      const float sum = sum_of_best(g.scores + first, n, op.group_best);
      if (worst < 0 || sum <= least) worst = first, least = sum;
    }
    if (worst < 0) return;  // logits that are NaN
    std::fill_n(g.scores + worst, n, kLeftOut);
  }
}

/// The largest score that is not among the n chosen, the lowest id among equals; NaN counts as the smallest.
std::int32_t best(const float* scores, std::int64_t experts, const std::int32_t* chosen, int n) {
  std::int32_t found = -1;
  for (std::int32_t e = 0; e < experts; ++e) {
    if (std::find(chosen, chosen + n, e) != chosen + n) continue;
    if (found < 0 || scores[e] > scores[found] || (std::isnan(scores[found]) && !std::isnan(scores[e]))) found = e;
  }
  return found;
}

void weigh_near_best(const Route& op, const Gates& g, std::int64_t experts, const std::int32_t* ids, float* weights) {
  for (int j = 0; j < op.top_k; ++j)
    weights[j] = std::isnan(g.sum) ? g.sum : host::near_best<float>(g.logits, experts, ids, j) * op.scale;
}

void weigh(const Route& op, const Gates& g, const std::int32_t* ids, float* weights) {
  float chosen = kLeastGates;
  for (int j = 0; j < op.top_k; ++j) chosen += weights[j] = g.values[ids[j]];
  const float factor = (op.weights == RouteWeights::Renormalized ? 1 / chosen : 1) * op.scale;
  for (int j = 0; j < op.top_k; ++j) weights[j] = std::isnan(g.sum) ? g.sum : weights[j] * factor;
}

class RouteInstruction final : public Instruction {
 public:
  explicit RouteInstruction(const InstructionSite& site)
      : kernels_(site.kernels),
        op_(std::get<Route>(site.node.op)),
        gates_(gates_for(op_.gating)),
        experts_(site.in_info(0).type.shape[0]),
        rows_(site.in_info(0).rows),
        logits_(site.in[0]),
        bias_(site.in.size() == 2 ? site.in[1] : InstructionSite::kAbsent),
        table_(site.in.size() == 3 ? site.in[1] : InstructionSite::kAbsent),
        tokens_(site.optional_in(2)),
        ids_(site.out[0]),
        weights_(site.out[1]) {
    check(2 * static_cast<std::size_t>(experts_) * sizeof(float) <= kScratchBytes, "a token's gates fit the scratch");
  }

  void run(const Frame& f, const Worker& w) override {
    const auto [begin, end] = w.share(f.rows.count(rows_));
    float* const values = reinterpret_cast<float*>(w.scratch);
    const float* const bias = f.optional(bias_);
    for (auto r = begin; r < end; ++r) {
      const float* const logits = f.f32(logits_) + r * experts_;
      const Gates gates = gates_(kernels_, logits, experts_, values, values + experts_);
      std::int32_t* const ids = f.i32(ids_) + r * op_.top_k;
      if (table_ != InstructionSite::kAbsent) {
        std::copy_n(f.i32(table_) + std::int64_t{f.i32(tokens_)[r]} * op_.top_k, op_.top_k, ids);
      } else {
        score(gates, experts_, bias, op_.groups);
        if (op_.groups > 1) leave_groups_out(op_, gates, experts_);
        for (int j = 0; j < op_.top_k; ++j) ids[j] = best(gates.scores, experts_, ids, j);
      }
      float* const weights = f.f32(weights_) + r * op_.top_k;
      if (op_.weights == RouteWeights::NearBest)
        weigh_near_best(op_, gates, experts_, ids, weights);
      else
        weigh(op_, gates, ids, weights);
    }
  }

  std::string describe() const override {
    return "route top " + std::to_string(op_.top_k) +
           (op_.gating != Gating::Softmax ? ", " + std::string(name(op_.gating)) : "") +
           (bias_ == InstructionSite::kAbsent ? "" : ", bias") +
           (table_ == InstructionSite::kAbsent ? "" : ", by a table") +
           (op_.groups > 1 ? ", groups " + std::to_string(op_.groups_used) + "/" + std::to_string(op_.groups) : "");
  }

 private:
  const Kernels& kernels_;
  Route op_;
  GatesFn gates_;
  std::int64_t experts_;
  RowSpace rows_;
  int logits_, bias_, table_, tokens_, ids_, weights_;
};

}  // namespace

std::unique_ptr<Instruction> make_route(const InstructionSite& site) {
  return std::make_unique<RouteInstruction>(site);
}

}  // namespace llm::cpu
