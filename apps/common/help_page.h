// What --help and --help-all print.
#pragma once

#include <string>

#include "common/option_table.h"

namespace llm::app {

enum class HelpDetail {
  Common,  ///< the options that a page names, grouped, on a screen or two
  All,     ///< all of them, environment, exit codes
};

/// `width` is that of the terminal.
std::string help_page(const Command&, const Page&, HelpDetail, std::size_t width);

/// `head`, and its meaning in lines of at most `width` columns that begin at `column`, below a head that is too long.
std::string entry(const std::string& head, const std::string& meaning, std::size_t width, std::size_t column);

/// The words of `text` in lines of at most `width` columns, all but the first behind `indent` spaces.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);

}  // namespace llm::app
