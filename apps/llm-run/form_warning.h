// An answer that must have a form, and was cut before it had it.
#pragma once

#include <string>

#include "runtime/generator.h"

namespace llm::app {

/// `more`: how an answer gets more tokens than -n allowed. False if there is nothing to warn of; who stopped an answer
/// knows.
bool warn_of_cut_form(const GenerateResult&, const std::string& more);

}  // namespace llm::app
