// Rows in the cpu backend's own order: what comes out is what the storage type's own encoder makes of them.
#include "backend/backend.h"
#include "float_cases.h"
#include "support/catch.h"
#include "tensor/quantize.h"

namespace llm::cpu {
namespace {

using namespace test;

using Bytes = std::vector<std::byte>;

/// One KV head's part of a block, written in pieces from rows with another head between them, and the rows as their
/// encoder gives them.
struct Block {
  Block(CacheSide side, DType type, int head_dim, CacheType::Access access, std::uint32_t seed)
      : layout(side, type, head_dim, access),
        part(layout.block_bytes(), std::byte{0x5a}),
        rows(static_cast<std::size_t>(kKeyBlock) * layout.row_bytes()) {
    std::mt19937 rng(seed);
    const CacheWriter writer(side, type, head_dim, choose_kernels(""), access);
    const std::int64_t ldx = 2 * head_dim;
    const std::vector<float> x = random_floats(static_cast<std::size_t>(kKeyBlock * ldx), rng);
    const int cuts[] = {0, 1, 3, 20, 36, kKeyBlock};
    for (std::size_t i = 1; i < std::size(cuts); ++i)
      writer.store(x.data() + cuts[i - 1] * ldx, ldx, part.data(), cuts[i - 1], cuts[i]);
    for (int p = 0; p < kKeyBlock; ++p)
      encode(type, x.data() + p * ldx, rows.data() + static_cast<std::size_t>(p) * layout.row_bytes(), head_dim);
  }
  Bytes some_rows(int begin, int end) const {
    const auto at = [&](int p) { return rows.begin() + p * static_cast<std::ptrdiff_t>(layout.row_bytes()); };
    return {at(begin), at(end)};
  }
  CacheLayout layout;
  Bytes part, rows;
};

void check_order(CacheType::Access access) {
  std::uint32_t seed = 1;
  for (const DType type : kCacheTypes) {
    for (const CacheSide side : {CacheSide::Keys, CacheSide::Values}) {
      for (const int head_dim : {7, 32, 37, 80, 128}) {
        if (info(type).quantized() && head_dim % 32 != 0) continue;
        INFO(name(type) << (side == CacheSide::Keys ? " keys of " : " values of ") << head_dim);
        const Block block(side, type, head_dim, access, seed++), other(side, type, head_dim, access, seed++);
        for (const auto& [begin, end] : {std::pair{0, kKeyBlock}, {0, 1}, {63, kKeyBlock}, {3, 21}, {9, 9}}) {
          INFO("positions " << begin << " to " << end);
          Bytes got(static_cast<std::size_t>(end - begin) * block.layout.row_bytes());
          block.layout.get(block.part.data(), got.data(), begin, end);
          CHECK(got == block.some_rows(begin, end));
          // Into another block, whose other rows stay.
          Bytes part = other.part, mixed(block.rows.size());
          block.layout.put(block.some_rows(begin, end).data(), part.data(), begin, end);
          block.layout.get(part.data(), mixed.data(), 0, kKeyBlock);
          Bytes expected = other.some_rows(0, begin);
          for (const Bytes& more : {block.some_rows(begin, end), other.some_rows(end, kKeyBlock)})
            expected.insert(expected.end(), more.begin(), more.end());
          CHECK(mixed == expected);
        }
        Bytes again(block.part.size(), std::byte{0x77});
        block.layout.put(block.rows.data(), again.data(), 0, kKeyBlock);
        CHECK(again == block.part);
        if (access == CacheType::Access::Selected) CHECK(block.part == block.rows);
      }
    }
  }
}

TEST_CASE("rows come out of the cache's order and go back into it") {
  check_order(CacheType::Access::Whole);
  check_order(CacheType::Access::Selected);
}

}  // namespace
}  // namespace llm::cpu
