// A model's weights in device memory, and how they get there: several readers take pieces of the file through
// page-locked memory, kernels put them into the layout that products want.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/weight_pieces.h"

namespace llm::cuda {

/// How a weight lies on the device, of experts each. Vectors become f32.
MatrixType matrix_type(const TensorType&);
/// What it takes there.
std::size_t device_bytes(const TensorType&);
/// What the factors of its rows take as E4M3, of a matrix, or of experts that lie as tiles; else 0.
std::size_t f8_scale_bytes(const TensorType&);

class CudaWeights final : public WeightStore {
 public:
  enum class F8Scales : std::uint8_t { Absent, Present };
  /// Vectors (one dimension) become f32; what is streamed stays in the file. Throws ErrorKind::Memory before anything
  /// is copied if the weights do not fit.
  CudaWeights(const WeightSource&, std::span<const WeightPlan>, F8Scales, int readers);

  struct Matrix {
    MatrixType type;
    const std::byte* data = nullptr;  ///< experts follow one another
    std::size_t expert_stride = 0;
  };
  /// Throws ErrorKind::Internal for a name that was not planned, here and below.
  const Matrix& matrix(std::string_view name) const;
  /// A vector, or a matrix that is kept as F32 rows: its elements in order. Null where the weight is neither.
  const float* vector(std::string_view name) const;
  /// Of the rows of a matrix, or of all experts: find_f8_scales(). Throws ErrorKind::Internal where they are absent.
  const float* f8_scales(std::string_view name) const;
  /// One that is streamed, and its bytes, mapped.
  struct Streamed {
    StoredMatrix matrix;
    const std::byte* rows;
  };
  const Streamed& streamed(std::string_view name) const;
  /// The host's copy of a vector.
  const std::vector<float>& host_vector(std::string_view name) const;
  std::size_t bytes() const { return memory_.bytes() + scales_.bytes(); }

 private:
  struct Entry {
    Matrix matrix;
    std::vector<float> values;         ///< of vectors
    const float* f8_scales = nullptr;  ///< of matrices and experts
  };
  const Entry& entry(std::string_view name) const;
  void load_vector(const WeightSource&, const WeightPlan&, std::byte* to);
  void find_scales(std::span<const WeightPlan>);

  DeviceBuffer memory_, scales_;
  std::unordered_map<std::string, Entry> entries_;
  std::unordered_map<std::string, Streamed> streamed_;
};

}  // namespace llm::cuda
