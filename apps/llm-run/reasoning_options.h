// The options that say how much a model thinks, and what becomes of its thinking.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/command.h"

namespace llm::app {

/// Auto: as the template does where nobody says.
enum class ThinkingWish : std::uint8_t { Auto, On, Off };
/// Throws ErrorKind::Usage, with `option` in it, for what is not on, off or auto.
ThinkingWish thinking_wish(const std::string& option, const std::string& text);
const char* name(ThinkingWish);

enum class ReasoningFormat : std::uint8_t {
  Auto,            ///< as Apart
  InText,          ///< none: a part of the text, marks included
  Apart,           ///< deepseek: in reasoning_content
  ApartAndInText,  ///< deepseek-legacy
};
enum class ShowThinking : std::uint8_t { Auto, Stderr, Stdout, Hide };

inline constexpr std::int64_t kNoBudget = -1;

/// How much a model is to think.
struct ThinkingSettings {
  ThinkingWish wish = ThinkingWish::Auto;
  std::int64_t budget = kNoBudget;
  std::string effort = {};  ///< empty: the template's
};

struct ReasoningChoice {
  ThinkingWish wish = ThinkingWish::Auto;
  ThinkingWish keep = ThinkingWish::Auto;  ///< the thinking of earlier answers in later prompts
  ReasoningFormat format = ReasoningFormat::Auto;
  std::string effort;  ///< empty: the template's
  std::int64_t budget = kNoBudget;
  std::string budget_message;
  ShowThinking show = ShowThinking::Auto;

  bool is_in_text() const { return format == ReasoningFormat::InText || format == ReasoningFormat::ApartAndInText; }
  bool is_apart() const { return format != ReasoningFormat::InText; }
};

/// "" for default. Throws ErrorKind::Usage, with `option` in it, for what is no level.
inline constexpr const char* kTemplatesEffort = "default";
std::string reasoning_effort(const std::string& option, const std::string& text);

/// All that it takes.
std::vector<std::string> reasoning_efforts();

void add_reasoning_options(Command&, ReasoningChoice&);
/// Throws ErrorKind::Usage for options that contradict each other.
void check_reasoning_options(const ReasoningChoice&);

}  // namespace llm::app
