// Matrix products by cuBLASLt, which is loaded while the program runs: where it is missing, everything else still
// works.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "tensor/dtype.h"

namespace llm::cuda {

/// y [rows][ldy], of which n columns are written, = x [rows][k] times the rows of w [n][k].
struct GemmShape {
  int n = 0, rows = 0, k = 0, ldy = 0;
  auto operator<=>(const GemmShape&) const = default;
};

class Gemm {
 public:
  /// Null where no version of the library can be loaded and started; `why_not` then says of each what was missing. The
  /// device is the calling thread's from then on.
  static std::unique_ptr<Gemm> load(int device, std::string& why_not);
  ~Gemm();

  /// Does beside the caller what the first products of such shapes would take a tenth of a second for: finds their
  /// algorithms, and has their kernels loaded. Operands as below, or F8_E4M3. The first product waits for it.
  void prepare(DType operands, std::vector<GemmShape>);

  /// Operands are F16, or both F32 (then the products are f32 too); sums in f32. A shape's first product asks the
  /// library for an algorithm, some of which it keeps.
  void run(DType operands, const void* w, const void* x, float* y, const GemmShape&, cudaStream_t);

  /// y += factor * the product of two operands of F16.
  void add(const void* w, const void* x, float factor, float* y, const GemmShape&, cudaStream_t);

  /// Rows of E4M3, and what each of them is multiplied with.
  struct F8Rows {
    const void* rows;
    const float* scales;
  };
  /// k, ldy and the places of rows are multiples of 16 elements; sums in f32.
  void run_f8(const F8Rows& w, const F8Rows& x, float* y, const GemmShape&, cudaStream_t);
  /// Why it cannot here; empty if it can.
  std::string f8_refusal();

  std::string describe() const;

 private:
  struct Impl;
  explicit Gemm(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llm::cuda
