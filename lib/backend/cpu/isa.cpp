#include "backend/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

namespace {

#if defined(__x86_64__)
/// As cpuid's first leaf has it: 0x17 and 0x19 are Zen 1 to 4, 0x1a is Zen 5.
unsigned processor_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return 0;
  const unsigned family = a >> 8 & 15;
  return family == 15 ? family + (a >> 20 & 255) : family;
}
#endif

}  // namespace

Ways best_ways([[maybe_unused]] const Kernels& kernels) {
  Ways ways;
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return {.streams = Streams::Two, .few_columns = 32, .narrow_tiles = false};
  if (const unsigned family = processor_family(); __builtin_cpu_is("amd") && (family == 0x17 || family == 0x19))
    ways.streams = std::string_view(kernels.isa).starts_with("avx512") ? Streams::TwoAhead : Streams::Two;
#endif
  return ways;
}

}  // namespace llm::cpu
