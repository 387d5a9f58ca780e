#include "runtime/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "runtime/logit_scan.h"
#include "runtime/sampler_stages.h"

namespace llm {
namespace {

std::size_t window_of(int last_n, std::size_t length) {
  return last_n < 0 ? length : std::min(length, static_cast<std::size_t>(last_n));
}

bool keeps_best(SamplerKind kind) {
  return kind == SamplerKind::TopNSigma || kind == SamplerKind::TopK || kind == SamplerKind::TopP ||
         kind == SamplerKind::MinP;
}

}  // namespace

/// What acts, in order. A temperature of 0 takes the best of what is left, so nothing follows it, and filters right
/// before it that keep the best in any case are idle.
std::vector<SamplerKind> Sampler::stages_of(const SamplerOptions& options) {
  std::vector<SamplerKind> stages = acting_samplers(options);
  const auto temperature = std::find(stages.begin(), stages.end(), SamplerKind::Temperature);
  if (options.temperature > 0 || temperature == stages.end()) return stages;
  stages.erase(temperature, stages.end());
  while (!stages.empty() && keeps_best(stages.back())) stages.pop_back();
  stages.push_back(SamplerKind::Temperature);
  return stages;
}

/// What biases say of each token, once.
std::vector<LogitEdit> Sampler::biases_of(const SamplerOptions& options) {
  std::vector<LogitEdit> edits;
  std::unordered_map<Token, std::size_t> place;
  const auto entry = [&](Token token) -> LogitEdit& {
    const auto [found, added] = place.emplace(token, edits.size());
    return added ? edits.emplace_back(LogitEdit{.token = token}) : edits[found->second];
  };
  for (const LogitBias& b : options.logit_bias) entry(b.token).bias += b.bias;
  for (const Token t : options.forbidden) entry(t).bias = kNever;
  return edits;
}

Sampler::Sampler(SamplerOptions options, std::uint64_t row, std::shared_ptr<const SequenceBreakers> breakers)
    : options_(std::move(options)),
      row_(row),
      breakers_(breakers ? std::move(breakers) : std::make_shared<const SequenceBreakers>()),
      stages_(stages_of(options_)),
      biases_(biases_of(options_)),
      recent_(options_.repeat_last_n),
      mu_{2 * static_cast<double>(options_.mirostat_tau)} {  // where the paper starts
  check(options_.min_p <= 1 && options_.top_p >= 0 && options_.repeat_penalty > 0 && options_.dry_base >= 1 &&
            options_.dry_allowed_length >= 1,
        "options of a sampler");
}

void Sampler::accept(Token token) {
  if (options_.mirostat != 0) mu_.push_back(sampled_ ? learned_mu(token) : mu_.back());
  sampled_ = false;
  history_.push_back(token);
  if (acts(SamplerKind::Penalties)) recent_.entered(history_);
}

void Sampler::rewind(std::size_t count) {
  check(count <= history_.size(), "a sampler rewound forward");
  sampled_ = false;
  for (; history_.size() > count; history_.pop_back())
    if (acts(SamplerKind::Penalties)) recent_.leaving(history_);
  if (options_.mirostat != 0) mu_.resize(count + 1);
}

Token Sampler::sample(std::span<const float> logits, std::uint64_t index) {
  run(logits, index);
  return draw(candidates_, counter_uniform(options_.seed, row_, index));
}

std::span<const Candidate> Sampler::candidates(std::span<const float> logits, std::uint64_t index) {
  run(logits, index);
  return candidates_.list();
}

std::optional<DrawRule> Sampler::rule(std::size_t n_tokens, std::uint64_t index, int unseen) {
  if (!is_rule()) return std::nullopt;
  list_edits(unseen);
  if (edits_.size() > static_cast<std::size_t>(kMostEdits) || edits_.size() >= n_tokens) return std::nullopt;
  return DrawRule{.uniform = counter_uniform(options_.seed, row_, index),
                  .temperature = acts(SamplerKind::Temperature) ? std::max(options_.temperature, 0.0F) : 1,
                  .top_k = acts(SamplerKind::TopK) ? options_.top_k : 1,
                  .top_p = acts(SamplerKind::TopP) ? options_.top_p : 1,
                  .min_p = acts(SamplerKind::MinP) ? options_.min_p : 0,
                  .min_keep = options_.min_keep,
                  .repeat = acts(SamplerKind::Penalties) ? options_.repeat_penalty : 1,
                  .presence = acts(SamplerKind::Penalties) ? options_.presence_penalty : 0,
                  .frequency = acts(SamplerKind::Penalties) ? options_.frequency_penalty : 0,
                  .n_tokens = static_cast<std::int32_t>(n_tokens),
                  .edits = edits_};
}

bool Sampler::acts(SamplerKind kind) const { return std::find(stages_.begin(), stages_.end(), kind) != stages_.end(); }

/// Penalties, then top-k of few, then what narrows it, in the order that a rule has, each once; or penalties and the
/// best.
bool Sampler::is_rule() const {
  constexpr std::array kOrder{SamplerKind::Penalties, SamplerKind::TopK, SamplerKind::TopP, SamplerKind::MinP,
                              SamplerKind::Temperature};
  const bool tempered = acts(SamplerKind::Temperature), greedy = tempered && options_.temperature <= 0;
  if (options_.mirostat != 0 || (tempered && !greedy && options_.dynatemp_range > 0)) return false;
  if (biases_.size() > static_cast<std::size_t>(kMostEdits)) return false;
  auto next = kOrder.begin();
  bool few = greedy;
  for (const SamplerKind stage : stages_) {
    next = std::find(next, kOrder.end(), stage);
    if (next == kOrder.end()) return false;
    ++next;
    few |= stage == SamplerKind::TopK && options_.top_k <= kMostDrawn;
  }
  return few;
}

/// One entry a token: its biases, and how often it is among the recent ones once `unseen` more are there.
void Sampler::list_edits(int unseen) {
  edits_ = biases_;
  const auto entry = [&](Token token) -> LogitEdit& {
    const auto found = std::find_if(edits_.begin(), edits_.end(), [token](const auto& e) { return e.token == token; });
    return found != edits_.end() ? *found : edits_.emplace_back(LogitEdit{.token = token});
  };
  if (!acts(SamplerKind::Penalties)) return;
  if (recent_.counts().size() > static_cast<std::size_t>(2 * kMostEdits)) {
    edits_.resize(static_cast<std::size_t>(kMostEdits) + 1);  // too many: not worth the list
    return;
  }
  for (const auto& [token, count] : recent_.counts()) {
    if (count > 0) entry(token).count = count;
  }
  const auto window = static_cast<std::size_t>(options_.repeat_last_n);
  if (unseen == 0 || options_.repeat_last_n < 0 || history_.size() < window) return;
  --entry(history_[history_.size() - window]).count;
}

void Sampler::run(std::span<const float> logits, std::uint64_t index) {
  check(!logits.empty(), "no logits to sample from");
  candidates_.reset(logits);
  if (!biases_.empty()) add_bias(logits);
  for (const SamplerKind stage : stages_) apply(stage, index);
  if (options_.mirostat == 1) keep_mirostat_1(candidates_, mu_.back(), logits.size());
  if (options_.mirostat == 2) keep_mirostat_2(candidates_, mu_.back());
  sampled_ = true;
}

void Sampler::add_bias(std::span<const float> logits) {
  const std::span<float> biased = candidates_.edit();
  for (const LogitEdit& e : biases_) {
    if (e.token >= 0 && static_cast<std::size_t>(e.token) < biased.size())
      biased[static_cast<std::size_t>(e.token)] += e.bias;
  }
  if (candidates_.best().logit == kNever) candidates_.keep_only(best_of(logits));  // nothing else is left
}

void Sampler::apply(SamplerKind stage, std::uint64_t index) {
  const auto min_keep = static_cast<std::size_t>(std::max(options_.min_keep, 0));
  switch (stage) {
    case SamplerKind::Penalties:
      return penalise(candidates_, recent_.counts(),
                      {options_.repeat_penalty, options_.presence_penalty, options_.frequency_penalty});
    case SamplerKind::Dry:
      return discourage_repeats(
          candidates_, std::span<const Token>(history_).last(window_of(options_.dry_penalty_last_n, history_.size())),
          {options_.dry_multiplier, options_.dry_base, options_.dry_allowed_length}, *breakers_);
    case SamplerKind::TopNSigma:
      return keep_top_n_sigma(candidates_, static_cast<double>(options_.top_n_sigma));
    case SamplerKind::TopK:
      return candidates_.keep_best(static_cast<std::size_t>(options_.top_k));
    case SamplerKind::Typical:
      return keep_typical(candidates_, static_cast<double>(options_.typical_p), min_keep);
    case SamplerKind::TopP:
      return keep_top_p(candidates_, static_cast<double>(options_.top_p), min_keep);
    case SamplerKind::MinP:
      return keep_min_p(candidates_, static_cast<double>(options_.min_p), min_keep);
    case SamplerKind::Xtc:
      if (counter_uniform(options_.seed, row_, index, Draw::Xtc) < static_cast<double>(options_.xtc_probability)) {
        exclude_top(candidates_, static_cast<double>(options_.xtc_threshold), min_keep);
      }
      return;
    case SamplerKind::Temperature:
      return scale_by_temperature(candidates_, temperature());
  }
}

/// Of the step: 0 is greedy even where a range is given.
double Sampler::temperature() const {
  const auto t = static_cast<double>(options_.temperature), range = static_cast<double>(options_.dynatemp_range);
  if (t <= 0 || range <= 0 || options_.mirostat != 0) return t;
  return dynamic_temperature(candidates_, t, range, static_cast<double>(options_.dynatemp_exponent));
}

/// mu - eta (surprise - tau), the surprise among the candidates left; unchanged by a token that was none of them.
double Sampler::learned_mu(Token token) const {
  for (const Candidate& c : candidates_.listed()) {
    if (c.token != token) continue;
    const double surprise = -std::log2(candidates_.weights().probability(c.logit));
    return mu_.back() -
           static_cast<double>(options_.mirostat_eta) * (surprise - static_cast<double>(options_.mirostat_tau));
  }
  return mu_.back();
}

}  // namespace llm
