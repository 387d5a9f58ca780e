// Python's three ways to format: `text % values`, text.format(...), and the format specifications of the latter.
#pragma once

#include "text/jinja/runtime.h"

namespace llm::jinja {

Str printf_format(Runtime&, const Str& format, const Value& values);
Str str_format(Runtime&, const Str& format, const CallArguments&);

/// What an integer or a float looks like before it is padded: parsed from a specification, or from % flags.
struct NumberStyle {
  char type = 0;       ///< d b o x X c n e E f F g G %, 0: by the value
  int precision = -1;  ///< -1: not given
  char sign = '-';     ///< '-': only where negative, '+' or ' '
  bool alternate = false;
  char grouping = 0;  ///< ',' or '_'
};
struct NumberText {
  std::string prefix;  ///< sign, 0x
  std::string digits;
};
NumberText format_integer(Runtime&, const Value&, const NumberStyle&);
NumberText format_float(Runtime&, double, const NumberStyle&);

}  // namespace llm::jinja
