// Shapes and sizes.
#include "tensor/tensor.h"

#include "base/error.h"

namespace llm {

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  for (const std::int64_t dim : dims) push_back(dim);
}

void Shape::push_back(std::int64_t dim) {
  check(n_dims_ < kMaxDims, "a shape has at most 4 dimensions");
  check(dim >= 0, "a dimension is not negative");
  dims_[static_cast<std::size_t>(n_dims_++)] = dim;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.n_dims(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

std::size_t TensorType::row_bytes() const {
  const DTypeInfo& t = info(dtype);
  return static_cast<std::size_t>(shape[0]) / t.block_elems * t.block_bytes;
}

std::size_t TensorType::bytes() const { return row_bytes() * static_cast<std::size_t>(shape.rows()); }

std::string to_string(const TensorType& type) { return std::string(name(type.dtype)) + " " + to_string(type.shape); }

}  // namespace llm
