// A program's manual page, in the language of man(7), made of the table of its options.
#pragma once

#include <string>

#include "common/option_table.h"

namespace llm::app {

/// `date` is YYYY-MM-DD or empty.
std::string man_page(const Command&, const Page&, std::string_view version, std::string_view date);

}  // namespace llm::app
