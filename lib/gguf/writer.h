// Writes GGUF files: for tests and tools. Streams tensor data, so that a file larger than memory can be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "gguf/metadata.h"
#include "tensor/tensor.h"

namespace llm {

struct GgufWriterOptions {
  int version = 3;  ///< 1, 2 or 3
  bool big_endian = false;
  std::uint32_t alignment = 32;
};

/// Takes the next bytes.
using ByteSink = std::function<void(std::span<const std::byte>)>;
/// Hands all of a tensor's data to the sink, in this machine's byte order and in pieces of whole blocks.
using TensorSource = std::function<void(const ByteSink&)>;

class GgufWriter {
 public:
  explicit GgufWriter(GgufWriterOptions options = {});

  /// Metadata in the order of the calls. T: bool, fixed-width integers, float, double.
  /// "general.alignment" is the writer's own: it is added where it is not 32.
  template <class T>
  requires std::is_arithmetic_v<T>
  void set(std::string_view key, T value);
  void set(std::string_view key, std::string_view value);
  void set(std::string_view key, const char* value) { set(key, std::string_view(value)); }
  template <class T>
  void set_array(std::string_view key, std::span<const T> values);
  void set_array(std::string_view key, std::span<const std::string> values);
  /// Copies an entry of another file with its type; "general.alignment" is left out, the writer's own holds.
  void copy(const Metadata&, std::string_view key);

  /// Declares a tensor; its data is asked for in write(), in this order.
  void add_tensor(std::string_view name, TensorType type, TensorSource source);
  void add_tensor(std::string_view name, TensorType type, std::vector<std::byte> data);

  /// Of the whole file, known before any data is.
  std::uint64_t file_bytes() const;
  /// Gives the whole file to the sink, piece by piece.
  void write(const ByteSink&) const;
  /// Writes to `path` through a temporary name beside it and renames. Throws ErrorKind::Io.
  void write(const std::filesystem::path& path) const;
  /// The whole file in memory: for tests.
  std::vector<std::byte> bytes() const;

 private:
  struct Tensor {
    std::string name;
    TensorType type;
    TensorSource source;
  };
  bool swap_bytes() const;
  std::uint64_t length_bytes() const { return options_.version == 1 ? 4 : 8; }
  template <class T>
  void put(std::vector<std::byte>& out, T value) const;
  void put_length(std::vector<std::byte>& out, std::uint64_t n) const;
  void put_string(std::vector<std::byte>& out, std::string_view text) const;
  void put_type(std::vector<std::byte>& out, GgufType type) const;
  void begin_entry(std::string_view key, GgufType type);
  std::vector<std::byte> head() const;

  GgufWriterOptions options_;
  std::vector<std::byte> metadata_;  ///< encoded entries
  std::unordered_set<std::string> keys_;
  std::vector<Tensor> tensors_;
  std::unordered_set<std::string> names_;
  std::uint64_t directory_bytes_ = 0, data_bytes_ = 0;
};

}  // namespace llm
