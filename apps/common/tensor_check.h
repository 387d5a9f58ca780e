// Whether weights are numbers: the search for NaN and infinite scales behind --check-tensors and llm-inspect verify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gguf/file.h"

namespace llm::app {

/// Blocks of a tensor with a NaN or infinite scale; for types without blocks, elements.
struct BadBlocks {
  std::uint64_t count = 0;
  std::uint64_t first = 0;           ///< block
  std::int64_t row = 0, column = 0;  ///< of the first element that is not a finite number
  std::string value;                 ///< "NaN", "inf" or "-inf"
};

/// Finds what is not finite in a tensor's blocks, given piece by piece. A block whose scale is NaN or infinite decodes
/// to such elements, whatever its quants: 0 times infinity is NaN.
class BlockScan {
 public:
  explicit BlockScan(const TensorType&);
  /// Whole blocks in this machine's byte order.
  void take(std::span<const std::byte>);
  const BadBlocks& bad() const { return bad_; }

 private:
  void look(std::span<const std::byte> data, std::size_t blocks);
  std::optional<std::size_t> first_nan_code(std::span<const std::byte> block) const;
  void report(std::size_t block, std::size_t element, double value);

  TensorType type_;
  const DTypeInfo& info_;
  std::vector<float> values_;
  std::uint64_t block_ = 0;
  BadBlocks bad_;
};

/// What is wrong and where, for a message.
std::string problem_of(const TensorInfo&, const BadBlocks&);
/// In the tensor's file.
std::uint64_t offset_of(const TensorInfo&, const BadBlocks&);

/// Reads all weights, with progress on stderr. Throws ErrorKind::Model for the first tensor with bad blocks. `threads`
/// 0: what the machine gives.
void require_sound_tensors(const GgufFile&, int threads);

}  // namespace llm::app
