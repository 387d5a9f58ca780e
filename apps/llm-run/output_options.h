// What an answer's output is, and when it ends whatever the model says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "answer_writer.h"
#include "common/command.h"
#include "runtime/answer.h"

namespace llm::app {

enum class OutputFormat : std::uint8_t {
  Text,
  Json,       ///< one object at the end
  JsonLines,  ///< an object per token, then one without logprobs
};

inline constexpr int kMostLogprobs = 100;  ///< that can be asked for beside a token

struct OutputOptions {
  OutputFormat format = OutputFormat::Text;
  std::optional<int> logprobs;  ///< of each token, with those of so many of the likeliest
  std::optional<double> max_seconds;
  std::string prefill;
  bool display_prompt = false;
  TextEnd text_end = TextEnd::LineFeed;
  AnswerOptions::ControlTokens control_tokens = AnswerOptions::ControlTokens::Hidden;
  std::optional<bool> show_timings = {};  ///< nothing: nobody said, and -q leaves them out
  std::string events;                     ///< a file, or fd:N
};

void add_output_options(Command&, OutputOptions&);
/// -o
void add_answer_file(Command&, std::string& path);
/// Throws ErrorKind::Usage for options that need another format.
void check_output_options(const OutputOptions&);
/// The name of one that is given and makes sense for one answer only; empty: none.
std::string option_of_one_answer(const OutputOptions&);

}  // namespace llm::app
