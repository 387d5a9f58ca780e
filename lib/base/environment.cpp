// The table of environment variables.
#include "base/environment.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace llm {
namespace {

constexpr EnvironmentVariable kVariables[] = {
    {"LLM_RUN_ISA",
     "use the kernels of this instruction set: portable, avx2, avx2vnni, avx512, avx512bf16, amx; on ARM64 portable, "
     "neon, "
     "neondotprod"},
    {"LLM_RUN_CHECK", "anything but 0: compare every node with the reference backend and stop at the first divergence"},
    {"OMP_THREAD_LIMIT", "most threads that OpenMP grants; the default number of threads keeps to it"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::optional<std::string> environment(std::string_view name) {
  const bool listed = std::any_of(std::begin(kVariables), std::end(kVariables),
                                  [name](const EnvironmentVariable& v) { return v.name == name; });
  check(listed, "environment variable " + std::string(name) + " is missing from the table");
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace llm
