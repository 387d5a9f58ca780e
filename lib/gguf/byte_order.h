// Numbers and tensor data in this machine's or the other byte order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/dtype.h"

namespace llm {

inline std::uint16_t swapped(std::uint16_t v) { return __builtin_bswap16(v); }
inline std::uint32_t swapped(std::uint32_t v) { return __builtin_bswap32(v); }
inline std::uint64_t swapped(std::uint64_t v) { return __builtin_bswap64(v); }

/// The value of type T stored at `p` (any alignment).
template <class T>
T load(const std::byte* p, bool swap_bytes) {
  if constexpr (sizeof(T) == 1) {
    T v;
    std::memcpy(&v, p, 1);
    return v;
  } else {
    using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
    static_assert(sizeof(Bits) == sizeof(T));
    Bits bits;
    std::memcpy(&bits, p, sizeof bits);
    return std::bit_cast<T>(swap_bytes ? swapped(bits) : bits);
  }
}

/// Reverses the bytes of each number of 1, 2, 4 or 8 bytes.
void swap_numbers(std::span<std::byte> data, std::size_t width);

/// Reverses the bytes of every multi-byte number of a tensor's data: elements, and within blocks of quantised types the
/// scales and sums (packed quants and high bits are bytes in both orders).
void swap_tensor(DType, std::span<std::byte> data);

}  // namespace llm
