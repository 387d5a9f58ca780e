// What folders hold. The loops of std::filesystem throw where a folder, or one below it, cannot be read any further.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace llm::app {

/// The folder's entries; if `error` is set behind it, those that came before.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder, std::error_code& error);
/// Those of folders below it as well, but for folders that may not be read.
std::vector<std::filesystem::path> list_tree(const std::filesystem::path& folder);

}  // namespace llm::app
