// The command line of llm-run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch_options.h"
#include "common/app.h"
#include "sampling_options.h"

namespace llm::app {

struct RunOptions {
  ModelOptions model;
  std::optional<std::string> prompt;
  std::string prompt_file;  ///< "-" is stdin
  std::int64_t max_tokens = -1;
  std::optional<std::int64_t> context;  ///< 0: the model's whole one
  SamplingChoices sampling;
  std::vector<std::string> stop_strings;
  bool escape = true;  ///< escapes in texts on the command line are processed
  bool ignore_end = false;
  bool raw = false;  ///< raw completion was asked for, so nothing need be said about a chat template
  BatchOptions batch;
  bool profile = false;
  std::string dump_graph;
};

/// Returns the exit code if --help or --version was all.
std::optional<int> read_options(int argc, char** argv, RunOptions&);

/// The prompt as the options give it. Throws ErrorKind::Usage if there is none or its file cannot be read,
/// ErrorKind::Io if reading stdin fails.
std::string read_prompt(const RunOptions&);

}  // namespace llm::app
