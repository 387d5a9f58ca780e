// The products of one node: the input is quantised once per format that its weights ask for, and multiplied with rows
// of one weight after another, whose scales and biases follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/quantized_input.h"
#include "backend/cpu/step.h"

namespace llm::cpu {

class Products {
 public:
  /// Of a Linear or an ExpertLinear.
  explicit Products(const InstructionSite&);
  static std::size_t scratch_bytes(const Graph&, const Node&);

  struct Weight {
    LinearFn linear;
    std::string type;
    int w, bias, scale, y;  ///< slots; -1 for what is absent
    std::size_t input;      ///< in which format
    std::size_t row_bytes;
    std::int64_t n;  ///< rows, of one expert if there are several
  };
  const std::vector<Weight>& weights() const { return weights_; }
  std::int64_t rows() const { return rows_; }  ///< of all weights

  /// Rows of one weight.
  struct Part {
    const Weight* weight;
    std::int64_t begin, end;
  };
  /// All weights in parts of so many rows.
  std::int64_t parts(std::int64_t rows) const;
  Part part(std::int64_t index, std::int64_t rows) const;

  /// This thread's share of so many rows of the input; a barrier must follow.
  void quantize(const Frame&, const Worker&, std::int64_t rows, std::byte* scratch) const;

  /// What a part is multiplied with.
  struct Columns {
    std::int64_t n;
    std::int64_t expert = 0;
    const std::int32_t *in_rows = nullptr, *out_rows = nullptr;  ///< [n]; nullptr: 0, 1, ...
  };
  void compute(const Frame&, const Worker&, const Part&, const Columns&, const std::byte* scratch) const;

  std::string describe() const;

 private:
  const Kernels& kernels_;
  Ways ways_ = best_ways(kernels_);
  int x_;
  std::int64_t k_;
  QuantizedInputs inputs_;
  std::vector<Weight> weights_;
  std::int64_t rows_ = 0;
};

}  // namespace llm::cpu
