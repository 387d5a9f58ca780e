// Python's numbers: integers without bounds (up to a limit), doubles, and how they are written and read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace llm::jinja {

/// -1, 0, 1 by value; unordered (NaN) gives 2.
int compare_numbers(const Value& a, const Value& b);

/// Both operands are numbers; op is one of + - * / % f (floor division) p (power).
Value arithmetic(Runtime&, char op, const Value& a, const Value& b);
Value negated(const Value& number);

double to_double(Runtime&, const Value& number);
std::string integer_text(const Value& integer);
/// As repr() and str(): the shortest digits that give the same number back.
std::string float_text(double f);
/// An integer in a base of 2 to 36, or 0 for Python's prefixes; spaces around it and underscores between digits.
std::optional<mpz_class> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

/// Correctly rounded to so many decimals, ties to even.
double rounded(double f, int decimals);
/// printf's %.*f and %.*e, without a sign.
std::string fixed_digits(double f, int decimals);
std::string exponent_digits(double f, int decimals);

}  // namespace llm::jinja
