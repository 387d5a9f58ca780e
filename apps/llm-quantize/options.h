// The command line of llm-quantize.
#pragma once

#include <optional>
#include <string>

#include "common/model_output.h"
#include "quantize/mix.h"

namespace llm::quantization {

struct Options {
  std::string input, output;
  const Mix* mix = nullptr;  ///< nullptr: tensors are copied as they are
  MixOptions choice;         ///< but has_importance
  std::string imatrix;
  int threads = 0;  ///< 0: what the machine gives
  bool dry_run = false, keep_split = false;
  app::Existing existing = app::Existing::Refuse;
};

/// Returns the exit code if there is nothing left to do.
std::optional<int> read_options(int argc, char** argv, Options&);

}  // namespace llm::quantization
