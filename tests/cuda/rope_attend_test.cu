// Attention of one token that turns its heads and appends to the cache itself, against rope_append() and attend(), bit
// for bit: results and every byte of the cache.
#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cuda/kernels/rope_append.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

struct Heads {
  int heads, kv_heads, dim, n_rot, window = 0;
};

/// One token at a position of a sequence whose blocks lie anywhere in a cache that is full of numbers.
class Scene {
 public:
  Scene(const Heads& h, DType type, int position, bool with_norms, Random& random)
      : h_(h),
        type_(type),
        blocks_(position / 64 + 4),
        q_(random.floats(count(h.heads), 3)),
        k_(random.floats(count(h.kv_heads), 3)),
        v_(random.floats(count(h.kv_heads))),
        table_(random.floats(static_cast<std::size_t>(h.n_rot))),
        norm_q_(random.floats(count(1))),
        norm_k_(random.floats(count(1))),
        rows_(numbers(random)),
        with_norms_(with_norms),
        positions_(std::vector<std::int32_t>{position}),
        sequence_(std::vector<std::int32_t>{0}),
        slots_(std::vector<std::int32_t>{0}),
        block_table_(std::vector<std::int32_t>{0}) {
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(blocks_));
    std::iota(blocks.begin(), blocks.end(), 0);
    for (std::size_t i = blocks.size(); i > 1; --i)
      std::swap(blocks[i - 1], blocks[static_cast<std::size_t>(random.below(static_cast<int>(i)))]);
    slots_ = OnDevice<std::int32_t>(
        std::vector<std::int32_t>{blocks[static_cast<std::size_t>(position / 64)] * 64 + position % 64});
    block_table_ = OnDevice<std::int32_t>(blocks);
  }

  struct Found {
    std::vector<float> y;
    std::vector<std::uint8_t> keys, values;
  };

  Found run(bool together, RopePairing pairing, const Launch& at) const {
    const OnDevice<std::uint8_t> keys(rows_), values(rows_);
    const OnDevice<float> y(count(h_.heads)), turned(count(h_.heads));
    const CacheView cache{reinterpret_cast<std::byte*>(keys.data()),
                          reinterpret_cast<std::byte*>(values.data()),
                          type_,
                          type_,
                          h_.kv_heads,
                          h_.dim,
                          h_.dim};
    const AttentionShape shape{.heads = h_.heads, .scale = 0.11f, .window = h_.window, .query = ActFormat::F32};
    const std::int64_t positions = std::int64_t{blocks_} * 64;
    const AttentionMemory memory = attention_memory(cache, shape, 1, positions);
    const OnDevice<std::uint8_t> scratch(memory.scratch + 16);
    const OnDevice<std::uint8_t> arrivals(std::vector<std::uint8_t>(memory.arrivals + 16, 0));
    auto* const of_scratch = reinterpret_cast<std::byte*>(scratch.data());
    auto* const of_arrivals = reinterpret_cast<std::byte*>(arrivals.data());
    StepView step;
    step.positions = positions_.data();
    step.sequence = sequence_.data();
    step.slots = slots_.data();
    step.block_table = block_table_.data();
    step.table_stride = blocks_;
    RopeAppend heads{.q = q_.data(),
                     .k = k_.data(),
                     .v = v_.data(),
                     .table = table_.data(),
                     .rotated_q = turned.data(),
                     .heads = h_.heads};
    if (with_norms_) heads.norm_q = norm_q_.data(), heads.norm_k = norm_k_.data(), heads.eps = 1e-5f;
    const Rope op{pairing, h_.n_rot};
    if (together) {
      REQUIRE(attends_with_rope(cache, shape, positions));
      rope_append_attend(op, heads, y.data(), cache, shape, step, positions, of_scratch, of_arrivals, at);
    } else {
      rope_append(op, heads, cache, step, 1, at);
      attend(turned.data(), y.data(), cache, shape, step, 1, positions, of_scratch, of_arrivals, at);
    }
    return {y.read(), keys.read(), values.read()};
  }

 private:
  std::size_t count(int heads) const { return static_cast<std::size_t>(heads) * static_cast<std::size_t>(h_.dim); }
  /// The bytes of finite numbers: the upper ones of 16 bits and those of 8 are chosen for that.
  std::vector<std::uint8_t> numbers(Random& random) const {
    const std::size_t bytes = info(type_).block_bytes;
    std::vector<std::uint8_t> all(static_cast<std::size_t>(blocks_) * 64 * count(h_.kv_heads) * bytes);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<std::uint8_t>(i % bytes == bytes - 1 ? 0x38 + random.below(6) + random.below(2) * 0x80
                                                                : random.below(256));
    return all;
  }

  Heads h_;
  DType type_;
  int blocks_;
  OnDevice<float> q_, k_, v_, table_, norm_q_, norm_k_;
  std::vector<std::uint8_t> rows_;
  bool with_norms_;
  OnDevice<std::int32_t> positions_, sequence_, slots_, block_table_;
};

}  // namespace

TEST_CASE("attention that turns its heads gives the bits of rope_append() and attend()", "[attention]") {
  if (no_device()) return;
  Random random(21);
  const Stream stream;
  for (const Heads& h : {Heads{32, 8, 128, 128}, Heads{32, 4, 128, 128}, Heads{32, 8, 64, 64}, Heads{9, 3, 64, 32},
                         Heads{24, 2, 128, 64}, Heads{4, 4, 256, 256}, Heads{8, 2, 128, 128, 300}}) {
    for (const int position : {0, 1, 31, 63, 64, 255, 256, 700, 5000}) {
      for (const DType type : {DType::F16, DType::BF16, DType::F8_E4M3}) {
        for (const bool with_norms : {false, true}) {
          const Scene scene(h, type, position, with_norms, random);
          for (const RopePairing pairing : {RopePairing::Interleaved, RopePairing::Halves}) {
            INFO(h.heads << "/" << h.kv_heads << " heads of " << h.dim << ", turned " << h.n_rot << ", position "
                         << position << ", cache " << name(type) << ", norms " << with_norms);
            const auto expected = scene.run(false, pairing, {.stream = stream.get(), .overlap = false});
            const auto found = scene.run(true, pairing, {.stream = stream.get(), .overlap = true});
            REQUIRE(first_difference(expected.y, found.y) == -1);
            REQUIRE(expected.keys == found.keys);
            REQUIRE(expected.values == found.values);
            REQUIRE_FALSE(std::isnan(found.y.back()));
          }
        }
      }
    }
  }
}

}  // namespace llm::cuda::test
