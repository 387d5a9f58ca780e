// What can be said about a model file, and about running it on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "gguf/file.h"
#include "model/arch.h"

namespace llm::inspect {

/// Tensors of one storage type.
struct TypeSum {
  DType type;
  std::uint64_t tensors = 0, elements = 0, bytes = 0;
};

/// What something is, or why it cannot be used.
struct Finding {
  std::string text;
  bool ok = true;
};

struct Here {
  Finding architecture, tokenizer, backend;
  ThreadChoice threads;
  std::optional<ModelDims> dims;  ///< these four: of a supported architecture
  std::optional<std::uint64_t> weight_bytes;
  std::optional<std::uint64_t> cache_bytes;  ///< of 1,024 positions in the default format
  std::vector<std::string> unused;           ///< tensors that the architecture does not read
  std::optional<std::uint64_t> template_bytes;
};

struct Report {
  std::string path;
  const GgufFile& file;
  std::vector<TypeSum> types;  ///< largest first
  std::uint64_t parameters = 0;
  std::uint64_t tensor_bytes = 0;
  Here here;
};

Report make_report(const std::string& path, const GgufFile&, Warnings&);

std::string text_of(const Report&);
std::string json_of(const Report&);

}  // namespace llm::inspect
