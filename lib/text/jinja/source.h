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

/// A template that asks for too much, as opposed to one that cannot take what it is given.
class LimitError : public Error {
 public:
  using Error::Error;
};

struct Source {
  TemplateName name;
  std::string text;  ///< line ends are \n, without a single one at the end

  Source(TemplateName n, std::string_view raw);
  /// ErrorKind::Notation, with line, column (both from 1) and the line's text around it.
  [[noreturn]] void fail(std::size_t offset, std::string_view message) const;
  /// The same as a LimitError: "template limit: too many or too large ...".
  [[noreturn]] void fail_limit(std::size_t offset, std::string_view what) const;

 private:
  ErrorParts error_at(std::size_t offset, std::string_view message) const;
};

}  // namespace llm::jinja
