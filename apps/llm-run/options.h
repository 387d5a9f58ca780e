// The command line of llm-run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch_options.h"
#include "common/app.h"
#include "constraint_options.h"
#include "context_options.h"
#include "output_options.h"
#include "prompt_cache.h"
#include "prompt_input.h"
#include "reasoning_options.h"
#include "sampling_options.h"
#include "speculation_options.h"

namespace llm::app {

/// What options of the command line itself set, which counts more than a saved chat that they stand beside.
struct TypedSettings {
  std::vector<std::string> names = {};  ///< of chat_settings.h
  bool system = false;                  ///< the system text
};

/// How the prompt becomes a conversation.
struct ChatOptions {
  enum class Format : std::uint8_t {
    ByFile,    ///< the file's chat template if it has one
    Template,  ///< a template must be there
    Raw,       ///< none, and no word about it
  } format = Format::ByFile;
  std::optional<std::string> system;
  std::string system_file;
  std::string template_text;  ///< a template, or the name of one
  std::string template_file;
  std::vector<std::string> template_kwargs;  ///< JSON objects
  ReasoningChoice reasoning;
  bool interactive = false;  ///< -i
  bool single_turn = false;  ///< -st: one answer
  bool keep_history = true;  ///< of the lines typed
  std::string saved;         ///< chat to go on with; empty: none
  TypedSettings typed;       ///< beside that
};

/// For -n: no end but the model's or the context's.
inline constexpr std::int64_t kUntilContextIsFull = -2;

struct RunOptions {
  ModelOptions model;
  PromptInput prompt;
  std::int64_t max_tokens = -1;  ///< -1: until something else ends it
  ContextOptions context;
  PromptCacheOptions prompt_cache;
  SamplingChoices sampling;
  ConstraintChoice constraint;
  SpeculationChoice speculation;
  std::vector<std::string> stop_strings;
  bool escape = true;  ///< escapes in texts on the command line are processed
  bool ignore_end = false;
  ChatOptions chat;
  OutputOptions output;
  bool tune = false;
  bool explain_prompt = false;
  bool dry_run = false;
  bool strict = false;
  BatchOptions batch;
  bool profile = false;
  std::string dump_graph;
};

/// A conversation is asked for: -i, or a terminal at both ends and no prompt.
bool wants_chat(const RunOptions&);

/// Returns the exit code if --help or --version was all.
std::optional<int> read_options(int argc, char** argv, RunOptions&);

}  // namespace llm::app
