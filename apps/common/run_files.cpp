#include "common/run_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "common/folder.h"
#include "common/hub_cache.h"
#include "common/output.h"
#include "gguf/split.h"

namespace llm::app {
namespace {

constexpr const char* kStdin = "/dev/stdin";

struct FileOfRun {
  std::string by, path;
};
struct FilesOfRun {
  /// Whatever reads it, or nothing: who sends a file there does not mean it to be replaced.
  std::vector<FileOfRun> read{{"stdin", kStdin}};
  std::vector<FileOfRun> written;
  std::string reader_of_stdin;
};
FilesOfRun& files() {
  static FilesOfRun f;
  return f;
}

void refuse_clash(const FileOfRun& read, const FileOfRun& written) {
  if (!is_same_file(read.path, written.path)) return;
  throw Error(ErrorKind::Usage, ErrorParts{.file = written.path,
                                           .problem = "would be overwritten by " + written.by + " while it is read" +
                                                      (read.by == written.by ? "" : " (" + read.by + ")")});
}

void add_read(FileOfRun file) {
  for (const FileOfRun& written : files().written) refuse_clash(file, written);
  files().read.push_back(std::move(file));
}

void take_stdin(const std::string& by) {
  std::string& reader = files().reader_of_stdin;
  if (!reader.empty() && reader != by)
    throw Error(ErrorKind::Usage, "stdin can be read only once: " + reader + " and " + by + " both take it");
  reader = by;
}

}  // namespace

void will_read(const std::string& by, const std::string& path) {
  if (path.empty()) return;
  if (path == "-") return take_stdin(by);
  std::error_code none;
  if (!std::filesystem::is_directory(path, none)) {
    for (const std::filesystem::path& part : split_siblings(path)) add_read({by, part.string()});
    return;
  }
  for (const std::filesystem::path& entry : list_folder(path, none)) {
    if (names_model(entry.filename().string())) will_read(by, entry.string());
  }
}

void will_write(const std::string& by, const std::string& path) {
  if (path.empty() || path == "-") return;
  const FileOfRun file{by, path};
  for (const FileOfRun& read : files().read) refuse_clash(read, file);
  for (const FileOfRun& other : files().written) {
    if (other.by == by || !is_same_file(other.path, path)) continue;
    throw Error(ErrorKind::Usage, ErrorParts{.file = path,
                                             .problem = "would be overwritten by " + by + " and by " + other.by +
                                                        ": each needs a file of its own"});
  }
  files().written.push_back(file);
}

void was_read(const std::string& path) {
  std::erase_if(files().read, [&](const FileOfRun& f) { return is_same_file(f.path, path); });
}

}  // namespace llm::app
