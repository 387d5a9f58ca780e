// What a template may use up. A file can come from anyone: what goes beyond ends in an error, never in a hang, a stack
// overflow or a machine without memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llm::jinja {

struct Limits {
  std::uint64_t steps = 1'000'000;       ///< statements, iterations and calls; large strings and lists cost more
  std::size_t output_bytes = 16u << 20;  ///< of the rendered text
  std::size_t string_bytes = 16u << 20;  ///< of one string
  std::int64_t range_items = 100'000;    ///< as Jinja's sandbox has it
  int call_depth = 64;                   ///< macros in macros, recursive loops in recursive loops
};

inline constexpr std::size_t kMaxTemplateBytes = 4u << 20;
inline constexpr int kMaxNesting = 128;            ///< blocks in blocks, brackets in brackets
inline constexpr int kMaxTreeDepth = 500;          ///< of an expression: a chain of operators is as deep as it is long
inline constexpr int kMaxEvaluationDepth = 2000;   ///< statements and expressions in progress, over all calls
inline constexpr int kMaxValueDepth = 200;         ///< lists in lists
inline constexpr std::size_t kBytesPerStep = 512;  ///< of a string that is made or searched
inline constexpr std::size_t kRunsPerStep = 16;    ///< of such a string: changes of who wrote it
inline constexpr std::size_t kItemsPerStep = 4;    ///< of a list that is made
inline constexpr std::uint64_t kEvaluationsPerStep = 16;  ///< names, operators and constants of expressions
inline constexpr std::size_t kVariablesPerStep = 16;      ///< of a scope that is entered
inline constexpr std::size_t kBitsPerStep = 256;          ///< of large integers
inline constexpr std::size_t kMaxIntegerBits = 14'000;    ///< Python prints no integer of more than 4,300 digits
inline constexpr std::size_t kMaxNames = 10'000;          ///< different ones in a template
inline constexpr std::size_t kMaxNameBytes = 1000;
inline constexpr std::size_t kMaxParameters = 255;             ///< of a macro; keyword arguments of a call
inline constexpr std::size_t kMaxRuns = std::size_t{1} << 20;  ///< of one string: changes of who wrote it

}  // namespace llm::jinja
