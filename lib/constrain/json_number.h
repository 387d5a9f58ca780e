// Numbers within bounds and multiples of numbers, as sets of their spellings without exponents.
#pragma once

#include <optional>
#include <string>

#include "constrain/json_text.h"

namespace llm {

/// A decimal number, exactly: sign, digits before and behind the point, without needless zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction = {};

  bool zero() const { return whole == "0" && fraction.empty(); }
  /// The shortest decimal that reads as this double.
  static Decimal of(double);
  static Decimal of(std::int64_t);
  static Decimal of(std::uint64_t);
  static int compare(const Decimal&, const Decimal&);  ///< < 0, 0, > 0
};

struct Bound {
  Decimal value;
  bool exclusive;
};

enum class NumberKind : std::uint8_t { Integer, Decimal };

/// Numbers that satisfy both bounds; at most 16 digits before and behind the point.
Automaton numbers_between(NumberKind, const std::optional<Bound>& lower, const std::optional<Bound>& upper);
/// Whole numbers that may be beyond 2^53 - 1, where doubles are neighbours no more, or may not.
enum class WholeNumbers : std::uint8_t { Long, Safe };
bool is_safe(const Decimal&);
/// Spellings that keep their order where they are read as doubles: 15 digits in all if there is a point. Long whole
/// numbers may become equal to a neighbour, so that only bounds that they may reach hold for them.
Automaton numbers_for_doubles(NumberKind, WholeNumbers);
/// Multiples of a positive number; nothing if that takes too many states.
std::optional<Automaton> multiples_of(const Decimal&);

}  // namespace llm
