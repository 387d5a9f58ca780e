// Transposition of cached keys: 16 rows of n elements become n rows of 16, so that a dot product over the row has keys
// in lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(LLM_ISA_portable)
#include "backend/cpu/kernels/intrinsics.h"
#endif

namespace llm::cpu::LLM_ISA {

/// dst[d][i] = src[i][d] for i < 16 and begin <= d < n; strides in elements.
template <class T>
inline void transpose_16_rows_from(int begin, const T* src, std::ptrdiff_t src_stride, int n, T* dst,
                                   std::ptrdiff_t dst_stride) {
  for (int d = begin; d < n; ++d)
    for (int i = 0; i < 16; ++i) dst[d * dst_stride + i] = src[i * src_stride + d];
}

#if defined(LLM_ISA_portable)

template <class T>
inline void transpose_16_rows(const T* src, std::ptrdiff_t src_stride, int n, T* dst, std::ptrdiff_t dst_stride) {
  transpose_16_rows_from(0, src, src_stride, n, dst, dst_stride);
}

#else

/// Four bytes wide: 8 x 8 in three steps (pairs, fours, halves of the register).
inline void transpose_16_rows(const float* src, std::ptrdiff_t src_stride, int n, float* dst,
                              std::ptrdiff_t dst_stride) {
  int d = 0;
  for (; d + 8 <= n; d += 8) {
    for (int i = 0; i < 16; i += 8) {
      __m256 a[8], b[8];
      for (int r = 0; r < 8; ++r) a[r] = _mm256_loadu_ps(src + (i + r) * src_stride + d);
      for (int r = 0; r < 8; r += 2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
      }
      for (int r = 0; r < 8; r += 4) {
        a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
        a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xee);
        a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
        a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xee);
      }
      for (int r = 0; r < 4; ++r) {
        _mm256_storeu_ps(dst + (d + r) * dst_stride + i, _mm256_permute2f128_ps(a[r], a[r + 4], 0x20));
        _mm256_storeu_ps(dst + (d + 4 + r) * dst_stride + i, _mm256_permute2f128_ps(a[r], a[r + 4], 0x31));
      }
    }
  }
  transpose_16_rows_from(d, src, src_stride, n, dst, dst_stride);
}

/// Eight rows in each 128-bit block of a register: words, double words, quad words; b[j] has column j of every block.
template <class Register, class Load, class Lo16, class Hi16, class Lo32, class Hi32, class Lo64, class Hi64>
[[gnu::always_inline]] inline void transpose_8_words(Register* b, const Load& load, const Lo16& lo16, const Hi16& hi16,
                                                     const Lo32& lo32, const Hi32& hi32, const Lo64& lo64,
                                                     const Hi64& hi64) {
  Register a[8];
  for (int r = 0; r < 8; r += 2) {
    const Register u = load(r), v = load(r + 1);
    a[r] = lo16(u, v);
    a[r + 1] = hi16(u, v);
  }
  for (int r = 0; r < 8; r += 4) {
    b[r] = lo32(a[r], a[r + 2]);          // columns 0 1 of four rows
    b[r + 1] = hi32(a[r], a[r + 2]);      // 2 3
    b[r + 2] = lo32(a[r + 1], a[r + 3]);  // 4 5
    b[r + 3] = hi32(a[r + 1], a[r + 3]);  // 6 7
  }
  for (int r = 0; r < 4; ++r) {
    a[2 * r] = lo64(b[r], b[r + 4]);
    a[2 * r + 1] = hi64(b[r], b[r + 4]);
  }
  for (int r = 0; r < 8; ++r) b[r] = a[r];
}

/// Two bytes wide; T is Half or BFloat16.
template <class T>
inline void transpose_16_rows(const T* src, std::ptrdiff_t src_stride, int n, T* dst, std::ptrdiff_t dst_stride) {
  static_assert(sizeof(T) == 2);
  int d = 0;
#if defined(LLM_ISA_avx512)
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
  for (; d + 32 <= n; d += 32) {
    __m512i rows[2][8];
    for (int h = 0; h < 2; ++h) {
      transpose_8_words(
          rows[h], [&](int r) { return _mm512_loadu_si512(src + (8 * h + r) * src_stride + d); },
          [](__m512i u, __m512i v) { return _mm512_unpacklo_epi16(u, v); },
          [](__m512i u, __m512i v) { return _mm512_unpackhi_epi16(u, v); },
          [](__m512i u, __m512i v) { return _mm512_unpacklo_epi32(u, v); },
          [](__m512i u, __m512i v) { return _mm512_unpackhi_epi32(u, v); },
          [](__m512i u, __m512i v) { return _mm512_unpacklo_epi64(u, v); },
          [](__m512i u, __m512i v) { return _mm512_unpackhi_epi64(u, v); });
    }
    for (int j = 0; j < 8; ++j) {  // blocks of 16 bytes: columns j, 8 + j, 16 + j, 24 + j
      const __m512i first = _mm512_permutex2var_epi64(rows[0][j], low, rows[1][j]);
      const __m512i second = _mm512_permutex2var_epi64(rows[0][j], high, rows[1][j]);
      const auto put = [&](int column, __m256i v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + (d + column) * dst_stride), v);
      };
      put(j, _mm512_castsi512_si256(first));
      put(8 + j, _mm512_extracti64x4_epi64(first, 1));
      put(16 + j, _mm512_castsi512_si256(second));
      put(24 + j, _mm512_extracti64x4_epi64(second, 1));
    }
  }
#endif
  for (; d + 16 <= n; d += 16) {
    __m256i rows[2][8];
    for (int h = 0; h < 2; ++h) {
      transpose_8_words(
          rows[h],
          [&](int r) {
            return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + (8 * h + r) * src_stride + d));
          },
          [](__m256i u, __m256i v) { return _mm256_unpacklo_epi16(u, v); },
          [](__m256i u, __m256i v) { return _mm256_unpackhi_epi16(u, v); },
          [](__m256i u, __m256i v) { return _mm256_unpacklo_epi32(u, v); },
          [](__m256i u, __m256i v) { return _mm256_unpackhi_epi32(u, v); },
          [](__m256i u, __m256i v) { return _mm256_unpacklo_epi64(u, v); },
          [](__m256i u, __m256i v) { return _mm256_unpackhi_epi64(u, v); });
    }
    for (int j = 0; j < 8; ++j) {
      const auto put = [&](int column, __m256i v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + (d + column) * dst_stride), v);
      };
      put(j, _mm256_permute2x128_si256(rows[0][j], rows[1][j], 0x20));
      put(8 + j, _mm256_permute2x128_si256(rows[0][j], rows[1][j], 0x31));
    }
  }
  transpose_16_rows_from(d, src, src_stride, n, dst, dst_stride);
}

#endif

}  // namespace llm::cpu::LLM_ISA
