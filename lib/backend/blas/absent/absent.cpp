// Takes the blas backend's place in builds without OpenBLAS, so that callers need no conditions.
#include "backend/blas/blas.h"
#include "base/error.h"

namespace llm {

std::unique_ptr<Backend> make_blas_backend(const BackendOptions&) {
  throw Error(ErrorKind::Device, "backend blas is not available: this program was built without OpenBLAS");
}

}  // namespace llm
