// On which processors a thread may run.
#pragma once

#include <array>
#include <cstddef>

namespace llm {

/// Those of the thread that makes it, for threads that are started later: an OpenMP runtime that binds its threads
/// (OMP_PROC_BIND) leaves the first one a single processor, which threads started from there would inherit.
class Processors {
 public:
  Processors();
  /// The calling thread may run there from now on; it stays as it is where the system said nothing.
  void use() const;

 private:
  std::array<unsigned long, 128> mask_{};  ///< 8,192 processors
  std::size_t bytes_ = 0;
};

}  // namespace llm
