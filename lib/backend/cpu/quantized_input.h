// The activations of a product in every format that its weights ask for, each made once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/team.h"
#include "tensor/dtype.h"

namespace llm::cpu {

class QuantizedInputs {
 public:
  /// Number of the input in this format; `rows` is the capacity.
  std::size_t add(ActFormat format, std::int64_t k, std::int64_t rows) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].format == format) return i;
    }
    const ActLayout layout = act_layout(static_cast<int>(format), k, rows);
    inputs_.push_back({format, layout, scratch_bytes_});
    if (format != ActFormat::F32) scratch_bytes_ += (layout.bytes + 63) / 64 * 64;
    return inputs_.size() - 1;
  }

  std::size_t scratch_bytes() const { return scratch_bytes_; }
  const ActLayout& layout(std::size_t i) const { return inputs_[i].layout; }
  const std::byte* data(std::size_t i, const float* x, const std::byte* scratch) const {
    return inputs_[i].format == ActFormat::F32 ? reinterpret_cast<const std::byte*>(x) : scratch + inputs_[i].offset;
  }

  /// This thread's share of the rows; a barrier must follow before they are read.
  void quantize(const Kernels& kernels, const float* x, std::int64_t rows, std::byte* scratch, const Worker& w) const {
    const auto [begin, end] = w.share(rows);
    if (begin >= end) return;
    for (const Input& in : inputs_) {
      if (in.format == ActFormat::F32) continue;
      kernels.quantize_rows[static_cast<int>(in.format)](x, in.layout.k, scratch + in.offset, in.layout, begin, end);
    }
  }

  std::string describe() const {
    std::string text = " x";
    for (const Input& in : inputs_) text += " " + std::string(name(in.format));
    return text;
  }

 private:
  struct Input {
    ActFormat format;
    ActLayout layout;
    std::size_t offset;
  };
  std::vector<Input> inputs_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace llm::cpu
