#include "split_merge.h"

#include <algorithm>

#include "base/error.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/run_files.h"
#include "common/signals.h"
#include "gguf/file.h"

namespace llm::inspect {
namespace {

ModelContent content_of(const GgufFile& file) {
  ModelContent content = content_like(file);
  for (const TensorInfo& t : file.tensors().all())
    content.tensors.push_back({std::string(t.name), t.type, stored_data(file, t)});
  return content;
}

GgufFile open_input(const std::string& path) {
  Warnings warnings;
  GgufFile file = GgufFile::open(path, warnings);
  app::print_warnings(warnings);
  if (file.version() != 3 || file.foreign_byte_order())
    app::note("GGUF version " + std::to_string(file.version()) +
              (file.foreign_byte_order() ? " in the other byte order" : "") +
              " becomes version 3 in this machine's byte order; values stay the same");
  return file;
}

std::string table(std::span<const std::filesystem::path> paths, std::span<const std::size_t> counts,
                  std::span<const GgufWriter> files) {
  std::string text;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    text += escaped(paths[i].string(), 4096) + "  " + number_text(counts[i]) +
            (counts[i] == 1 ? " tensor  " : " tensors  ") + number_text(files[i].file_bytes()) + " bytes\n";
  }
  return text;
}

}  // namespace

void split(const SplitOptions& o) {
  if ((o.limits.tensors == 0) == (o.limits.bytes == 0))
    throw Error(ErrorKind::Usage, "give either --max-tensors N or --max-size S");
  if (!std::filesystem::path(o.prefix).has_filename())
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = o.prefix, .problem = "is a folder; PREFIX begins the files' names"});
  const GgufFile file = open_input(o.file);
  const ModelContent content = content_of(file);
  const std::vector<std::size_t> counts = divide(content, o.limits);
  const std::vector<GgufWriter> files = file_set(content, counts);
  const std::vector<std::filesystem::path> paths = split_paths(o.prefix, counts.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    app::will_write("PREFIX", paths[i].string());
    if (o.limits.bytes == 0 || files[i].file_bytes() <= o.limits.bytes) continue;
    app::print_warnings({{"split-size", escaped(paths[i].string(), 4096) + " has " +
                                            number_text(files[i].file_bytes()) + " bytes, more than --max-size: " +
                                            (counts[i] == 0 ? "its metadata" : "its one tensor") + " is that large"}});
  }
  if (!o.dry_run) {
    app::check_outputs(paths, o.existing);
    app::install_signal_handlers();
    app::write_models(files, paths, "splitting");
  }
  app::write_stdout(table(paths, counts, files));
}

void merge(const MergeOptions& o) {
  const GgufFile file = open_input(o.file);
  if (file.shards().size() == 1 && !file.metadata().has(kSplitCount))
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = o.file, .problem = "is not one of a set of files: nothing to merge"});
  const ModelContent content = content_of(file);
  const GgufWriter writer = single_file(content);
  const std::filesystem::path path = o.output;
  const std::size_t count = content.tensors.size();
  if (!o.dry_run) {
    app::check_outputs({&path, 1}, o.existing);
    app::install_signal_handlers();
    app::write_models({&writer, 1}, {&path, 1}, "merging");
  }
  app::write_stdout(table({&path, 1}, {&count, 1}, {&writer, 1}));
}

}  // namespace llm::inspect
