#include "backend/cpu/isa.h"

#include <algorithm>

#include "base/error.h"

namespace llm::cpu {
namespace {

struct Compiled {
  std::string_view set;
  const Kernels& (*kernels)();
};
const Compiled kCompiled[] = {
    {"portable", kernels_portable},
#ifdef LLM_HAS_ISA_avx2
    {"avx2", kernels_avx2},
#endif
#ifdef LLM_HAS_ISA_avx2vnni
    {"avx2vnni", kernels_avx2vnni},
#endif
#ifdef LLM_HAS_ISA_avx512
    {"avx512", kernels_avx512},
#endif
#ifdef LLM_HAS_ISA_avx512bf16
    {"avx512bf16", kernels_avx512bf16},
#endif
#ifdef LLM_HAS_ISA_amx
    {"amx", kernels_amx},
#endif
#ifdef LLM_HAS_ISA_neon
    {"neon", kernels_neon},
#endif
#ifdef LLM_HAS_ISA_neondotprod
    {"neondotprod", kernels_neondotprod},
#endif
};

}  // namespace

const Kernels& kernels_of(const InstructionSet& set) {
  const auto found = std::ranges::find(kCompiled, set.name, &Compiled::set);
  check(found != std::end(kCompiled), "an instruction set without kernels");
  return found->kernels();
}

const Kernels& choose_kernels(std::string_view forced) { return kernels_of(choose_instruction_set(forced)); }

Streams best_streams() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") ? Streams::Two : Streams::One;
#else
  return Streams::One;
#endif
}

}  // namespace llm::cpu
