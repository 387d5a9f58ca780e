// Shapes, typed shapes and views of tensor data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/dtype.h"

namespace llm {

/// Up to 4 dimensions in GGUF's order: dimension 0 is the contiguous one (a row), so a matrix of 100 rows of 32 is [32,
/// 100].
class Shape {
 public:
  static constexpr int kMaxDims = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);

  int n_dims() const { return n_dims_; }
  std::int64_t operator[](int i) const { return i < n_dims_ ? dims_[static_cast<std::size_t>(i)] : 1; }
  std::int64_t elements() const { return (*this)[0] * (*this)[1] * (*this)[2] * (*this)[3]; }
  std::int64_t rows() const { return (*this)[1] * (*this)[2] * (*this)[3]; }  ///< rows of length (*this)[0]
  void push_back(std::int64_t dim);
  /// Equal up to trailing dimensions of 1.
  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  std::array<std::int64_t, kMaxDims> dims_{1, 1, 1, 1};
  int n_dims_ = 0;
};

std::string to_string(const Shape&);  ///< "[32, 100]"

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;
  std::size_t row_bytes() const;
  std::size_t bytes() const;  ///< no overflow check: sizes from a file were checked when it was opened
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::string to_string(const TensorType&);  ///< "Q4_K [2048, 8192]"

struct TensorView {
  TensorType type;
  const std::byte* data = nullptr;
};

}  // namespace llm
