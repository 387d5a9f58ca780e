// Scripts that make a shell complete a program's options, their values and names of files.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/option_table.h"

namespace llm::app {

std::span<const std::string_view> shell_names();
/// Throws ErrorKind::Usage for a shell that is none of them.
std::string completion_script(const Command&, const Page&, std::string_view shell);

}  // namespace llm::app
