#include "chat_settings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/nearest.h"
#include "base/shortest.h"
#include "common/columns.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/reserved.h"

namespace llm::app {
namespace {

using Json = nlohmann::ordered_json;

/// One that is none of sampling_parameters(), by all its names: what reads and writes values knows it by the first.
struct Setting {
  std::string_view name;
  std::string_view others;   ///< that /set takes as well, separated by spaces
  std::string_view options;  ///< of the command line
  std::string_view keys;     ///< in settings_json(), that the options set
  std::string_view words;    ///< that its value may be
};
constexpr Setting kSettings[] = {{"predict", "n_predict n", "--predict", "predict", ""},
                                 {"seed", "s", "--seed", "seed seed_drawn", ""},
                                 {"stop", "reverse_prompt r", "--reverse-prompt", "stop", "off"},
                                 {"reasoning", "", "--reasoning", "reasoning", "on off auto"},
                                 {"reasoning_budget", "", "--reasoning-budget", "reasoning_budget", ""},
                                 {"reasoning_effort", "", "--reasoning-effort", "reasoning_effort", ""},
                                 {"greedy", "", "--greedy", "temperature mirostat samplers", "on off"},
                                 {"samplers", "sampler_seq sampling_seq", "--samplers --sampler-seq", "samplers", ""},
                                 {"logit_bias", "l", "--logit-bias", "logit_bias", "off"},
                                 {"dry_sequence_breaker", "", "--dry-sequence-breaker", "dry_sequence_breaker", ""}};

const Setting* find_setting(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kSettings), std::end(kSettings),
                                         [&](const Setting& s) { return s.name == name || has_name(s.others, name); });
  return found == std::end(kSettings) ? nullptr : found;
}

std::vector<std::string> words_in(std::string_view list) {
  std::istringstream in{std::string(list)};
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> names_of(const SamplingParameter& p) {
  std::vector<std::string> names{std::string(p.name)};
  for (std::string_view options = p.options; !options.empty();) {
    const std::size_t end = std::min(options.find(','), options.size());
    names.push_back(setting_name(options.substr(0, end)));
    options.remove_prefix(std::min(end + 1, options.size()));
  }
  return names;
}

const SamplingParameter* find_parameter(const std::string& wanted) {
  for (const SamplingParameter& p : sampling_parameters()) {
    const std::vector<std::string> names = names_of(p);
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return &p;
  }
  return nullptr;
}

/// What other programs set so, and what is not set in a chat.
struct SetElsewhere {
  std::string_view names;  ///< separated by spaces
  const char* how;
};
constexpr SetElsewhere kSetElsewhere[] = {
    {"system", "/system TEXT sets the system text"},
    {"think nothink", "/think on and /think off say whether answers begin with thinking"},
    {"verbose quiet", "/stats shows the times of the last answer, --show-timings before the start those of each"},
    {"history nohistory", "--no-history before the start keeps none"},
    {"format noformat", "/json FILE gives answers a form, /json off takes it away"},
    {"template", "--chat-template before the start gives another"},
    {"num_predict", "predict is its name"},
    {"num_ctx ctx_size c", "-c before the start sets the context"},
    {"num_gpu ngl gpu_layers n_gpu_layers", "-ngl before the start says how many layers the GPU computes"},
    {"num_thread threads t", "-t before the start sets the threads"},
};

[[noreturn]] void refuse_name(const std::string& name) {
  for (const SetElsewhere& s : kSetElsewhere) {
    if (has_name(s.names, name))
      throw Error(ErrorKind::Usage, "no setting is called \"" + escaped(name) + "\"; " + s.how);
  }
  std::vector<std::string> known = setting_names();
  for (const Setting& s : kSettings) {
    for (std::string& other : words_in(s.others)) {
      if (other.size() > 1) known.push_back(std::move(other));
    }
  }
  for (const SamplingParameter& p : sampling_parameters()) {
    for (std::string& n : names_of(p)) known.push_back(std::move(n));
  }
  const std::string nearest = nearest_name(name, known);
  throw Error(ErrorKind::Usage, "no setting is called \"" + escaped(name) + "\"" +
                                    (nearest.empty() ? "; /set lists them" : "; did you mean " + nearest + "?"));
}

void change_parameter(SamplerOptions& options, const SamplingParameter& p, const std::string& text) {
  const std::string option(p.name);
  set_value(options, p,
            is_integer(p) ? static_cast<double>(parse_integer(option, text, static_cast<std::int64_t>(p.min),
                                                              static_cast<std::int64_t>(p.max)))
                          : parse_real(option, text, p.min, p.max));
  if (!is_read(options, p)) note(option + " changes nothing with the samplers that act");
}

void end_greedy(ChatSettings& settings) {
  if (!settings.before_greedy) {
    throw Error(
        ErrorKind::Usage,
        "greedy off takes back greedy on of this chat, which there was not; /set temp 0.8 draws again, with the "
        "samplers that /set samplers names");
  }
  SamplerOptions& options = settings.answer.sampling;
  options.temperature = settings.before_greedy->temperature;
  options.mirostat = settings.before_greedy->mirostat;
  options.order = settings.before_greedy->order;
  settings.before_greedy.reset();
}

void set_greedy(ChatSettings& settings, const std::string& text) {
  if (text == "0" || text == "off") return end_greedy(settings);
  if (text != "1" && text != "on") throw Error(ErrorKind::Usage, "greedy takes on or off");
  if (!settings.before_greedy) settings.before_greedy = settings.answer.sampling;
  make_greedy(settings.answer.sampling);
}

void change_bias(SamplerOptions& options, const std::string& text, const TextRules& rules) {
  if (text.empty() || text == "off") return options.logit_bias.clear();
  set_logit_bias(options, text, rules);
}

void change_seed(ChatSettings& settings, std::int64_t seed) {
  settings.seed = seed < 0 ? ChatSettings::Seed::Drawn : ChatSettings::Seed::Given;
  settings.answer.sampling.seed = seed < 0 ? std::random_device{}() : static_cast<std::uint64_t>(seed);
}

Json number(const SamplerOptions& options, const SamplingParameter& p) {
  const double v = value(options, p);
  if (is_integer(p)) return Json(static_cast<std::int64_t>(v));
  return Json::parse(shortest(static_cast<float>(v))).get<double>();
}

std::string order_text(const SamplerOptions& options) {
  std::string text;
  for (const SamplerKind kind : options.order) text += (text.empty() ? "" : ";") + std::string(name(kind));
  return text;
}

std::string setting_row(const std::string& name, const Json& value, std::size_t width) {
  constexpr std::size_t kColumn = 22;
  // A stop string may be half of a character.
  const std::string shown = terminal_safe(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  return name + std::string(kColumn - name.size(), ' ') + folded(shown, width, kColumn) + "\n";
}

std::string bias_text(const SamplerOptions& options) {
  std::string text;
  for (const LogitBias& b : options.logit_bias) {
    text += (text.empty() ? "" : ",") + std::to_string(b.token) + (std::signbit(b.bias) ? "" : "+") + shortest(b.bias);
  }
  return text;
}

}  // namespace

std::string setting_name(std::string_view given) {
  std::string text(given.substr(std::min(given.find_first_not_of('-'), given.size())));
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::string known_setting(const std::string& name) {
  if (const Setting* const setting = find_setting(name)) return std::string(setting->name);
  if (const SamplingParameter* const p = find_parameter(name)) return std::string(p->name);
  refuse_name(name);
}

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& s : kSettings) names.emplace_back(s.name);
  for (const SamplingParameter& p : sampling_parameters()) names.emplace_back(p.name);
  return names;
}

std::vector<std::string> setting_words(const std::string& name) {
  if (name == "reasoning_effort") return reasoning_efforts();
  if (name == "mirostat") return {"0", "1", "2"};
  std::vector<std::string> words;
  if (name == "samplers") {
    for (const SamplerKind kind : default_sampler_order()) words.emplace_back(llm::name(kind));
  } else if (const Setting* const setting = find_setting(name)) {
    words = words_in(setting->words);
  }
  return words;
}

std::vector<std::string> settings_of(const std::function<bool(const std::string& option)>& is_typed) {
  std::vector<std::string> names;
  for (const Setting& s : kSettings) {
    const std::vector<std::string> options = words_in(s.options), keys = words_in(s.keys);
    if (std::any_of(options.begin(), options.end(), is_typed)) names.insert(names.end(), keys.begin(), keys.end());
  }
  for (const SamplingParameter& p : sampling_parameters()) {
    if (!p.options.empty() && is_typed(std::string(p.options.substr(0, p.options.find(',')))))
      names.emplace_back(p.name);
  }
  return names;
}

void change_setting(ChatSettings& settings, const std::string& given, const std::string& text, const TextRules& rules) {
  SamplerOptions& sampling = settings.answer.sampling;
  const std::string name = known_setting(given);
  if (name == "predict") {
    settings.answer.max_tokens = parse_integer("predict", text, -1, kMaxInt32);
  } else if (name == "seed") {
    change_seed(settings, parse_integer("seed", text, -1, std::numeric_limits<std::int64_t>::max()));
  } else if (name == "samplers") {
    sampling.order = given == name ? parse_sampler_names(text) : parse_sampler_letters(text);
  } else if (name == "logit_bias") {
    change_bias(sampling, text, rules);
  } else if (name == "dry_sequence_breaker") {
    set_dry_breaker(sampling, text, rules.escapes);
  } else if (name == "greedy") {
    set_greedy(settings, text);
  } else {
    const SamplingParameter* const p = find_parameter(name);
    check(p != nullptr, "a setting that other commands change");
    change_parameter(sampling, *p, text);
  }
}

std::string show_setting(const ChatSettings& settings, const ThinkingSettings& thinking, const std::string& given,
                         std::size_t width) {
  const std::string name = known_setting(given);
  if (name == "greedy") throw Error(ErrorKind::Usage, "greedy takes on or off: /set greedy on");
  return setting_row(name, settings_json(settings, thinking).at(name), width);
}

std::string list_settings(const ChatSettings& settings, const ThinkingSettings& thinking, std::size_t width) {
  const std::string chain = "Samplers: ";
  Json json = settings_json(settings, thinking);
  json.erase("seed_drawn");  // which the last line says
  std::string text;
  for (const auto& [name, value] : json.items()) text += setting_row(name, value, width);
  if (settings.seed != ChatSettings::Seed::Given) text += "The seed was drawn: /regen gives another answer.\n";
  return text + chain + folded(describe(settings.answer.sampling), width, chain.size()) + "\n";
}

Json settings_json(const ChatSettings& settings, const ThinkingSettings& thinking) {
  Json json;
  json["predict"] = settings.answer.max_tokens;
  json["seed"] = settings.answer.sampling.seed;
  if (settings.seed != ChatSettings::Seed::Given) json["seed_drawn"] = true;
  json["stop"] = settings.answer.stop_strings;
  json["reasoning"] = name(thinking.wish);
  json["reasoning_budget"] = thinking.budget;
  json["reasoning_effort"] = thinking.effort.empty() ? kTemplatesEffort : thinking.effort;
  const SamplerOptions& sampling = settings.answer.sampling;
  for (const SamplingParameter& p : sampling_parameters()) json[std::string(p.name)] = number(sampling, p);
  json["samplers"] = order_text(sampling);
  json["logit_bias"] = bias_text(sampling);
  json["dry_sequence_breaker"] = sampling.dry_sequence_breakers;
  return json;
}

void read_settings(const Json& json, ChatSettings& settings, ThinkingSettings& thinking, const Tokenizer& tokenizer) {
  ChatSettings changed = settings;
  ThinkingSettings thought = thinking;
  changed.before_greedy.reset();
  for (const auto& [name, value] : json.items()) {
    const SamplingParameter* p = find_sampling_parameter(name);
    try {
      if (p != nullptr) {
        set_value(changed.answer.sampling, *p, value.get<double>());
      } else if (name == "predict") {
        changed.answer.max_tokens = std::max<std::int64_t>(-1, value.get<std::int64_t>());
      } else if (name == "seed") {
        changed.answer.sampling.seed = value.get<std::uint64_t>();
        changed.seed = ChatSettings::Seed::Given;
      } else if (name == "seed_drawn") {  // behind the seed
        changed.seed = value.get<bool>() ? ChatSettings::Seed::Used : ChatSettings::Seed::Given;
      } else if (name == "reasoning") {
        thought.wish = thinking_wish("reasoning", value.get<std::string>());
      } else if (name == "reasoning_budget") {
        thought.budget = std::max(kNoBudget, value.get<std::int64_t>());
      } else if (name == "reasoning_effort") {
        thought.effort = reasoning_effort(name, value.get<std::string>());
      } else if (name == "samplers") {
        changed.answer.sampling.order = parse_sampler_names(value.get<std::string>());
      } else if (name == "logit_bias") {
        change_bias(changed.answer.sampling, value.get<std::string>(), {Escapes::Kept, tokenizer, name});
      } else if (name == "dry_sequence_breaker") {
        changed.answer.sampling.dry_sequence_breakers = value.get<std::vector<std::string>>();
      } else if (name == "stop") {
        changed.answer.stop_strings = value.get<std::vector<std::string>>();
        std::erase(changed.answer.stop_strings, std::string());
      } else {
        note("the setting \"" + escaped(name) + "\" is not known and left out");
      }
    } catch (const Json::exception&) {
      throw Error(ErrorKind::Usage, "the setting \"" + escaped(name) + "\" has a value of the wrong type");
    }
  }
  settings = std::move(changed);
  thinking = std::move(thought);
}

}  // namespace llm::app
