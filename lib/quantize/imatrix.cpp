#include "quantize/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/mapped_file.h"
#include "gguf/cursor.h"
#include "gguf/file.h"

namespace llm {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr std::string_view kDatasets = "imatrix.datasets", kChunkCount = "imatrix.chunk_count",
                           kChunkSize = "imatrix.chunk_size";

std::vector<float> read_floats(const GgufFile& file, const TensorInfo& t) {
  if (t.type.dtype != DType::F32) file.fail(t, "has type " + std::string(name(t.type.dtype)) + ", F32 is required");
  std::vector<float> values(static_cast<std::size_t>(t.type.shape.elements()));
  file.read(t, std::as_writable_bytes(std::span(values)));
  return values;
}

void check_values(const ImportanceEntry& e, const std::string& path) {
  const auto bad = std::ranges::find_if(e.sums, [](float v) { return !std::isfinite(v) || v < 0; });
  if (bad == e.sums.end()) return;
  throw Error(ErrorKind::Model,
              ErrorParts{.file = path,
                         .subject = tensor_subject(e.tensor),
                         .problem = "value " + std::to_string(bad - e.sums.begin()) + " is " + std::to_string(*bad) +
                                    "; sums of squares are finite and not negative"});
}

void require_chunks(const ImportanceMatrix& m) {
  if (m.chunk_size == 0)
    throw Error(ErrorKind::Model, ErrorParts{.file = m.path,
                                             .problem = "does not say how many tokens its chunks have, as files of the "
                                                        "older form: it cannot be added to"});
}

/// A pair of tensors of the file, as far as they were found.
struct Pair {
  const TensorInfo* sums = nullptr;
  const TensorInfo* counts = nullptr;
};

std::map<std::string_view, Pair> find_pairs(const GgufFile& file) {
  std::map<std::string_view, Pair> pairs;
  for (const TensorInfo& t : file.tensors().all()) {
    const auto stem = [&](std::string_view suffix) { return t.name.substr(0, t.name.size() - suffix.size()); };
    if (t.name.ends_with(kSums)) pairs[stem(kSums)].sums = &t;
    if (t.name.ends_with(kCounts)) pairs[stem(kCounts)].counts = &t;
  }
  return pairs;
}

ImportanceEntry read_pair(const GgufFile& file, std::string_view tensor, const Pair& pair) {
  if (pair.counts == nullptr) file.fail(*pair.sums, "has no " + std::string(kCounts) + " beside it");
  if (pair.sums == nullptr) file.fail(*pair.counts, "has no " + std::string(kSums) + " beside it");
  ImportanceEntry e{.tensor = std::string(tensor), .sums = read_floats(file, *pair.sums), .counts = {}};
  for (const float count : read_floats(file, *pair.counts)) {
    constexpr float kMost = 0x1p62f;
    if (!(count >= 0 && count <= kMost))
      file.fail(*pair.counts, "holds " + std::to_string(count) + ", which is no count");
    e.counts.push_back(std::llround(count));
  }
  if (e.sums.size() % e.counts.size() != 0)
    file.fail(*pair.counts,
              "holds " + std::to_string(e.counts.size()) + " counts for " + std::to_string(e.sums.size()) + " sums");
  return e;
}

ImportanceMatrix read_gguf(const std::filesystem::path& path, Warnings& warnings) {
  const GgufFile file = GgufFile::open(path, warnings);
  const Metadata& md = file.metadata();
  const auto pairs = find_pairs(file);
  if (pairs.empty() || !md.has(kChunkCount))
    md.fail(
        kChunkCount,
        "the file is not an importance matrix: it lacks this key or tensors named *.in_sum2; llm-imatrix writes one");
  ImportanceMatrix out;
  for (const auto& [tensor, pair] : pairs) out.entries.push_back(read_pair(file, tensor, pair));
  if (md.has(kDatasets)) {
    for (const std::string_view s : md.array<std::string_view>(kDatasets)) out.datasets.emplace_back(s);
  }
  out.chunk_count = md.get<std::uint32_t>(kChunkCount);
  out.chunk_size = md.get_or<std::uint32_t>(kChunkSize, 0);
  return out;
}

/// The older form: i32 entries; for each i32 length, name, i32 calls, i32 values, f32 means times calls; then, in most
/// files, i32 chunks, i32 length, name of the text.
class OldReader {
 public:
  OldReader(const std::string& path, std::span<const std::byte> bytes) : path_(path), in_(path_, bytes) {}

  ImportanceMatrix read() {
    ImportanceMatrix out;
    const std::uint64_t n = count("the number of entries");
    if (n > in_.remaining() / 16)
      in_.fail(
          0, "header",
          "is neither a GGUF file nor an importance matrix: the file cannot hold " + std::to_string(n) + " entries");
    for (std::uint64_t i = 0; i < n; ++i) out.entries.push_back(read_entry(i + 1));
    if (in_.remaining() == 0) return out;
    out.chunk_count = static_cast<std::uint32_t>(count("the number of chunks"));
    if (in_.remaining() > 0) out.datasets.push_back(text("the name of the text"));
    return out;
  }

 private:
  std::uint64_t count(std::string_view what) {
    const std::uint64_t at = in_.position();
    const auto n = in_.read<std::int32_t>(what);
    if (n < 0) in_.fail(at, std::string(what) + " is " + std::to_string(n));
    return static_cast<std::uint64_t>(n);
  }
  std::string text(std::string_view what) {
    const std::span<const std::byte> raw = in_.take(count("a length"), what);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  ImportanceEntry read_entry(std::uint64_t number) {
    in_.set_subject("entry", number);
    ImportanceEntry e;
    e.tensor = text("a tensor's name");
    const std::uint64_t at = in_.position();
    const auto calls = static_cast<std::int64_t>(count("the number of calls"));
    if (calls == 0) in_.fail(at, "an entry with no calls");
    e.counts = {calls};
    const std::uint64_t values_at = in_.position();
    const std::uint64_t values = count("the number of values");
    if (values == 0) in_.fail(values_at, "an entry with no values");
    const std::span<const std::byte> raw = in_.take(values * sizeof(float), "the values");
    e.sums.resize(values);
    std::memcpy(e.sums.data(), raw.data(), raw.size());
    return e;
  }

  std::string path_;
  Cursor in_;
};

/// What is no file, or a folder, was hardly meant.
MappedFile open_matrix(const std::filesystem::path& path) {
  try {
    return MappedFile::open(path);
  } catch (const Error& error) {
    std::error_code unknown;
    if (std::filesystem::is_regular_file(path, unknown)) throw;
    ErrorParts parts = error.parts();
    parts.problem += "; an importance matrix is what llm-imatrix writes";
    throw Error(error.kind(), std::move(parts));
  }
}

}  // namespace

ImportanceMatrix ImportanceMatrix::read(const std::filesystem::path& path, Warnings& warnings) {
  const MappedFile file = open_matrix(path);
  const std::span<const std::byte> bytes = file.bytes();
  const bool gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  ImportanceMatrix out = gguf ? read_gguf(path, warnings) : OldReader(path.string(), bytes).read();
  out.path = path.string();
  for (const ImportanceEntry& e : out.entries) check_values(e, out.path);
  return out;
}

void ImportanceMatrix::add(const ImportanceMatrix& more) {
  require_chunks(*this);
  require_chunks(more);
  for (const ImportanceEntry& e : more.entries) {
    const auto mine = std::ranges::find(entries, e.tensor, &ImportanceEntry::tensor);
    if (mine == entries.end()) {
      entries.push_back(e);
      continue;
    }
    if (mine->sums.size() != e.sums.size() || mine->counts.size() != e.counts.size())
      throw Error(ErrorKind::Model, ErrorParts{.file = more.path,
                                               .subject = tensor_subject(e.tensor),
                                               .problem = "has another shape than in " + path +
                                                          ": the matrices are of different models"});
    for (std::size_t i = 0; i < e.sums.size(); ++i) mine->sums[i] += e.sums[i];
    for (std::size_t i = 0; i < e.counts.size(); ++i) mine->counts[i] += e.counts[i];
  }
  datasets.insert(datasets.end(), more.datasets.begin(), more.datasets.end());
  chunk_count += more.chunk_count;
  chunk_size = more.chunk_size;
}

GgufWriter ImportanceMatrix::file() const {
  GgufWriter writer;
  writer.set("general.type", "imatrix");
  writer.set_array(kDatasets, std::span<const std::string>(datasets));
  writer.set(kChunkCount, chunk_count);
  writer.set(kChunkSize, chunk_size);
  std::vector<const ImportanceEntry*> sorted;
  for (const ImportanceEntry& e : entries) sorted.push_back(&e);
  std::ranges::sort(sorted, {}, [](const ImportanceEntry* e) { return std::string_view(e->tensor); });
  const auto add = [&writer](const std::string& name, std::vector<float> values, std::size_t matrices) {
    const Shape shape{static_cast<std::int64_t>(values.size() / matrices), static_cast<std::int64_t>(matrices)};
    std::vector<std::byte> data(values.size() * sizeof(float));
    std::memcpy(data.data(), values.data(), data.size());
    writer.add_tensor(name, {DType::F32, shape}, std::move(data));
  };
  for (const ImportanceEntry* e : sorted) {
    std::vector<float> counts;
    for (const std::int64_t n : e->counts) counts.push_back(static_cast<float>(n));
    add(e->tensor + std::string(kSums), e->sums, e->counts.size());
    add(e->tensor + std::string(kCounts), counts, e->counts.size());
  }
  return writer;
}

std::vector<float> ImportanceMatrix::importance(std::string_view tensor, std::int64_t width,
                                                std::int64_t matrices) const {
  const auto e = std::ranges::find(entries, tensor, &ImportanceEntry::tensor);
  if (e == entries.end()) return {};
  const auto wanted = static_cast<std::size_t>(width * matrices);
  const std::size_t per_count = e->sums.size() / e->counts.size();
  const bool counts_fit = e->counts.size() == 1 || e->counts.size() == static_cast<std::size_t>(matrices);
  if (e->sums.size() != wanted || !counts_fit)
    throw Error(ErrorKind::Model, ErrorParts{.file = path,
                                             .subject = tensor_subject(tensor),
                                             .problem = "the importance matrix has " + std::to_string(e->sums.size()) +
                                                        " sums for " + std::to_string(e->counts.size()) +
                                                        (e->counts.size() == 1 ? " matrix" : " matrices") +
                                                        ", the tensor has rows of " + std::to_string(width) + " in " +
                                                        std::to_string(matrices) + "; it is of another model"});
  std::vector<float> means(wanted, 1.0f);
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::int64_t count = e->counts[i / per_count];
    if (count > 0) means[i] = e->sums[i] / static_cast<float>(count);
  }
  return means;
}

}  // namespace llm
