// What an answer begins with, up to its first step: whatever can be refused without computing is refused here, of a dry
// run as of a run.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "constrain/grammar.h"
#include "options.h"
#include "prompt.h"
#include "runtime/answer.h"
#include "runtime/model.h"
#include "runtime/session.h"
#include "runtime/state_file.h"
#include "speculation_options.h"

namespace llm::app {

/// What is known before the model is loaded.
struct Asked {
  std::optional<std::string> prompt;  ///< a dry run may be without one
  Clock::duration awaited;            ///< whoever writes it: no part of the time to load
  std::optional<Grammar> grammar;
};
Asked read_asked(const RunOptions&);

/// Of the text that was asked, with the answer's beginning. Says what of the options is lost.
Prompt make_prompt(const RunOptions&, const PromptMaker&, const Tokenizer&, const std::string& text);

struct PreparedAnswer {
  std::unique_ptr<Model> model;
  std::optional<Prompt> prompt;
  AnswerOptions settings;
  std::unique_ptr<Drafting> drafting;
  SessionOptions session;
  std::optional<StateFile> cache;  ///< of --prompt-cache
};
PreparedAnswer prepare_answer(const RunOptions&, Asked, LoadOptions::Weights);

}  // namespace llm::app
