// One model file into several and back. Data and metadata stay as they are, bit for bit, in GGUF version 3.
#pragma once

#include <string>

#include "common/model_output.h"
#include "gguf/split.h"

namespace llm::inspect {

struct SplitOptions {
  std::string file, prefix;
  SplitLimits limits;
  bool dry_run = false;
  app::Existing existing = app::Existing::Refuse;
};
/// Writes PREFIX-00001-of-0000N.gguf and so on, and prints which file holds what.
void split(const SplitOptions&);

struct MergeOptions {
  std::string file, output;
  bool dry_run = false;
  app::Existing existing = app::Existing::Refuse;
};
void merge(const MergeOptions&);

}  // namespace llm::inspect
