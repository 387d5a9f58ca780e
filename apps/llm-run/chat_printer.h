// An answer of a chat on its way to stdout. On a terminal its reasoning is dimmed, and control characters that a model
// made up stay visible; elsewhere there is only the answer, in its exact bytes. One line feed ends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llm::app {

/// What becomes of the text between <think> and </think> at the beginning of an answer.
enum class ShowReasoning : std::uint8_t { Dimmed, AsText, Hidden };
/// By where stdout leads, NO_COLOR and TERM.
ShowReasoning default_reasoning_display();

class ChatPrinter {
 public:
  enum class Begins : std::uint8_t { Openly, InReasoning };  ///< the prompt may have begun the reasoning
  ChatPrinter(ShowReasoning, Begins);

  void write(std::string_view text);
  void finish();

 private:
  enum class Part : std::uint8_t { Unknown, Reasoning, Answer };
  void pass_on(std::size_t keep);
  void begin_reasoning();
  void end_reasoning();
  void emit(std::string_view text);
  void out(std::string_view bytes) const;

  ShowReasoning show_;
  bool terminal_;
  Part part_ = Part::Unknown;
  bool dimmed_ = false;
  bool wrote_ = false;
  std::string held_;            ///< may be the beginning of a tag
  std::size_t line_feeds_ = 0;  ///< held back until something follows
};

}  // namespace llm::app
