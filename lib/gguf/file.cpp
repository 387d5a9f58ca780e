#include "gguf/file.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "gguf/byte_order.h"
#include "gguf/name_order.h"
#include "gguf/reader.h"
#include "gguf/split.h"

namespace llm {
namespace {

/// Which of how many splits a file is.
struct Split {
  std::uint32_t no = 0;
  std::uint32_t count = 1;
};

std::string quoted_path(const std::filesystem::path& path) {
  return std::string("\"").append(escaped(path.string(), 4096)).append("\"");
}

std::uint32_t read_u16(const Metadata& md, std::string_view key) {
  const Metadata::Entry* e = md.find(key);
  if (!e) md.fail(key, "is missing; every file of a split model has it");
  if (e->type != GgufType::U16) md.fail(key, "has type " + std::string(name(e->type)) + ", u16 is required");
  return md.get<std::uint16_t>(key);
}

Split read_split(const Metadata& md) {
  if (!md.has(kSplitCount)) return {};
  const std::uint32_t count = read_u16(md, kSplitCount);
  if (count <= 1) return {};
  const std::uint32_t no = read_u16(md, kSplitNo);
  if (no >= count) md.fail(kSplitNo, "split " + std::to_string(no) + " (from 0) of " + std::to_string(count));
  return {no, count};
}

std::string describe(const Split& s) { return "split " + std::to_string(s.no + 1) + " of " + std::to_string(s.count); }

void warn_about_tail(const GgufContent& content, const MappedFile& file, Warnings& warnings) {
  const std::span<const std::byte> tail = file.bytes().subspan(content.data_end);
  if (tail.empty()) return;
  if (content.metadata.has(kSplitCount) && tail.size() >= 4 && std::memcmp(tail.data(), "GGUF", 4) == 0)
    throw Error(
        ErrorKind::Model,
        ErrorParts{.file = file.path().string(),
                   .offset = content.data_end,
                   .subject = "split",
                   .problem = "another GGUF header follows the tensors: the splits of a model were joined into one "
                              "file; keep them apart under their own names, or make one of them: llm-inspect merge"});
  warnings.push_back({"trailing-data", escaped(file.path().string()) + ": " + std::to_string(tail.size()) +
                                           " bytes after the last tensor are ignored"});
}

/// One mapped file and what is in it.
struct Part {
  MappedFile file;
  GgufContent content;
};

Part read_part(const std::filesystem::path& path, Warnings& warnings) {
  MappedFile file = MappedFile::open(path);
  GgufContent content = GgufReader(path.string(), file.bytes()).read();
  warn_about_tail(content, file, warnings);
  return {std::move(file), std::move(content)};
}

/// Where the splits of a set lie: all beside each other, under one prefix.
class SplitNames {
 public:
  SplitNames(const Part& given, Split split) : given_(given.file.path()), split_(split) {
    const std::string file_name = given_.filename().string();
    const std::string suffix = split_suffix(split.no, split.count);
    if (!file_name.ends_with(suffix))
      given.content.metadata.fail(kSplitNo, "the file is " + describe(split) + ", but its name does not end in \"" +
                                                suffix +
                                                "\", so that the other splits cannot be found; give it such a name");
    prefix_ = file_name.substr(0, file_name.size() - suffix.size());
  }

  std::filesystem::path path(std::uint32_t no) const {
    return given_.parent_path() / (prefix_ + split_suffix(no, split_.count));
  }

  void require_all(const Metadata& given) const {
    for (std::uint32_t no = 0; no < split_.count; ++no) {
      std::error_code ignored;
      if (!std::filesystem::exists(path(no), ignored))
        given.fail(kSplitCount, describe({no, split_.count}) + " is missing: " + quoted_path(path(no)) +
                                    "; the splits of a model lie in one folder");
    }
  }

 private:
  std::filesystem::path given_;
  Split split_;
  std::string prefix_;
};

void check_same_set(const Part& part, const Part& first, std::uint32_t no) {
  const Metadata& md = part.content.metadata;
  const Metadata& md_first = first.content.metadata;
  const std::string of_first = quoted_path(first.file.path());
  const Split split = read_split(md);
  const Split wanted{no, read_split(md_first).count};
  if (split.count != wanted.count || split.no != wanted.no)
    md.fail(kSplitNo,
            "the file is " + describe(split) + ", but beside " + of_first + " its name says " + describe(wanted));
  if (part.content.version != first.content.version)
    md.fail("split", "GGUF version " + std::to_string(part.content.version) + " differs from that of " + of_first);
  for (const std::string_view key : {kSplitTensors, std::string_view("general.architecture")}) {
    const Metadata::Entry* mine = md.find(key);
    const Metadata::Entry* other = md_first.find(key);
    if (mine && other && (mine->type != other->type || !std::ranges::equal(mine->raw, other->raw)))
      md.fail(key, "differs from that of " + of_first + ": the splits are of different models");
  }
}

}  // namespace

const TensorInfo* TensorIndex::find(std::string_view name) const {
  const auto at = find_name(order_, name, [&](std::size_t i) { return tensors_[i].name; });
  return at ? &tensors_[*at] : nullptr;
}

void GgufFile::read_into_memory(const std::function<void(double)>& progress) {
  const auto all = static_cast<double>(file_bytes());
  std::uint64_t done = 0;
  for (MappedFile& shard : shards_) {
    shard.read_into_memory([&](std::size_t n) {
      done += n;
      if (progress) progress(static_cast<double>(done) / all);
    });
  }
}

GgufFile GgufFile::open(const std::filesystem::path& path, Warnings& warnings) {
  GgufFile out;
  Part given = read_part(path, warnings);
  const Split split = read_split(given.content.metadata);
  std::vector<Part> parts;
  if (split.count == 1) {
    parts.push_back(std::move(given));
  } else {
    const SplitNames names(given, split);
    names.require_all(given.content.metadata);
    parts.reserve(split.count);
    for (std::uint32_t no = 0; no < split.count; ++no)
      parts.push_back(no == split.no ? std::move(given) : read_part(names.path(no), warnings));
    for (std::uint32_t no = 0; no < split.count; ++no) {
      const Part& part = parts[no];
      if (part.content.metadata.swap_bytes_ != parts.front().content.metadata.swap_bytes_)
        part.content.metadata.fail("split",
                                   "its byte order differs from that of " + quoted_path(parts.front().file.path()));
      check_same_set(part, parts.front(), no);
    }
  }
  out.version_ = parts.front().content.version;
  out.directory_offset_ = parts.front().content.directory_offset;
  for (Part& part : parts) {
    for (TensorInfo& t : part.content.tensors) {
      t.shard = static_cast<std::uint32_t>(out.shards_.size());
      out.tensors_.tensors_.push_back(t);
    }
    out.shards_.push_back(std::move(part.file));
  }
  out.metadata_ = std::move(parts.front().content.metadata);
  out.index_tensors();
  return out;
}

void GgufFile::index_tensors() {
  const auto& all = tensors_.tensors_;
  const auto name_of = [&](std::size_t i) { return all[i].name; };
  tensors_.order_ = sorted_names(all.size(), name_of);
  if (const auto repeated =
          first_repeated(tensors_.order_, name_of)) {  // across splits: within one, the reader refused it
    const TensorInfo& second = all[*repeated];
    const TensorInfo& first = *std::ranges::find(all, second.name, &TensorInfo::name);
    fail(second, "duplicate tensor: " + quoted_path(shards_[first.shard].path()) + " holds it too");
  }
  if (shards_.size() == 1 || !metadata_.has(kSplitTensors)) return;
  const auto declared = metadata_.get<std::uint64_t>(kSplitTensors);
  if (declared != all.size())
    metadata_.fail(kSplitTensors, "value " + std::to_string(declared) + ", but the " + std::to_string(shards_.size()) +
                                      " splits up to " + quoted_path(shards_.back().path()) + " hold " +
                                      std::to_string(all.size()) + " tensors");
}

void GgufFile::override_keys(std::span<const KeyOverride> overrides) {
  for (const KeyOverride& o : overrides) {
    if (o.key == "general.alignment" || o.key.starts_with("split."))
      throw Error(ErrorKind::Usage, ErrorParts{.file = metadata_.file(),
                                               .subject = o.origin + ": " + key_subject(o.key),
                                               .problem = "says how the file is made, which no option can change"});
    metadata_.replace(o);
  }
}

std::uint64_t GgufFile::file_bytes() const {
  std::uint64_t sum = 0;
  for (const MappedFile& s : shards_) sum += s.bytes().size();
  return sum;
}

std::span<const std::byte> GgufFile::stored(const TensorInfo& t) const {
  return shards_[t.shard].bytes().subspan(t.data_offset, t.type.bytes());
}

TensorView GgufFile::view(const TensorInfo& t) const {
  check(!foreign_byte_order(), "GgufFile::view: a file of the other byte order is read, not viewed");
  const std::byte* data = stored(t).data();
  check(reinterpret_cast<std::uintptr_t>(data) % 8 == 0,
        "GgufFile::view: mappings and alignments keep data at multiples of 8");
  return {t.type, data};
}

void GgufFile::read(const TensorInfo& t, std::span<std::byte> dst) const {
  check(dst.size() == stored(t).size(), "GgufFile::read: the destination has the tensor's size");
  read(t, 0, dst);
}

void GgufFile::read(const TensorInfo& t, std::uint64_t offset, std::span<std::byte> dst) const {
  check(offset + dst.size() <= stored(t).size(), "GgufFile::read: a part of the tensor");
  shards_[t.shard].read(t.data_offset + offset, dst);
  if (foreign_byte_order()) swap_tensor(t.type.dtype, dst);
}

void GgufFile::fail(const TensorInfo& t, std::string problem) const {
  throw Error(ErrorKind::Model, ErrorParts{.file = shards_[t.shard].path().string(),
                                           .offset = t.info_offset,
                                           .subject = tensor_subject(t.name),
                                           .problem = std::move(problem)});
}

void GgufFile::fail_missing(std::string_view tensor, std::string problem) const {
  throw Error(ErrorKind::Model, ErrorParts{.file = metadata_.file(),
                                           .offset = directory_offset_,
                                           .subject = tensor_subject(tensor),
                                           .problem = std::move(problem)});
}

}  // namespace llm
