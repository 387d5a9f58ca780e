#include "runtime/figures.h"

#include <array>
#include <charconv>
#include <string_view>

namespace llm {

std::string fixed_text(double value, int digits) {
  std::array<char, 400> buffer;  // the largest double has 309 digits before its point
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, digits);
  return {buffer.data(), end.ptr};
}

std::string duration_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kFew = 100;
  if (seconds < 0.1) return fixed_text(seconds * 1e3, 0) + " ms";
  if (seconds < kFew) return fixed_text(seconds, seconds < 10 ? 1 : 0) + " s";
  if (seconds < kFew * kMinute) return fixed_text(seconds / kMinute, seconds < 10 * kMinute ? 1 : 0) + " min";
  return fixed_text(seconds / kHour, 1) + " h";
}

std::string speed_text(std::int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? " " + fixed_text(static_cast<double>(tokens) / seconds, 1) + " t/s" : "";
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fixed_text(value, unit == 0 ? 0 : 1) + " " + std::string(kUnits[unit]);
}

std::string owned_text(const std::string& memory) {
  const bool numbered = memory.back() >= '0' && memory.back() <= '9';
  return (numbered ? "" : "the ") + memory + "'s memory";
}

std::string grouped_digits(std::string text) {
  const std::size_t first_digit = text.starts_with('-') ? 1 : 0;
  for (std::size_t i = text.size(); i > first_digit + 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

}  // namespace llm
