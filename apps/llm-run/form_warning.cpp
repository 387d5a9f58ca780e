#include "form_warning.h"

#include "common/messages.h"

namespace llm::app {
namespace {

std::string what_cut(const GenerateResult& r, const std::string& more) {
  switch (r.reason) {
    case StopReason::Length:
      return ", after " + number_text(r.generated_tokens) + (r.generated_tokens == 1 ? " token; " : " tokens; ") + more;
    case StopReason::ContextFull:
      return ": the context is full; -c gives a longer one";
    case StopReason::StopString:
      return ": a text of -r came in it";
    default:
      return ": its time was up";
  }
}

}  // namespace

bool warn_of_cut_form(const GenerateResult& r, const std::string& more) {
  if (r.form_is_whole || r.reason == StopReason::Cancelled) return false;
  print_warnings({{"form-cut", "the answer ends before its form is complete" + what_cut(r, more)}});
  return true;
}

}  // namespace llm::app
