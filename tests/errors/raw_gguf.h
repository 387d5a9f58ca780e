// Builds GGUF files field by field, so that any field can be wrong: what the writer of the library would never write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llm::test {

using Bytes = std::vector<std::byte>;

void append(Bytes& out, std::string_view text);
void append(Bytes& out, const Bytes& more);
/// Little endian, as this machine is.
template <class T>
void append_value(Bytes& out, T v) {
  const std::size_t at = out.size();
  out.resize(at + sizeof v);
  std::memcpy(out.data() + at, &v, sizeof v);
}

/// Ids of value types and storage types, as the format numbers them.
enum : std::uint32_t { kU8 = 0, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
enum : std::uint32_t {
  kTensorF32 = 0,
  kTensorQ4_0 = 2,
  kTensorQ8_0 = 8,
  kTensorQ4_K = 12,
  kTensorI8 = 24,
  kTensorI64 = 27,
  kTensorQ2_0 = 42
};

struct RawEntry {
  std::string key;
  std::uint32_t type = 0;
  Bytes payload;
};

struct RawTensor {
  std::string name;
  std::vector<std::uint64_t> dims;
  std::uint32_t type = kTensorF32;
  Bytes data;
  std::size_t gap_after = 0;                 ///< a hole in the data section
  std::optional<std::uint64_t> offset = {};  ///< instead of the right one
  std::optional<std::uint32_t> n_dims = {};  ///< instead of dims.size()
};

/// Where things are in a built file.
struct RawLayout {
  std::vector<std::size_t> entry_at, tensor_at;
  std::size_t data_at = 0;
};

RawEntry entry_string(std::string key, std::string_view value);
template <class T>
RawEntry entry_value(std::string key, std::uint32_t type, T value) {
  RawEntry e{std::move(key), type, {}};
  append_value(e.payload, value);
  return e;
}
RawEntry entry_strings(std::string key, const std::vector<std::string>& values);
/// An array's head alone: what follows is up to the caller.
RawEntry entry_array_head(std::string key, std::uint32_t element, std::uint64_t count);
template <class T>
RawEntry entry_array(std::string key, std::uint32_t element, const std::vector<T>& values) {
  RawEntry e = entry_array_head(std::move(key), element, values.size());
  for (const T v : values) append_value(e.payload, v);
  return e;
}

class RawGguf {
 public:
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::size_t alignment = 32;
  std::int64_t extra_entries = 0, extra_tensors = 0;  ///< added to the counts in the header
  std::vector<RawEntry> entries;
  std::vector<RawTensor> tensors;

  Bytes build(RawLayout* layout = nullptr) const;

  /// The entry or tensor of that name; it must exist.
  RawEntry& entry(std::string_view key);
  RawTensor& tensor(std::string_view name);
  std::size_t entry_index(std::string_view key) const;
  std::size_t tensor_index(std::string_view name) const;
  /// Replaces the entry with this key, or adds it.
  void put(RawEntry e);
  void remove_entry(std::string_view key);
  void remove_tensor(std::string_view name);
};

/// Base files: a llama of one block (embedding 32, feed-forward 64, 4 heads, 2 KV heads, context 64) with fixed random
/// weights.
RawGguf tiny_llama();       ///< F32, SentencePiece-style vocabulary of 267
RawGguf tiny_llama_q4_0();  ///< its matrices as Q4_0
RawGguf tiny_moe();         ///< 4 experts, 2 used
RawGguf tiny_bpe();         ///< byte-level BPE vocabulary of 259, merges "a b" and "ab c"

/// Deterministic numbers in [-0.1, 0.1).
Bytes random_f32(std::size_t n, std::uint32_t seed);
/// 2-byte scale and 16 bytes of nibbles per 32 elements.
Bytes random_q4_0(std::size_t n, std::uint32_t seed);
Bytes constant_f32(std::size_t n, float value);

}  // namespace llm::test
