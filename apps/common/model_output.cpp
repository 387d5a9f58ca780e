#include "common/model_output.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "common/progress.h"
#include "gguf/split.h"

namespace llm::app {

namespace {

void check_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (::access((folder / "").c_str(), W_OK | X_OK) == 0) return;  // with the slash, a file is no folder
  throw Error(ErrorKind::Io, ErrorParts{.file = file.string(),
                                        .problem = "cannot be created: " + std::generic_category().message(errno)});
}

}  // namespace

void check_outputs(std::span<const std::filesystem::path> paths, Existing existing) {
  for (const std::filesystem::path& path : paths) {
    if (path == "-") {
      throw Error(ErrorKind::Usage, "what is written is no text for stdout: name a file (./- is one of that name)");
    }
    check_folder(path);
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    if (!std::filesystem::exists(status)) continue;
    if (!std::filesystem::is_regular_file(status)) {
      throw Error(ErrorKind::Usage, ErrorParts{.file = path.string(), .problem = "exists and is not a regular file"});
    }
    if (existing == Existing::Refuse) {
      throw Error(ErrorKind::Usage,
                  ErrorParts{.file = path.string(), .problem = "already exists; --force replaces it"});
    }
  }
}

void write_models(std::span<const GgufWriter> files, std::span<const std::filesystem::path> paths,
                  const std::string& what) {
  std::uint64_t total = 0;
  for (const GgufWriter& file : files) total += file.file_bytes();
  Progress progress(what);
  write_all(files, paths,
            [&](std::uint64_t written) { progress.update(static_cast<double>(written) / static_cast<double>(total)); });
}

}  // namespace llm::app
