// Python's str methods.
#include <algorithm>
#include <unordered_set>

#include "text/jinja/arguments.h"
#include "text/jinja/format.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace llm::jinja {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

Value piece(const Str& s, std::size_t from, std::size_t to) { return Value::string(s.substr(from, to - from)); }

/// A string's pieces, paid for while they are made: there may be as many as it has bytes.
class Pieces {
 public:
  Pieces(Runtime& rt, const Str& s) : rt_(rt), text_(s) {}
  void add(std::size_t from, std::size_t to) {
    pieces_.push_back(piece(text_, from, to));
    if (pieces_.size() % kItemsPerStep == 0) rt_.step();
  }
  std::int64_t size() const { return std::ssize(pieces_); }
  std::vector<Value> take() { return std::move(pieces_); }

 private:
  Runtime& rt_;
  const Str& text_;
  std::vector<Value> pieces_;
};

const Str& text(const Value& self) { return self.as_string(); }

/// start and end in characters, negative from the end, as byte offsets; nothing if start lies behind the text.
struct Window {
  std::size_t from, to;
};
std::optional<Window> window(const Str& s, const Arguments& a, std::size_t first) {
  const bool start_given = a.given(first), end_given = a.given(first + 1);
  if (!start_given && !end_given) return Window{0, s.size()};
  const auto n = static_cast<std::int64_t>(s.length());
  const auto place = [&](std::size_t i, std::int64_t fallback) {
    const std::int64_t k = a.given(i) ? a.integer(i, 0) : fallback;
    return k < 0 ? std::max<std::int64_t>(k + n, 0) : k;
  };
  const std::int64_t start = place(first, 0), end = std::min(place(first + 1, n), n);
  if (start > end) return std::nullopt;
  return Window{s.offset(static_cast<std::size_t>(start)), s.offset(static_cast<std::size_t>(end))};
}

template <Case to>
Value change(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "str method", given, {});
  return rt.string(change_case(text(self), to));
}

Value swapcase(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "swapcase", given, {});
  return rt.string(swap_case(text(self)));
}

Value title(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "title", given, {});
  return rt.string(title_case(text(self)));
}

Value capitalize(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "capitalize", given, {});
  return rt.string(capitalized(text(self)));
}

template <int sides>
Value strip(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "strip", given, {""});
  if (a.given(0)) (void)a.string(0);
  return Value::string(stripped(text(self), a.get(0, Value()), sides));
}

/// startswith, endswith: one string or a tuple of them.
template <bool at_start>
Value affix(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, at_start ? "startswith" : "endswith", given, {"", "", ""}, 1);
  const Str& s = text(self);
  const auto w = window(s, a, 1);
  const auto matches = [&](const Value& v) {
    if (!v.is_string())
      rt.fail("startswith and endswith want a str or a tuple of str, not " + std::string(type_name(v)));
    if (!w) return false;
    const std::string_view inside = s.view().substr(w->from, w->to - w->from);
    return at_start ? inside.starts_with(text(v).view()) : inside.ends_with(text(v).view());
  };
  if (!a[0].is(Kind::Tuple)) return Value::boolean(matches(a[0]));
  rt.charge_items(a[0].items().size());
  return Value::boolean(std::any_of(a[0].items().begin(), a[0].items().end(), matches));
}

enum class Missing { Negative, Fails };

template <bool from_right, Missing missing>
Value find_in(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "find", given, {"", "", ""}, 1);
  const Str& s = text(self);
  const Str& needle = a.string(0);
  std::size_t at = kNowhere;
  if (const auto w = window(s, a, 1)) {
    const std::string_view inside = s.view().substr(0, w->to);
    at = from_right ? rfind(inside, needle.view()) : find(inside, needle.view(), w->from);
    if (at != kNowhere && at < w->from) at = kNowhere;
  }
  if (at == kNowhere && missing == Missing::Fails) rt.fail("substring not found");
  return Value::integer(at == kNowhere ? -1 : static_cast<std::int64_t>(count_characters(s.view().substr(0, at))));
}

Value count(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "count", given, {"", "", ""}, 1);
  const Str& s = text(self);
  const std::string_view needle = a.string(0).view();
  const auto w = window(s, a, 1);
  if (!w) return Value::integer(0);
  const std::string_view inside = s.view().substr(w->from, w->to - w->from);
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(count_characters(inside)) + 1);
  std::int64_t n = 0;
  for (std::size_t at = find(inside, needle); at != kNowhere; at = find(inside, needle, at + needle.size())) ++n;
  return Value::integer(n);
}

Value replace(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "replace", given, {"", "", ""}, 2);
  return replaced(rt, text(self), a.string(0), a.string(1), a.integer(2, -1));
}

template <bool from_right>
Value split(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "split", given, {"sep", "maxsplit"});
  if (a.given(0)) (void)a.string(0);
  const Value separator = a.get(0, Value());
  const std::int64_t most = a.integer(1, -1);
  return rt.list(from_right ? split_string_right(rt, text(self), separator, most)
                            : split_string(rt, text(self), separator, most));
}

template <bool from_right>
Value partition(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "partition", given, {""}, 1);
  const Str &s = text(self), &separator = a.string(0);
  if (separator.empty()) rt.fail("empty separator");
  const std::size_t at = from_right ? rfind(s.view(), separator.view()) : find(s.view(), separator.view());
  const Value none = Value::string("");
  if (at == kNowhere) return from_right ? rt.tuple({none, none, self}) : rt.tuple({self, none, none});
  const std::size_t end = at + separator.size();
  return rt.tuple({piece(s, 0, at), piece(s, at, end), piece(s, end, s.size())});
}

Value splitlines(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "splitlines", given, {"keepends"});
  const std::int64_t keep = a.integer(0, 0);
  if (keep != static_cast<std::int32_t>(keep)) rt.fail("splitlines(): the argument is too large");
  return rt.list(lines_of(rt, text(self), keep != 0));
}

Value join(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "join", given, {""}, 1);
  const std::vector<Value> parts = to_items(rt, a[0]);
  for (const Value& v : parts) {
    if (!v.is_string()) rt.fail("join: expected str instances, " + std::string(type_name(v)) + " found");
  }
  return joined(rt, text(self), parts);
}

template <bool prefix>
Value without_affix(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, prefix ? "removeprefix" : "removesuffix", given, {""}, 1);
  const Str& s = text(self);
  const std::string_view affix = a.string(0).view();
  if (affix.empty() || affix.size() > s.size()) return self;
  if (prefix) return s.view().starts_with(affix) ? piece(s, affix.size(), s.size()) : self;
  return s.view().ends_with(affix) ? piece(s, 0, s.size() - affix.size()) : self;
}

template <char align>
Value justify(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "ljust", given, {"", ""}, 1);
  const Str& s = text(self);
  const Str fill = a.has(1) ? a.string(1) : Str(" ");
  if (fill.length() != 1) rt.fail("The fill character must be exactly one character long");
  const std::int64_t width = a.integer(0, 0);
  if (align == '^') return centered(rt, s, width, fill);
  const auto n = static_cast<std::int64_t>(s.length());
  if (width <= n) return self;
  if (width > static_cast<std::int64_t>(rt.limits().string_bytes)) rt.fail_limit("strings");
  rt.require_string(s.size() + static_cast<std::size_t>(width - n) * fill.size());
  Str padding;
  for (std::int64_t i = n; i < width; ++i) padding.append(fill);
  Str out = align == '<' ? s : padding;
  out.append(align == '<' ? padding : s);
  return Value::string(std::move(out).as_markup(s.markup()));
}

Value zfill(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "zfill", given, {""}, 1);
  const Str& s = text(self);
  const auto n = static_cast<std::int64_t>(s.length());
  const std::int64_t width = a.integer(0, 0);
  if (width <= n) return self;
  const std::int64_t missing = width - n;
  if (missing > static_cast<std::int64_t>(rt.limits().string_bytes)) rt.fail_limit("strings");
  const std::size_t sign = s.view().starts_with('+') || s.view().starts_with('-') ? 1 : 0;
  Str out = s.substr(0, sign);
  out.append(std::string(static_cast<std::size_t>(missing), '0'), Origin::Template);
  out.append(s, sign, s.size());
  return rt.string(std::move(out));
}

Value expandtabs(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "expandtabs", given, {"tabsize"});
  const Str& s = text(self);
  const std::int64_t size = a.integer(0, 8);
  if (size > 1000) rt.fail_limit("tabs");
  Str out;
  std::int64_t column = 0;
  for (std::size_t at = 0; at < s.size();) {
    const std::size_t end = next_character(s.view(), at);
    const char c = s.view()[at];
    if (c == '\t' && size > 0) {
      const std::int64_t n = size - column % size;
      out.append(std::string(static_cast<std::size_t>(n), ' '), s.origin_at(at));
      column += n;
    } else if (c != '\t') {
      out.append(s, at, end - at);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    at = end;
    rt.limit_string(out);
  }
  return rt.string(std::move(out));
}

/// Whether a text is not empty and all its characters are of a class.
template <bool (*belongs)(std::int32_t)>
Value all_are(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "str method", given, {});
  const std::string_view s = text(self).view();
  std::size_t at = 0;
  while (at < s.size()) {
    const Character c = character_at(s, at);
    if (!belongs(c.code)) return Value::boolean(false);
    at += c.length;
  }
  return Value::boolean(at > 0);
}

bool is_alphanumeric(std::int32_t c) { return is_alpha(c) || is_numeric(c) || is_digit(c); }

Value isprintable(Runtime& rt, const Value& self, CallArguments& given) {
  return text(self).empty() ? Value::boolean(true) : all_are<is_printable>(rt, self, given);
}

Value isascii(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "isascii", given, {});
  const std::string_view s = text(self).view();
  return Value::boolean(std::all_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

/// islower, isupper: at least one cased character, and none of another case.
template <bool (*wanted)(std::int32_t)>
Value in_case(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "str method", given, {});
  return Value::boolean(is_in_case(text(self), wanted));
}

Value istitle(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "istitle", given, {});
  const std::string_view s = text(self).view();
  bool any = false, after_cased = false;
  for (std::size_t at = 0; at < s.size();) {
    const Character c = character_at(s, at);
    const bool capital = is_upper(c.code) || is_title(c.code), small = is_lower(c.code);
    if ((capital && after_cased) || (small && !after_cased)) return Value::boolean(false);
    after_cased = capital || small;
    any = any || after_cased;
    at += c.length;
  }
  return Value::boolean(any);
}

Value isidentifier(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "isidentifier", given, {});
  const std::string_view s = text(self).view();
  for (std::size_t at = 0; at < s.size();) {
    const Character c = character_at(s, at);
    if (!(at == 0 ? is_identifier_start(c.code) : is_identifier_part(c.code))) return Value::boolean(false);
    at += c.length;
  }
  return Value::boolean(!s.empty());
}

Value format(Runtime& rt, const Value& self, CallArguments& given) {
  return rt.string(str_format(rt, text(self), given));
}

Value format_map(Runtime& rt, const Value& self, CallArguments& given) {
  const Arguments a(rt, "format_map", given, {""}, 1);
  CallArguments named;
  if (a[0].is_dict()) {
    for (const auto& [key, value] : a[0].as<DictObject>().entries()) {
      if (key.is_string()) named.keywords.emplace_back(key.as_string(), value);
    }
  }  // what is no mapping has no field that could be asked for
  return rt.string(str_format(rt, text(self), named));
}

struct Row {
  std::string_view name;
  MethodObject::Body body;
};
constexpr Row kMethods[] = {
    {"capitalize", capitalize},
    {"casefold", change<Case::Fold>},
    {"center", justify<'^'>},
    {"count", count},
    {"encode", detail::unsupported_method},
    {"endswith", affix<false>},
    {"expandtabs", expandtabs},
    {"find", find_in<false, Missing::Negative>},
    {"format", format},
    {"format_map", format_map},
    {"index", find_in<false, Missing::Fails>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", isascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", isidentifier},
    {"islower", in_case<is_lower>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", isprintable},
    {"isspace", all_are<is_space>},
    {"istitle", istitle},
    {"isupper", in_case<is_upper>},
    {"join", join},
    {"ljust", justify<'<'>},
    {"lower", change<Case::Lower>},
    {"lstrip", strip<1>},
    {"maketrans", detail::unsupported_method},
    {"partition", partition<false>},
    {"removeprefix", without_affix<true>},
    {"removesuffix", without_affix<false>},
    {"replace", replace},
    {"rfind", find_in<true, Missing::Negative>},
    {"rindex", find_in<true, Missing::Fails>},
    {"rjust", justify<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<2>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", affix<true>},
    {"strip", strip<3>},
    {"swapcase", swapcase},
    {"title", title},
    {"translate", detail::unsupported_method},
    {"upper", change<Case::Upper>},
    {"zfill", zfill},
};

}  // namespace

MethodObject::Body detail::find_string_method(std::string_view name) {
  const auto* row = std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                                     [](const Row& r, std::string_view n) { return r.name < n; });
  return row != std::end(kMethods) && row->name == name ? row->body : nullptr;
}

bool is_in_case(const Str& s, bool (*wanted)(std::int32_t)) {
  bool any = false;
  for (std::size_t at = 0; at < s.size();) {
    const Character c = character_at(s.view(), at);
    if (wanted(c.code)) {
      any = true;
    } else if (is_cased(c.code)) {
      return false;
    }
    at += c.length;
  }
  return any;
}

Str stripped(const Str& s, const Value& characters, int sides) {
  const std::string_view view = s.view();
  const bool spaces = characters.is_none();
  std::unordered_set<std::string_view> set;
  if (!spaces) {
    const std::string_view all = characters.as_string().view();
    for (std::size_t at = 0, end = 0; at < all.size(); at = end) {
      end = next_character(all, at);
      set.insert(all.substr(at, end - at));
    }
  }
  const auto drops = [&](std::size_t at) {
    const Character c = character_at(view, at);
    return spaces ? is_space(c.code) : set.contains(view.substr(at, c.length));
  };
  std::size_t from = 0, to = view.size();
  while ((sides & 1) != 0 && from < to && drops(from)) from = next_character(view, from);
  while ((sides & 2) != 0 && to > from) {
    const std::size_t before = previous_character(view, to);
    if (!drops(before)) break;
    to = before;
  }
  return s.substr(from, to - from);
}

Value replaced(Runtime& rt, const Str& s, const Str& old, const Str& replacement, std::int64_t count) {
  const std::string_view view = s.view();
  Str out;
  std::size_t at = 0;
  const auto put = [&] {
    out.append(replacement);
    rt.limit_string(out);
  };
  for (std::int64_t n = 0; count < 0 || n < count; ++n) {
    if (old.empty()) {  // before each character and at the end
      put();
      if (at == view.size()) break;
      const std::size_t end = next_character(view, at);
      out.append(s, at, end - at);
      at = end;
      continue;
    }
    const std::size_t hit = find(view, old.view(), at);
    if (hit == kNowhere) break;
    out.append(s, at, hit - at);
    put();
    at = hit + old.size();
  }
  out.append(s, at, view.size() - at);
  return rt.string(std::move(out).as_markup(s.markup()));
}

Value joined(Runtime& rt, const Str& separator, const std::vector<Value>& parts) {
  Str out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.append(separator);
    append_str(rt, parts[i], out);
    rt.limit_string(out);
  }
  return rt.string(std::move(out).as_markup(separator.markup()));
}

std::vector<Value> lines_of(Runtime& rt, const Str& s, bool keep_ends) {
  const std::string_view view = s.view();
  Pieces lines(rt, s);
  for (std::size_t from = 0; from < view.size();) {
    std::size_t at = from, end = view.size();
    while (at < view.size()) {
      const Character c = character_at(view, at);
      const bool ends = (c.code >= 10 && c.code <= 13) || (c.code >= 28 && c.code <= 30) || c.code == 0x85 ||
                        c.code == 0x2028 || c.code == 0x2029;
      if (!ends) {
        at += c.length;
        continue;
      }
      end = at + c.length;
      if (c.code == '\r' && end < view.size() && view[end] == '\n') ++end;
      break;
    }
    lines.add(from, keep_ends ? end : at);
    from = end;
  }
  return lines.take();
}

Str capitalized(const Str& s) {
  if (s.empty()) return s;
  const std::size_t first = next_character(s.view(), 0);
  Str out = change_case(s.substr(0, first), Case::Title);
  out.append(change_case(s, Case::Lower).substr(change_case(s.substr(0, first), Case::Lower).size()));
  return std::move(out).as_markup(s.markup());
}

Value centered(Runtime& rt, const Str& s, std::int64_t width, const Str& fill) {
  const auto n = static_cast<std::int64_t>(s.length());
  if (width <= n) return Value::string(s);
  if (width > static_cast<std::int64_t>(rt.limits().string_bytes)) rt.fail_limit("strings");
  const std::int64_t padding = width - n, left = padding / 2 + (padding & width & 1);
  Str out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(s);
  for (std::int64_t i = left; i < padding; ++i) out.append(fill);
  return rt.string(std::move(out).as_markup(s.markup()));
}

std::vector<Value> split_string(Runtime& rt, const Str& s, const Value& separator, std::int64_t most) {
  const std::string_view view = s.view();
  Pieces parts(rt, s);
  std::size_t at = 0;
  if (!separator.is_none()) {
    const std::string_view sep = separator.as_string().view();
    if (sep.empty()) rt.fail("empty separator");
    while (most < 0 || parts.size() < most) {
      const std::size_t hit = find(view, sep, at);
      if (hit == kNowhere) break;
      parts.add(at, hit);
      at = hit + sep.size();
    }
    parts.add(at, view.size());
    return parts.take();
  }
  for (;;) {
    at += leading_space(view.substr(at));
    if (at == view.size()) return parts.take();
    if (most >= 0 && parts.size() >= most) {
      parts.add(at, view.size());
      return parts.take();
    }
    std::size_t end = at;
    while (end < view.size() && !is_space(character_at(view, end).code)) end = next_character(view, end);
    parts.add(at, end);
    at = end;
  }
}

std::vector<Value> split_string_right(Runtime& rt, const Str& s, const Value& separator, std::int64_t most) {
  if (most < 0) return split_string(rt, s, separator, -1);
  const std::string_view view = s.view();
  Pieces parts(rt, s);
  std::size_t end = view.size();
  if (!separator.is_none()) {
    const std::string_view sep = separator.as_string().view();
    if (sep.empty()) rt.fail("empty separator");
    while (parts.size() < most) {
      const std::size_t hit = rfind(view, sep, end);
      if (hit == kNowhere) break;
      rt.charge_bytes(end);
      parts.add(hit + sep.size(), end);
      end = hit;
    }
    parts.add(0, end);
  } else {
    for (;;) {
      end -= trailing_space(view.substr(0, end));
      if (end == 0) break;
      if (parts.size() >= most) {
        parts.add(0, end);
        break;
      }
      std::size_t from = end;
      while (from > 0) {
        const std::size_t before = previous_character(view, from);
        if (is_space(character_at(view, before).code)) break;
        from = before;
      }
      parts.add(from, end);
      end = from;
    }
  }
  std::vector<Value> in_order = parts.take();
  std::reverse(in_order.begin(), in_order.end());
  return in_order;
}

}  // namespace llm::jinja
