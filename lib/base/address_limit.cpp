#include "base/address_limit.h"

#include <sys/resource.h>

namespace llm {

std::string address_limit_advice() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  constexpr rlim_t kUnit = 1024;
  return "; ulimit -v is " + std::to_string(limit.rlim_cur / kUnit) +
         " (KiB) here, for the model's file and all memory: raise it, or ulimit -v unlimited";
}

}  // namespace llm
