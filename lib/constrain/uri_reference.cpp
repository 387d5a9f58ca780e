#include "constrain/uri_reference.h"

#include <algorithm>
#include <optional>

namespace llm {
namespace {

struct Uri {
  std::optional<std::string_view> scheme, authority;
  std::string path;
  std::optional<std::string_view> query, fragment;
};

/// What stands before the first of these characters, and is taken off the text.
std::string_view taken_before(std::string_view& text, std::string_view ends) {
  const std::size_t end = std::min(text.find_first_of(ends), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end);
  return part;
}

bool is_scheme(std::string_view text) {
  const auto is_letter = [](char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z'); };
  const auto may_follow = [&](char c) {
    return is_letter(c) || ('0' <= c && c <= '9') || c == '+' || c == '-' || c == '.';
  };
  return !text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), may_follow);
}

/// RFC 3986, appendix B.
Uri parts_of(std::string_view text) {
  Uri uri;
  std::string_view rest = text;
  if (const std::string_view scheme = taken_before(rest, ":/?#"); rest.starts_with(':') && is_scheme(scheme)) {
    uri.scheme = scheme;
    rest.remove_prefix(1);
  } else {
    rest = text;
  }
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    uri.authority = taken_before(rest, "/?#");
  }
  uri.path = taken_before(rest, "?#");
  if (rest.starts_with('?')) {
    rest.remove_prefix(1);
    uri.query = taken_before(rest, "#");
  }
  if (rest.starts_with('#')) uri.fragment = rest.substr(1);
  return uri;
}

/// Section 5.2.4.
std::string without_dot_segments(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    if (path.starts_with("../") || path.starts_with("./")) {
      path.remove_prefix(path.find('/') + 1);
    } else if (path.starts_with("/./") || path == "/.") {
      path = path.size() > 2 ? path.substr(2) : "/";
    } else if (path.starts_with("/../") || path == "/..") {
      path = path.size() > 3 ? path.substr(3) : "/";
      out.resize(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
    } else if (path == "." || path == "..") {
      path = {};
    } else {
      const std::size_t end = std::min(path.find('/', 1), path.size());
      out += path.substr(0, end);
      path.remove_prefix(end);
    }
  }
  return out;
}

/// Section 5.2.3.
std::string merged_path(const Uri& base, std::string_view path) {
  if (base.authority && base.path.empty()) return "/" + std::string(path);
  const std::size_t slash = base.path.rfind('/');
  return base.path.substr(0, slash == std::string::npos ? 0 : slash + 1) + std::string(path);
}

/// Section 5.3.
std::string composed(const Uri& uri) {
  std::string text;
  if (uri.scheme) text.append(*uri.scheme).append(":");
  if (uri.authority) text.append("//").append(*uri.authority);
  text += uri.path;
  if (uri.query) text.append("?").append(*uri.query);
  if (uri.fragment) text.append("#").append(*uri.fragment);
  return text;
}

}  // namespace

std::string resolved_uri(std::string_view base_text, std::string_view reference) {
  const Uri base = parts_of(base_text);
  Uri target = parts_of(reference);
  if (target.scheme || target.authority) {
    target.path = without_dot_segments(target.path);
  } else if (target.path.empty()) {
    target.path = base.path;
    if (!target.query) target.query = base.query;
  } else {
    target.path = without_dot_segments(target.path.starts_with('/') ? target.path : merged_path(base, target.path));
  }
  if (!target.scheme) {
    if (!target.authority) target.authority = base.authority;
    target.scheme = base.scheme;
  }
  return composed(target);
}

}  // namespace llm
