// What shapes the answers of a chat and can be changed in it, by the names of the options.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "reasoning_options.h"
#include "runtime/answer.h"

namespace llm::app {

struct ChatSettings {
  AnswerOptions answer;
  /// With a seed that somebody gave, an answer depends on the conversation alone: /regen repeats it. One that was drawn
  /// gives another with each attempt.
  enum class Seed : std::uint8_t { Given, Drawn } seed = Seed::Drawn;
  ThinkingWish thinking = ThinkingWish::Auto;
  std::int64_t thinking_budget = kNoBudget;
};

/// `name` as on the command line or in requests: top_k, --top-k, temp, predict, seed. Throws ErrorKind::Usage with the
/// nearest name or the range.
void change_setting(ChatSettings&, std::string_view name, const std::string& value);
/// A line per setting, then the chain of samplers.
std::string list_settings(const ChatSettings&);

nlohmann::ordered_json settings_json(const ChatSettings&);
/// Takes over what the object holds, or throws ErrorKind::Usage and changes nothing.
void read_settings(const nlohmann::ordered_json&, ChatSettings&);

}  // namespace llm::app
