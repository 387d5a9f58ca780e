// The warp-wide int8 products that tiles are made for. Registers of a warp's lane (g = lane / 4, t = lane % 4):
//   A  16 rows x 32: a[0] row g, k = 4t .. 4t+3; a[1] row g + 8; a[2], a[3] the same at k + 16. Of 16: a[0], a[1]
//   B  32 x 8 columns: b.x column g, k = 4t .. 4t+3; b.y at k + 16. Of 16: b.x
//   C  16 rows x 8 columns: c[0], c[1] row g, columns 2t and 2t+1; c[2], c[3] row g + 8
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace llm::cuda {

/// d = a * b + c over 32 of k. A is signed or unsigned, B signed.
template <bool kSigned>
__device__ __forceinline__ void mma32(int (&d)[4], const std::uint32_t (&a)[4], uint2 b, const int (&c)[4]) {
  if constexpr (kSigned) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  }
}

/// The same over 16 of k.
template <bool kSigned>
__device__ __forceinline__ void mma16(int (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b,
                                      const int (&c)[4]) {
  if constexpr (kSigned) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  }
}

}  // namespace llm::cuda
