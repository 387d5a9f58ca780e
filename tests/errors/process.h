// Runs a program and gathers what it wrote and how it ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace llm::test {

struct ProcessResult {
  int exit_code = -1;      ///< -1 if it was ended by a signal
  int signal = 0;          ///< 0 if it exited
  bool timed_out = false;  ///< it was killed
  std::string out, err;
  std::uint64_t peak_bytes = 0;  ///< largest resident size
};

/// Standard input is empty. A program that cannot be started is an exception.
ProcessResult run_process(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                          std::chrono::milliseconds limit);

}  // namespace llm::test
