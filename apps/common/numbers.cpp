// Parsing of numbers given on the command line.
#include "common/numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace llm::app {
namespace {

struct Suffix {
  std::string_view text;
  std::int64_t factor;
};
constexpr std::int64_t kKi = 1024;
constexpr std::array kSuffixes{Suffix{"", 1},          Suffix{"k", 1000},          Suffix{"K", 1000},
                               Suffix{"M", 1'000'000}, Suffix{"G", 1'000'000'000}, Suffix{"Ki", kKi},
                               Suffix{"Mi", kKi* kKi}, Suffix{"Gi", kKi* kKi* kKi}};

std::optional<std::int64_t> integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Suffix& s : kSuffixes) {
    if (rest == s.text) return checked_mul(value, s.factor);
  }
  return std::nullopt;
}

std::optional<double> real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string shortest(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end.ptr};
}

/// `option` may be a command of a chat, which has its slash.
[[noreturn]] void fail(std::string_view option, std::string_view text, const std::string& wanted) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = {},
                                           .subject = (option.starts_with('/') ? "" : "option ") + std::string(option),
                                           .problem = "\"" + escaped(text) + "\" is not " + wanted});
}

}  // namespace

std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t min, std::int64_t max) {
  const auto value = integer(text);
  if (!value || *value < min || *value > max) {
    fail(option, text, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return *value;
}

double parse_real(std::string_view option, std::string_view text, double min, double max) {
  const auto value = real(text);
  if (!value || *value < min || *value > max) {
    const bool no_end = max >= std::numeric_limits<float>::max();
    fail(option, text,
         "a number " + (no_end ? "of at least " + shortest(min) : "from " + shortest(min) + " to " + shortest(max)));
  }
  return *value;
}

Option* add_integer_option(Command& cli, const std::string& names, std::function<void(std::int64_t)> set,
                           std::int64_t min, std::int64_t max, const std::string& help) {
  const std::string name = names.substr(0, names.find(','));
  const auto parse = [set = std::move(set), name, min, max](const std::string& text) {
    set(parse_integer(name, text, min, max));
  };
  return cli.add_option_function<std::string>(names, parse, help)->type_name("N")->take_last();
}

Option* add_real(Command& cli, const std::string& names, float& target, double min, double max,
                 const std::string& help) {
  const std::string name = names.substr(0, names.find(','));
  const auto set = [&target, name, min, max](const std::string& text) {
    target = static_cast<float>(parse_real(name, text, min, max));
  };
  return cli.add_option_function<std::string>(names, set, help)->type_name("X")->take_last();
}

}  // namespace llm::app
