// Dates as Python's datetime.strftime writes them, in the C locale.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace llm::jinja {

std::string format_time(std::string_view format, const Now&);

}  // namespace llm::jinja
