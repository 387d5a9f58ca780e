#include "constrain/code_points.h"

#include <algorithm>

#include "text/utf8.h"

namespace llm {
namespace {

constexpr char32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

std::size_t encode(char32_t c, std::array<std::uint8_t, 4>& out) {
  if (c < 0x80) {
    out[0] = static_cast<std::uint8_t>(c);
    return 1;
  }
  const std::size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (std::size_t i = n - 1; i > 0; --i, c >>= 6) out[i] = static_cast<std::uint8_t>(0x80u | (c & 0x3fu));
  constexpr std::uint8_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  out[0] = static_cast<std::uint8_t>(kLead[n] | c);
  return n;
}

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
  std::array<std::uint8_t, 4> a{}, b{};
  ByteSequence sequence{encode(first, a), {}};
  encode(last, b);
  for (std::size_t i = 0; i < sequence.length; ++i) sequence.bytes[i] = {a[i], b[i]};
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

std::string to_utf8(char32_t c) {
  std::array<std::uint8_t, 4> bytes{};
  const std::size_t n = encode(c, bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()), n);
}

Character character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {0, 0};
  const utf8::Unit unit = utf8::unit_at(text, at);
  if (unit.form != utf8::Form::Valid) return {0, 0};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (unit.length == 1) return {1, byte(0)};
  char32_t code = byte(0) & (0xffu >> (unit.length + 1));
  for (std::size_t i = 1; i < unit.length; ++i) code = (code << 6) | (byte(i) & 0x3fu);
  return {unit.length, code};
}

}  // namespace llm
