// The sampling options of the command line, and how they become settings once the model is known: llama.cpp's defaults,
// then what the file recommends, then what was given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/command.h"
#include "common/escapes.h"
#include "runtime/model.h"
#include "runtime/sampler_options.h"

namespace llm::app {

/// A bias on a token, or on every token of a text.
struct BiasChoice {
  std::string text;
  Token token = kNoToken;
  float bias = 0;
};

/// What was given, in its order.
struct SamplingChoices {
  std::optional<std::uint64_t> seed;  ///< nothing: to be drawn
  bool seed_drawn = false;            ///< nobody gave it
  std::vector<std::pair<const SamplingParameter*, double>> values;
  std::optional<std::vector<SamplerKind>> order;
  bool greedy = false;
  std::vector<std::string> bias_texts, breaker_texts;  ///< as written
  std::vector<BiasChoice> biases;
  std::optional<std::vector<std::string>> dry_breakers;
};

void add_sampling_options(Command&, SamplingChoices&);

/// Reads the texts, once it is known whether escapes in them are processed, and draws the seed. What is wrong is told
/// before a model is loaded: throws ErrorKind::Usage.
void finish_sampling_choices(SamplingChoices&, Escapes);

/// The likeliest after biases and penalties: what draws or drops the likeliest is off.
void make_greedy(SamplerOptions&);
/// How texts among the values are read, and the name that errors give to what takes them.
struct TextRules {
  Escapes escapes;
  const Tokenizer& tokenizer;
  std::string_view option;
};
/// What the texts of -l and --dry-sequence-breaker set, in place of what was set before. Throw ErrorKind::Usage and
/// then change nothing.
void set_logit_bias(SamplerOptions&, const std::string& text, const TextRules&);
void set_dry_breaker(SamplerOptions&, const std::string& text, Escapes);

/// For a line of times, behind the others, of a seed that nobody gave: with it the answer comes again. Nothing if no
/// token is drawn.
std::string seed_text(const SamplerOptions&);

/// The settings for a model. Notes options that change nothing, and with -v the chain and what the file recommends.
/// Throws ErrorKind::Usage for a bias on a token that the vocabulary lacks.
SamplerOptions resolve_sampling(const SamplingChoices&, const Model&);
/// Notes options that change nothing since what they are a part of is off: not for rows of a batch, which may turn it
/// on.
void note_lacking(const SamplingChoices&, const SamplerOptions&);

}  // namespace llm::app
