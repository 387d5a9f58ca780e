#include "backend/host/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace llm::host {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Candidate {
  std::int32_t token;
  float logit;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// A logit above 0 is divided by `repeat`, another one multiplied; overflow must not make infinities.
float penalised(const DrawRule& rule, float logit, int count) {
  const float repeated = logit <= 0 ? logit * rule.repeat : logit / rule.repeat;
  const float rest = repeated - (static_cast<float>(count) * rule.frequency + rule.presence);
  return std::clamp(rest, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max());
}

std::vector<Candidate> edited(const DrawRule& rule, std::span<const float> logits, std::int32_t newest) {
  std::vector<Candidate> all;
  for (const float logit : logits) all.push_back({static_cast<std::int32_t>(all.size()), logit});
  bool found = false;
  const auto edit = [&](const LogitEdit& e) {
    if (e.token < 0 || e.token >= static_cast<std::int32_t>(all.size())) return;
    float& logit = all[static_cast<std::size_t>(e.token)].logit;
    if (e.bias != 0) logit += e.bias;
    if (e.count > 0 && logit != kNever) logit = penalised(rule, logit, e.count);
  };
  for (LogitEdit e : rule.edits) {
    const bool is_newest = rule.newest >= 0 && e.token == newest;
    found |= is_newest;
    if (is_newest) ++e.count;
    edit(e);
  }
  if (rule.newest >= 0 && !found) edit({.token = newest, .count = 1});
  std::erase_if(all, [](const Candidate& c) { return c.logit == kNever; });
  return all;
}

double weight(const Candidate& c, const Candidate& best) {
  return std::exp(static_cast<double>(c.logit) - static_cast<double>(best.logit));
}

double sum_of(const std::vector<Candidate>& list) {
  double sum = 0;
  for (const Candidate& c : list) sum += weight(c, list.front());
  return sum;
}

void keep_top_p(std::vector<Candidate>& list, double p, std::size_t min_keep) {
  const double wanted = p * sum_of(list);
  double sum = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    sum += weight(list[i], list.front());
    if (sum >= wanted && i + 1 >= min_keep) return list.resize(i + 1);
  }
}

void keep_min_p(std::vector<Candidate>& list, double p, std::size_t min_keep) {
  const float least = list.front().logit + static_cast<float>(std::log(p));
  std::size_t n = 1;
  while (n < list.size() && (list[n].logit >= least || n < min_keep)) ++n;
  list.resize(n);
}

/// Only differences count, so the best becomes 0 where its quotient would not fit a float.
void divide(std::vector<Candidate>& list, float temperature) {
  if (temperature == 1) return;
  const float best = list.front().logit;
  const float from = std::abs(best) > std::numeric_limits<float>::max() * temperature ? best : 0;
  for (Candidate& c : list) c.logit = (c.logit - from) / temperature;
}

}  // namespace

std::optional<std::int32_t> draw(const DrawRule& rule, std::span<const float> logits, std::int32_t newest) {
  check(rule.top_k >= 1 && rule.top_k <= kMostDrawn && std::ssize(rule.edits) <= kMostEdits &&
            std::ssize(rule.edits) < rule.n_tokens && rule.n_tokens <= std::ssize(logits),
        "a rule for drawing within its bounds");
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) return std::nullopt;
  std::vector<Candidate> list = edited(rule, logits.first(static_cast<std::size_t>(rule.n_tokens)), newest);
  const std::size_t k = rule.temperature <= 0 ? 1 : std::min(list.size(), static_cast<std::size_t>(rule.top_k));
  std::partial_sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(k), list.end(), better);
  list.resize(k);
  const auto min_keep = static_cast<std::size_t>(std::max(rule.min_keep, 0));
  if (rule.top_p < 1) keep_top_p(list, static_cast<double>(rule.top_p), min_keep);
  if (rule.min_p > 0) keep_min_p(list, static_cast<double>(rule.min_p), min_keep);
  if (rule.temperature > 0) divide(list, rule.temperature);
  const double target = rule.uniform * sum_of(list);
  double sum = 0;
  std::int32_t last = list.front().token;  // where roundings leave the target beyond the sum
  for (const Candidate& c : list) {
    const double e = weight(c, list.front());
    sum += e;
    if (e > 0) last = c.token;
    if (sum > target) break;
  }
  return last;
}

}  // namespace llm::host
