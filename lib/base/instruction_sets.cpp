#include "base/instruction_sets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <string>

#include "base/environment.h"
#include "base/error.h"

namespace llm {
namespace {

#if defined(__x86_64__)
// These two by CPUID itself: Clang 14's __builtin_cpu_supports does not know their names. That the operating system
// keeps the vector registers is part of what it says of avx2.
bool cpuid_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
bool cpuid_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
bool runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpuid_f16c(); }
bool runs_avx2vnni() { return runs_avx2() && cpuid_avxvnni(); }
bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
bool runs_avx512bf16() { return runs_avx512() && __builtin_cpu_supports("avx512bf16"); }
/// Linux hands out the tiles' registers to a process that asks for them, at once for all of its threads.
bool asks_for_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
bool cpuid_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kBf16) && (d & kTile) && (d & kInt8);
}
bool runs_amx() {
  static const bool granted = runs_avx512bf16() && cpuid_tiles() && asks_for_tiles();
  return granted;
}
#elif defined(__aarch64__)
bool has(unsigned long feature) { return (getauxval(AT_HWCAP) & feature) != 0; }
bool runs_neon() { return has(HWCAP_ASIMD); }
bool runs_neondotprod() { return runs_neon() && has(HWCAP_ASIMDDP); }
#endif

const InstructionSet kSets[] = {
    {"portable", {}, [] { return true; }},
#ifdef LLM_HAS_ISA_avx2
    {"avx2", "portable", runs_avx2, "avx2 fma f16c"},
#endif
#ifdef LLM_HAS_ISA_avx2vnni
    {"avx2vnni", "avx2", runs_avx2vnni, "avx2 fma f16c avx_vnni"},
#endif
#ifdef LLM_HAS_ISA_avx512
    {"avx512", "avx2", runs_avx512, "avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_vnni"},
#endif
#ifdef LLM_HAS_ISA_avx512bf16
    {"avx512bf16", "avx512", runs_avx512bf16},
#endif
#ifdef LLM_HAS_ISA_amx
    {"amx", "avx512bf16", runs_amx},
#endif
#ifdef LLM_HAS_ISA_neon
    {"neon", "portable", runs_neon, "asimd"},
#endif
#ifdef LLM_HAS_ISA_neondotprod
    {"neondotprod", "neon", runs_neondotprod, "asimd asimddp"},
#endif
};

std::string names() {
  std::string text;
  for (const InstructionSet& set : kSets) {
    text += (text.empty() ? "" : ", ") + std::string(set.name) + (set.runs_here() ? "" : " (not on this machine)");
  }
  return text;
}

const InstructionSet* find(std::string_view name) {
  const auto found = std::ranges::find(kSets, name, &InstructionSet::name);
  return found == std::end(kSets) ? nullptr : found;
}

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

const InstructionSet& choose_instruction_set(std::string_view forced) {
  const std::string name = forced.empty() ? environment("LLM_RUN_ISA").value_or("") : std::string(forced);
  if (name.empty()) {
    return *std::find_if(std::rbegin(kSets), std::rend(kSets), [](const InstructionSet& s) { return s.runs_here(); });
  }
  const InstructionSet* set = find(name);
  if (set == nullptr) {
    throw Error(ErrorKind::Device, "unknown instruction set " + escaped(name) + "; there are: " + names());
  }
  if (!set->runs_here()) {
    throw Error(ErrorKind::Device, "this machine cannot run instruction set " + name + "; there are: " + names());
  }
  return *set;
}

bool includes(const InstructionSet& wide, std::string_view narrow) {
  for (const InstructionSet* set = &wide; set != nullptr; set = find(set->narrower)) {
    if (set->name == narrow) return true;
  }
  return narrow == kSets[0].name;  // a build for sanitizers leaves sets out
}

}  // namespace llm
