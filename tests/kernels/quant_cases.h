// What the tests of quantised products share: the instruction sets that this machine runs with their functions, weights
// that end at an unreadable page, and the definition of a product in double precision.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/isa.h"
#include "tensor/activation.h"
#include "tensor/decode.h"
#include "tensor/dtype.h"

namespace llm::cpu {

namespace test {

/// The types that have kernels for products with quantised activations.
inline std::vector<DType> quant_types() {
  std::vector<DType> types;
  for (const DTypeInfo& type : dtypes())
    if (type.use == DTypeUse::Weight && type.quantized()) types.push_back(type.dtype);
  return types;
}

/// The tables of the instruction sets that the build has and this machine runs; the portable one comes first.
inline std::vector<const Kernels*> tables() {
  std::vector<const Kernels*> all;
  for (const InstructionSet& set : instruction_sets())
    if (set.runs_here()) all.push_back(&kernels_of(set));
  return all;
}

/// Bytes whose last one is the last of a page, with an unreadable page behind it.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t n) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t used = (n + page - 1) / page * page;
    size_ = used + page;
    void* p = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(p);
    ::mprotect(base_ + used, page, PROT_NONE);
    data_ = base_ + (used - n);
  }
  ~GuardedBytes() { ::munmap(base_, size_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Where the blocks of a type keep their f16 factors.
inline std::vector<std::size_t> half_offsets(DType t) {
  switch (t) {
    case DType::MXFP4:  // a byte; every value but NVFP4's 0x7f is a finite number
    case DType::NVFP4:
    case DType::IQ1_M:  // scattered over the scales
      return {};
    case DType::TQ1_0:
      return {52};
    case DType::TQ2_0:
      return {64};
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
      return {0, 2};
    case DType::Q2_K:
      return {80, 82};
    case DType::Q3_K:
      return {108};
    case DType::Q6_K:
      return {208};
    default:
      return {0};
  }
}

/// Spreads an f16 over the scales of an IQ1_M block: its nibbles, lowest first, are their top ones.
inline void set_iq1_m_factor(std::byte* block, std::uint16_t half) {
  for (std::size_t i = 0; i < 4; ++i) {
    std::byte& high = block[48 + 2 * i + 1];
    high = (high & std::byte{0x0f}) | static_cast<std::byte>(((half >> (4 * i)) & 0x0f) << 4);
  }
}

/// Gives a block its factors, all of them near `half`, an f16.
inline void set_factors(DType t, std::byte* block, std::uint16_t half) {
  for (std::size_t at : half_offsets(t)) std::memcpy(block + at, &half, 2);
  if (t == DType::IQ1_M) set_iq1_m_factor(block, half);
  // 2^(e - 127) / 2 and a float of 4 and 3 bits: the exponent of an f16 is less 15
  if (t == DType::MXFP4) block[0] = static_cast<std::byte>(((half >> 10) & 0x1f) + 127 - 15);
  if (t == DType::NVFP4)
    for (int i = 0; i < 4; ++i) block[i] = static_cast<std::byte>((half >> 7) + i);
}

/// Random blocks: every bit pattern of quants and packed scales, factors between 2^-12 and 2^-7 of either sign.
inline void random_blocks(DType t, std::byte* dst, std::size_t bytes, std::mt19937& rng) {
  const std::size_t block = info(t).block_bytes;
  for (std::size_t i = 0; i < bytes; ++i) dst[i] = static_cast<std::byte>(rng() & 0xff);
  for (std::size_t b = 0; b < bytes; b += block) {
    for (std::size_t at : half_offsets(t)) {
      const auto r = static_cast<std::uint32_t>(rng());
      const auto half = static_cast<std::uint16_t>(((r & 1) << 15) | ((3 + (r >> 1) % 5) << 10) | ((r >> 8) & 0x3ff));
      std::memcpy(dst + b + at, &half, 2);
    }
    if (t == DType::IQ1_M) set_iq1_m_factor(dst + b, static_cast<std::uint16_t>(0x0c00 + rng() % 0x1400));
    if (t == DType::MXFP4) dst[b] = static_cast<std::byte>(115 + rng() % 6);
    if (t == DType::NVFP4)  // of 16 elements each; a few are zero
      for (std::size_t i = 0; i < 4; ++i)
        dst[b + i] = static_cast<std::byte>(rng() % 64 == 0 ? 0 : (rng() & 0x80) | (0x20 + rng() % 0x20));
  }
}

/// A weight matrix of random blocks and quantised activations, some of them zero.
struct Problem {
  Problem(DType type, std::int64_t rows, std::int64_t k, std::int64_t act_rows, std::uint32_t seed)
      : type(type),
        rows(rows),
        k(k),
        act_rows(act_rows),
        row_bytes(row_size(type, k)),
        weights(row_bytes * static_cast<std::size_t>(rows)),
        x(static_cast<std::size_t>(act_rows * k)),
        layout(act_layout(static_cast<int>(info(type).activation), k, act_rows)),
        act(layout.bytes) {
    std::mt19937 rng(seed);
    random_blocks(type, weights.data(), row_bytes * static_cast<std::size_t>(rows), rng);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(rng);
    for (std::int64_t i = 0; i < k && i < 32; ++i) x[static_cast<std::size_t>(i)] = 0;
  }
  static std::size_t row_size(DType t, std::int64_t k) {
    return static_cast<std::size_t>(k) / info(t).block_elems * info(t).block_bytes;
  }
  void quantize(const Kernels& kernels) {
    kernels.quantize_rows[static_cast<int>(info(type).activation)](x.data(), k, act.data(), layout, 0, act_rows);
  }
  LinearArgs args(float* y, std::int64_t n_cols) const {
    LinearArgs a;
    a.w = weights.data();
    a.w_row_bytes = row_bytes;
    a.k = k;
    a.act = act.data();
    a.layout = &layout;
    a.n_cols = n_cols;
    a.y = y;
    a.ldy = rows;
    return a;
  }

  DType type;
  std::int64_t rows, k, act_rows;
  std::size_t row_bytes;
  GuardedBytes weights;
  std::vector<float> x;
  ActLayout layout;
  GuardedBytes act;
};

/// The products [act_rows][rows] in double precision from decoded weights and round-tripped activations, and the same
/// of absolute values: what rounding errors are relative to.
struct Expected {
  explicit Expected(const Problem& p) : rows(p.rows) {
    const auto n = static_cast<std::size_t>(p.k);
    std::vector<float> w(n), a(n * static_cast<std::size_t>(p.act_rows));
    for (std::int64_t c = 0; c < p.act_rows; ++c)
      round_trip_activation(info(p.type).activation, p.x.data() + c * p.k, a.data() + c * p.k, p.k);
    value.resize(static_cast<std::size_t>(p.act_rows * p.rows));
    magnitude.resize(value.size());
    for (std::int64_t r = 0; r < p.rows; ++r) {
      decode(p.type, p.weights.data() + static_cast<std::size_t>(r) * p.row_bytes, w.data(), p.k);
      for (std::int64_t c = 0; c < p.act_rows; ++c) {
        const float* col = a.data() + c * p.k;
        double sum = 0, magnitudes = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const double term = static_cast<double>(w[i]) * static_cast<double>(col[i]);
          sum += term;
          magnitudes += std::abs(term);
        }
        value[index(c, r)] = sum;
        magnitude[index(c, r)] = magnitudes;
      }
    }
  }
  std::size_t index(std::int64_t c, std::int64_t r) const { return static_cast<std::size_t>(c * rows + r); }

  std::int64_t rows;
  std::vector<double> value, magnitude;
};

}  // namespace test
}  // namespace llm::cpu
