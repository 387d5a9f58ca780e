// Where tests find the built programs and, if it exists, the folder of shared test data beside the project.
#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

namespace llm::test {

inline std::filesystem::path program(const std::string& name) { return std::filesystem::path(LLM_TEST_BIN) / name; }
inline std::filesystem::path source_dir() { return LLM_TEST_SOURCE; }

/// A file of the shared data, or nothing with a line that says that the test case is skipped.
inline std::optional<std::filesystem::path> shared_file(const std::string& relative) {
  const auto path = std::filesystem::path(LLM_TEST_SHARED) / relative;
  if (std::filesystem::exists(path)) return path;
  std::printf("skipped, no shared data: %s\n", relative.c_str());
  return std::nullopt;
}

}  // namespace llm::test
