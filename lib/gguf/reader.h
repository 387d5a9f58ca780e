// Parses and checks one GGUF file (one split): header, metadata, tensor directory. Knows nothing of the files beside
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/cursor.h"
#include "gguf/file.h"
#include "gguf/metadata.h"

namespace llm {

/// What one file holds. Views point into the mapping.
struct GgufContent {
  int version = 0;
  Metadata metadata;
  std::uint64_t directory_offset = 0;
  std::vector<TensorInfo> tensors;  ///< shard is left 0
  std::uint64_t data_end = 0;       ///< after the last tensor and its padding (not more than the file's size)
};

class GgufReader {
 public:
  GgufReader(std::string file, std::span<const std::byte> bytes);
  GgufContent read();

 private:
  struct Record;  // a tensor's directory record with the places of its fields

  void read_header();
  void recognize_other_formats() const;
  void read_entries();
  Metadata::Entry read_entry(std::uint64_t number);
  std::string_view read_name(std::string_view what, std::uint64_t max_bytes);
  void read_value(Metadata::Entry&);
  void read_array(Metadata::Entry&);
  std::string_view read_string(std::string_view what);
  void check_duplicate_keys();
  std::uint32_t read_alignment() const;
  std::vector<Record> read_directory();
  Record read_record(std::uint64_t number);
  TensorType read_type(Record&);
  void check_duplicate_names(const std::vector<Record>&) const;
  void place_tensors(const std::vector<Record>&, std::uint32_t alignment);

  std::string file_;
  std::span<const std::byte> bytes_;
  Cursor in_;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_entries_ = 0;
  GgufContent out_;
};

}  // namespace llm
