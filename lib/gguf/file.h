// A GGUF model on disk: versions 1 to 3, either byte order, one file or a set of splits, mapped without copying.
// Format: the GGUF specification (ggml docs/gguf.md). Every count, length, offset and product is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "gguf/metadata.h"
#include "tensor/tensor.h"

namespace llm {

struct TensorInfo {
  std::string_view name;
  TensorType type;
  std::uint32_t shard;        ///< which split holds it
  std::uint64_t info_offset;  ///< of its directory record in that split
  std::uint64_t data_offset;  ///< of its first byte in that split
};

/// Names and types of all tensors, without their data.
class TensorIndex {
 public:
  std::span<const TensorInfo> all() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;

 private:
  friend class GgufFile;
  std::vector<TensorInfo> tensors_;   ///< in the order of the directories
  std::vector<std::uint32_t> order_;  ///< indices into tensors_, sorted by name
};

class GgufFile {
 public:
  /// Maps the file and, where it is one of a set of splits (any of them may be given), the others beside it.
  /// Throws ErrorKind::Model naming file, offset and field. Warnings: e.g. bytes after the last tensor.
  static GgufFile open(const std::filesystem::path&, Warnings&);

  /// What counts from here on instead of the file's values. Throws ErrorKind::Usage as Metadata::replace(), and for
  /// keys that say how the file itself is made.
  void override_keys(std::span<const KeyOverride>);

  const Metadata& metadata() const { return metadata_; }
  const TensorIndex& tensors() const { return tensors_; }
  int version() const { return version_; }
  bool foreign_byte_order() const { return metadata_.swap_bytes_; }
  std::uint64_t file_bytes() const;  ///< of all splits together
  std::span<const MappedFile> shards() const { return shards_; }
  /// MappedFile::read_into_memory() of all shards; `progress` gets the fraction read.
  void read_into_memory(const std::function<void(double)>& progress);

  /// The mapped bytes of a tensor, zero copy. Only for files in this machine's byte order.
  TensorView view(const TensorInfo&) const;
  /// Copies a tensor's data in this machine's byte order, as MappedFile::read(); dst has exactly its size.
  void read(const TensorInfo&, std::span<std::byte> dst) const;
  /// The same for the part of it that begins at `offset`; whole blocks.
  void read(const TensorInfo&, std::uint64_t offset, std::span<std::byte> dst) const;
  /// Throws ErrorKind::Model for a tensor: names its split and the offset of its directory record.
  [[noreturn]] void fail(const TensorInfo&, std::string problem) const;
  /// Throws ErrorKind::Model for a tensor that is missing: offset of the directory.
  [[noreturn]] void fail_missing(std::string_view tensor, std::string problem) const;

 private:
  GgufFile() = default;
  void index_tensors();
  std::span<const std::byte> stored(const TensorInfo&) const;
  int version_ = 0;
  std::uint64_t directory_offset_ = 0;
  Metadata metadata_;  ///< of the first split
  TensorIndex tensors_;
  std::vector<MappedFile> shards_;
};

}  // namespace llm
