// Importance matrices: for each weight the sums over a text of the squares of what enters its columns, and how many
// rows were summed. Files are llama.cpp's: GGUF (per tensor T.in_sum2 [width, matrices] and T.counts [1, matrices],
// both F32), and read only the older .dat.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/writer.h"

namespace llm {

struct ImportanceEntry {
  std::string tensor;
  std::vector<float> sums;           ///< [width, matrices]: experts have one matrix each
  std::vector<std::int64_t> counts;  ///< rows summed, per matrix; one for all where the file says no more
};

class ImportanceMatrix {
 public:
  /// Throws ErrorKind::Model naming the file: not an importance matrix, damaged, values that are not finite or
  /// negative.
  static ImportanceMatrix read(const std::filesystem::path&, Warnings&);
  /// A GGUF file with everything in it, tensors in the order of their names.
  GgufWriter file() const;
  /// What both together saw; the size of chunks is that of `more`. Throws ErrorKind::Model, naming the file, where one
  /// of them does not know its chunks' size, or a tensor has another shape.
  void add(const ImportanceMatrix& more);

  /// Mean squares for the columns of a tensor with rows of `width` and so many matrices: [width, matrices]. 1 for a
  /// matrix that no row was summed for; empty if there is no entry. Throws ErrorKind::Model if the entry is for another
  /// shape.
  std::vector<float> importance(std::string_view tensor, std::int64_t width, std::int64_t matrices) const;

  std::vector<ImportanceEntry> entries;
  std::vector<std::string> datasets;  ///< names of the texts
  std::uint32_t chunk_count = 0;      ///< of them
  std::uint32_t chunk_size = 0;       ///< tokens; 0: not known
  std::string path;                   ///< where it was read from
};

}  // namespace llm
