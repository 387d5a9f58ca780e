// What this build is: for --version, manual pages and reports of bugs.
#pragma once

#include <string>
#include <string_view>

namespace llm::app {

std::string_view build_version();  ///< 0.1.0
std::string_view build_date();     ///< of its commit, YYYY-MM-DD; empty outside of a repository

/// Program, version and instruction set; commit, compiler; backends.
std::string version_text();

}  // namespace llm::app
