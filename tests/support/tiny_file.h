// A GGUF file in pieces that tests put together, change and break before it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gguf/writer.h"
#include "tensor/tensor.h"

namespace llm::test {

struct TinyTensor {
  std::string name;
  TensorType type;
  float center = 0;  ///< elements are uniform in center +- spread, drawn by name and seed
  float spread = 0;
};

/// A file in pieces that can be replaced, removed and added to before it is written. Changing what is not there is a
/// failure of the test.
class TinyFile {
 public:
  /// Replaces the key's value and type, or adds it at the end.
  template <class T>
  void set(const std::string& key, T value) {
    put(key, [key, value](GgufWriter& w) { w.set(key, value); });
  }
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, std::string value);
  template <class T>
  void set_array(const std::string& key, std::vector<T> values) {
    put(key, [key, values](GgufWriter& w) { w.set_array(key, std::span<const T>(values)); });
  }
  void erase(const std::string& key);
  bool has(const std::string& key) const;

  void add_tensor(TinyTensor tensor);
  void resize(const std::string& tensor, Shape shape);
  void retype(const std::string& tensor, DType type);
  void rename(const std::string& tensor, const std::string& name);
  void erase_tensor(const std::string& tensor);
  const std::vector<TinyTensor>& tensors() const { return tensors_; }

  void write(const std::filesystem::path& path, GgufWriterOptions options = {}) const;
  std::vector<std::byte> bytes(GgufWriterOptions options = {}) const;

  std::uint64_t seed = 1;

 private:
  using Entry = std::pair<std::string, std::function<void(GgufWriter&)>>;
  void put(const std::string& key, std::function<void(GgufWriter&)> set);
  TinyTensor& tensor(const std::string& name);
  GgufWriter writer(GgufWriterOptions options) const;
  std::vector<Entry> metadata_;
  std::vector<TinyTensor> tensors_;
};

/// The values of a tensor before they are encoded: the same for the same name, size and seed.
std::vector<float> tiny_values(const TinyTensor& tensor, std::uint64_t seed);

}  // namespace llm::test
