// What shapes the answers of a chat and can be changed in it, by the names of the options.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reasoning_options.h"
#include "runtime/answer.h"
#include "sampling_options.h"
#include "text/tokenizer.h"

namespace llm::app {

struct ChatSettings {
  AnswerOptions answer;
  /// With a seed that somebody gave, an answer depends on the conversation alone: /regen repeats it. One that was drawn
  /// gives another with each attempt: once an answer has Used it, the next one counts on from it.
  enum class Seed : std::uint8_t { Given, Drawn, Used } seed = Seed::Drawn;
  std::optional<SamplerOptions> before_greedy = {};  ///< what /set greedy off gives back
};

/// A setting's name as on the command line or in requests, in one spelling: "--top-k" is "top_k".
std::string setting_name(std::string_view given);

/// The first of the names of such a setting, which settings_json() has. Throws ErrorKind::Usage with the nearest one.
std::string known_setting(const std::string& name);
/// The names that /set takes, in one spelling, one of each setting.
std::vector<std::string> setting_names();
/// The words that such a setting's value may be, or, of samplers, one of its items.
std::vector<std::string> setting_words(const std::string& name);

/// The names in settings_json() that options set, of which `is_typed` says whether they are on the command line.
std::vector<std::string> settings_of(const std::function<bool(const std::string& option)>& is_typed);

/// `name` is a setting_name(): top_k, temp, predict, seed, samplers, logit_bias; but for stop
/// and those of reasoning, which are other commands' to change. Throws ErrorKind::Usage with the nearest name or the
/// range.
void change_setting(ChatSettings&, const std::string& name, const std::string& value, const TextRules&);
/// One of them, as list_settings() shows it. Throws as change_setting() does.
std::string show_setting(const ChatSettings&, const ThinkingSettings&, const std::string& name, std::size_t width);
/// Each setting, then the chain of samplers, in lines of at most `width` columns.
std::string list_settings(const ChatSettings&, const ThinkingSettings&, std::size_t width);

nlohmann::ordered_json settings_json(const ChatSettings&, const ThinkingSettings&);
/// Takes over what the object holds, or throws ErrorKind::Usage and changes nothing.
void read_settings(const nlohmann::ordered_json&, ChatSettings&, ThinkingSettings&, const Tokenizer&);

}  // namespace llm::app
