#include "base/processors.h"

#include <sched.h>

namespace llm {

Processors::Processors() {
  auto* const set = reinterpret_cast<cpu_set_t*>(mask_.data());
  if (::sched_getaffinity(0, sizeof mask_, set) == 0) bytes_ = sizeof mask_;
}

void Processors::use() const {
  if (bytes_ > 0) ::sched_setaffinity(0, bytes_, reinterpret_cast<const cpu_set_t*>(mask_.data()));
}

}  // namespace llm
