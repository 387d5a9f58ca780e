#include "common/folder.h"

namespace llm::app {
namespace {

namespace fs = std::filesystem;

template <class Iterator>
std::vector<fs::path> all_from(Iterator at, std::error_code& error) {
  std::vector<fs::path> paths;
  for (; !error && at != Iterator(); at.increment(error)) paths.push_back(at->path());
  return paths;
}

}  // namespace

std::vector<fs::path> list_folder(const fs::path& folder, std::error_code& error) {
  return all_from(fs::directory_iterator(folder, error), error);
}

std::vector<fs::path> list_tree(const fs::path& folder) {
  std::error_code error;
  return all_from(fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error),
                  error);
}

}  // namespace llm::app
