#include "constrain/code_points.h"

#include <algorithm>

#include "base/utf8.h"

namespace llm {
namespace {

constexpr char32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

/// Splits a range until first and last differ in a way that byte ranges can say: same length of code, and below the
/// first byte in which they differ, everything from 0x80 to 0xbf.
void split(char32_t first, char32_t last, std::vector<ByteSequence>& out) {
  for (const char32_t end : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}}) {
    if (first <= end && end < last) {
      split(first, end, out);
      split(end + 1, last, out);
      return;
    }
  }
  for (int bits = 6; bits <= 18 && last >= 0x80; bits += 6) {
    const char32_t low = (char32_t{1} << bits) - 1;
    if ((first & ~low) == (last & ~low)) break;
    if ((first & low) != 0) {
      split(first, first | low, out);
      split((first | low) + 1, last, out);
      return;
    }
    if ((last & low) != low) {
      split(first, (last & ~low) - 1, out);
      split(last & ~low, last, out);
      return;
    }
  }
  const std::string a = utf8::encoded(first), b = utf8::encoded(last);
  ByteSequence sequence{a.size(), {}};
  for (std::size_t i = 0; i < a.size(); ++i) {
    sequence.bytes[i] = {static_cast<std::uint8_t>(a[i]), static_cast<std::uint8_t>(b[i])};
  }
  out.push_back(sequence);
}

}  // namespace

CodePoints::CodePoints(std::initializer_list<Range> ranges) {
  for (const Range& r : ranges) add(r.first, r.last);
}

CodePoints CodePoints::all() { return {{0, kLast}}; }

void CodePoints::add(char32_t first, char32_t last) {
  if (first > last) return;
  if (first <= kLastSurrogate && last >= kFirstSurrogate) {
    if (first < kFirstSurrogate) add(first, kFirstSurrogate - 1);
    if (last > kLastSurrogate) add(kLastSurrogate + 1, last);
    return;
  }
  auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                                [](const Range& r, char32_t c) { return r.last + 1 < c; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), Range{first, last});
}

void CodePoints::add(const CodePoints& other) {
  for (const Range& r : other.ranges_) add(r.first, r.last);
}

CodePoints CodePoints::complement() const {
  CodePoints result;
  char32_t next = 0;
  for (const Range& r : ranges_) {
    if (r.first > next) result.add(next, r.first - 1);
    next = r.last + 1;
  }
  result.add(next, kLast);
  return result;
}

CodePoints CodePoints::intersection(const CodePoints& other) const {
  CodePoints result;
  for (auto a = ranges_.begin(), b = other.ranges_.begin(); a != ranges_.end() && b != other.ranges_.end();) {
    result.add(std::max(a->first, b->first), std::min(a->last, b->last));
    (a->last < b->last ? a : b)++;
  }
  return result;
}

bool CodePoints::contains(char32_t c) const {
  const auto r =
      std::lower_bound(ranges_.begin(), ranges_.end(), c, [](const Range& x, char32_t v) { return x.last < v; });
  return r != ranges_.end() && r->first <= c;
}

std::vector<ByteSequence> utf8_sequences(const CodePoints& set) {
  std::vector<ByteSequence> out;
  for (const CodePoints::Range& r : set.ranges()) split(r.first, r.last, out);
  return out;
}

Character character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {0, 0};
  const utf8::Unit unit = utf8::unit_at(text, at);
  if (unit.form != utf8::Form::Valid) return {0, 0};
  return {unit.length, utf8::code_point(text.substr(at, unit.length))};
}

}  // namespace llm
