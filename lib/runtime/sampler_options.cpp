#include "runtime/sampler_options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/nearest.h"
#include "base/shortest.h"

namespace llm {
namespace {

using O = SamplerOptions;
using K = SamplerKind;

constexpr double kMaxInt = std::numeric_limits<std::int32_t>::max();

constexpr SamplingParameter kParameters[] = {
    {"temperature", "--temp,--temperature", "general.sampling.temp", &O::temperature, 0, 1000, K::Temperature, true,
     "temperature; 0: always the likeliest"},
    {"top_k", "--top-k", "general.sampling.top_k", &O::top_k, -1, kMaxInt, K::TopK, false,
     "keep the K likeliest; 0: all"},
    {"top_p", "--top-p", "general.sampling.top_p", &O::top_p, 0, 1, K::TopP, false,
     "keep the likeliest that reach this probability together; 1: all"},
    {"min_p", "--min-p", "general.sampling.min_p", &O::min_p, 0, 1, K::MinP, false,
     "keep what is this likely beside the likeliest; 0: all"},
    {"top_n_sigma", "--top-nsigma,--top-n-sigma", "", &O::top_n_sigma, -1, 1000, K::TopNSigma, false,
     "keep logits within this many standard deviations of the best; -1: all"},
    {"typical_p", "--typical,--typical-p", "", &O::typical_p, 0, 1, K::Typical, false,
     "keep the most typical that exceed this probability together; 1: all"},
    {"xtc_probability", "--xtc-probability", "general.sampling.xtc_probability", &O::xtc_probability, 0, 1, K::Xtc,
     false, "chance to exclude the top choices; 0: never"},
    {"xtc_threshold", "--xtc-threshold", "general.sampling.xtc_threshold", &O::xtc_threshold, 0, 1, K::Xtc, false,
     "what a top choice is: at least this likely; above 0.5: off"},
    {"repeat_last_n", "--repeat-last-n", "general.sampling.penalty_last_n", &O::repeat_last_n, -1, kMaxInt,
     K::Penalties, false, "tokens that the penalties look back at; 0: none, -1: all"},
    {"repeat_penalty", "--repeat-penalty", "general.sampling.penalty_repeat", &O::repeat_penalty, 0.01, 100,
     K::Penalties, false, "weaken recent tokens by this factor; 1: off"},
    {"presence_penalty", "--presence-penalty", "", &O::presence_penalty, -100, 100, K::Penalties, false,
     "subtract this from the logit of each recent token"},
    {"frequency_penalty", "--frequency-penalty", "", &O::frequency_penalty, -100, 100, K::Penalties, false,
     "the same for each time that it occurs"},
    {"dry_multiplier", "--dry-multiplier", "", &O::dry_multiplier, 0, 100, K::Dry, false,
     "strength against repeated sequences; 0: off"},
    {"dry_base", "--dry-base", "", &O::dry_base, 1, 100, K::Dry, false, "growth of it with each repeated token"},
    {"dry_allowed_length", "--dry-allowed-length", "", &O::dry_allowed_length, 1, kMaxInt, K::Dry, false,
     "repeated tokens that are free of it"},
    {"dry_penalty_last_n", "--dry-penalty-last-n", "", &O::dry_penalty_last_n, -1, kMaxInt, K::Dry, false,
     "tokens that dry looks back at; 0: off, -1: all"},
    {"dynatemp_range", "--dynatemp-range", "", &O::dynatemp_range, 0, 1000, K::Temperature, false,
     "the temperature varies by this much either way, with the entropy; 0: fixed"},
    {"dynatemp_exponent", "--dynatemp-exp", "", &O::dynatemp_exponent, 0, 100, K::Temperature, false,
     "how: exponent of the relative entropy"},
    {"mirostat", "--mirostat", "general.sampling.mirostat", &O::mirostat, 0, 2, K::Temperature, true,
     "1, 2: Mirostat of that version instead of the other samplers; 0: off"},
    {"mirostat_eta", "--mirostat-lr", "general.sampling.mirostat_eta", &O::mirostat_eta, 0, 10, K::Temperature, true,
     "learning rate of Mirostat"},
    {"mirostat_tau", "--mirostat-ent", "general.sampling.mirostat_tau", &O::mirostat_tau, 0, 100, K::Temperature, true,
     "surprise that Mirostat aims at, in bits"},
    {"min_keep", "", "", &O::min_keep, 0, kMaxInt, K::TopP, false, "candidates that a filter leaves at least"},
};

struct KindName {
  SamplerKind kind;
  std::string_view name;
  char letter;
};
constexpr KindName kNames[] = {
    {K::Penalties, "penalties", 'e'}, {K::Dry, "dry", 'd'},       {K::TopNSigma, "top_n_sigma", 's'},
    {K::TopK, "top_k", 'k'},          {K::Typical, "typ_p", 'y'}, {K::TopP, "top_p", 'p'},
    {K::MinP, "min_p", 'm'},          {K::Xtc, "xtc", 'x'},       {K::Temperature, "temperature", 't'}};

/// Other spellings that are in use.
constexpr std::pair<std::string_view, K> kOtherNames[] = {{"typical", K::Typical},  {"typical_p", K::Typical},
                                                          {"typ", K::Typical},      {"nucleus", K::TopP},
                                                          {"temp", K::Temperature}, {"top_nsigma", K::TopNSigma}};

constexpr std::string_view kUnsupported[] = {"infill", "adaptive_p"};
constexpr std::string_view kUnsupportedLetters = "ia";

/// Empty if the value is allowed.
std::string refusal(const SamplingParameter& p, double value) {
  const bool whole = !is_integer(p) || value == std::floor(value);
  // Limits are written in decimal; a value that was stored as a float may miss them by its rounding.
  const double given = is_integer(p) ? value : static_cast<double>(static_cast<float>(value));
  const double low = is_integer(p) ? p.min : static_cast<double>(static_cast<float>(p.min));
  if (whole && given >= low && given <= p.max) return {};
  return shortest(value) + " is not a " + (is_integer(p) ? "whole " : "") + "number from " + shortest(p.min) + " to " +
         shortest(p.max);
}

std::optional<K> kind_of(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  for (const KindName& k : kNames) {
    if (k.name == name) return k.kind;
  }
  for (const auto& [other, kind] : kOtherNames) {
    if (other == name) return kind;
  }
  return std::nullopt;
}

[[noreturn]] void unknown_sampler(const std::string& given) {
  std::string plain = given;
  std::replace(plain.begin(), plain.end(), '-', '_');
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), plain) != std::end(kUnsupported)) {
    throw Error(ErrorKind::Usage, "sampler \"" + escaped(given) + "\" is recognised, not supported");
  }
  std::vector<std::string> names;
  std::string all;
  for (const KindName& k : kNames) {
    names.emplace_back(k.name);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  const std::string nearest = nearest_name(plain, names);
  throw Error(ErrorKind::Usage, "no sampler is called \"" + escaped(given) + "\"; " +
                                    (nearest.empty() ? "there are " + all : "did you mean " + nearest + "?"));
}

/// A number of any of the file's types.
std::optional<double> number(const Metadata& metadata, const Metadata::Entry& entry) {
  switch (entry.type) {
    case GgufType::F32:
    case GgufType::F64:
      return metadata.get<double>(entry.key);
    case GgufType::String:
    case GgufType::Array:
    case GgufType::Bool:
      return std::nullopt;
    case GgufType::U64:
      return static_cast<double>(metadata.get<std::uint64_t>(entry.key));
    default:
      return static_cast<double>(metadata.get<std::int64_t>(entry.key));
  }
}

constexpr std::string_view kFilePrefix = "general.sampling.", kFileOrder = "general.sampling.sequence";

/// Takes over one key and returns the name of what it sets, or throws Usage with what is wrong with it.
std::string_view apply_file_key(const Metadata& metadata, const Metadata::Entry& entry, SamplerOptions& options) {
  if (entry.key == kFileOrder) {
    if (entry.type != GgufType::String) throw Error(ErrorKind::Usage, "is no list of samplers");
    options.order = parse_sampler_names(metadata.get<std::string_view>(entry.key));
    return "samplers";
  }
  for (const SamplingParameter& p : kParameters) {
    if (p.file_key != entry.key) continue;
    const std::optional<double> value = number(metadata, entry);
    if (!value) throw Error(ErrorKind::Usage, "is a " + std::string(name(entry.type)) + ", not a number");
    set_value(options, p, *value);
    return p.name;
  }
  throw Error(ErrorKind::Usage, "is not known");
}

constexpr std::string_view kSuppressed = "tokenizer.ggml.suppress_tokens";

/// Tokens that a file says are never to be given, such as those that stand for pictures. Returns whether there are
/// some.
bool suppress_tokens(const Metadata& metadata, SamplerOptions& options) {
  if (!metadata.has(kSuppressed)) return false;
  const std::vector<std::int64_t> tokens = metadata.array<std::int64_t>(kSuppressed);
  for (const std::int64_t t : tokens) {
    if (t < 0 || t > std::numeric_limits<Token>::max())
      metadata.fail(kSuppressed, "holds " + std::to_string(t) + ", which is no token");
    options.forbidden.push_back(static_cast<Token>(t));
  }
  return !tokens.empty();
}

bool acts(const SamplerOptions& o, SamplerKind kind) {
  switch (kind) {
    case K::Penalties:
      return o.repeat_last_n != 0 && (o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0);
    case K::Dry:
      return o.dry_multiplier != 0 && o.dry_penalty_last_n != 0;
    case K::TopNSigma:
      return o.top_n_sigma > 0;
    case K::TopK:
      return o.top_k > 0;
    case K::Typical:
      return o.typical_p < 1;
    case K::TopP:
      return o.top_p < 1;
    case K::MinP:
      return o.min_p > 0;
    case K::Xtc:
      return o.xtc_probability > 0 && o.xtc_threshold <= 0.5F;
    case K::Temperature:
      return o.temperature != 1 || o.dynatemp_range > 0;
  }
  return false;
}

std::string in_words(const SamplerOptions& o, SamplerKind kind) {
  const std::string n(name(kind));
  switch (kind) {
    case K::Penalties:
      return n + " " + shortest(o.repeat_penalty) + "/" + shortest(o.presence_penalty) + "/" +
             shortest(o.frequency_penalty) + " of " + std::to_string(o.repeat_last_n);
    case K::Dry:
      return n + " " + shortest(o.dry_multiplier) + " * " + shortest(o.dry_base) + "^(n - " +
             std::to_string(o.dry_allowed_length) + ") of " + std::to_string(o.dry_penalty_last_n);
    case K::TopNSigma:
      return n + " " + shortest(o.top_n_sigma);
    case K::TopK:
      return n + " " + std::to_string(o.top_k);
    case K::Typical:
      return n + " " + shortest(o.typical_p);
    case K::TopP:
      return n + " " + shortest(o.top_p);
    case K::MinP:
      return n + " " + shortest(o.min_p);
    case K::Xtc:
      return n + " " + shortest(o.xtc_probability) + " above " + shortest(o.xtc_threshold);
    case K::Temperature:
      return n + " " + shortest(o.temperature) +
             (o.dynatemp_range > 0 ? " +- " + shortest(o.dynatemp_range) + " ^ " + shortest(o.dynatemp_exponent) : "");
  }
  return n;
}

}  // namespace

std::string_view name(SamplerKind kind) {
  for (const KindName& k : kNames) {
    if (k.kind == kind) return k.name;
  }
  return "unknown";
}

std::vector<SamplerKind> default_sampler_order() {
  return {K::Penalties, K::Dry, K::TopNSigma, K::TopK, K::Typical, K::TopP, K::MinP, K::Xtc, K::Temperature};
}

std::span<const SamplingParameter> sampling_parameters() { return kParameters; }

const SamplingParameter* find_sampling_parameter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kParameters), std::end(kParameters),
                                   [name](const SamplingParameter& p) { return p.name == name; });
  return found == std::end(kParameters) ? nullptr : found;
}

bool is_integer(const SamplingParameter& p) { return std::holds_alternative<int SamplerOptions::*>(p.member); }

double value(const SamplerOptions& options, const SamplingParameter& p) {
  return std::visit([&](auto member) { return static_cast<double>(options.*member); }, p.member);
}

void set_value(SamplerOptions& options, const SamplingParameter& p, double value) {
  const std::string problem = refusal(p, value);
  if (!problem.empty()) {
    throw Error(ErrorKind::Usage, ErrorParts{.file = {}, .subject = std::string(p.name), .problem = problem});
  }
  std::visit(
      [&](auto member) { options.*member = static_cast<std::remove_reference_t<decltype(options.*member)>>(value); },
      p.member);
}

std::vector<SamplerKind> parse_sampler_names(std::string_view list) {
  std::vector<SamplerKind> order;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(";,"), list.size());
    const std::string given(list.substr(0, end));
    const std::optional<SamplerKind> kind = kind_of(given);
    if (!kind) unknown_sampler(given);
    order.push_back(*kind);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return order;
}

std::vector<SamplerKind> parse_sampler_letters(std::string_view letters) {
  std::vector<SamplerKind> order;
  for (const char letter : letters) {
    const auto* found =
        std::find_if(std::begin(kNames), std::end(kNames), [letter](const KindName& k) { return k.letter == letter; });
    if (found != std::end(kNames)) {
      order.push_back(found->kind);
      continue;
    }
    const std::string given = "\"" + escaped(std::string(1, letter)) + "\"";
    if (kUnsupportedLetters.find(letter) != std::string_view::npos) {
      throw Error(ErrorKind::Usage, "sampler " + given + " (" +
                                        std::string(kUnsupported[kUnsupportedLetters.find(letter)]) +
                                        ") is recognised, not supported");
    }
    std::string all;
    for (const KindName& k : kNames) all += (all.empty() ? "" : ", ") + (k.letter + (" " + std::string(k.name)));
    throw Error(ErrorKind::Usage, "no sampler has the letter " + given + "; there are " + all);
  }
  return order;
}

std::vector<std::string_view> apply_file_sampling(const Metadata& metadata, SamplerOptions& options,
                                                  Warnings& warnings) {
  std::vector<std::string_view> set;
  for (const Metadata::Entry& entry : metadata.entries()) {
    if (!entry.key.starts_with(kFilePrefix)) continue;
    try {
      set.push_back(apply_file_key(metadata, entry, options));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Usage) throw;
      warnings.push_back({"sampling-key", "the file's recommendation " + key_subject(entry.key) +
                                              " is left out: " + e.parts().problem});
    }
  }
  if (suppress_tokens(metadata, options)) set.push_back("suppress_tokens");
  return set;
}

std::vector<SamplerKind> acting_samplers(const SamplerOptions& options) {
  std::vector<SamplerKind> order = options.order;
  if (options.mirostat != 0) order = {SamplerKind::Temperature};
  std::erase_if(order, [&](SamplerKind kind) { return !acts(options, kind); });
  return order;
}

bool is_read(const SamplerOptions& options, const SamplingParameter& p) {
  if (options.mirostat != 0) return p.mirostat;
  if (p.mirostat && p.name != "temperature") return p.name == "mirostat";
  return p.name == "min_keep" ||
         std::find(options.order.begin(), options.order.end(), p.sampler) != options.order.end();
}

std::string_view lacking(const SamplerOptions& o, const SamplingParameter& p) {
  if (value(o, p) == value(SamplerOptions{}, p)) return {};
  const bool penalty = o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0;
  if (p.sampler == K::Penalties && p.name != "repeat_last_n" && o.repeat_last_n == 0)
    return "a --repeat-last-n other than 0";
  if (p.name == "repeat_last_n" && o.repeat_last_n != 0 && !penalty)
    return "--repeat-penalty, --presence-penalty or --frequency-penalty";
  if (p.name == "xtc_threshold" && o.xtc_probability == 0) return "--xtc-probability";
  if (p.name == "xtc_probability" && !acts(o, K::Xtc)) return "an --xtc-threshold of at most 0.5";
  if (p.sampler == K::Dry && o.dry_multiplier == 0) return "--dry-multiplier";
  if (p.sampler == K::Dry && p.name != "dry_penalty_last_n" && o.dry_penalty_last_n == 0)
    return "a --dry-penalty-last-n other than 0";
  const bool varies = p.name == "dynatemp_range" || p.name == "dynatemp_exponent";
  if (varies && o.temperature <= 0) return "a --temp above 0";
  return p.name == "dynatemp_exponent" && o.dynatemp_range == 0 ? "--dynatemp-range" : std::string_view();
}

std::string describe(const SamplerOptions& options) {
  const std::size_t n = options.forbidden.size();
  std::string text = n == 0 ? "" : "forbid " + std::to_string(n) + (n == 1 ? " token -> " : " tokens -> ");
  for (const LogitBias& b : options.logit_bias) {
    if (text.size() > 200) {
      text += "... -> ";
      break;
    }
    text += "bias " + std::to_string(b.token) + (b.bias < 0 ? "" : "+") + shortest(b.bias) + " -> ";
  }
  for (const SamplerKind kind : acting_samplers(options)) text += in_words(options, kind) + " -> ";
  if (options.mirostat != 0) {
    return text + "mirostat " + std::to_string(options.mirostat) + " (tau " + shortest(options.mirostat_tau) +
           ", eta " + shortest(options.mirostat_eta) + ")";
  }
  return text + "draw";
}

}  // namespace llm
