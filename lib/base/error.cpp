// Errors as one line, and the escaping that makes text of unknown origin safe to show.
#include "base/error.h"

#include <cstdio>
#include <utility>

#include "base/utf8.h"

namespace llm {
namespace {

constexpr std::size_t kMaxFileBytes = 4096;      // PATH_MAX: a path is shown whole
constexpr std::size_t kMaxMessageBytes = 16384;  // a problem that quotes a list of names is longer than a path

enum class Quotes { Keep, Escape };

/// Characters that end or rewrite a terminal's line: controls, line separators, bidirectional overrides.
bool is_unsafe(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string hex_escapes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    char buffer[8];
    std::snprintf(buffer, sizeof buffer, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    out += buffer;
  }
  return out;
}

/// At most `max_bytes` bytes, cut between characters. The work is bounded by max_bytes, not by the text.
std::string make_safe(std::string_view text, std::size_t max_bytes, Quotes quotes) {
  constexpr std::string_view kCut = "...";
  std::string out;
  std::size_t cut_at = 0;  // the longest prefix of `out` that leaves room for the dots
  while (!text.empty()) {
    const utf8::Unit unit = utf8::unit_at(text, 0);
    const bool valid = unit.form == utf8::Form::Valid;
    const std::string_view raw = text.substr(0, valid ? unit.length : 1);
    if (!valid || is_unsafe(utf8::code_point(raw))) {
      out += hex_escapes(raw);
    } else {
      if (quotes == Quotes::Escape && (raw == "\"" || raw == "\\")) out += '\\';
      out += raw;
    }
    if (out.size() > max_bytes) return out.substr(0, cut_at).append(kCut);
    if (out.size() + kCut.size() <= max_bytes) cut_at = out.size();
    text.remove_prefix(raw.size());
  }
  return out;
}

std::string describe(const ErrorParts& parts) {
  std::string out;
  const auto append = [&out](const std::string& part) {
    if (part.empty()) return;
    if (!out.empty()) out += ": ";
    out += part;
  };
  append(escaped(parts.file, kMaxFileBytes));
  if (parts.offset) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "offset 0x%llx", static_cast<unsigned long long>(*parts.offset));
    append(buffer);
  }
  // These two hold quoted names that were escaped where they were put in: only what must never reach a terminal goes.
  append(make_safe(parts.subject, kMaxMessageBytes, Quotes::Keep));
  append(make_safe(parts.problem, kMaxMessageBytes, Quotes::Keep));
  return out;
}

std::string_view base_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

Error::Error(ErrorKind kind, ErrorParts parts) : kind_(kind), parts_(std::move(parts)), what_(describe(parts_)) {}

std::string escaped(std::string_view text, std::size_t max_bytes) { return make_safe(text, max_bytes, Quotes::Escape); }

std::string key_subject(std::string_view key) { return "key \"" + escaped(key) + "\""; }

std::string tensor_subject(std::string_view name) { return "tensor \"" + escaped(name) + "\""; }

void check(bool ok, std::string_view what, const char* file, int line) {
  if (ok) [[likely]]
    return;
  std::string problem = "internal error at ";
  problem += base_name(file);
  problem += ':' + std::to_string(line) + ": ";
  problem += what;
  throw Error(ErrorKind::Internal, std::move(problem));
}

}  // namespace llm
