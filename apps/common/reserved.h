// Options of llama.cpp's command line that this version recognises and does not have yet.
#pragma once

#include <string_view>

namespace llm::app {

bool is_reserved_option(std::string_view name);

}  // namespace llm::app
