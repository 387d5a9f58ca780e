// Matrix products by cuBLASLt, which is loaded while the program runs: where it is missing, everything else still
// works.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/device.h"
#include "tensor/dtype.h"

namespace llm::cuda {

class Gemm {
 public:
  /// Null where the library cannot be loaded; `why_not` then says what was missing.
  static std::unique_ptr<Gemm> load(std::string& why_not);
  ~Gemm();

  /// y [rows][ldy], of which n columns are written, = x [rows][k] times the rows of w [n][k]. Operands are F16, or both
  /// F32 (then the products are f32 too); sums in f32.
  void run(DType operands, const void* w, const void* x, float* y, int n, int rows, int k, int ldy, cudaStream_t);

  std::string describe() const;

 private:
  struct Impl;
  explicit Gemm(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llm::cuda
