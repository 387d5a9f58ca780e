// Loaded into a program (LD_PRELOAD): before its first flock() another file takes the place of the one that it has
// opened, as if another process had been that much faster.
#include <dlfcn.h>
#include <sys/file.h>

#include <cstdio>
#include <cstdlib>

extern "C" int flock(int fd, int operation) noexcept {
  const char *from = std::getenv("LATE_LOCK_FROM"), *to = std::getenv("LATE_LOCK_TO");
  static bool first = true;
  if (first && from != nullptr && to != nullptr) std::rename(from, to);
  first = false;
  using Flock = int (*)(int, int);
  static const auto next = reinterpret_cast<Flock>(::dlsym(RTLD_NEXT, "flock"));
  return next(fd, operation);
}
