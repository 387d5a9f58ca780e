#include "gguf/fingerprint.h"

#include <algorithm>
#include <vector>

#include "base/sha256.h"

namespace llm {
namespace {

constexpr std::uint64_t kPiece = 4096;

/// Where the header of each split ends.
std::vector<std::uint64_t> header_sizes(const GgufFile& file) {
  std::vector<std::uint64_t> sizes;
  for (const MappedFile& shard : file.shards()) sizes.push_back(shard.bytes().size());
  for (const TensorInfo& t : file.tensors().all()) sizes[t.shard] = std::min(sizes[t.shard], t.data_offset);
  return sizes;
}

}  // namespace

std::string fingerprint(const GgufFile& file) {
  Sha256 sum;
  const std::vector<std::uint64_t> headers = header_sizes(file);
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const std::span<const std::byte> bytes = file.shards()[i].bytes();
    const std::uint64_t size = bytes.size();
    sum.update(std::as_bytes(std::span(&size, 1)));
    sum.update(bytes.first(headers[i]));
  }
  for (const TensorInfo& t : file.tensors().all()) {
    const std::span<const std::byte> data = file.shards()[t.shard].bytes().subspan(t.data_offset, t.type.bytes());
    const std::size_t n = std::min<std::size_t>(data.size(), kPiece);
    sum.update(data.first(n));
    sum.update(data.subspan((data.size() - n) / 2, n));
  }
  for (const KeyOverride& o : file.metadata().overrides()) {
    const std::string said = to_string(o) + "\n";
    sum.update(std::as_bytes(std::span(said)));
  }
  return sum.digest();
}

}  // namespace llm
