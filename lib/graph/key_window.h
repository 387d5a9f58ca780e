// Which keys a token sees: the same numbers on the host, in kernels and on a device.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LLM_KEY_WINDOW __host__ __device__ __forceinline__
#else
#define LLM_KEY_WINDOW [[gnu::always_inline]] constexpr  // kernels leave no copy behind for other instruction sets
#endif

namespace llm {

/// Of a token at a position, those from first_key() to its own. A window that slides shows the last `length` keys; one
/// in chunks those of the `length` positions that share position / length, up to the token's.
struct KeyWindow {
  enum class Form : std::uint8_t { Sliding, Chunked };
  std::int32_t length = 0;  ///< 0: all keys
  Form form = Form::Sliding;

  constexpr KeyWindow() = default;
  constexpr KeyWindow(std::int32_t length, Form form = Form::Sliding) : length(length), form(form) {}

  LLM_KEY_WINDOW std::int32_t first_key(std::int32_t position) const {
    if (length <= 0) return 0;
    if (form == Form::Chunked) return position / length * length;
    return position >= length ? position - length + 1 : 0;
  }
  friend constexpr bool operator==(const KeyWindow&, const KeyWindow&) = default;
};

}  // namespace llm

#undef LLM_KEY_WINDOW
