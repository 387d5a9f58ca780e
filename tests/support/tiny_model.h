// Tiny GGUF models with random weights, of any family, shape and storage type: what tests run, change and break.
//
//   TinyFile f = tiny_model({.arch = "qwen3", .layers = 2});
//   f.set("qwen3.context_length", std::uint32_t{0});   // or erase(), resize(), retype() ...
//   f.write(path);
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/writer.h"
#include "tensor/tensor.h"

namespace llm::test {

enum class TinyTokenizer {
  Spm,  ///< 267 tokens: <unk>, <s>, </s>, 256 bytes, 8 pieces
  Bpe,  ///< 259 tokens: 256 bytes, "ab", "abc", <|end|>; merges "a b" and "ab c"
};

enum class TinyRope { Plain, Linear, Yarn, Llama3 };  ///< Llama3: a rope_freqs tensor

/// Defaults: the base file of the tables of malformed inputs (one block of width 32, 12 tensors).
struct TinyOptions {
  std::string arch = "llama";
  int layers = 1;
  int n_embd = 32;
  int d_ff = 64;  ///< of an expert where there are experts
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int context = 64;
  int experts = 0;  ///< 0: the family's own (4 for families that have nothing else)
  int experts_used = 2;
  DType type = DType::F32;  ///< of the matrices; rows must be whole blocks
  bool tied = false;        ///< no output.weight
  bool biases = false;      ///< llama: on every projection (other families have their own)
  int window = 0;           ///< attention.sliding_window
  TinyRope rope = TinyRope::Plain;
  TinyTokenizer tokenizer = TinyTokenizer::Spm;
  std::uint64_t seed = 1;
  /// Storage types of single matrices, by shell pattern over the tensor's name; the last match counts.
  std::vector<std::pair<std::string, DType>> types = {};
};

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
  std::vector<Entry>::const_iterator entry(const std::string& key) const;
  TinyTensor& tensor(const std::string& name);
  GgufWriter writer(GgufWriterOptions options) const;
  std::vector<Entry> metadata_;
  std::vector<TinyTensor> tensors_;
};

TinyFile tiny_model(const TinyOptions& options = {});

/// The values of a tensor before they are encoded: the same for the same name, size and seed.
std::vector<float> tiny_values(const TinyTensor& tensor, std::uint64_t seed);

}  // namespace llm::test
