#include "text/reasoning.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace llm {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

/// A format, found in a template by the text `sign`. Sources: the templates of the models named.
struct KnownFormat {
  std::string_view sign, open, close, before_close, after_close;
  std::string_view turn = {}, header_begin = {}, header_name = {}, header_end = {};
};
constexpr KnownFormat kFormats[] = {
    // gpt-oss
    {"<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>", "<|end|>", "", "", "<|start|>assistant",
     "<|channel|>", "final", "<|message|>"},
    // Solar Open
    {"<|begin|>assistant<|think|>", "<|think|>", "<|end|>", "", "", "<|begin|>assistant", "<|content|>", "", ""},
    // Gemma 4
    {"<|channel>thought\n", "<|channel>thought\n", "<channel|>", "\n", ""},
    {"<|channel>thought\\n", "<|channel>thought\n", "<channel|>", "\n", ""},
    // Magistral, Ministral
    {"[/THINK]", "[THINK]", "[/THINK]", "", ""},
    // Command R7B, Command A
    {"<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>", "", ""},
    // Apertus
    {"<|inner_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>", "", ""},
    // Seed-OSS, MiniMax M3
    {"</seed:think>", "<seed:think>", "</seed:think>", "", ""},
    {"</mm:think>", "<mm:think>", "</mm:think>", "", ""},
    // Kimi-VL
    {"\u25c1/think\u25b7", "\u25c1think\u25b7", "\u25c1/think\u25b7", "", ""},
    // DeepSeek R1 and V3, Qwen3, QwQ, GLM, SmolLM3, Nemotron and most others
    {"</think>", "<think>", "</think>", "\n", "\n\n"},
    // EXAONE Deep; Apriel
    {"</thought>", "<thought>", "</thought>", "\n", "\n\n"},
    {"</thinking>", "<thinking>", "</thinking>", "\n", "\n\n"},
};

ReasoningMarkers markers_of(const KnownFormat& f) {
  return {.open = std::string(f.open),
          .close = std::string(f.close),
          .before_close = std::string(f.before_close),
          .after_close = std::string(f.after_close),
          .turn = std::string(f.turn),
          .header_begin = std::string(f.header_begin),
          .header_name = std::string(f.header_name),
          .header_end = std::string(f.header_end)};
}

std::size_t leading_space(std::string_view text) { return std::min(text.find_first_not_of(kSpace), text.size()); }

std::string_view without_trailing_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// The longest end of `text` that `mark` could go on from, but not the whole mark.
std::size_t begun(std::string_view text, std::string_view mark) {
  std::size_t n = std::min(text.size(), mark.size() - 1);
  while (n > 0 && !mark.starts_with(text.substr(text.size() - n))) --n;
  return n;
}

constexpr ThinkingSwitch kSwitches[] = {
    {"enable_thinking", "true", "false"},     {"thinking", "true", "false"},
    {"reasoning", "true", "false"},           {"thinking_mode", "\"enabled\"", "\"disabled\""},
    {"thinking_option", "\"on\"", "\"off\""},
};
constexpr ThinkingSwitch kKeptSwitches[] = {
    {"preserve_thinking", "true", "false"},
    {"clear_thinking", "false", "true"},
    {"truncate_history_thinking", "false", "true"},
};

}  // namespace

std::optional<ReasoningMarkers> reasoning_markers_in(std::string_view source) {
  const auto format = std::find_if(std::begin(kFormats), std::end(kFormats), [source](const KnownFormat& f) {
    return source.find(f.sign) != std::string_view::npos;
  });
  if (format == std::end(kFormats)) return std::nullopt;
  return markers_of(*format);
}

ReasoningMarkers usual_reasoning_markers() { return *reasoning_markers_in("</think>"); }

ReasoningPhase reasoning_phase_after(const ReasoningMarkers& m, std::string_view prompt) {
  if (m.has_messages() && prompt.ends_with(m.header_begin + m.header_name + m.header_end)) {
    return ReasoningPhase::Answer;
  }
  const std::string_view bare = without_trailing_space(prompt);
  if (bare.ends_with(without_trailing_space(m.open))) return ReasoningPhase::Inside;
  // A message of its own ends with the same mark whoever wrote it.
  if (!m.has_messages() && bare.ends_with(m.close)) return ReasoningPhase::After;
  return ReasoningPhase::Before;
}

ReasoningParser::ReasoningParser(ReasoningMarkers markers, ReasoningPhase begins)
    : markers_(std::move(markers)), phase_(begins) {}

ReasoningParser::Parts ReasoningParser::push(std::string_view text) {
  held_ += text;
  Parts parts;
  while (step(parts)) {
  }
  return parts;
}

ReasoningParser::Parts ReasoningParser::finish() {
  Parts parts;
  switch (phase_) {
    case ReasoningPhase::Inside:
      think(parts, held_.size());
      break;
    case ReasoningPhase::After:
      set_aside(parts, held_.size());
      break;
    case ReasoningPhase::Before:
    case ReasoningPhase::Answer:
      parts.answer = std::exchange(held_, {});
  }
  return parts;
}

void ReasoningParser::begin_answer() { phase_ = ReasoningPhase::Answer; }

std::string_view ReasoningParser::begun_close() const {
  if (phase_ != ReasoningPhase::Inside || !markers_.close.starts_with(held_)) return {};
  return std::string_view(markers_.close).substr(0, held_.size());
}

/// False if more text is needed.
bool ReasoningParser::step(Parts& parts) {
  if (held_.empty()) return false;
  switch (phase_) {
    case ReasoningPhase::Before:
      return step_before(parts);
    case ReasoningPhase::Inside:
      return step_inside(parts);
    case ReasoningPhase::After:
      return step_after(parts);
    case ReasoningPhase::Answer:
      return step_answer(parts);
  }
  return false;
}

/// What `text` begins, and how long the marks are that say so.
ReasoningParser::Fit ReasoningParser::beginning(std::string_view text, std::size_t& length) const {
  constexpr std::size_t kLongestHeader = 256;
  const ReasoningMarkers& m = markers_;
  std::string_view rest = text;
  length = 0;
  if (m.has_messages()) {
    if (rest.size() < m.turn.size() && m.turn.starts_with(rest)) return Fit::Maybe;
    if (rest.starts_with(m.turn)) {
      rest.remove_prefix(m.turn.size());
      length = m.turn.size();
    }
  }
  if (rest.starts_with(m.open)) {
    length += m.open.size();
    return Fit::Opens;
  }
  bool maybe = m.open.starts_with(rest);
  if (m.has_messages()) {
    maybe = maybe || m.header_begin.starts_with(rest);
    if (rest.starts_with(m.header_begin)) {
      const std::size_t end = rest.find(m.header_end, m.header_begin.size());
      if (end != std::string_view::npos) {
        // A header that names a recipient is a call of a tool, whose name is in it.
        const bool call = rest.substr(0, end).find(" to=") != std::string_view::npos;
        if (!call) length += end + m.header_end.size();
        return Fit::Answers;
      }
      maybe = rest.size() < kLongestHeader;
    }
  }
  if (maybe) return Fit::Maybe;
  return length > 0 ? Fit::Answers : Fit::No;
}

bool ReasoningParser::step_before(Parts& parts) {
  const std::size_t space = leading_space(held_);
  std::size_t length = 0;
  const Fit fit = beginning(std::string_view(held_).substr(space), length);
  if (fit == Fit::Maybe) return false;
  if (fit == Fit::No) {
    begin_answer();
    return true;
  }
  set_aside(parts, space + length);
  phase_ = fit == Fit::Opens ? ReasoningPhase::Inside : ReasoningPhase::Answer;
  return true;
}

bool ReasoningParser::step_inside(Parts& parts) {
  if (at_start_) {
    set_aside(parts, leading_space(held_));
    if (held_.empty()) return false;
    // Some models repeat the mark that their template has written.
    if (held_.starts_with(markers_.open)) {
      set_aside(parts, markers_.open.size());
      return true;
    }
    if (markers_.open.starts_with(held_)) return false;
    at_start_ = false;
    if (thought_) space_ = "\n\n";
  }
  const std::size_t end = held_.find(markers_.close);
  if (end == std::string::npos) {
    think(parts, held_.size() - begun(held_, markers_.close));
    return false;
  }
  think(parts, end);
  space_.clear();
  set_aside(parts, markers_.close.size());
  phase_ = ReasoningPhase::After;
  at_start_ = true;
  return true;
}

bool ReasoningParser::step_after(Parts& parts) {
  set_aside(parts, leading_space(held_));
  if (held_.empty()) return false;
  if (!markers_.has_messages()) {
    begin_answer();
    return true;
  }
  std::size_t length = 0;
  const Fit fit = beginning(held_, length);
  if (fit == Fit::Maybe) return false;
  set_aside(parts, length);
  phase_ = fit == Fit::Opens ? ReasoningPhase::Inside : ReasoningPhase::Answer;
  return true;
}

bool ReasoningParser::step_answer(Parts& parts) {
  if (!markers_.has_messages()) {
    say(parts, held_.size());
    return false;
  }
  if (at_start_ && said_) parts.answer += "\n\n";  // the last message and this one
  const std::size_t end = held_.find(markers_.close);
  say(parts, end == std::string::npos ? held_.size() - begun(held_, markers_.close) : end);
  if (end == std::string::npos) return false;
  set_aside(parts, markers_.close.size());
  phase_ = ReasoningPhase::After;
  at_start_ = true;
  return true;
}

void ReasoningParser::say(Parts& parts, std::size_t n) {
  parts.answer.append(held_, 0, n);
  held_.erase(0, n);
  at_start_ = false;
  said_ = said_ || n > 0;
}

void ReasoningParser::set_aside(Parts& parts, std::size_t n) {
  parts.aside.append(held_, 0, n);
  held_.erase(0, n);
}

void ReasoningParser::think(Parts& parts, std::size_t n) {
  const std::string_view text = std::string_view(held_).substr(0, n);
  const std::string_view body = without_trailing_space(text);
  if (!body.empty()) {
    parts.thinking += std::exchange(space_, {});
    parts.thinking += body;
    thought_ = true;
  }
  space_ += text.substr(body.size());
  set_aside(parts, n);
}

std::span<const ThinkingSwitch> thinking_switches() { return kSwitches; }
std::span<const ThinkingSwitch> kept_thinking_switches() { return kKeptSwitches; }

}  // namespace llm
