// Keys and values that another store keeps, on their way to the device and back: a step whose kernels append rows and
// look at them, late enough that whoever does not wait comes too early, beside a keeper that knows what each row is.
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

constexpr int kHeads = 4, kBlocks = 9;
constexpr CacheFormat kFormat{DType::F32, DType::F16};
constexpr std::size_t kKeyRow = 64 * 4, kValueRow = 128 * 2;  // heads of 64 and 128

CacheType type_of(int layer) {
  return {.layer = layer, .kv_heads = kHeads, .head_dim_k = 64, .head_dim_v = 128, .place = layer % CacheType::kPlaces};
}

/// A byte of a row, whoever wrote it.
__host__ __device__ std::byte byte_of(int layer, int block, int head, int position, std::size_t i, int writer) {
  const std::size_t mixed = static_cast<std::size_t>(layer) * 31 + static_cast<std::size_t>(block) * 17 +
                            static_cast<std::size_t>(head) * 7 + static_cast<std::size_t>(position) * 3 + i +
                            static_cast<std::size_t>(writer) * 101;
  return static_cast<std::byte>(mixed % 251);
}

__host__ __device__ std::size_t row_of(int block, int head, int position) {
  return static_cast<std::size_t>((block * kHeads + head) * kBlockPositions + position);
}

/// A block for each (block of the cache, position).
__global__ void append(std::byte* k, std::byte* v, int layer, const int2* rows) {
  const int2 row = rows[blockIdx.x];
  for (int head = 0; head < kHeads; ++head) {
    const std::size_t at = row_of(row.x, head, row.y);
    for (std::size_t i = threadIdx.x; i < kKeyRow; i += blockDim.x)
      k[at * kKeyRow + i] = byte_of(layer, row.x, head, row.y, i, 2);
    for (std::size_t i = threadIdx.x; i < kValueRow; i += blockDim.x)
      v[at * kValueRow + i] = byte_of(layer, row.x, head, row.y, i, 3);
  }
}

/// What a layer's products take, and more.
__global__ void work() {
  const long long begin = clock64();
  while (clock64() - begin < 1000000) {
  }
}

/// Rows of before are those of the writers 0 (keys) and 1 (values), the step's of 2 and 3.
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
  Scene(int n_layers, const std::vector<Sequence>& sequences)
      : types(types_of(n_layers)),
        cache({.caches = types, .format = kFormat, .n_blocks = kBlocks, .most_positions = 512}, 4) {
    cache.keep_fleeting_in(keeper);
    for (int i = 0; i < n_layers; ++i) {
      const auto node = static_cast<std::size_t>(3 * i);
      layers.push_back({.layer = i,
                        .turn = static_cast<std::size_t>(type_of(i).place),
                        .places = {{CacheType::Part::KeysValues, cache.view(type_of(i))}},
                        .first = node,
                        .append = node + 1,
                        .attention = node + 2});
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
    for (std::size_t i = 0; i < layers.size(); ++i) {
      early.emplace_back(kPlaceBytes);
      late.emplace_back(kPlaceBytes);
    }
  }
  static std::vector<CacheType> types_of(int n) {
    std::vector<CacheType> all;
    for (int i = 0; i < n; ++i) all.push_back(type_of(i));
    return all;
  }

  /// As a program runs; a layer works for a while before it appends, and before attention has read.
  void run() {
    std::vector<int2> list;
    for (const auto& [block, position] : fresh) list.push_back(make_int2(block, position));
    const OnDevice<int2> rows(list);
    CacheStream::Step bringing(*cache.stream(), layers, step, stream.get());
    for (std::size_t node = 0; node < 3 * layers.size(); ++node) {
      bringing.reach(node);
      const FleetingLayer& l = layers[node / 3];
      if (node % 3 == 0) look(l, early[node / 3]);
      if (node % 3 == 1) {
        work<<<1, 1, 0, stream.get()>>>();
        append<<<static_cast<unsigned>(list.size()), 128, 0, stream.get()>>>(l.places[0].view.k, l.places[0].view.v,
                                                                             l.layer, rows.data());
      }
      if (node % 3 == 2) {
        work<<<1, 1, 0, stream.get()>>>();
        look(l, late[node / 3]);
      }
    }
    bringing.finish();
    stream.synchronize("a step");
  }
  void look(const FleetingLayer& l, const DeviceBuffer& into) {
    std::byte* const to = into.data();
    check_cuda(cudaMemcpyAsync(to, l.places[0].view.k, kKeyBytes, cudaMemcpyDeviceToDevice, stream.get()), "looking");
    check_cuda(cudaMemcpyAsync(to + kKeyBytes, l.places[0].view.v, kPlaceBytes - kKeyBytes, cudaMemcpyDeviceToDevice,
                               stream.get()),
               "looking");
  }

  using Rows = std::set<std::pair<int, int>>;  ///< block, position
  /// Bytes of some rows in a copy of a layer's place that are not a writer's.
  static std::size_t wrong_bytes(const DeviceBuffer& copy, int layer, const Rows& rows, int writer) {
    std::vector<std::byte> bytes(kPlaceBytes);
    check_cuda(cudaMemcpy(bytes.data(), copy.data(), kPlaceBytes, cudaMemcpyDeviceToHost), "copying results");
    std::size_t wrong = 0;
    for (const auto& [block, position] : rows) {
      for (int head = 0; head < kHeads; ++head) {
        const std::byte* const k = bytes.data() + row_of(block, head, position) * kKeyRow;
        const std::byte* const v = bytes.data() + kKeyBytes + row_of(block, head, position) * kValueRow;
        for (std::size_t i = 0; i < kKeyRow; ++i) wrong += k[i] != byte_of(layer, block, head, position, i, writer);
        for (std::size_t i = 0; i < kValueRow; ++i)
          wrong += v[i] != byte_of(layer, block, head, position, i, writer + 1);
      }
    }
    return wrong;
  }
  void expect_right() {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      INFO("layer " << i);
      CHECK(wrong_bytes(early[i], layers[i].layer, past, 0) == 0);
      CHECK(wrong_bytes(late[i], layers[i].layer, past, 0) == 0);
      CHECK(wrong_bytes(late[i], layers[i].layer, fresh, 2) == 0);
    }
    CHECK(keeper.wrong == 0);
    CHECK(keeper.kept.size() == layers.size() * fresh.size());
  }

  static constexpr int kStride = 8;
  static constexpr std::size_t kRows = kBlocks * kHeads * kBlockPositions, kKeyBytes = kRows * kKeyRow,
                               kPlaceBytes = kRows * (kKeyRow + kValueRow);
  Keeper keeper;
  std::vector<CacheType> types;
  CudaCache cache;
  Stream stream;
  std::vector<FleetingLayer> layers;
  std::vector<std::int32_t> slots, table;
  std::vector<SequenceSpan> spans;
  Rows past, fresh;
  StateGroup group;
  StepData step;
  std::vector<DeviceBuffer> early, late;  ///< each layer's place as soon as it may be read, and as attention reads it
};

const std::vector<Sequence> kSome = {{{3, 5, 1}, 70, 90}};  // its first new row is in the middle of a block

}  // namespace

TEST_CASE("a step's layers find the rows of before, and its own are kept", "[cache_stream]") {
  if (no_device()) return;
  for (const int n_layers : {1, 2, 3, 8}) {
    for (const std::vector<Sequence>& sequences :
         {std::vector<Sequence>{{{2, 4}, 0, 100}}, kSome, std::vector<Sequence>{{{3, 5, 1, 2, 4, 6, 7, 8}, 500, 12}},
          std::vector<Sequence>{{{6}, 64, 0}, {{6, 7, 0}, 64, 65}},
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
