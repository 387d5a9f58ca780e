#include "text/jinja/strftime.h"

#include <cstdio>
#include <ctime>

namespace llm::jinja {
namespace {

/// One directive; C's own function leaves those alone that it does not know.
std::string directive(std::string_view text, const Now& now) {
  switch (text.back()) {
    case 'f': {
      char buffer[16];
      std::snprintf(buffer, sizeof buffer, "%06d", now.microseconds);
      return buffer;
    }
    case 'z':  // a time without a zone
    case 'Z':
      return {};
    default: {
      char buffer[256];
      const std::string format = std::string(text) + "|";  // never empty, so that 0 means failure
      const std::size_t n = std::strftime(buffer, sizeof buffer, format.c_str(), &now.calendar);
      return n == 0 ? std::string() : std::string(buffer, n - 1);
    }
  }
}

}  // namespace

std::string format_time(std::string_view format, const Now& now) {
  std::string out;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at++];
      continue;
    }
    std::size_t end = at + 1;
    while (end + 1 < format.size() && std::string_view("-_0^#EO:").find(format[end]) != std::string_view::npos) ++end;
    out += directive(format.substr(at, end + 1 - at), now);
    at = end + 1;
  }
  return out;
}

}  // namespace llm::jinja
