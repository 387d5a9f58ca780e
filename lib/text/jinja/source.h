// A template's text and where things stand in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace llm::jinja {

/// How errors call a template: a path, and what of that file it is (a metadata key) if not all of it.
struct TemplateName {
  std::string file;
  std::string subject;
};

struct Source {
  TemplateName name;
  std::string text;  ///< line ends are \n, without a single one at the end

  Source(TemplateName n, std::string_view raw);
  /// ErrorKind::Notation, with line, column (both from 1) and the line's text around it.
  [[noreturn]] void fail(std::size_t offset, std::string_view message) const;
};

}  // namespace llm::jinja
