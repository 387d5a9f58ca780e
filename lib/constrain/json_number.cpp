#include "constrain/json_number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace llm {
namespace {

constexpr std::uint64_t kMostDigits = 16;
constexpr std::int64_t kLastSafe = 9'007'199'254'740'991;  // 2^53 - 1

Decimal parse(std::string_view text) {
  Decimal d;
  if (text.starts_with('-')) {
    d.negative = true;
    text.remove_prefix(1);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  d.whole = text.substr(0, point);
  if (point < text.size()) d.fraction = text.substr(point + 1);
  while (!d.fraction.empty() && d.fraction.back() == '0') d.fraction.pop_back();
  while (d.whole.size() > 1 && d.whole.front() == '0') d.whole.erase(0, 1);
  if (d.zero()) d.negative = false;
  return d;
}

/// Numbers without a sign above or below one of them. All are whole digits, then for decimals a point and digits.
class Magnitudes {
 public:
  Magnitudes(Productions& p, JsonText& json, NumberKind kind) : p_(p), json_(json), kind_(kind) {}

  ExprId any() {
    return p_.sequence(
        {p_.choice({p_.literal("0"), p_.sequence({json_.digit('1', '9'), json_.digits(0, kMostDigits - 1)})}),
         any_fraction()});
  }

  ExprId above(const Decimal& d, bool strictly) {
    const std::string& w = d.whole;
    std::vector<ExprId> ways;
    if (w.size() < kMostDigits) {
      ways.push_back(p_.sequence({json_.digit('1', '9'), json_.digits(w.size(), kMostDigits - 1), any_fraction()}));
    }
    for (std::size_t k = 0; k < w.size(); ++k) {
      if (w[k] == '9') continue;
      const char next = static_cast<char>(w[k] + 1);
      ways.push_back(
          p_.sequence({p_.literal(w.substr(0, k)), json_.digit(next, '9'), exactly(w.size() - k - 1), any_fraction()}));
    }
    ways.push_back(p_.sequence({p_.literal(w), fraction_above(d.fraction, strictly)}));
    return p_.choice(std::move(ways));
  }

  ExprId below(const Decimal& d, bool strictly) {
    const std::string& w = d.whole;
    std::vector<ExprId> ways;
    if (w.size() > 1) {
      const std::uint64_t most = std::min<std::uint64_t>(w.size() - 2, kMostDigits - 1);
      const ExprId shorter = p_.sequence({json_.digit('1', '9'), json_.digits(0, most)});
      ways.push_back(p_.sequence({p_.choice({p_.literal("0"), shorter}), any_fraction()}));
    }
    for (std::size_t k = 0; k < w.size(); ++k) {
      const char least = k == 0 && w.size() > 1 ? '1' : '0';
      if (w[k] <= least) continue;
      const char next = static_cast<char>(w[k] - 1);
      ways.push_back(p_.sequence(
          {p_.literal(w.substr(0, k)), json_.digit(least, next), exactly(w.size() - k - 1), any_fraction()}));
    }
    ways.push_back(p_.sequence({p_.literal(w), fraction_below(d.fraction, strictly)}));
    return p_.choice(std::move(ways));
  }

 private:
  ExprId exactly(std::size_t n) { return json_.digits(n, n); }

  ExprId any_fraction() {
    if (kind_ == NumberKind::Integer) return p_.empty();
    return p_.optional(p_.sequence({p_.literal("."), json_.digits(1, kMostDigits)}));
  }

  /// What may follow the whole digits, nothing included, so that the fraction is at least (above) `f`.
  ExprId fraction_above(const std::string& f, bool strictly) {
    if (f.empty() && !strictly) return any_fraction();
    if (kind_ == NumberKind::Integer) return p_.nothing();
    std::vector<ExprId> ways;
    for (std::size_t k = 0; k < f.size(); ++k) {
      if (f[k] == '9') continue;
      const char next = static_cast<char>(f[k] + 1);
      ways.push_back(p_.sequence({p_.literal(f.substr(0, k)), json_.digit(next, '9'), json_.digits(0, kMostDigits)}));
    }
    const ExprId more = strictly ? p_.sequence({p_.repeat(p_.literal("0"), 0, kMostDigits), json_.digit('1', '9'),
                                                json_.digits(0, kMostDigits)})
                                 : json_.digits(0, kMostDigits);
    ways.push_back(p_.sequence({p_.literal(f), more}));
    return p_.sequence({p_.literal("."), p_.choice(std::move(ways))});
  }

  ExprId fraction_below(const std::string& f, bool strictly) {
    std::vector<ExprId> ways;
    if (!f.empty() || !strictly) ways.push_back(p_.empty());
    if (kind_ == NumberKind::Decimal) {
      for (std::size_t k = 0; k < f.size(); ++k) {
        const ExprId begin = p_.literal("." + f.substr(0, k));
        if (f[k] > '0') {
          const char next = static_cast<char>(f[k] - 1);
          ways.push_back(p_.sequence({begin, json_.digit('0', next), json_.digits(0, kMostDigits)}));
        }
        if (k > 0) ways.push_back(begin);
      }
      if (!strictly) {
        ways.push_back(p_.sequence({p_.literal("." + f), p_.repeat(p_.literal("0"), f.empty() ? 1 : 0, kMostDigits)}));
      }
    }
    return p_.choice(std::move(ways));
  }

  Productions& p_;
  JsonText& json_;
  NumberKind kind_;
};

}  // namespace

Decimal Decimal::of(double value) {
  std::array<char, 400> buffer;  // 309 digits, a sign and a point at most; or 17 behind 324 zeros
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  check(end.ec == std::errc(), "a number longer than any double");
  return parse({buffer.data(), end.ptr});
}
Decimal Decimal::of(std::int64_t value) { return parse(std::to_string(value)); }
Decimal Decimal::of(std::uint64_t value) { return parse(std::to_string(value)); }

int Decimal::compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = a.whole.size() != b.whole.size() ? (a.whole.size() < b.whole.size() ? -1 : 1) : a.whole.compare(b.whole);
  if (order == 0) order = a.fraction.compare(b.fraction);
  return a.negative ? -order : order;
}

Automaton numbers_between(NumberKind kind, const std::optional<Bound>& lower, const std::optional<Bound>& upper) {
  Productions p;
  JsonText json(p);
  Magnitudes magnitudes(p, json, kind);
  const auto negative = [&](ExprId magnitude) { return p.sequence({p.literal("-"), magnitude}); };
  const auto automaton = [&](std::vector<ExprId> ways) { return regular_automaton(p, p.choice(std::move(ways))); };
  Automaton result = automaton({magnitudes.any(), negative(magnitudes.any())});
  if (lower) {
    const auto& [value, exclusive] = *lower;
    result = intersection(result, value.negative
                                      ? automaton({magnitudes.any(), negative(magnitudes.below(value, exclusive))})
                                      : automaton({magnitudes.above(value, exclusive)}));
  }
  if (upper) {
    const auto& [value, exclusive] = *upper;
    result = intersection(result, value.negative ? automaton({negative(magnitudes.above(value, exclusive))})
                                  : value.zero()
                                      ? automaton({negative(magnitudes.above(value, exclusive)),
                                                   exclusive ? p.nothing() : magnitudes.below(value, false)})
                                      : automaton({negative(magnitudes.any()), magnitudes.below(value, exclusive)}));
  }
  return result;
}

bool is_safe(const Decimal& d) {
  return Decimal::compare(d, Decimal::of(kLastSafe)) <= 0 && Decimal::compare(d, Decimal::of(-kLastSafe)) >= 0;
}

Automaton numbers_for_doubles(NumberKind kind, WholeNumbers whole) {
  const auto end = [&](std::int64_t n) {
    return whole == WholeNumbers::Safe ? std::optional(Bound{Decimal::of(n), false}) : std::nullopt;
  };
  Productions p;
  JsonText json(p);
  std::vector<ExprId> ways{p.regular(numbers_between(NumberKind::Integer, end(-kLastSafe), end(kLastSafe)))};
  if (kind == NumberKind::Decimal) {
    constexpr std::uint64_t kDigits = std::numeric_limits<double>::digits10;
    const ExprId point = p.literal("."), first = json.digit('1', '9');
    const ExprId zeros = p.repeat(p.literal("0"), 0, kUnbounded);
    std::vector<ExprId> magnitudes{p.sequence({p.literal("0."), zeros, first, json.digits(0, kDigits - 1)}),
                                   p.sequence({p.literal("0.0"), zeros})};
    for (std::uint64_t n = 1; n < kDigits; ++n)
      magnitudes.push_back(p.sequence({first, json.digits(n - 1, n - 1), point, json.digits(1, kDigits - n)}));
    ways.push_back(p.sequence({p.optional(p.literal("-")), p.choice(std::move(magnitudes))}));
  }
  return regular_automaton(p, p.choice(std::move(ways)));
}

std::optional<Automaton> multiples_of(const Decimal& d) {
  // d is n / 10^k: a number times 10^k must be a multiple of n. States hold the remainder by n of the digits so far.
  constexpr std::uint64_t kMostStates = 50'000;
  const std::size_t k = d.fraction.size();
  std::uint64_t n = 0;
  for (const char c : d.whole + d.fraction) {
    n = n * 10 + static_cast<std::uint64_t>(c - '0');
    if (n * (k + 2) > kMostStates) return std::nullopt;
  }
  check(n > 0, "multiples of zero");
  Automaton a;
  const StateId start = a.add_state(), sign = a.add_state(), zero = a.add_state();
  const auto whole = [&](std::uint64_t r) { return static_cast<StateId>(3 + r); };  // nonzero first digit
  // After the point and j digits (j = 0: a digit must follow).
  const auto fraction = [&](std::uint64_t r, std::size_t j) { return static_cast<StateId>(3 + n + j * n + r); };
  const StateId zeros = static_cast<StateId>(3 + n + (k + 1) * n);  // all further digits are zeros
  a.states.resize(zeros + 2);
  const StateId first_zero = zeros + 1;  // the same, when the first of them must still come
  const auto digit = [](std::uint64_t v) { return static_cast<std::uint8_t>('0' + v); };
  const auto edge = [&](StateId from, std::uint8_t byte, StateId to) {
    a.states[from].bytes.push_back({byte, byte, to});
  };
  // Whether the digits so far, j of them behind the point, make a multiple.
  const auto whole_multiple = [&](std::uint64_t r, std::size_t j) {
    for (; j < k; ++j) r = r * 10 % n;
    return r % n == 0;
  };
  edge(start, '-', sign);
  for (const StateId from : {start, sign}) {
    edge(from, '0', zero);
    for (std::uint64_t v = 1; v < 10; ++v) edge(from, digit(v), whole(v % n));
  }
  a.states[zero].accepting = true;
  edge(zero, '.', k == 0 ? first_zero : fraction(0, 0));
  for (std::uint64_t r = 0; r < n; ++r) {
    a.states[whole(r)].accepting = whole_multiple(r, 0);
    if (k > 0 || r == 0) edge(whole(r), '.', k == 0 ? first_zero : fraction(r, 0));
    for (std::uint64_t v = 0; v < 10; ++v) edge(whole(r), digit(v), whole((r * 10 + v) % n));
    for (std::size_t j = 0; j < k; ++j) {
      if (j > 0) a.states[fraction(r, j)].accepting = whole_multiple(r, j);
      for (std::uint64_t v = 0; v < 10; ++v) edge(fraction(r, j), digit(v), fraction((r * 10 + v) % n, j + 1));
    }
    if (k > 0 && r == 0) {
      a.states[fraction(r, k)].accepting = true;
      edge(fraction(r, k), '0', zeros);
    }
  }
  a.states[zeros].accepting = true;
  edge(zeros, '0', zeros);
  edge(first_zero, '0', zeros);
  // Edges were made in no order; the subset construction brings them into one.
  return minimized(determinized(a));
}

}  // namespace llm
