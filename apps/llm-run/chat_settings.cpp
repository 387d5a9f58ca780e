#include "chat_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/nearest.h"
#include "common/messages.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

using Json = nlohmann::ordered_json;

std::string plain(std::string_view name) {
  std::string text(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

const SamplingParameter* find_parameter(const std::string& wanted, std::vector<std::string>& known) {
  for (const SamplingParameter& p : sampling_parameters()) {
    known.emplace_back(p.name);
    if (p.name == wanted) return &p;
    for (std::string_view options = p.options; !options.empty();) {
      const std::size_t end = std::min(options.find(','), options.size());
      if (plain(options.substr(0, end)) == wanted) return &p;
      options.remove_prefix(std::min(end + 1, options.size()));
    }
  }
  return nullptr;
}

void change_seed(ChatSettings& settings, std::int64_t seed) {
  settings.seed = seed < 0 ? ChatSettings::Seed::Drawn : ChatSettings::Seed::Given;
  settings.answer.sampling.seed = seed < 0 ? std::random_device{}() : static_cast<std::uint64_t>(seed);
}

/// Floats in as few digits as give them back.
Json number(const SamplerOptions& options, const SamplingParameter& p) {
  const double v = value(options, p);
  if (is_integer(p)) return Json(static_cast<std::int64_t>(v));
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(v)).ptr;
  double shortest = v;
  std::from_chars(text.data(), end, shortest);
  return shortest;
}

}  // namespace

void change_setting(ChatSettings& settings, std::string_view name, const std::string& text) {
  const std::string wanted = plain(name);
  constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();
  if (wanted == "predict" || wanted == "n_predict" || wanted == "n") {
    settings.answer.max_tokens = parse_integer("predict", text, -1, kMaxInt32);
    return;
  }
  if (wanted == "seed" || wanted == "s") return change_seed(settings, parse_integer("seed", text, -1, kMaxSeed));
  std::vector<std::string> known{"predict", "seed"};
  const SamplingParameter* p = find_parameter(wanted, known);
  if (p == nullptr) {
    const std::string nearest = nearest_name(wanted, known);
    throw Error(ErrorKind::Usage, "no setting is called \"" + escaped(name) + "\"" +
                                      (nearest.empty() ? "; /set lists them" : "; did you mean " + nearest + "?"));
  }
  const std::string option(p->name);
  set_value(settings.answer.sampling, *p,
            is_integer(*p) ? static_cast<double>(parse_integer(option, text, static_cast<std::int64_t>(p->min),
                                                               static_cast<std::int64_t>(p->max)))
                           : parse_real(option, text, p->min, p->max));
  if (!is_read(settings.answer.sampling, *p)) note(option + " changes nothing with the samplers that act");
}

std::string list_settings(const ChatSettings& settings) {
  const Json json = settings_json(settings);
  std::string text;
  for (const auto& [name, value] : json.items()) {
    text += name + std::string(name.size() < 20 ? 20 - name.size() : 1, ' ') + value.dump() + "\n";
  }
  if (settings.seed == ChatSettings::Seed::Drawn) text += "The seed was drawn: /regen gives another answer.\n";
  return text + "Samplers: " + describe(settings.answer.sampling) + "\n";
}

Json settings_json(const ChatSettings& settings) {
  Json json;
  json["predict"] = settings.answer.max_tokens;
  json["seed"] = settings.answer.sampling.seed;
  json["stop"] = settings.answer.stop_strings;
  json["reasoning"] = name(settings.thinking);
  json["reasoning_budget"] = settings.thinking_budget;
  for (const SamplingParameter& p : sampling_parameters()) {
    json[std::string(p.name)] = number(settings.answer.sampling, p);
  }
  return json;
}

void read_settings(const Json& json, ChatSettings& settings) {
  ChatSettings changed = settings;
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
      } else if (name == "reasoning") {
        changed.thinking = thinking_wish("reasoning", value.get<std::string>());
      } else if (name == "reasoning_budget") {
        changed.thinking_budget = std::max(kNoBudget, value.get<std::int64_t>());
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
}

}  // namespace llm::app
