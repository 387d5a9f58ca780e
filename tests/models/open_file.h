// A tiny model written to a folder, opened and turned into a graph, as a run would do it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/file.h"
#include "model/arch.h"
#include "models/registry.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace llm::test {

struct Opened {
  GgufFile file;
  ModelSpec spec;
  std::vector<std::string> unused;
  Graph graph;
};

inline Opened open_tiny(const TempDir& folder, const TinyFile& tiny, Bucket bucket = {.tokens = 4, .outputs = 2}) {
  const auto path = folder / "tiny.gguf";
  tiny.write(path);
  Warnings warnings;
  GgufFile file = GgufFile::open(path, warnings);
  ModelSpec spec = open_model(file.metadata());
  std::vector<std::string> unused;
  Graph graph = build_graph(spec, file, bucket, &unused);
  return {std::move(file), std::move(spec), std::move(unused), std::move(graph)};
}

/// The error that opening ends with.
inline std::optional<Error> failure(const TempDir& folder, const TinyFile& tiny) {
  try {
    open_tiny(folder, tiny);
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

}  // namespace llm::test
