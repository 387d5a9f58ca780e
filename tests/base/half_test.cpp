// Half, bfloat16 and E4M3 against their definitions.
#include "base/half.h"

#include <cmath>
#include <limits>
#include <random>

#include "support/catch.h"
#include "support/e4m3.h"

using namespace llm;

namespace {

/// sign * mantissa * 2^exponent from the fields of a 16-bit format; NaN and infinity where the exponent is all ones.
double defined_value(unsigned bits, int mantissa_bits, int bias) {
  const int exponent_bits = 15 - mantissa_bits;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double half_value(unsigned bits) { return defined_value(bits, 10, 15); }
double bfloat16_value(unsigned bits) { return defined_value(bits, 7, 127); }

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Counted, so that a failure does not print 65,536 lines and a success costs nothing.
template <class Predicate>
unsigned count_wrong(unsigned first, unsigned last, Predicate right) {
  unsigned wrong = 0;
  for (unsigned bits = first; bits <= last; ++bits) wrong += right(bits) ? 0u : 1u;
  return wrong;
}

template <class Format>
Format of(unsigned bits) {
  return {static_cast<std::uint16_t>(bits)};
}

}  // namespace

TEST_CASE("every half widens to its value") {
  CHECK(count_wrong(0, 0xffff, [](unsigned b) { return same(to_float(of<Half>(b)), half_value(b)); }) == 0);
}

TEST_CASE("every bfloat16 widens to its value") {
  CHECK(count_wrong(0, 0xffff, [](unsigned b) { return same(to_float(of<BFloat16>(b)), bfloat16_value(b)); }) == 0);
}

TEST_CASE("narrowing gives every half back, and NaN for NaN") {
  CHECK(count_wrong(0, 0xffff, [](unsigned b) {
          const double v = half_value(b);
          const unsigned back = to_half(static_cast<float>(v)).bits;
          return std::isnan(v) ? std::isnan(half_value(back)) : back == b;
        }) == 0);
}

TEST_CASE("narrowing to half rounds to nearest, ties to even") {
  // Between every half and the next larger one: the middle, and the floats beside it.
  constexpr unsigned kLargest = 0x7bff;
  const auto narrowed = [](float f) { return static_cast<unsigned>(to_half(f).bits); };
  CHECK(count_wrong(0, kLargest, [&](unsigned b) {
          // One step above the largest is 65536 where infinity is.
          const double next = b == kLargest ? 65536.0 : half_value(b + 1);
          const auto middle = static_cast<float>((half_value(b) + next) / 2);
          const unsigned even = b + (b & 1u);
          return narrowed(middle) == even && narrowed(-middle) == (even | 0x8000u) &&
                 narrowed(std::nextafter(middle, 0.0f)) == b && narrowed(std::nextafter(middle, INFINITY)) == b + 1;
        }) == 0);
  CHECK(narrowed(1e30f) == 0x7c00u);
  CHECK(narrowed(-INFINITY) == 0xfc00u);
  CHECK(narrowed(std::numeric_limits<float>::denorm_min()) == 0u);
  CHECK(narrowed(-0.0f) == 0x8000u);
}

TEST_CASE("narrowing to bfloat16 rounds to nearest, ties to even") {
  constexpr unsigned kLargest = 0x7f7f;
  const auto narrowed = [](float f) { return static_cast<unsigned>(to_bfloat16(f).bits); };
  CHECK(count_wrong(0, kLargest - 1, [&](unsigned b) {
          const auto middle = static_cast<float>((bfloat16_value(b) + bfloat16_value(b + 1)) / 2);
          const unsigned even = b + (b & 1u);
          return narrowed(middle) == even && narrowed(-middle) == (even | 0x8000u) &&
                 narrowed(std::nextafter(middle, 0.0f)) == b && narrowed(std::nextafter(middle, INFINITY)) == b + 1;
        }) == 0);
  CHECK(narrowed(std::numeric_limits<float>::max()) == 0x7f80u);
  CHECK(narrowed(-INFINITY) == 0xff80u);
  // A NaN whose payload is only in the bits that are dropped stays one.
  CHECK(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("every E4M3 widens to its value") {
  CHECK(count_wrong(0, 0xff, [](unsigned b) {
          const auto bits = static_cast<std::uint8_t>(b);
          return same(to_float(Float8E4M3{bits}), test::e4m3_value(bits));
        }) == 0);
}

TEST_CASE("narrowing to E4M3 rounds to nearest, ties to even, and saturates") {
  const auto right = [](float f) { return to_float8_e4m3(f).bits == test::nearest_e4m3(f); };
  // Every number, the middle between it and the next larger one, and the floats beside both; the largest is 448.
  CHECK(count_wrong(0, 0x7e, [&](unsigned b) {
          const float value = test::e4m3_value(static_cast<std::uint8_t>(b));
          const float next = b == 0x7e ? 480.0f : test::e4m3_value(static_cast<std::uint8_t>(b + 1));
          bool all = true;
          for (const float f : {value, (value + next) / 2}) {
            for (const float g : {f, std::nextafter(f, 0.0f), std::nextafter(f, INFINITY)})
              all = all && right(g) && right(-g);
          }
          return all;
        }) == 0);
  std::mt19937 random(1);
  CHECK(count_wrong(0, 20000,
                    [&](unsigned) { return right(std::bit_cast<float>(static_cast<std::uint32_t>(random()))); }) == 0);
  CHECK(to_float8_e4m3(1e30f).bits == 0x7e);
  CHECK(to_float8_e4m3(-std::numeric_limits<float>::max()).bits == 0xfe);
  CHECK(to_float8_e4m3(-0.0f).bits == 0x80);
  for (const float f : {INFINITY, -INFINITY, NAN, -NAN}) CHECK(to_float8_e4m3(f).bits == 0x7f);
}
