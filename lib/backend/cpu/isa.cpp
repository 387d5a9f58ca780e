#include "backend/cpu/isa.h"

#include <algorithm>
#include <vector>

#include "base/environment.h"
#include "base/error.h"

namespace llm::cpu {
namespace {

[[maybe_unused]] bool runs_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
[[maybe_unused]] bool runs_avx2vnni() { return runs_avx2() && __builtin_cpu_supports("avxvnni"); }
[[maybe_unused]] bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}

const InstructionSet kSets[] = {
    {"portable", kernels_portable, [] { return true; }},
#ifdef LLM_HAS_ISA_avx2
    {"avx2", kernels_avx2, runs_avx2},
#endif
#ifdef LLM_HAS_ISA_avx2vnni
    {"avx2vnni", kernels_avx2vnni, runs_avx2vnni},
#endif
#ifdef LLM_HAS_ISA_avx512
    {"avx512", kernels_avx512, runs_avx512},
#endif
};

std::string names() {
  std::string text;
  for (const InstructionSet& set : kSets) {
    text += (text.empty() ? "" : ", ") + std::string(set.name) + (set.runs_here() ? "" : " (not on this machine)");
  }
  return text;
}

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

const Kernels& choose_kernels(std::string_view forced) {
  const std::string name = forced.empty() ? environment("LLM_RUN_ISA").value_or("") : std::string(forced);
  if (name.empty()) {
    const auto best =
        std::find_if(std::rbegin(kSets), std::rend(kSets), [](const InstructionSet& s) { return s.runs_here(); });
    return best->kernels();
  }
  for (const InstructionSet& set : kSets) {
    if (set.name != name) continue;
    if (set.runs_here()) return set.kernels();
    throw Error(ErrorKind::Device, "this machine cannot run instruction set " + name + "; there are: " + names());
  }
  throw Error(ErrorKind::Device, "unknown instruction set " + escaped(name) + "; there are: " + names());
}

}  // namespace llm::cpu
