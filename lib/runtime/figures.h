// Figures in messages for people.
#pragma once

#include <cstdint>
#include <string>

namespace llm {

std::string bytes_text(std::uint64_t bytes);        ///< "4.9 GiB"
std::string number_text(std::int64_t n);            ///< "5,120"
std::string owned_text(const std::string& memory);  ///< "the GPU's memory", "CUDA1's memory", of MemoryShare::name
std::string duration_text(double seconds);          ///< "40 ms", "0.4 s", "75 s", "12 min", "3.1 h"
std::string fixed_text(double value, int digits);   ///< "96.1", in any locale

}  // namespace llm
