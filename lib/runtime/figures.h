// Figures in messages for people.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>

namespace llm {

std::string bytes_text(std::uint64_t bytes);        ///< "4.9 GiB"
std::string owned_text(const std::string& memory);  ///< "the GPU's memory", "CUDA1's memory", of MemoryShare::name
std::string duration_text(double seconds);          ///< "40 ms", "0.4 s", "75 s", "12 min", "3.1 h"
std::string speed_text(std::int64_t tokens, double seconds);  ///< " 35.2 t/s"; empty where there is no speed
std::string fixed_text(double value, int digits);             ///< "96.1", in any locale
std::string grouped_digits(std::string digits);               ///< of "-5120": "-5,120"
template <std::integral T>
std::string number_text(T n) {  ///< "5,120"
  return grouped_digits(std::to_string(n));
}

}  // namespace llm
