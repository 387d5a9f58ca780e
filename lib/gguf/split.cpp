#include "gguf/split.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "base/error.h"
#include "base/output_file.h"

namespace llm {
namespace {

constexpr std::size_t kMostFiles = std::numeric_limits<std::uint16_t>::max();
constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;

void set_split_keys(GgufWriter& writer, std::size_t no, std::size_t count, std::size_t tensors) {
  writer.set(kSplitNo, static_cast<std::uint16_t>(no));
  writer.set(kSplitCount, static_cast<std::uint16_t>(count));
  writer.set(kSplitTensors, static_cast<std::int32_t>(tensors));
}

/// A file of a set with its keys and no tensors yet. Sizes do not depend on the count that it says.
GgufWriter begin_file(const ModelContent& content, std::size_t no, std::size_t count) {
  GgufWriter writer({.alignment = content.alignment});
  if (no == 0) content.metadata(writer);
  set_split_keys(writer, no, count, content.tensors.size());
  return writer;
}

}  // namespace

bool is_split_key(std::string_view key) { return key == kSplitNo || key == kSplitCount || key == kSplitTensors; }

std::string split_suffix(std::uint32_t no, std::uint32_t count) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "-%05u-of-%05u.gguf", no + 1, count);
  return text.data();
}

std::vector<std::filesystem::path> split_siblings(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  unsigned no = 0, count = 0;
  const std::size_t of = name.rfind("-of-"), dash = of == std::string::npos || of == 0 ? of : name.rfind('-', of - 1);
  const bool numbered = dash != std::string::npos &&
                        std::sscanf(name.c_str() + dash, "-%u-of-%u.gguf", &no, &count) == 2 && no > 0 && no <= count &&
                        count <= kMostFiles && name.substr(dash) == split_suffix(no - 1, count);
  if (!numbered) return {path};
  return split_paths(path.parent_path() / name.substr(0, dash), count);
}

std::vector<std::filesystem::path> split_paths(const std::filesystem::path& prefix, std::size_t count) {
  const std::filesystem::path stem =
      prefix.extension() == ".gguf" ? std::filesystem::path(prefix).replace_extension() : prefix;
  std::vector<std::filesystem::path> paths;
  for (std::size_t no = 0; no < count; ++no) {
    paths.push_back(stem);
    paths.back() += split_suffix(static_cast<std::uint32_t>(no), static_cast<std::uint32_t>(count));
  }
  return paths;
}

ModelContent content_like(const GgufFile& file) {
  const auto copy = [&file](GgufWriter& writer) {
    for (const Metadata::Entry& e : file.metadata().entries()) {
      if (!is_split_key(e.key)) writer.copy(file.metadata(), e.key);
    }
  };
  return {.metadata = copy,
          .tensors = {},
          .alignment = file.metadata().get_or<std::uint32_t>("general.alignment", ModelContent{}.alignment)};
}

TensorSource stored_data(const GgufFile& file, const TensorInfo& tensor) {
  return [&file, tensor](const ByteSink& sink) {
    const std::uint64_t block = info(tensor.type.dtype).block_bytes;
    const std::uint64_t size = tensor.type.bytes(), most = kPieceBytes / block * block;
    std::vector<std::byte> piece(std::min(size, most));
    for (std::uint64_t at = 0; at < size; at += piece.size()) {
      piece.resize(std::min<std::uint64_t>(piece.size(), size - at));
      file.read(tensor, at, piece);
      sink(piece);
    }
    file.shards()[tensor.shard].check_unchanged();
  };
}

std::vector<std::size_t> divide(const ModelContent& content, const SplitLimits& limits) {
  std::vector<std::size_t> counts{0};
  GgufWriter file = begin_file(content, 0, 1);
  const auto next_file = [&] {
    if (counts.size() == kMostFiles)
      throw Error(ErrorKind::Usage, "more than " + std::to_string(kMostFiles) +
                                        " files would be needed, which is the most that a set can have");
    file = begin_file(content, counts.size(), 1);
    counts.push_back(0);
  };
  if (limits.metadata_first) next_file();
  for (const ModelContent::Tensor& t : content.tensors) {
    if (limits.tensors != 0 && counts.back() == limits.tensors) next_file();
    file.add_tensor(t.name, t.type, TensorSource{});
    const bool alone = counts.back() == 0 && counts.size() > 1;  // with the metadata a tensor is not alone
    if (limits.bytes != 0 && !alone && file.file_bytes() > limits.bytes) {
      next_file();
      file.add_tensor(t.name, t.type, TensorSource{});
    }
    counts.back() += 1;
  }
  return counts;
}

GgufWriter single_file(const ModelContent& content) {
  GgufWriter writer({.alignment = content.alignment});
  content.metadata(writer);
  for (const ModelContent::Tensor& t : content.tensors) writer.add_tensor(t.name, t.type, t.source);
  return writer;
}

std::vector<GgufWriter> file_set(const ModelContent& content, std::span<const std::size_t> tensors_in_file) {
  std::vector<GgufWriter> files;
  auto tensor = content.tensors.begin();
  for (const std::size_t n : tensors_in_file) {
    files.push_back(begin_file(content, files.size(), tensors_in_file.size()));
    for (std::size_t i = 0; i < n; ++i, ++tensor) files.back().add_tensor(tensor->name, tensor->type, tensor->source);
  }
  check(tensor == content.tensors.end(), "every tensor belongs to a file");
  return files;
}

void write_all(std::span<const GgufWriter> files, std::span<const std::filesystem::path> paths,
               const std::function<void(std::uint64_t)>& written) {
  check(files.size() == paths.size(), "every file has a name");
  std::vector<OutputFile> outputs;
  outputs.reserve(files.size());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    OutputFile& output = outputs.emplace_back(paths[i]);
    files[i].write([&](std::span<const std::byte> data) {
      output.write(data);
      bytes += data.size();
      if (written) written(bytes);
    });
    output.close();
  }
  for (OutputFile& output : outputs) output.put_in_place();
}

}  // namespace llm
