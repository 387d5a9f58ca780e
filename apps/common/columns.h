// The columns that a text takes on a terminal, and how it is made to fit so many of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace llm::app {

/// Words in columns of one width, which are read downwards, in lines that `width` columns hold.
std::string columned(std::span<const std::string> words, std::size_t width);

/// Two for wide characters, none for those that join the one before and for control characters.
int columns_of(char32_t);
std::size_t columns_of(std::string_view);

/// The longest prefix of whole characters that takes so many columns at most.
std::string_view fitting_prefix(std::string_view, std::size_t columns);

/// escaped(), in so many columns at most (at least 3).
std::string escaped_to_fit(std::string_view text, std::size_t columns);

/// `text` in lines of at most `width` columns, all but the first behind `indent` spaces, which the first has before it.
/// They end behind a space, a comma or a semicolon where there is one, and nothing of the text is left out.
std::string folded(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace llm::app
