// Jinja templates as language models' chat templates use them: rendered exactly as Python's Jinja2 does in the
// environment of the transformers package (an immutable sandbox, trim_blocks, lstrip_blocks, loop controls), with a
// record of which characters the template wrote and which came from outside, and with bounds on what a template can use
// up. No files, no imports, no attributes beyond Python's public ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace llm::jinja {

struct Rendered {
  std::string text;
  std::vector<Run> runs;  ///< where its characters come from, without gaps
};

class Template {
 public:
  /// Throws ErrorKind::Notation with the place and an excerpt.
  Template(std::string_view source, TemplateName name = {});
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// Throws ErrorKind::Notation: what the template refuses, what is not possible, what goes beyond the limits. Safe to
  /// call from several threads.
  Rendered render(const Context&, const Now&, const Limits& = {}) const;
  /// Whether the template asks for a variable of this name from outside.
  bool reads(std::string_view variable) const;
  /// Its text; line ends are \n.
  std::string_view source() const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace llm::jinja
