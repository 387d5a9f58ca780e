#include "common/file_loading.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "common/messages.h"
#include "common/progress.h"
#include "common/reserved.h"

namespace llm::app {
namespace {

/// Locked at once, so that progress shows.
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;

std::vector<std::span<const std::byte>> mapped_bytes(const Model& model) {
  std::vector<std::span<const std::byte>> all;
  for (const GgufFile* file : model.files()) {
    for (const MappedFile& shard : file->shards()) all.push_back(shard.bytes());
  }
  return all;
}

/// Bytes locked before the end or the first failure, which is left in errno; 0 there: none.
std::uint64_t lock_pages(const Model& model, std::uint64_t all) {
  Progress progress("locking the weights in memory");
  std::uint64_t done = 0;
  for (std::span<const std::byte> left : mapped_bytes(model)) {
    while (!left.empty()) {
      const std::size_t n = std::min(left.size(), kPieceBytes);
      if (::mlock(left.data(), n) != 0) return done;
      left = left.subspan(n);
      done += n;
      progress.update(static_cast<double>(done) / static_cast<double>(all));
    }
  }
  errno = 0;
  return done;
}

std::string limit_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return "; the limit is " + bytes_text(limit.rlim_cur) + ", ulimit -l changes it";
}

}  // namespace

void add_file_loading_options(Command& cli, FileLoading& loading) {
  using Files = LoadOptions::Files;
  const auto add_flag = [&cli](const char* name, const std::function<void()>& set, const char* meaning) {
    cli.add_flag_callback(name, set, meaning)->trigger_on_parse();  // of several the last one counts
  };
  add_flag(
      "--mlock", [&loading] { loading.lock = true; }, "read the weights first, and keep them in memory");
  add_flag(
      "--mmap", [&loading] { loading.files = Files::Mapped; }, "map the file; default");
  add_flag(
      "--no-mmap", [&loading] { loading.files = Files::Read; },
      "read the whole file into the program's own memory; it may change or go away afterwards");
  const auto mode = [&loading](const std::string& text) {
    if (text == "dio")
      throw Error(ErrorKind::Usage, "option --load-mode dio " + reserved_because("--direct-io").value());
    if (!has_name("auto none mmap mlock mmap+mlock", text))
      throw Error(ErrorKind::Usage, "option --load-mode: \"" + escaped(text) + "\" is not mmap, none or mlock");
    loading = {text == "none" ? Files::Read : Files::Mapped, text == "mlock" || text == "mmap+mlock"};
  };
  cli.add_option_function<std::string>("--load-mode", mode, "mmap: as --mmap; none: as --no-mmap; mlock: as --mlock")
      ->type_name("mmap|none|mlock")
      ->take_last()
      ->trigger_on_parse();
}

void lock_in_memory(Model& model) {
  if (model.backend().name() == "cuda") {
    print_warnings({{"no-effect", "--mlock has no effect on a model in the GPU's memory"}});
    return;
  }
  const std::uint64_t all = model.file_bytes(), locked = lock_pages(model, all);
  model.hold(std::max(model.held_bytes(), locked));
  if (locked == all) return verbose("locked in memory: " + bytes_text(locked));
  const std::string why = std::strerror(errno);
  print_warnings({{"mlock", "--mlock: " + bytes_text(locked) + " of " + bytes_text(all) +
                                " are locked in memory: " + why + limit_text()}});
}

}  // namespace llm::app
