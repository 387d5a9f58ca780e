// A model as one file or a set of them: keys, names, which tensors go where, and writing them so that either all files
// appear or none. Naming and keys are llama.cpp's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"

namespace llm {

inline constexpr std::string_view kSplitNo = "split.no";                  ///< u16, from 0
inline constexpr std::string_view kSplitCount = "split.count";            ///< u16
inline constexpr std::string_view kSplitTensors = "split.tensors.count";  ///< i32, of all files
bool is_split_key(std::string_view key);

/// "-00002-of-00005.gguf" for no = 1, count = 5
std::string split_suffix(std::uint32_t no, std::uint32_t count);
/// The names of the set whose naming this file's name follows, its own among them; that alone, if it follows none.
std::vector<std::filesystem::path> split_siblings(const std::filesystem::path&);
/// The names of a set with this prefix; a ".gguf" at its end is dropped.
std::vector<std::filesystem::path> split_paths(const std::filesystem::path& prefix, std::size_t count);

/// What is to be written, before it is known to how many files.
struct ModelContent {
  struct Tensor {
    std::string name;
    TensorType type;
    TensorSource source;
  };
  std::function<void(GgufWriter&)> metadata;  ///< sets all keys but those of splits
  std::vector<Tensor> tensors;
  std::uint32_t alignment = 32;
};

/// Keys of a file (but those of splits), and its alignment: what a copy begins with.
ModelContent content_like(const GgufFile&);
/// A tensor as it is, in pieces that leave memory once they were handed on; `file` must outlive the result. Throws
/// ErrorKind::Model if the file was changed meanwhile.
TensorSource stored_data(const GgufFile& file, const TensorInfo&);

struct SplitLimits {
  std::uint64_t tensors = 0;    ///< most in one file; 0: any number
  std::uint64_t bytes = 0;      ///< most of a whole file; 0: any size. A larger tensor has a file of its own.
  bool metadata_first = false;  ///< the first file holds no tensors
};
/// How many tensors each file gets, in their order. Throws ErrorKind::Usage for more files than split.count can say.
std::vector<std::size_t> divide(const ModelContent&, const SplitLimits&);

/// Everything in one file.
GgufWriter single_file(const ModelContent&);
/// One writer per file of a set: all metadata in the first, the split keys in each.
std::vector<GgufWriter> file_set(const ModelContent&, std::span<const std::size_t> tensors_in_file);

/// Writes all, and only then puts them in place under their names. `written` is told the bytes so far; may be empty.
void write_all(std::span<const GgufWriter>, std::span<const std::filesystem::path>,
               const std::function<void(std::uint64_t)>& written);

}  // namespace llm
