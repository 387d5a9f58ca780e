// The paged cache against a simple model: each sequence is a list of values, each block is memory that holds some.
#include "runtime/kv_cache.h"

#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "support/catch.h"

using namespace llm;

namespace {

constexpr int kPositions = 4;

/// What a backend does with slots and copies, with one number per position for keys and values.
struct Memory {
  std::map<std::int32_t, int> slot;

  void copy(KvCache::BlockCopy c) {
    for (int i = 0; i < kPositions; ++i) slot[c.to * kPositions + i] = slot[c.from * kPositions + i];
  }
  std::vector<int> read(const KvCache& cache, SequenceId id) {
    std::vector<int> values;
    const auto blocks = cache.blocks(id);
    for (std::int64_t p = 0; p < cache.length(id); ++p) {
      values.push_back(
          slot[blocks[static_cast<std::size_t>(p / kPositions)] * kPositions + static_cast<int>(p % kPositions)]);
    }
    return values;
  }
};

}  // namespace

TEST_CASE("a cache holds what simple lists hold, through appends, rewinds, forks and removals") {
  constexpr int kSequences = 5, kBlocks = 24;
  KvCache cache(kBlocks, kPositions, kSequences);
  Memory memory;
  std::map<SequenceId, std::vector<int>> expected;
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  int next_value = 0, refused = 0, copied = 0;
  for (int step = 0; step < 20000; ++step) {
    const int action = below(10);
    std::vector<SequenceId> ids;
    for (const auto& [id, values] : expected) ids.push_back(id);
    if (ids.empty() || (action == 0 && ids.size() < kSequences)) {
      const SequenceId id = cache.create();
      REQUIRE(expected.count(id) == 0);
      expected[id] = {};
      continue;
    }
    const SequenceId id = ids[static_cast<std::size_t>(below(ids.size()))];
    std::vector<int>& values = expected[id];
    const int length = static_cast<int>(values.size());
    if (action == 1) {
      cache.remove(id);
      expected.erase(id);
    } else if (action <= 3) {
      const int to = below(static_cast<std::size_t>(length + 1));
      cache.truncate(id, to);
      values.resize(static_cast<std::size_t>(to));
    } else if (action == 4 && ids.size() < kSequences) {
      const int at = below(static_cast<std::size_t>(length + 1));
      expected[cache.fork(id, at)] = std::vector<int>(values.begin(), values.begin() + at);
    } else {
      const int n = below(10);
      std::vector<std::int32_t> slots;
      std::vector<KvCache::BlockCopy> copies;
      const std::vector<std::int32_t> before(cache.blocks(id).begin(), cache.blocks(id).end());
      const int used = cache.blocks_in_use();
      if (cache.append(id, n, slots, copies)) {
        for (const auto& c : copies) memory.copy(c);
        copied += static_cast<int>(copies.size());
        REQUIRE(slots.size() == static_cast<std::size_t>(n));
        for (const std::int32_t s : slots) {
          memory.slot[s] = next_value;
          values.push_back(next_value++);
        }
      } else {
        ++refused;
        REQUIRE(slots.empty());
        REQUIRE(copies.empty());
        REQUIRE(cache.blocks_in_use() == used);
        REQUIRE(std::vector<std::int32_t>(cache.blocks(id).begin(), cache.blocks(id).end()) == before);
        REQUIRE(used + (n + kPositions - 1) / kPositions + 1 > kBlocks);
      }
    }
    std::set<std::int32_t> held;
    for (const auto& [other, list] : expected) {
      REQUIRE(cache.length(other) == static_cast<std::int64_t>(list.size()));
      REQUIRE(memory.read(cache, other) == list);
      const auto blocks = cache.blocks(other);
      REQUIRE(blocks.size() == (list.size() + kPositions - 1) / kPositions);
      held.insert(blocks.begin(), blocks.end());
    }
    REQUIRE(cache.blocks_in_use() == static_cast<std::int32_t>(held.size()));
  }
  CHECK(refused > 10);  // the walk reached what it is about
  CHECK(copied > 10);
}

TEST_CASE("blocks are given out from the lowest") {
  KvCache cache(8, kPositions, 2);
  const SequenceId a = cache.create(), b = cache.create();
  std::vector<std::int32_t> slots;
  std::vector<KvCache::BlockCopy> copies;
  REQUIRE(cache.append(a, 8, slots, copies));
  REQUIRE(cache.append(b, 8, slots, copies));
  CHECK(slots == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  cache.remove(a);
  slots.clear();
  REQUIRE(cache.append(b, 5, slots, copies));
  CHECK(slots == std::vector<std::int32_t>{0, 1, 2, 3, 4});
}

TEST_CASE("misuse of a cache is an error of ours") {
  KvCache cache(2, kPositions, 1);
  CHECK_THROWS_AS(cache.length(0), Error);
  const SequenceId id = cache.create();
  CHECK_THROWS_AS(cache.create(), Error);
  CHECK_THROWS_AS(cache.truncate(id, 1), Error);
  CHECK_THROWS_AS(cache.fork(id, 1), Error);
  CHECK_THROWS_AS(cache.remove(id + 1), Error);
}
