#include "common/memory_lock.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "common/messages.h"
#include "common/progress.h"
#include "common/reserved.h"

namespace llm::app {
namespace {

/// Locked at once, so that progress shows.
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;

std::uint64_t size_of(const GgufFile& file) {
  std::uint64_t bytes = 0;
  for (const MappedFile& shard : file.shards()) bytes += shard.bytes().size();
  return bytes;
}

/// Bytes locked before the end or the first failure, which is left in errno; 0 there: none.
std::uint64_t lock_pages(const GgufFile& file, std::uint64_t all) {
  Progress progress("locking the weights in memory");
  std::uint64_t done = 0;
  for (const MappedFile& shard : file.shards()) {
    std::span<const std::byte> left = shard.bytes();
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

void add_memory_lock_options(Command& cli, bool& lock) {
  cli.add_flag_callback(
         "--mlock", [&lock] { lock = true; }, "read the weights first, and keep them in memory")
      ->trigger_on_parse();
  const auto mode = [&lock](const std::string& text) {
    if (!has_name("mmap mlock mmap+mlock", text)) {
      throw Error(ErrorKind::Usage, "option --load-mode " + escaped(text) + " " +
                                        reserved_because("--load-mode").value_or("is not supported"));
    }
    lock = text != "mmap";
  };
  cli.add_option_function<std::string>("--load-mode", mode, "mmap: the file is mapped (always so); mlock: as --mlock")
      ->type_name("mmap|mlock")
      ->take_last()
      ->trigger_on_parse();  // of both the last one counts
}

void lock_in_memory(const Model& model) {
  if (model.backend().name() == "cuda") {
    print_warnings({{"no-effect", "--mlock has no effect on a model in the GPU's memory"}});
    return;
  }
  const std::uint64_t all = size_of(model.file()), locked = lock_pages(model.file(), all);
  if (locked == all) return verbose("locked in memory: " + bytes_text(locked));
  const std::string why = std::strerror(errno);
  print_warnings({{"mlock", "--mlock: " + bytes_text(locked) + " of " + bytes_text(all) +
                                " are locked in memory: " + why + limit_text()}});
}

}  // namespace llm::app
