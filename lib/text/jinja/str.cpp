#include "text/jinja/str.h"

#include <algorithm>
#include <cstring>

namespace llm::jinja {

void Str::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    origin_ = origin;
    runs_.clear();
  } else if (!runs_.empty() || origin != origin_) {
    if (runs_.empty()) runs_.push_back({bytes_.size(), origin_});
    const std::size_t end = bytes_.size() + bytes.size();
    if (runs_.back().origin == origin) {
      runs_.back().end = end;
    } else {
      runs_.push_back({end, origin});
    }
  }
  bytes_.append(bytes);
}

void Str::append(const Str& other, std::size_t from, std::size_t count) {
  if (from >= other.size()) return;
  const std::size_t end = from + std::min(count, other.size() - from);
  const std::string_view bytes = other.bytes_;
  if (other.runs_.empty()) return append(bytes.substr(from, end - from), other.origin_);
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), from,
                              [](std::size_t at, const Run& r) { return at < r.end; });
  for (; from < end; ++run) {
    const std::size_t stop = std::min(run->end, end);
    append(bytes.substr(from, stop - from), run->origin);
    from = stop;
  }
}

Str Str::substr(std::size_t from, std::size_t count) const {
  Str out;
  out.append(*this, from, count);
  out.markup_ = markup_;
  return out;
}

std::vector<Run> Str::runs() const {
  if (!runs_.empty() || bytes_.empty()) return runs_;
  return {{bytes_.size(), origin_}};
}

Origin Str::origin_at(std::size_t byte) const {
  if (runs_.empty()) return origin_;
  const auto run =
      std::upper_bound(runs_.begin(), runs_.end(), byte, [](std::size_t at, const Run& r) { return at < r.end; });
  return run == runs_.end() ? runs_.back().origin : run->origin;
}

Origin Str::origin() const {
  if (bytes_.empty()) return Origin::Template;
  return runs_.empty() ? origin_ : Origin::User;  // two runs are of two origins
}

std::size_t Str::length() const { return count_characters(bytes_); }

std::size_t Str::offset(std::size_t index) const {
  std::size_t at = 0;
  for (; index > 0 && at < bytes_.size(); --index) at = next_character(bytes_, at);
  return at;
}

std::size_t next_character(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && !begins_character(text[at]);) ++at;
  return at;
}

std::size_t previous_character(std::string_view text, std::size_t at) {
  for (--at; at > 0 && !begins_character(text[at]);) --at;
  return at;
}

std::size_t count_characters(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t n = utf8::count_characters(text);
  return begins_character(text.front()) ? n : n + 1;
}

std::size_t find(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  const void* hit = ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return hit == nullptr ? std::string_view::npos
                        : static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
}

std::size_t rfind(std::string_view text, std::string_view needle, std::size_t end) {
  end = std::min(end, text.size());
  if (needle.size() > end) return std::string_view::npos;
  if (needle.empty()) return end;
  // The text read backwards, so that memmem's linear time holds here too.
  const std::string backwards(text.rend() - static_cast<std::ptrdiff_t>(end), text.rend());
  const std::string wanted(needle.rbegin(), needle.rend());
  const std::size_t at = find(backwards, wanted);
  return at == std::string_view::npos ? at : end - at - needle.size();
}

}  // namespace llm::jinja
