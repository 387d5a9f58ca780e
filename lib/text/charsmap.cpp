#include "text/charsmap.h"

#include <string>

#include "text/vocabulary.h"

namespace llm {
namespace {

std::vector<std::uint8_t> read_bytes(const Metadata& metadata) {
  const Metadata::Entry& entry = *metadata.find(kCharsmapKey);
  const bool bytes = entry.type == GgufType::Array && (entry.element == GgufType::I8 || entry.element == GgufType::U8);
  if (!bytes) metadata.fail(kCharsmapKey, "must be an array of I8 or U8");
  std::vector<std::uint8_t> out;
  out.reserve(entry.raw.size());
  for (const std::byte b : entry.raw) out.push_back(static_cast<std::uint8_t>(b));
  return out;
}

std::uint32_t unit_at(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes[at]) | static_cast<std::uint32_t>(bytes[at + 1]) << 8 |
         static_cast<std::uint32_t>(bytes[at + 2]) << 16 | static_cast<std::uint32_t>(bytes[at + 3]) << 24;
}

std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

}  // namespace

Charsmap::Charsmap(const Metadata& metadata) {
  if (!metadata.has(kCharsmapKey)) return;
  bytes_ = read_bytes(metadata);
  if (bytes_.empty()) return;
  constexpr std::size_t kHeader = 4;
  const std::size_t array_bytes = bytes_.size() < kHeader ? 0 : unit_at(bytes_, 0);
  if (array_bytes % 4 != 0 || array_bytes == 0 || bytes_.size() <= kHeader + array_bytes) {
    metadata.fail(kCharsmapKey, std::to_string(bytes_.size()) + " bytes cannot hold an array of " +
                                    std::to_string(array_bytes) + " bytes and replacements");
  }
  for (std::size_t at = kHeader; at < kHeader + array_bytes; at += 4) units_.push_back(unit_at(bytes_, at));
  replacements_ = {reinterpret_cast<const char*>(bytes_.data()) + kHeader + array_bytes,
                   bytes_.size() - kHeader - array_bytes};
  if (replacements_.back() != '\0') metadata.fail(kCharsmapKey, "the last replacement is not ended by a zero byte");
  // SentencePiece's own replace a character by 18 at most; without a bound, a prompt would be multiplied by a file's
  // size.
  constexpr std::size_t kLongest = 256;
  for (std::size_t at = 0; at < replacements_.size();) {
    const std::size_t end = replacements_.find('\0', at);
    if (end - at > kLongest) {
      metadata.fail(kCharsmapKey, "a replacement of " + std::to_string(end - at) + " bytes; at most " +
                                      std::to_string(kLongest) + " are possible");
    }
    at = end + 1;
  }
}

std::optional<Charsmap::Match> Charsmap::longest(std::string_view text) const {
  std::optional<Match> best;
  if (units_.empty()) return best;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto c = static_cast<std::uint8_t>(text[i]);
    node ^= c;
    const std::uint32_t here = unit(node);
    if ((here & (1u << 31 | 0xFFu)) != c) break;
    node ^= offset_of(here);
    if ((here >> 8 & 1) == 0) continue;
    const std::uint32_t value = unit(node) & ~(1u << 31);
    if (value < replacements_.size()) {
      best = {i + 1, replacements_.substr(value, replacements_.find('\0', value) - value)};
    }
  }
  return best;
}

}  // namespace llm
