// Which GPUs a program has code for, by the list that CMAKE_CUDA_ARCHITECTURES gave its compiler. Source: CMake's
// documentation of that variable, and the CUDA programming guide on binary and PTX compatibility.
#pragma once

#include <charconv>
#include <string_view>

namespace llm {

/// `architectures`: "80-real 90a-real 120". Machine code ("-real", or no suffix) runs on its capability and later ones
/// of the same major number, of "90a" on 9.0 alone; PTX ("-virtual", or no suffix) on all later ones, which compile it.
inline bool has_code_for(std::string_view architectures, int major, int minor) {
  const int gpu = 10 * major + minor;
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(' '));
    architectures.remove_prefix(one.size() < architectures.size() ? one.size() + 1 : one.size());
    int capability = 0;
    const char* const end = one.data() + one.size();
    const char* const after = std::from_chars(one.data(), end, capability).ptr;
    const std::string_view rest = one.substr(static_cast<std::size_t>(after - one.data()));
    const bool exact = rest.starts_with('a'), real = !rest.ends_with("-virtual"), ptx = !rest.ends_with("-real");
    if (gpu == capability) return true;
    if (exact || gpu < capability) continue;
    if (ptx || (real && gpu / 10 == capability / 10)) return true;
  }
  return false;
}

}  // namespace llm
