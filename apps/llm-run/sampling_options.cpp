#include "sampling_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "base/shortest.h"
#include "common/escapes.h"
#include "common/messages.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

constexpr std::string_view kBiasOption = "--logit-bias";

[[noreturn]] void refuse(std::string_view option, const std::string& problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = {}, .subject = "option " + std::string(option), .problem = problem});
}

std::string default_text(const SamplingParameter& p) {
  return shortest(static_cast<float>(value(SamplerOptions{}, p)));
}

void add_parameter(Command& cli, const SamplingParameter& p, SamplingChoices& choices) {
  const std::string options(p.options);
  const std::string first = options.substr(0, options.find(','));
  const auto set = [&p, &choices, first](const std::string& text) {
    const double value = is_integer(p)
                             ? static_cast<double>(parse_integer(first, text, static_cast<std::int64_t>(p.min),
                                                                 static_cast<std::int64_t>(p.max)))
                             : parse_real(first, text, p.min, p.max);
    choices.values.emplace_back(&p, value);
  };
  cli.add_option_function<std::string>(options, set, std::string(p.meaning) + " (default " + default_text(p) + ")")
      ->type_name(is_integer(p) ? "N" : "X")
      ->take_last()
      ->group("Sampling");
}

void add_order_options(Command& cli, SamplingChoices& choices) {
  const auto named = [&choices](std::string_view option, auto parse) {
    return [&choices, option, parse](const std::string& text) {
      if (text.empty())
        refuse(option, "the value is empty, a sampler is required; temperature and --temp 1 change no probability");
      try {
        choices.order = parse(text);
      } catch (const Error& e) {
        refuse(option, e.parts().problem);
      }
    };
  };
  std::string order;
  for (const SamplerKind kind : default_sampler_order()) order += (order.empty() ? "" : ";") + std::string(name(kind));
  cli.add_option_function<std::string>("--samplers", named("--samplers", parse_sampler_names),
                                       "the samplers that act and their order (default " + order + ")")
      ->type_name("NAMES")
      ->take_last()
      ->group("Sampling");
  cli.add_option_function<std::string>("--sampler-seq,--sampling-seq", named("--sampler-seq", parse_sampler_letters),
                                       "the same by letters (default edskypmxt)")
      ->type_name("LETTERS")
      ->take_last()
      ->group("Sampling");
}

struct GivenBias {
  std::string_view option, text;
};

[[noreturn]] void wrong_bias(const GivenBias& given, const std::string& why) {
  refuse(given.option, "\"" + escaped(given.text) + "\" " + why);
}

/// A sign and a number at the front of `rest`, which loses them.
float take_bias(const GivenBias& given, std::string_view& rest) {
  if (rest.empty() || (rest[0] != '+' && rest[0] != '-')) {
    wrong_bias(given, "is not TOKEN_ID+BIAS, TOKEN_ID-BIAS or \"TEXT\"+BIAS");
  }
  const bool negative = rest[0] == '-';
  rest.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc{} || std::signbit(number) || std::isnan(number))
    wrong_bias(given, "has no number as its bias");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  constexpr double kMost = 1e30;
  if (number > kMost && !(negative && std::isinf(number))) {
    wrong_bias(given, "has a bias that is neither from -1e30 to 1e30 nor -inf");
  }
  return static_cast<float>(negative ? -number : number);
}

/// The text in quotes at the front of `rest`, which loses it. A backslash keeps a quote from being the last.
std::string take_quoted(const GivenBias& given, std::string_view& rest) {
  std::size_t end = 1;
  while (end < rest.size() && rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
  if (end >= rest.size()) wrong_bias(given, "lacks the closing quote");
  if (end == 1) wrong_bias(given, "has an empty text");
  const std::string text(rest.substr(1, end - 1));
  rest.remove_prefix(end + 1);
  return text;
}

Token take_token(const GivenBias& given, std::string_view& rest) {
  Token token = kNoToken;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), token);
  if (error != std::errc{} || token < 0) wrong_bias(given, "is not TOKEN_ID+BIAS, TOKEN_ID-BIAS or \"TEXT\"+BIAS");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return token;
}

/// 15043+1, 15043-inf, "text"-2.5; several after commas.
void read_biases(const GivenBias& given, Escapes escapes, std::vector<BiasChoice>& biases) {
  for (std::string_view rest = given.text;; rest.remove_prefix(1)) {
    BiasChoice b;
    if (rest.starts_with('"')) {
      b.text = take_quoted(given, rest);
      if (escapes == Escapes::Processed) b.text = process_escapes(b.text);
    } else {
      b.token = take_token(given, rest);
    }
    b.bias = take_bias(given, rest);
    biases.push_back(std::move(b));
    if (rest.empty()) return;
    if (rest[0] != ',') wrong_bias(given, "has something after its bias");
  }
}

/// Without the defaults as soon as one is given; "none" clears the list, as in llama.cpp.
void read_breakers(SamplingChoices& choices, Escapes escapes) {
  if (choices.breaker_texts.empty()) return;
  choices.dry_breakers.emplace();
  for (const std::string& given : choices.breaker_texts) {
    if (given.empty()) refuse("--dry-sequence-breaker", "the string is empty (\"none\": no breakers)");
    if (given == "none") {
      choices.dry_breakers->clear();
    } else {
      choices.dry_breakers->push_back(escapes == Escapes::Processed ? process_escapes(given) : given);
    }
  }
}

void add_bias(const BiasChoice& choice, std::string_view option, const Tokenizer& tokenizer, SamplerOptions& options) {
  const auto n = static_cast<std::int64_t>(tokenizer.n_vocab());
  if (choice.token != kNoToken) {
    if (choice.token >= n) {
      refuse(option,
             "token " + std::to_string(choice.token) + " is not in the vocabulary of " + number_text(n) + " tokens");
    }
    options.logit_bias.push_back({choice.token, choice.bias});
    return;
  }
  const std::vector<Token> tokens = tokenizer.encode(choice.text, {.add_special = false, .parse_special = true});
  if (tokens.empty()) refuse(option, "the vocabulary has no token for \"" + escaped(choice.text) + "\"");
  for (const Token t : tokens) {
    options.logit_bias.push_back({t, choice.bias});
  }
}

bool acts(const SamplingChoices& choices, const SamplerOptions& options, const SamplingParameter& p, double given) {
  const bool replaced = choices.greedy && p.name == "temperature" && given != 0;  // read, but --greedy's 0
  return is_read(options, p) && !replaced;
}

void note_unread(const SamplingChoices& choices, const SamplerOptions& options) {
  if (choices.greedy && choices.order) note("--samplers does nothing beside --greedy");
  for (const auto& [p, value] : choices.values) {
    if (acts(choices, options, *p, value)) continue;
    const std::string given(p->options.substr(0, p->options.find(',')));
    if (options.mirostat != 0) {
      note(given + " does nothing: Mirostat replaces the samplers");
    } else if (choices.greedy) {
      note(given + " does nothing beside --greedy");
    } else if (p->mirostat && p->name != "temperature") {
      note(given + " does nothing without --mirostat 1 or 2");
    } else {
      note(given + " does nothing: " + std::string(name(p->sampler)) + " is not among the samplers");
    }
  }
}

}  // namespace

void note_lacking(const SamplingChoices& choices, const SamplerOptions& options) {
  for (const auto& [p, given] : choices.values) {
    const std::string_view what = acts(choices, options, *p, given) ? lacking(options, *p) : std::string_view();
    if (!what.empty())
      note(std::string(p->options.substr(0, p->options.find(','))) + " does nothing without " + std::string(what));
  }
  if (choices.dry_breakers && options.dry_multiplier == 0)
    note("--dry-sequence-breaker does nothing without --dry-multiplier");
}

void make_greedy(SamplerOptions& options) {
  options.temperature = 0;
  options.mirostat = 0;
  options.order = {SamplerKind::Penalties, SamplerKind::Dry, SamplerKind::Temperature};
}

void add_sampling_options(Command& cli, SamplingChoices& choices) {
  const auto set_seed = [&choices](const std::string& text) {
    const std::int64_t seed = parse_integer("-s", text, -1, std::numeric_limits<std::int64_t>::max());
    choices.seed.reset();
    if (seed >= 0) choices.seed = static_cast<std::uint64_t>(seed);
  };
  cli.add_option_function<std::string>("-s,--seed", set_seed, "seed of the random numbers (default -1: drawn)")
      ->type_name("N")
      ->take_last()
      ->group("Sampling");
  cli.add_flag("--greedy", choices.greedy, "always the likeliest token, after biases and penalties")->group("Sampling");
  add_order_options(cli, choices);
  for (const SamplingParameter& p : sampling_parameters()) {
    if (!p.options.empty()) add_parameter(cli, p, choices);
  }
  cli.add_option("--dry-sequence-breaker", choices.breaker_texts,
                 "text that a repetition cannot reach across, instead of \\n : \" *; repeatable; none: nothing")
      ->option_text("TEXT")
      ->one_value()
      ->group("Sampling");
  cli.add_option("-l,--logit-bias", choices.bias_texts,
                 "TOKEN_ID+BIAS, TOKEN_ID-BIAS or \"TEXT\"+BIAS (each of its tokens); -inf: never; repeatable")
      ->option_text("BIAS")
      ->one_value()
      ->group("Sampling");
}

void finish_sampling_choices(SamplingChoices& choices, Escapes escapes) {
  for (const std::string& text : choices.bias_texts) read_biases({kBiasOption, text}, escapes, choices.biases);
  read_breakers(choices, escapes);
  choices.seed_drawn = !choices.seed;
  if (choices.seed_drawn) choices.seed = std::random_device{}();
}

void set_logit_bias(SamplerOptions& options, const std::string& text, const TextRules& rules) {
  std::vector<BiasChoice> biases;
  read_biases({rules.option, text}, rules.escapes, biases);
  SamplerOptions read;
  for (const BiasChoice& b : biases) add_bias(b, rules.option, rules.tokenizer, read);
  options.logit_bias = std::move(read.logit_bias);
}

void set_dry_breaker(SamplerOptions& options, const std::string& text, Escapes escapes) {
  SamplingChoices choices;
  choices.breaker_texts.push_back(text);
  read_breakers(choices, escapes);
  options.dry_sequence_breakers = *choices.dry_breakers;
}

std::string seed_text(const SamplerOptions& options) {
  const std::vector<SamplerKind> acting = acting_samplers(options);
  const bool tempered = std::find(acting.begin(), acting.end(), SamplerKind::Temperature) != acting.end();
  return options.temperature > 0 || options.mirostat > 0 || !tempered ? " · seed " + std::to_string(options.seed) : "";
}

SamplerOptions resolve_sampling(const SamplingChoices& choices, const Model& model) {
  SamplerOptions options;
  options.seed = choices.seed.value_or(0);
  Warnings warnings;
  std::string from_file;
  for (const std::string_view what : apply_file_sampling(model.file().metadata(), options, warnings)) {
    from_file += (from_file.empty() ? "" : ", ") + std::string(what);
  }
  print_warnings(warnings);
  if (choices.order) options.order = *choices.order;
  for (const auto& [p, value] : choices.values) set_value(options, *p, value);
  if (choices.dry_breakers) options.dry_sequence_breakers = *choices.dry_breakers;
  if (choices.greedy) make_greedy(options);
  for (const BiasChoice& b : choices.biases) add_bias(b, kBiasOption, model.tokenizer(), options);
  note_unread(choices, options);
  verbose("sampling: " + describe(options) + (from_file.empty() ? "" : "; the file recommends " + from_file));
  verbose("seed: " + std::to_string(options.seed));
  return options;
}

}  // namespace llm::app
