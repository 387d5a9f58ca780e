#include "backend/blas/openblas.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <string>

#include "base/error.h"

namespace llm {
namespace {

/// More than its start takes with any number of threads.
constexpr std::size_t kRoom = std::size_t{512} << 20;

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorKind::Device, "backend blas is not available: " + reason);
}

void require_room() {
  void* const room = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw Error(ErrorKind::Memory, "backend blas: OpenBLAS needs " + std::to_string(kRoom >> 20) +
                                       " MiB of address space, and that is limited here; ulimit -v shows how");
  ::munmap(room, kRoom);
}

template <class F>
void get(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr) refuse(std::string("OpenBLAS has no ") + name);
}

OpenBlas load() {
  require_room();
  // The build's own, which shares its threads with ours; elsewhere what the system calls OpenBLAS. It stays open.
  void* library = ::dlopen(LLM_OPENBLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse(::dlerror());
  OpenBlas blas;
  get(library, blas.sgemv, "cblas_sgemv");
  get(library, blas.sgemm, "cblas_sgemm");
  get(library, blas.core_name, "openblas_get_corename");
  get(library, blas.set_threads, "openblas_set_num_threads");
  return blas;
}

}  // namespace

const OpenBlas& openblas() {
  static const OpenBlas blas = load();
  return blas;
}

}  // namespace llm
