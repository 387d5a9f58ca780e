// Thinking in a model's answer: how formats set it apart from what is said, which variables of templates switch it, and
// the parser that divides a stream of text into the two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace llm {

/// What stands around the thinking and between it and the answer. Two shapes: a pair of tags at the answer's beginning
/// (`<think>` ... `</think>`, then the answer), and messages of their own (gpt-oss: `<|channel|>analysis<|message|>`
/// ...
/// `<|end|>`, `<|start|>assistant`, `<|channel|>final<|message|>`, then the answer).
struct ReasoningMarkers {
  std::string open, close;
  std::string before_close = {}, after_close = {};  ///< white space that the format puts there
  // Where the answer is a message of its own: what begins each message after the first, and a header from
  // `header_begin` to `header_end` that is not `open`. One that names a recipient (" to=functions.f") is part of the
  // answer: a call of a tool. No header_end: the header is its beginning. Empty: the format has tags.
  std::string turn = {}, header_begin = {}, header_name = {}, header_end = {};

  bool has_messages() const { return !turn.empty(); }
  /// What the format has between the end of the thinking and the answer.
  std::string to_answer() const {
    return has_messages() ? turn + header_begin + header_name + header_end : after_close;
  }
};

/// Those of the format whose marks stand in a template's text; nothing if it knows no thinking.
std::optional<ReasoningMarkers> reasoning_markers_in(std::string_view template_source);
/// `<think>`, which models use also where their template says nothing of it.
ReasoningMarkers usual_reasoning_markers();

enum class ReasoningPhase : std::uint8_t {
  Before,  ///< it may begin, or the answer
  Inside,
  After,  ///< it has ended, the answer has not begun: white space, a header
  Answer,
};

/// Where an answer is when the prompt has ended: a template may have begun the thinking, or ended it.
ReasoningPhase reasoning_phase_after(const ReasoningMarkers&, std::string_view prompt);

/// Takes text in pieces of any size and says of each byte, once it is certain, what it belongs to.
class ReasoningParser {
 public:
  struct Parts {
    std::string thinking;  ///< without the white space at its ends
    std::string aside;     ///< every byte before the answer: marks, white space, the thinking
    std::string answer;    ///< without the white space that follows the thinking
  };

  ReasoningParser(ReasoningMarkers, ReasoningPhase begins);

  Parts push(std::string_view text);
  /// What was held back as a possible mark, when no more text comes.
  Parts finish();
  ReasoningPhase phase() const { return phase_; }
  const ReasoningMarkers& markers() const { return markers_; }
  /// From here on all is the answer.
  void begin_answer();
  /// While inside: the beginning of `close` that the text ends in.
  std::string_view begun_close() const;

 private:
  enum class Fit : std::uint8_t { No, Maybe, Opens, Answers };
  Fit beginning(std::string_view text, std::size_t& length) const;
  bool step(Parts&);
  bool step_before(Parts&);
  bool step_inside(Parts&);
  bool step_after(Parts&);
  bool step_answer(Parts&);
  void set_aside(Parts&, std::size_t n);
  void say(Parts&, std::size_t n);
  void think(Parts&, std::size_t n);

  ReasoningMarkers markers_;
  ReasoningPhase phase_;
  std::string held_;
  bool at_start_ = true;  ///< of a thinking part: nothing of it has come
  bool thought_ = false, said_ = false;
  std::string space_;  ///< of the thinking, if something follows it
};

/// A variable of chat templates that switches thinking, and what to set it to, as JSON.
struct ThinkingSwitch {
  std::string_view variable, on, off;
};
std::span<const ThinkingSwitch> thinking_switches();
/// The same for the thinking of earlier answers: on keeps it in later prompts.
std::span<const ThinkingSwitch> kept_thinking_switches();
/// The variable by which a template is told how many tokens the thinking may take, and the one for the effort.
inline constexpr std::string_view kThinkingBudgetVariable = "thinking_budget";
inline constexpr std::string_view kReasoningEffortVariable = "reasoning_effort";

}  // namespace llm
