// The limit that a shell may have set to a process's addresses, which no figure of the machine's memory shows.
#pragma once

#include <string>

namespace llm {

/// What goes behind the problem where such a limit is set: its figure, as the shell counts it. Else empty.
std::string address_limit_advice();

}  // namespace llm
