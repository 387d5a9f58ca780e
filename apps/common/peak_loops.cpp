#include "common/peak_loops.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/instruction_sets.h"
#endif

namespace llm::app {

#if defined(__x86_64__)

namespace {

// Each iteration has one instruction per accumulator. 20 (12 where only 16 registers exist) of them hide the latency of
// two units with 4 to 6 cycles each; operands and accumulators are zero, so no number is subnormal.
constexpr double kWide = 20, kNarrow = 12;
constexpr double kOpsPerByte = 2, kOpsPerFloat = 2, kOpsPerPair = 4;

#define LLM_CLOBBER_16                                                                                                \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"
#define LLM_CLOBBER_22 LLM_CLOBBER_16, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21"

// Registers 0 to 19 accumulate, 20 and 21 are the operands.
#define LLM_WIDE_LOOP(instruction)                                               \
  __asm__ volatile(                                                              \
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21\n\t"       \
      "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n\t"                                  \
      ".endr\n"                                                                  \
      "1:\n\t"                                                                   \
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19\n\t" instruction \
      " %%zmm20, %%zmm21, %%zmm\\r\n\t"                                          \
      ".endr\n\t"                                                                \
      "dec %0\n\t"                                                               \
      "jnz 1b\n\t"                                                               \
      "vzeroupper"                                                               \
      : "+r"(iterations)                                                         \
      :                                                                          \
      : "cc", LLM_CLOBBER_22)

// Registers 0 to 11 accumulate (or take the result), 12 and 13 are the operands.
#define LLM_NARROW_LOOP(instruction)                     \
  __asm__ volatile(                                      \
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n\t"       \
      "vpxor %%xmm\\r, %%xmm\\r, %%xmm\\r\n\t"           \
      ".endr\n"                                          \
      "1:\n\t"                                           \
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t" instruction \
      " %%ymm12, %%ymm13, %%ymm\\r\n\t"                  \
      ".endr\n\t"                                        \
      "dec %0\n\t"                                       \
      "jnz 1b\n\t"                                       \
      "vzeroupper"                                       \
      : "+r"(iterations)                                 \
      :                                                  \
      : "cc", LLM_CLOBBER_16)

__attribute__((target("avx512f"))) void dot_avx512vnni(std::int64_t iterations) { LLM_WIDE_LOOP("vpdpbusd"); }
__attribute__((target("avx512f"))) void fma_avx512(std::int64_t iterations) { LLM_WIDE_LOOP("vfmadd231ps"); }
__attribute__((target("avx512f"))) void dot_avx512bf16(std::int64_t iterations) { LLM_WIDE_LOOP("vdpbf16ps"); }
__attribute__((target("avx2"))) void dot_avxvnni(std::int64_t iterations) { LLM_NARROW_LOOP("%{vex%} vpdpbusd"); }
__attribute__((target("avx2"))) void dot_avx2(std::int64_t iterations) { LLM_NARROW_LOOP("vpmaddubsw"); }
__attribute__((target("avx2"))) void fma_avx2(std::int64_t iterations) { LLM_NARROW_LOOP("vfmadd231ps"); }

constexpr double kTileByteOps = 16.0 * 16 * 64 * kOpsPerByte, kTileFloatOps = 16.0 * 16 * 32 * kOpsPerFloat;
constexpr double kTileCycles = 16;
/// What a processor with tiles is told and given. The operands are random: it keeps a higher clock over zeros. Of every
/// second byte these bits are: as BF16, with 0x80 and 0x3f for the others, numbers from 0.5 to 2 of both signs.
struct TileOperands {
  struct alignas(64) {
    std::array<std::uint8_t, 16> head{1};  // the palette
    std::array<std::uint16_t, 16> row_bytes{64, 64, 64, 64, 64, 64};
    std::array<std::uint8_t, 16> rows{16, 16, 16, 16, 16, 16};
  } shapes;
  std::array<std::uint8_t, 1024> operand;

  TileOperands(unsigned random_bits, unsigned other_bits) {
    std::minstd_rand random;
    for (std::size_t i = 0; i < operand.size(); ++i) {
      const auto byte = static_cast<unsigned>(random() >> 8);
      operand[i] = static_cast<std::uint8_t>(i % 2 == 0 ? byte : (byte & random_bits) | other_bits);
    }
  }
};

// Four sums, so that each waits for the one before no longer than the unit is busy.
#define LLM_TILE_LOOP(instruction, random_bits, other_bits)         \
  const TileOperands o(random_bits, other_bits);                    \
  __asm__ volatile(                                                 \
      "ldtilecfg %1\n\t"                                            \
      "tileloadd (%2,%3,1), %%tmm4\n\t"                             \
      "tileloadd (%2,%3,1), %%tmm5\n"                               \
      "1:\n\t"                                                      \
      ".irp r,0,1,2,3\n\t" instruction                              \
      " %%tmm5, %%tmm4, %%tmm\\r\n\t"                               \
      ".endr\n\t"                                                   \
      "dec %0\n\t"                                                  \
      "jnz 1b\n\t"                                                  \
      "tilerelease"                                                 \
      : "+r"(iterations)                                            \
      : "m"(o.shapes), "r"(o.operand.data()), "r"(std::int64_t{64}) \
      : "cc", "memory")

__attribute__((target("amx-tile,amx-int8"))) void dot_tiles(std::int64_t iterations) {
  LLM_TILE_LOOP("tdpbssd", 0xff, 0);
}
__attribute__((target("amx-tile,amx-bf16"))) void dot_bf16_tiles(std::int64_t iterations) {
  LLM_TILE_LOOP("tdpbf16ps", 0x80, 0x3f);
}

/// A multiplication of 64 bits waits three cycles for the one before, on every x86-64 since 2008.
constexpr double kCyclesPerChain = 8 * 3;
void multiply_chain(std::int64_t iterations) {
  std::int64_t value = 1;
  __asm__ volatile(
      "1:\n\t"
      ".rept 8\n\t"
      "imul %1, %1\n\t"
      ".endr\n\t"
      "dec %0\n\t"
      "jnz 1b"
      : "+r"(iterations), "+r"(value)
      :
      : "cc");
}

/// Whether tiles may be used, for which the operating system has been asked.
bool has_tiles() {
  return std::ranges::any_of(instruction_sets(),
                             [](const InstructionSet& set) { return set.name == "amx" && set.runs_here(); });
}
bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0; }
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
bool has_avxvnni() {  // Clang 14 does not know it by name
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

}  // namespace

PeakLoop int8_peak_loop() {
  if (has_tiles()) return {dot_tiles, 4 * kTileByteOps, kTileByteOps / kTileCycles, 1};
  if (has_avx512() && __builtin_cpu_supports("avx512vnni"))
    return {dot_avx512vnni, kWide * 64 * kOpsPerByte, 64 * kOpsPerByte};
  if (has_avxvnni()) return {dot_avxvnni, kNarrow * 32 * kOpsPerByte, 32 * kOpsPerByte};
  if (has_avx2()) return {dot_avx2, kNarrow * 32 * kOpsPerByte, 32 * kOpsPerByte};
  return {};
}

PeakLoop bf16_peak_loop() {
  if (has_tiles()) return {dot_bf16_tiles, 4 * kTileFloatOps, kTileFloatOps / kTileCycles, 1};
  if (has_avx512() && __builtin_cpu_supports("avx512bf16")) return {dot_avx512bf16, kWide * 16 * kOpsPerPair};
  return f32_peak_loop();
}

PeakLoop f32_peak_loop() {
  if (has_avx512()) return {fma_avx512, kWide * 16 * kOpsPerFloat, 16 * kOpsPerFloat};
  if (has_avx2() && __builtin_cpu_supports("fma")) return {fma_avx2, kNarrow * 8 * kOpsPerFloat, 8 * kOpsPerFloat};
  return {};
}

PeakLoop clock_loop() { return {multiply_chain, kCyclesPerChain, 1}; }

#else

PeakLoop int8_peak_loop() { return {}; }
PeakLoop bf16_peak_loop() { return {}; }
PeakLoop f32_peak_loop() { return {}; }
PeakLoop clock_loop() { return {}; }

#endif

}  // namespace llm::app
