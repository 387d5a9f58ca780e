#include "text/jinja/template.h"

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/resolver.h"

namespace llm::jinja {

struct Template::Parsed {
  Parsed(TemplateName name, std::string_view text) : source(std::move(name), text), tree(parse(source)) {
    resolve(source, tree);
  }
  Source source;
  Tree tree;
};

Template::Template(std::string_view source, TemplateName name)
    : parsed_(std::make_unique<const Parsed>(std::move(name), source)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Rendered Template::render(const Context& context, const Now& now, const Limits& limits) const {
  Interpreter interpreter(parsed_->source, parsed_->tree, limits, now);
  const Str out = interpreter.run(context);
  return {out.bytes(), out.runs()};
}

std::string_view Template::source() const { return parsed_->source.text; }

bool Template::reads(std::string_view variable) const {
  const auto& names = parsed_->tree.context_names;
  return std::find(names.begin(), names.end(), variable) != names.end();
}

}  // namespace llm::jinja
