#include "shaping_options.h"

#include <cmath>

#include "batch_state.h"
#include "common/messages.h"

namespace llm::app {
namespace {

/// A text, or what tells a long one from others.
std::string known_by(const std::string& text) {
  constexpr std::size_t kShort = 200;
  return text.size() <= kShort ? text : "of " + number_text(text.size()) + " bytes, digest " + digest_of(text);
}

}  // namespace

Json shaping_options(const RunOptions& o, const SamplerOptions& sampling, const PromptMaker& prompts,
                     const Backend& backend) {
  Json options{{"--predict", o.max_tokens},
               {"--ignore-eos", o.ignore_end},
               {"--logprobs", o.output.logprobs ? Json(*o.output.logprobs) : Json()},
               {"--cache-type-k", std::string(name(o.context.cache.k))},
               {"--cache-type-v", std::string(name(o.context.cache.v))},
               {"--no-cnv", o.chat.format == ChatOptions::Format::Raw},
               {"--stop", o.stop_strings},
               {"--chat-template", known_by(prompts.given_template())},
               {"--chat-template-kwargs", o.chat.template_kwargs},
               {"--system-prompt", known_by(prompts.system())},
               {"--grammar", known_by(o.constraint.grammar.value_or(""))},
               {"--json-schema", known_by(o.constraint.schema.value_or(""))},
               {"--regex", o.constraint.regex.value_or("")},
               {"--choice", o.constraint.choices},
               {"--template-row", o.batch.template_row ? Json(*o.batch.template_row) : Json()},
               {"--backend", backend.name()}};
  if (o.context.size) options["--ctx-size"] = *o.context.size;
  if (o.output.control_tokens == AnswerOptions::ControlTokens::Shown) options["--special"] = true;
  if (backend.variant() == "FP8") options["--fp8"] = true;
  if (backend.variant() == "deterministic") options["--deterministic"] = true;
  const ReasoningChoice& r = o.chat.reasoning;
  if (r.wish != ThinkingWish::Auto) options["--reasoning"] = name(r.wish);
  if (r.keep != ThinkingWish::Auto) options["--reasoning-preserve"] = name(r.keep);
  if (!r.effort.empty()) options["--reasoning-effort"] = r.effort;
  if (r.budget != kNoBudget) options["--reasoning-budget"] = r.budget;
  if (!r.budget_message.empty()) options["--reasoning-budget-message"] = r.budget_message;
  if (r.is_in_text()) options["--reasoning-format"] = r.is_apart() ? "deepseek-legacy" : "none";
  for (const SamplingParameter& p : sampling_parameters()) options[std::string(p.name)] = value(sampling, p);
  for (const SamplerKind kind : sampling.order) options["--samplers"].push_back(std::string(name(kind)));
  options["--dry-sequence-breaker"] = sampling.dry_sequence_breakers;
  for (const LogitBias& b : sampling.logit_bias) {
    // JSON has no infinity
    options["--logit-bias"].push_back(
        {b.token, std::isfinite(b.bias) ? Json(b.bias) : Json(b.bias < 0 ? "-inf" : "inf")});
  }
  return options;
}

}  // namespace llm::app
