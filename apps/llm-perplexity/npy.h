// Matrices of f32 in NumPy's .npy format (versions 1 to 3, C order), written and read row by row. What they were made
// from stands as a comment behind the dictionary in the header: NumPy reads the header as Python, others only its keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>

#include "base/output_file.h"

namespace llm::perplexity {

/// Writes an OutputFile: what has the name is whole. Devices and pipes are written directly.
class NpyWriter {
 public:
  /// `source`: hexadecimal digits. Throws ErrorKind::Io, as all of these do.
  NpyWriter(std::string path, std::uint64_t rows, std::uint64_t columns, const std::string& source);
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;
  void write(std::span<const float> values);
  void finish();

 private:
  void write_bytes(std::span<const std::byte>);
  void check_stream() const;
  std::string path_;
  std::optional<OutputFile> file_;
  std::ofstream stream_;  ///< where there is no file
};

/// Throws ErrorKind::Usage if another file than such a matrix is there: earlier ones are replaced, nothing else.
void require_npy_or_nothing(const std::string& path);

class NpyReader {
 public:
  /// Throws ErrorKind::Usage if the file cannot be opened, or is no matrix of f32 in C order.
  explicit NpyReader(std::string path);
  std::uint64_t rows() const { return rows_; }
  std::uint64_t columns() const { return columns_; }
  const std::string& path() const { return path_; }
  const std::string& source() const { return source_; }  ///< empty: the file does not say
  void read(std::span<float> values);

 private:
  void read_header();
  void read_bytes(char* data, std::size_t n);
  [[noreturn]] void fail(std::string problem) const;
  std::string path_, source_;
  std::ifstream in_;
  std::uint64_t rows_ = 0, columns_ = 0;
};

}  // namespace llm::perplexity
