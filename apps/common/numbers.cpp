// Parsing of numbers given on the command line.
#include "common/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/shortest.h"

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

struct Digits {
  std::int64_t value;
  std::string_view rest;  ///< behind them
};
std::optional<Digits> leading_digits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return Digits{value, {end, static_cast<std::size_t>(text.data() + text.size() - end)}};
}

const Suffix* find_suffix(std::string_view text) {
  const auto found = std::find_if(kSuffixes.begin(), kSuffixes.end(), [&](const Suffix& s) { return s.text == text; });
  return found == kSuffixes.end() ? nullptr : &*found;
}

std::optional<std::int64_t> integer(std::string_view text) {
  const auto digits = leading_digits(text);
  const Suffix* const suffix = digits ? find_suffix(digits->rest) : nullptr;
  return suffix == nullptr ? std::nullopt : checked_mul(digits->value, suffix->factor);
}

/// Of a number behind which something else stands, "4kb": what may stand there.
std::string suffixes_instead(std::string_view text) {
  const auto digits = leading_digits(text);
  if (!digits || find_suffix(digits->rest) != nullptr) return {};
  return "; it may end in " + suffixes_text();
}

std::optional<double> real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// `option` may be a command of a chat, which has its slash.
[[noreturn]] void fail(std::string_view option, std::string_view text, const std::string& wanted) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = {},
                                           .subject = (option.starts_with('/') ? "" : "option ") + std::string(option),
                                           .problem = "\"" + escaped(text) + "\" is not " + wanted});
}

}  // namespace

std::string suffixes_text() {
  std::string thousands, binary;
  for (const Suffix& s : kSuffixes) {
    std::string& list = s.text.ends_with('i') ? binary : thousands;
    if (!s.text.empty()) list += (list.empty() ? "" : ", ") + std::string(s.text);
  }
  return thousands + " (powers of 1000), " + binary + " (powers of 1024)";
}

std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t min, std::int64_t max) {
  const auto value = integer(text);
  if (!value || *value < min || *value > max) {
    fail(option, text,
         "a whole number from " + std::to_string(min) + " to " + std::to_string(max) + suffixes_instead(text));
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
