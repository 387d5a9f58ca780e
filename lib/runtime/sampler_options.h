// The settings of sampling: llama.cpp's names, ranges and defaults, in one table that the command line, a file's
// general.sampling.* keys and requests are read by.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "gguf/metadata.h"
#include "text/tokenizer.h"

namespace llm {

/// What can stand in a chain, in the default order.
enum class SamplerKind : std::uint8_t { Penalties, Dry, TopNSigma, TopK, Typical, TopP, MinP, Xtc, Temperature };
std::string_view name(SamplerKind);
std::vector<SamplerKind> default_sampler_order();

struct LogitBias {
  Token token;
  float bias;  ///< added to the logit; -infinity: never sampled
};

struct SamplerOptions {
  std::uint64_t seed = 0;
  float temperature = 0.8F;    ///< <= 0: the likeliest of what is left
  int top_k = 40;              ///< <= 0: all
  float top_p = 0.95F;         ///< 1: off
  float min_p = 0.05F;         ///< 0: off
  float repeat_penalty = 1;    ///< 1: off
  int repeat_last_n = 64;      ///< tokens that the penalties look back at; 0: off, -1: all
  float presence_penalty = 0;  ///< 0: off
  float frequency_penalty = 0;
  float top_n_sigma = -1;  ///< <= 0: off
  float typical_p = 1;     ///< 1: off
  float xtc_probability = 0;
  float xtc_threshold = 0.1F;  ///< above 0.5: off, for no two tokens can be that likely
  float dynatemp_range = 0;    ///< 0: a fixed temperature
  float dynatemp_exponent = 1;
  float dry_multiplier = 0;  ///< 0: off
  float dry_base = 1.75F;
  int dry_allowed_length = 2;   ///< longer repetitions are penalised
  int dry_penalty_last_n = 64;  ///< tokens that dry looks back at; 0: off, -1: all
  int mirostat = 0;             ///< 1, 2: the version that replaces the chain
  float mirostat_tau = 5;       ///< target surprise in bits
  float mirostat_eta = 0.1F;    ///< learning rate
  int min_keep = 0;             ///< candidates that a filter leaves at least; 0 counts as 1
  std::vector<SamplerKind> order = default_sampler_order();
  std::vector<LogitBias> logit_bias = {};  ///< several for a token add up
  std::vector<Token> forbidden = {};       ///< by the file: never sampled, whatever the biases are
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
};

/// One setting that is a number.
struct SamplingParameter {
  std::string_view name;      ///< in requests (JSON)
  std::string_view options;   ///< on the command line, comma-separated; empty: none
  std::string_view file_key;  ///< of a file's recommendation; empty: none
  std::variant<float SamplerOptions::*, int SamplerOptions::*> member;
  double min, max;
  SamplerKind sampler;  ///< that reads it; without meaning for those of Mirostat, dynamic temperature aside
  bool mirostat;        ///< read by Mirostat instead
  std::string_view meaning;
};
std::span<const SamplingParameter> sampling_parameters();
/// By name; null if there is none.
const SamplingParameter* find_sampling_parameter(std::string_view name);
bool is_integer(const SamplingParameter&);
double value(const SamplerOptions&, const SamplingParameter&);
/// Throws ErrorKind::Usage, naming the setting and its range.
void set_value(SamplerOptions&, const SamplingParameter&, double value);

/// "penalties;top_k;temperature" (commas do as well), "edskypmxt". Throw ErrorKind::Usage for what is unknown, with the
/// nearest name, and for what llama.cpp has and we do not (infill, adaptive_p).
std::vector<SamplerKind> parse_sampler_names(std::string_view list);
std::vector<SamplerKind> parse_sampler_letters(std::string_view letters);

/// Takes over what the file recommends (general.sampling.*) and forbids (tokenizer.ggml.suppress_tokens), and returns
/// the names of what it set. A recommendation that is out of range, unknown or of another type is left out with a
/// warning.
std::vector<std::string_view> apply_file_sampling(const Metadata&, SamplerOptions&, Warnings&);

/// The samplers that act, in order: those of `order` that are not switched off; with Mirostat the temperature alone.
std::vector<SamplerKind> acting_samplers(const SamplerOptions&);
/// Whether the setting changes anything, given the chain.
bool is_read(const SamplerOptions&, const SamplingParameter&);
/// What else would have to be set for this value, which is not the default, to change anything, by options: a threshold
/// of what never happens. Empty: nothing.
std::string_view lacking(const SamplerOptions&, const SamplingParameter&);
/// The chain in words: "top_k 40 -> top_p 0.95 -> min_p 0.05 -> temperature 0.8 -> draw".
std::string describe(const SamplerOptions&);

}  // namespace llm
