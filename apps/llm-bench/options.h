// The command line of llm-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "common/app.h"
#include "runner.h"
#include "workload.h"

namespace llm::bench {

enum class Format : std::uint8_t { Markdown, Json, JsonLines, Csv };

struct Options {
  app::ModelOptions model;
  std::vector<int> threads;  ///< the model is loaded, and all tests run, with each
  std::vector<int> prompts, generated, depths, parallel;
  CacheFormat cache;
  Sampling sampling;
  Format format = Format::Markdown;
  bool roofline = false;
};

/// Returns the exit code if --help or --version was all.
std::optional<int> read_options(int argc, char** argv, Options&);
/// In the order in which they run: by depth, so that what is in the cache can stay.
std::vector<Test> tests(const Options&);

}  // namespace llm::bench
