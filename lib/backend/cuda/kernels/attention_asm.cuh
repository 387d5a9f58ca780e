// The instructions that attention needs and C++ has no words for: loads of matrix fragments, tensor-core products, an
// atomic addition that orders memory (compute capability 8.0 on).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/kernels/shared_address.cuh"

namespace llm::cuda {

/// The shared memory of the launch's size.
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ uint4 llm_attention_shared[];
  return reinterpret_cast<unsigned char*>(llm_attention_shared);
}

/// Four 8x8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, and gets elements
/// (row l / 4, columns 2 (l % 4) and one more) of each.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
/// The same, each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// a - b of two F16 numbers each.
__device__ __forceinline__ std::uint32_t subtract_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t y;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
/// The 8x8 matrix of 16-bit elements whose elements (row l / 4, columns 2 (l % 4) and one more) lane l has, transposed.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/// c [16][8] += a [16][16] b [16][8]. With g = lane / 4 and t = lane % 4: a0 (g, 2t), a1 (g + 8, 2t), a2 (g, 2t + 8),
/// a3 (g + 8, 2t + 8); b0 (k 2t, column g), b1 (k 2t + 8, column g); c0, c1 (g, 2t and 2t + 1), c2, c3 (g + 8, ...).
template <bool kBFloat16>
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  if constexpr (kBFloat16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// What was at `to` before. What the device's threads wrote before their additions is seen after this one.
__device__ __forceinline__ unsigned add_acquire_release(unsigned* to, unsigned n) {
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(n) : "memory");
  return before;
}

/// 2^x within 2 units in the last place; 0 where the result is subnormal.
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace llm::cuda
