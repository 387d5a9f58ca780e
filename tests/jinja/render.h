// Short ways to render templates in tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace llm::test {

using jinja::Origin;

/// 2025-07-10, a Thursday, 12:00:00.
inline jinja::Now fixed_now() {
  jinja::Now now;
  now.calendar.tm_year = 125;
  now.calendar.tm_mon = 6;
  now.calendar.tm_mday = 10;
  now.calendar.tm_hour = 12;
  ::timegm(&now.calendar);
  return now;
}

inline jinja::Context context_of(const jinja::Value& object) {
  jinja::Context context;
  for (const auto& [key, value] : object.as<jinja::DictObject>().entries()) {
    context.emplace(key.as_string().bytes(), value);
  }
  return context;
}
inline jinja::Context context_of(std::string_view json) {
  return context_of(jinja::from_json(json, Origin::User, "context"));
}

inline jinja::Rendered render(std::string_view source, std::string_view context = "{}",
                              const jinja::Limits& limits = {}) {
  return jinja::Template(source).render(context_of(context), fixed_now(), limits);
}

inline std::string text_of(std::string_view source, std::string_view context = "{}") {
  return render(source, context).text;
}

/// What the error says; the test fails if there is none or one of another kind.
inline std::string error_of(std::string_view source, std::string_view context = "{}",
                            const jinja::Limits& limits = {}) {
  INFO(source.substr(0, 200));
  try {
    const std::string text = render(source, context, limits).text;
    FAIL("rendered as " << text.substr(0, 200));
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Notation);
    return e.what();
  }
  return {};
}

/// The text with what comes from outside in square brackets.
inline std::string marked(std::string_view source, std::string_view context = "{}") {
  const jinja::Rendered r = render(source, context);
  std::string out;
  std::size_t begin = 0;
  for (const jinja::Run& run : r.runs) {
    const std::string piece = r.text.substr(begin, run.end - begin);
    out += run.origin == Origin::User ? "[" + piece + "]" : piece;
    begin = run.end;
  }
  CHECK(begin == r.text.size());
  return out;
}

}  // namespace llm::test
