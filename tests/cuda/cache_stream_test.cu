// Keys and values that another store keeps, on their way to the device and back: a step of copies in place of kernels,
// beside a keeper that remembers rows as they were written.
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <tuple>

#include "backend/cuda/cache.h"
#include "backend/cuda/cache_stream.h"
#include "device_data.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

constexpr int kHeads = 2, kBlocks = 9;
constexpr CacheFormat kFormat{DType::F32, DType::F16};
constexpr std::size_t kKeyRow = 4 * 4, kValueRow = 8 * 2;  // heads of 4 and 8

CacheType type_of(int layer) {
  return {.layer = layer, .kv_heads = kHeads, .head_dim_k = 4, .head_dim_v = 8, .fleeting = true};
}

/// A byte of a row, whoever wrote it.
std::byte byte_of(int layer, int block, int head, int position, std::size_t i, int writer) {
  const std::size_t mixed = static_cast<std::size_t>(layer) * 31 + static_cast<std::size_t>(block) * 17 +
                            static_cast<std::size_t>(head) * 7 + static_cast<std::size_t>(position) * 3 + i +
                            static_cast<std::size_t>(writer) * 101;
  return static_cast<std::byte>(mixed % 251);
}

/// Rows of positions that `before` has written, 1 by the step.
struct Keeper final : CacheKeeper {
  void read_rows(const CacheSlice& s, std::byte* k, std::byte* v) const override {
    const std::lock_guard lock(mutex);
    if (--reads_left == 0) throw std::runtime_error("a row cannot be read");
    each(s, [&](int head, int position, std::size_t row) {
      for (std::size_t i = 0; i < kKeyRow; ++i) k[row * kKeyRow + i] = byte_of(s.layer, s.block, head, position, i, 0);
      for (std::size_t i = 0; i < kValueRow; ++i)
        v[row * kValueRow + i] = byte_of(s.layer, s.block, head, position, i, 1);
    });
  }
  void write_rows(const CacheSlice& s, const std::byte* k, const std::byte* v) override {
    const std::lock_guard lock(mutex);
    if (--writes_left == 0) throw std::runtime_error("a row cannot be written");
    each(s, [&](int head, int position, std::size_t row) {
      for (std::size_t i = 0; i < kKeyRow; ++i)
        wrong += k[row * kKeyRow + i] != byte_of(s.layer, s.block, head, position, i, 2);
      for (std::size_t i = 0; i < kValueRow; ++i)
        wrong += v[row * kValueRow + i] != byte_of(s.layer, s.block, head, position, i, 3);
      if (head == 0) kept.insert({s.layer, s.block, position});
    });
  }
  static void each(const CacheSlice& s, const std::function<void(int, int, std::size_t)>& f) {
    std::size_t row = 0;
    for (int head = 0; head < kHeads; ++head)
      for (int position = s.begin; position < s.end; ++position) f(head, position, row++);
  }

  mutable std::mutex mutex;
  mutable int reads_left = -1;
  int writes_left = -1;
  std::size_t wrong = 0;
  std::set<std::tuple<int, int, int>> kept;  ///< layer, block, position
};

/// Sequences by their blocks, with a past and with tokens of the step.
struct Sequence {
  std::vector<std::int32_t> blocks;
  int past, tokens;
};

struct Scene {
  Scene(int n_layers, const std::vector<Sequence>& sequences) : cache(types(n_layers), kFormat, kBlocks, 512, 4) {
    cache.keep_fleeting_in(keeper);
    for (int i = 0; i < n_layers; ++i) {
      const auto node = static_cast<std::size_t>(3 * i);
      layers.push_back({i, cache.view(i), node, node + 1, node + 2});
    }
    for (const Sequence& s : sequences) {
      spans.push_back({static_cast<std::int32_t>(slots.size()), s.tokens, s.past + s.tokens});
      for (int p = s.past; p < s.past + s.tokens; ++p) {
        fresh.insert({s.blocks.at(static_cast<std::size_t>(p / kBlockPositions)), p % kBlockPositions});
        slots.push_back(s.blocks[static_cast<std::size_t>(p / kBlockPositions)] * kBlockPositions +
                        p % kBlockPositions);
      }
      for (int p = 0; p < s.past; ++p)
        past.insert({s.blocks[static_cast<std::size_t>(p / kBlockPositions)], p % kBlockPositions});
      for (int i = 0; i < kStride; ++i)
        table.push_back(i < std::ssize(s.blocks) ? s.blocks[static_cast<std::size_t>(i)] : -1);
    }
    group = {.block_table = table, .stride = kStride, .slots = slots};
    step.sequences = spans;
    step.groups = {&group, 1};
    seen.resize(static_cast<std::size_t>(n_layers));
  }
  static std::vector<CacheType> types(int n) {
    std::vector<CacheType> all;
    for (int i = 0; i < n; ++i) all.push_back(type_of(i));
    return all;
  }

  /// As a program runs: what a layer appends, then a copy of all that attention could read.
  void run() {
    CacheStream::Step bringing(*cache.stream(), layers, step, stream.get());
    for (std::size_t node = 0; node < 3 * layers.size(); ++node) {
      bringing.reach(node);
      const FleetingLayer& l = layers[node / 3];
      if (node % 3 == 1) append(l);
      if (node % 3 == 2) {
        auto& bytes = seen[node / 3];
        bytes.resize(kBlocks * kHeads * kBlockPositions * (kKeyRow + kValueRow));
        const std::size_t keys = bytes.size() / (kKeyRow + kValueRow) * kKeyRow;
        check_cuda(cudaMemcpyAsync(bytes.data(), l.place.k, keys, cudaMemcpyDeviceToHost, stream.get()), "reading");
        check_cuda(
            cudaMemcpyAsync(bytes.data() + keys, l.place.v, bytes.size() - keys, cudaMemcpyDeviceToHost, stream.get()),
            "reading");
      }
    }
    bringing.finish();
    stream.synchronize("a step");
  }
  void append(const FleetingLayer& l) {
    for (const auto& [block, position] : fresh) {
      for (int head = 0; head < kHeads; ++head) {
        std::array<std::byte, kKeyRow> k;
        std::array<std::byte, kValueRow> v;
        for (std::size_t i = 0; i < k.size(); ++i) k[i] = byte_of(l.layer, block, head, position, i, 2);
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = byte_of(l.layer, block, head, position, i, 3);
        const std::size_t row = row_of(block, head, position);
        check_cuda(cudaMemcpyAsync(l.place.k + row * kKeyRow, k.data(), k.size(), cudaMemcpyHostToDevice, stream.get()),
                   "appending");
        check_cuda(
            cudaMemcpyAsync(l.place.v + row * kValueRow, v.data(), v.size(), cudaMemcpyHostToDevice, stream.get()),
            "appending");
      }
    }
  }
  static std::size_t row_of(int block, int head, int position) {
    return static_cast<std::size_t>((block * kHeads + head) * kBlockPositions + position);
  }

  /// Bytes that attention of some layer would have read wrongly.
  std::size_t wrong_reads() const {
    std::size_t wrong = 0;
    for (std::size_t layer = 0; layer < seen.size(); ++layer) {
      const auto expect = [&](const std::set<std::pair<int, int>>& rows, int writer) {
        for (const auto& [block, position] : rows) {
          for (int head = 0; head < kHeads; ++head) {
            const std::byte* const k = seen[layer].data() + row_of(block, head, position) * kKeyRow;
            const std::byte* const v = seen[layer].data() + kBlocks * kHeads * kBlockPositions * kKeyRow +
                                       row_of(block, head, position) * kValueRow;
            const auto number = static_cast<int>(layer);
            for (std::size_t i = 0; i < kKeyRow; ++i)
              wrong += k[i] != byte_of(number, block, head, position, i, writer);
            for (std::size_t i = 0; i < kValueRow; ++i)
              wrong += v[i] != byte_of(number, block, head, position, i, writer + 1);
          }
        }
      };
      expect(past, 0);
      expect(fresh, 2);
    }
    return wrong;
  }
  void expect_right() {
    CHECK(wrong_reads() == 0);
    CHECK(keeper.wrong == 0);
    CHECK(keeper.kept.size() == layers.size() * fresh.size());
  }

  static constexpr int kStride = 4;
  Keeper keeper;
  CudaCache cache;
  Stream stream;
  std::vector<FleetingLayer> layers;
  std::vector<std::int32_t> slots, table;
  std::vector<SequenceSpan> spans;
  std::set<std::pair<int, int>> past, fresh;  ///< block, position
  StateGroup group;
  StepData step;
  std::vector<std::vector<std::byte>> seen;
};

const std::vector<Sequence> kSome = {{{3, 5, 1}, 70, 90}};  // its first new row is in the middle of a block

}  // namespace

TEST_CASE("a step's layers find the rows of before, and its own are kept", "[cache_stream]") {
  if (no_device()) return;
  for (const int n_layers : {1, 2, 3, 8}) {
    for (const std::vector<Sequence>& sequences :
         {std::vector<Sequence>{{{2, 4}, 0, 100}}, kSome, std::vector<Sequence>{{{6}, 64, 0}, {{6, 7, 0}, 64, 65}},
          std::vector<Sequence>{{{6, 8}, 64, 3}, {{6, 7}, 64, 1}, {{1, 2, 3}, 63, 100}}}) {
      std::vector<Sequence> some;
      for (const Sequence& s : sequences)
        if (s.tokens > 0) some.push_back(s);
      INFO(n_layers << " layers, " << some.size() << " sequences");
      Scene scene(n_layers, some);
      for (int step = 0; step < 3; ++step) {
        scene.keeper.kept.clear();
        scene.run();
        scene.expect_right();
      }
    }
  }
}

TEST_CASE("a row that cannot be carried ends its step, and the next one is right", "[cache_stream]") {
  if (no_device()) return;
  for (const int n : {1, 3, 6}) {
    INFO("the row block " << n);
    Scene scene(5, kSome);
    scene.keeper.reads_left = n;
    CHECK_THROWS_AS(scene.run(), std::runtime_error);
    scene.stream.synchronize("what was launched");
    scene.keeper.reads_left = -1;
    scene.keeper.writes_left = n;
    CHECK_THROWS_AS(scene.run(), std::runtime_error);
    scene.stream.synchronize("what was launched");
    scene.keeper.writes_left = -1;
    scene.keeper.kept.clear();
    scene.run();
    scene.expect_right();
  }
}

}  // namespace llm::cuda::test
