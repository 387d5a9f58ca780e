// What is going to be written: each tensor's type, the metadata, the files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gguf/split.h"
#include "options.h"
#include "quantize/imatrix.h"

namespace llm::quantization {

class Plan {
 public:
  /// Throws what is wrong before anything is written: ErrorKind::Usage, ErrorKind::Model.
  Plan(const Options&, const GgufFile&, const std::optional<ImportanceMatrix>&);

  std::span<const GgufWriter> files() const { return files_; }
  std::span<const std::filesystem::path> paths() const { return paths_; }
  std::uint64_t bytes() const;
  const Warnings& warnings() const { return warnings_; }
  /// A line per tensor, and the sizes.
  std::string table() const;
  /// `Q4_K_M: 23,526,208 -> 7,543,808 bytes, 5.08 bits a weight`
  std::string summary() const;

 private:
  void choose();
  void warn_if_nothing_changes();
  void warn_of_input();
  void warn_of_fallbacks();
  void warn_of_output_options();
  void warn_of_overrides();
  void warn_of_importance();
  void require_importance();
  void make_files();
  bool takes_importance(const TensorInfo&, const TypeChoice&) const;
  std::vector<float> importance_of(const TensorInfo&, const TypeChoice&) const;
  void set_metadata(GgufWriter&) const;
  std::uint64_t tensor_bytes() const;
  double bits_per_weight(std::uint64_t bytes) const;

  const Options& options_;
  const GgufFile& file_;
  const std::optional<ImportanceMatrix>& importance_;
  std::vector<TypeChoice> choices_;  ///< of the input's tensors in their order
  std::vector<GgufWriter> files_;
  std::vector<std::filesystem::path> paths_;
  Warnings warnings_;
};

}  // namespace llm::quantization
