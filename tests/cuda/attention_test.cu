// The paged cache and attention on the device, against lib/tensor's encoders and the scalar definition in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "attention_scene.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/attend_prompt.cuh"
#include "backend/cuda/kernels/attention.h"
#include "backend/host/ops.h"
#include "support/catch.h"
#include "support/e4m3.h"
#include "tensor/activation.h"
#include "tensor/decode.h"

using namespace llm;
using namespace llm::attention_test;

namespace {

constexpr auto& kTypes = kCacheTypes;
/// Those that tensor cores have kernels for.
constexpr DType kOwnKernels[] = {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0};

}  // namespace

TEST_CASE("a token's chunks are each taken once") {
  for (const int stripes : {1, 16, 32, 128}) {
    for (const int splits : {1, 2, 5, 16, 128}) {
      if (splits > stripes) continue;
      for (const int chunks : {1, 2, 15, 31, 32, 33, 65, 500}) {
        const cuda::TokenChunks keys(chunks * cuda::kChunkKeys - 1, 0, stripes);
        REQUIRE(keys.chunks == chunks);
        std::multiset<int> taken;
        for (int split = 0; split < splits && split < keys.stripes(); ++split) {
          int before = -1;
          for (int c = split; c < chunks; c = keys.chunk_after(c, splits)) {
            if (before >= 0 && before % stripes == c % stripes) REQUIRE(c == before + stripes);
            taken.insert(before = c);
          }
          REQUIRE(keys.chunk_after(chunks, splits) == chunks);
        }
        REQUIRE(static_cast<int>(taken.size()) == chunks);
        for (int c = 0; c < chunks; ++c) REQUIRE(taken.count(c) == 1);
      }
    }
  }
  for (const int window : {0, 1, 20, 256, 300, 5000}) {
    for (const int position : {0, 1, 63, 255, 256, 1000, 4095, 4096, 9000}) {
      const cuda::TokenChunks keys(position, window, 32);
      int seen = 0;
      for (int c = 0; c < keys.chunks; ++c) {
        REQUIRE(keys.chunk_end_key(c) > keys.chunk_first_key(c));
        REQUIRE(keys.chunk_first_key(c) / cuda::kChunkKeys == (keys.chunk_end_key(c) - 1) / cuda::kChunkKeys);
        seen += keys.chunk_end_key(c) - keys.chunk_first_key(c);
      }
      REQUIRE(seen == (window > 0 ? std::min(window, position + 1) : position + 1));
    }
  }
}

TEST_CASE("plans of attention fit their device") {
  for (const std::size_t limit : {std::size_t{101376}, std::size_t{232448}}) {
    for (const int group : {1, 2, 3, 4, 5, 7, 8, 12, 16, 71}) {
      for (const int dim : {4, 64, 80, 128, 192, 256, 320, 512, 576}) {
        for (const DType type : kTypes) {
          if (!fits(type, dim) || (dim > 512 && type == DType::F32)) continue;
          for (const int tokens : {1, 4, 33, 512}) {
            const int bytes = cuda::cache_row_bytes(type, dim);
            REQUIRE(bytes == static_cast<int>(TensorType{type, {dim}}.bytes()));
            const cuda::AttendWork work{.group = group,
                                        .kv_heads = 8,
                                        .k_row_bytes = bytes,
                                        .v_row_bytes = bytes,
                                        .widest_head = dim,
                                        .tokens = tokens,
                                        .max_positions = 131072,
                                        .multiprocessors = 132,
                                        .shared_limit = limit};
            const cuda::AttendPlan p = cuda::plan_attend(work);
            INFO(group << " heads of " << dim << " " << name(type) << ", " << tokens << " tokens");
            const bool elements = bytes <= 2 * dim && !info(type).quantized();
            const bool own = elements && (dim == 64 || dim == 128 || dim == 256);
            if (own || (type == DType::Q8_0 && (dim == 64 || dim == 128))) {
              const cuda::AttendPlan t = cuda::plan_attend_by_tensor_cores(work);
              CHECK((t.tiles > 0 || limit < 232448));
              if (t.tiles > 0) CHECK(t.shared_bytes() <= limit);
              CHECK(t.head_tiles * t.tile_heads >= group);
              CHECK(t.scratch_bytes() <= std::size_t{128} << 20);
            }
            CHECK(std::has_single_bit(static_cast<unsigned>(p.stripes)));
            CHECK(p.splits <= p.stripes);
            CHECK(p.shared_bytes() <= limit);
            CHECK(p.stage_bytes % 16 == 0);
            CHECK(p.stage_bytes >= p.stage_rows * bytes + 4);       // so far past a row decode8_q8_0() reads
            CHECK(p.stage_rows * p.lanes >= cuda::kAttendThreads);  // a stage has a row for each group of lanes
            CHECK(p.head_tiles * p.tile_heads >= group);
            CHECK(p.scratch_bytes() <= std::size_t{128} << 20);
          }
        }
      }
    }
  }
}

TEST_CASE("neither a token's kernel nor its stripes depend on the step or on how long a context may be") {
  struct Kind {
    bool tensor_cores;
    int stripes;
    bool operator==(const Kind&) const = default;
  };
  const auto kind_of = [](const cuda::AttendWork& work) {
    const cuda::AttendPlan p = cuda::plan_attend_by_tensor_cores(work);
    return p.tiles > 0 ? Kind{true, p.stripes} : Kind{false, cuda::plan_attend(work).stripes};
  };
  // Compute capability 8.6, 8.9 and 12.0; 8.0; 9.0.
  for (const std::size_t limit : {std::size_t{101376}, std::size_t{166912}, std::size_t{232448}}) {
    for (const DType type : kOwnKernels) {
      for (const int dim : {64, 128, 256}) {
        if (type == DType::Q8_0 && dim == 256) continue;
        const int bytes = cuda::cache_row_bytes(type, dim);
        for (const int kv_heads : {4, 8}) {
          for (int group = 1; group <= 16; ++group) {
            for (const int multiprocessors : {84, 108, 132, 170}) {
              cuda::AttendWork work{.group = group,
                                    .kv_heads = kv_heads,
                                    .k_row_bytes = bytes,
                                    .v_row_bytes = bytes,
                                    .widest_head = dim,
                                    .tokens = 1,
                                    .max_positions = 256,
                                    .multiprocessors = multiprocessors,
                                    .shared_limit = limit};
              const Kind first = kind_of(work);
              for (const std::int64_t positions : {256, 1024, 4096, 131072}) {
                for (int tokens = 1; tokens <= 64; ++tokens) {
                  work.tokens = tokens;
                  work.max_positions = positions;
                  INFO(limit << " bytes, " << multiprocessors << " multiprocessors, " << kv_heads << " times " << group
                             << " heads of " << dim << " " << name(type) << ", " << tokens << " tokens of "
                             << positions);
                  REQUIRE((kind_of(work) == first));
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("stages of the general kernel are whole units of what is copied") {
  for (const DType k : kTypes) {
    for (const DType v : kTypes) {
      for (const int dim : {5, 63, 131, 255, 256}) {
        if (!fits(k, dim) || !fits(v, dim)) continue;
        const cuda::AttendWork work{.group = 4,
                                    .kv_heads = 2,
                                    .k_row_bytes = cuda::cache_row_bytes(k, dim),
                                    .v_row_bytes = cuda::cache_row_bytes(v, dim),
                                    .widest_head = dim,
                                    .max_positions = 4096,
                                    .multiprocessors = 84,
                                    .shared_limit = 101376};
        const cuda::AttendPlan p = cuda::plan_attend(work);
        INFO(name(k) << "/" << name(v) << " heads of " << dim);
        CHECK(p.stage_rows * work.k_row_bytes % 16 == 0);
        CHECK(p.stage_rows * work.v_row_bytes % 16 == 0);
      }
    }
  }
}

TEST_CASE("a token's heads are spread over multiprocessors that are free") {
  cuda::AttendWork work{.group = 8,
                        .kv_heads = 4,
                        .k_row_bytes = 256,
                        .v_row_bytes = 256,
                        .widest_head = 128,
                        .tokens = 1,
                        .max_positions = 4096,
                        .multiprocessors = 132,
                        .shared_limit = 232448};
  const cuda::AttendPlan spread = cuda::plan_attend_by_tensor_cores(work);
  CHECK(spread.head_tiles == 2);
  CHECK(spread.tile_heads == 4);
  CHECK(spread.pairs == 8);
  CHECK(spread.splits == 16);
  work.max_positions = 4097;  // one stripe more
  const cuda::AttendPlan together = cuda::plan_attend_by_tensor_cores(work);
  CHECK(together.head_tiles == 1);
  CHECK(together.tile_heads == 8);
  CHECK(together.stripes == spread.stripes);  // or bits would depend on it
  work.max_positions = 256;
  work.tokens = 16;
  CHECK(cuda::plan_attend_by_tensor_cores(work).head_tiles == 2);
  work.tokens = 17;
  CHECK(cuda::plan_attend_by_tensor_cores(work).head_tiles == 1);
}

TEST_CASE("what a cache cannot be is refused in words") {
  CHECK(cuda::cache_refusal(DType::F16, DType::Q8_0, 128, 128) == nullptr);
  CHECK(cuda::cache_refusal(DType::F32, DType::BF16, 5, 7) == nullptr);
  CHECK(cuda::cache_refusal(DType::F8_E4M3, DType::Q4_0, 7, 32) == nullptr);
  CHECK(cuda::cache_refusal(DType::Q6_K, DType::F16, 256, 256) != nullptr);
  CHECK(cuda::cache_refusal(DType::F16, DType::Q8_0, 128, 40) != nullptr);
  CHECK(cuda::cache_refusal(DType::F16, DType::F16, 512, 512) == nullptr);
  CHECK(cuda::cache_refusal(DType::F16, DType::F16, 576, 512) == nullptr);
  CHECK(cuda::cache_refusal(DType::F32, DType::F16, 576, 512) != nullptr);
  CHECK(cuda::cache_refusal(DType::F16, DType::F16, 800, 512) != nullptr);
}

TEST_CASE("appended rows have the bytes that the host would store") {
  if (no_device()) return;
  for (const HeadShape& shape :
       {HeadShape{2, 2, 64, 32}, HeadShape{3, 3, 128, 96}, HeadShape{1, 1, 5, 7}, HeadShape{2, 2, 20, 8}}) {
    for (const DType k : kTypes) {
      for (const DType v : kTypes) {
        if (!fits(k, shape.dim_k) || !fits(v, shape.dim_v)) continue;
        if (k != v && shape.dim_k == 128) continue;
        Scene s(shape, k, v, {70, 5}, 11);
        std::vector<Token> tokens;
        for (int p = 60; p < 70; ++p) tokens.push_back({0, p});
        tokens.push_back({-1, 0});
        for (int p = 0; p < 5; ++p) tokens.push_back({1, p});
        std::mt19937 bits(7);
        std::vector<float> rows[2];
        for (const bool values : {false, true}) {
          const int dim = values ? shape.dim_v : shape.dim_k;
          const std::size_t width = static_cast<std::size_t>(shape.kv_heads * dim);
          std::vector<float>& x = rows[values ? 1 : 0];
          x = random_floats(tokens.size() * width, bits);
          // Tokens of special values: not numbers, infinite, zero, tiny, beyond F16, of two extremes, halfway.
          const auto token = [&](std::size_t t) { return x.data() + t * width; };
          token(1)[width / 2] = std::numeric_limits<float>::quiet_NaN();
          token(2)[width - 1] = -std::numeric_limits<float>::infinity();
          std::fill_n(token(3), width, 0.0f);
          for (std::size_t i = 0; i < width; ++i) token(4)[i] *= 1e-7f;
          for (std::size_t i = 0; i < width; ++i) token(5)[i] *= 1e38f;
          token(6)[0] = -9.0f, token(6)[1] = 9.0f;
          for (std::size_t i = 0; i < width; ++i) token(7)[i] = static_cast<float>(i % 33) - 16.0f;
          for (std::size_t i = 0; i < width; ++i) token(8)[i] *= 1e-40f;
          token(9)[0] = -std::numeric_limits<float>::quiet_NaN();
          for (std::size_t i = 0; i < width; ++i) token(11)[i] = i % 2 == 0 ? -0.0f : 0.0f;

          std::vector<std::byte>& bytes = values ? s.v_bytes : s.k_bytes;
          std::fill(bytes.begin(), bytes.end(), std::byte{0xa5});
        }
        const DeviceCache cache(s);
        const DeviceStep step(s, tokens);
        const Device<float> kx(rows[0]), vx(rows[1]);
        cuda::append_to_cache(kx.data(), vx.data(), cache.view, step.view(), static_cast<int>(tokens.size()), {});
        for (const bool values : {false, true}) {
          const DType type = values ? v : k;
          const int dim = values ? shape.dim_v : shape.dim_k;
          const std::size_t row_bytes = TensorType{type, {dim}}.bytes();
          std::vector<std::byte>& bytes = values ? s.v_bytes : s.k_bytes;
          for (std::size_t t = 0; t < tokens.size(); ++t) {
            if (tokens[t].sequence < 0) continue;
            for (int h = 0; h < shape.kv_heads; ++h) {
              const float* x = rows[values ? 1 : 0].data() +
                               (t * static_cast<std::size_t>(shape.kv_heads) + static_cast<std::size_t>(h)) *
                                   static_cast<std::size_t>(dim);
              host::store_cache_row(type, x,
                                    bytes.data() + s.row(tokens[t].sequence, tokens[t].position, h) * row_bytes, dim);
            }
          }
          INFO(words(shape, k, v) << (values ? ", values" : ", keys"));
          CHECK((values ? cache.v : cache.k).read() == bytes);
        }
      }
    }
  }
}

TEST_CASE("attention equals its definition: types and heads and dimensions") {
  if (no_device()) return;
  constexpr HeadShape kShapes[] = {{1, 1, 8, 8},     {4, 4, 16, 16},   {6, 2, 20, 20},    {3, 1, 5, 7},
                                   {10, 2, 40, 40},  {7, 1, 64, 64},   {8, 1, 64, 96},    {6, 2, 96, 64},
                                   {4, 2, 128, 128}, {12, 1, 32, 32},  {16, 2, 128, 128}, {2, 2, 80, 80},
                                   {5, 1, 192, 128}, {4, 2, 256, 256}, {12, 1, 128, 128}, {7, 1, 256, 256},
                                   {8, 1, 512, 512}, {4, 2, 320, 512}, {2, 1, 512, 64},   {9, 1, 576, 512}};
  const std::vector<int> lengths = {1, 65, 300};
  for (const HeadShape& shape : kShapes) {
    for (const DType k : kTypes) {
      for (const DType v : kTypes) {
        if (!fits(k, shape.dim_k) || !fits(v, shape.dim_v)) continue;
        if (k != v && shape.dim_k != 96 && shape.dim_k != 40) continue;
        if (cuda::cache_refusal(k, v, shape.dim_k, shape.dim_v) != nullptr) continue;
        const Scene s(shape, k, v, lengths, 21);
        check_attend(s, 0, some_tokens(lengths), ActFormat::F32, 5);
        if (info(k).quantized()) check_attend(s, 0, {{2, 299}}, ActFormat::Q8x32, 6);
      }
    }
  }
}

TEST_CASE("attention equals its definition: caps of scores") {
  if (no_device()) return;
  const std::vector<int> lengths = {1, 65, 300};
  for (const HeadShape& shape : {HeadShape{8, 2, 64, 64}, {4, 1, 128, 128}, {4, 2, 256, 256}, {3, 1, 40, 40}}) {
    for (const DType type : kTypes) {
      if (!fits(type, shape.dim_k)) continue;
      const Scene s(shape, type, type, lengths, 25);
      for (const float cap : {1.5f, 50.0f}) check_attend(s, 0, some_tokens(lengths), ActFormat::F32, 5, cap);
    }
  }
}

TEST_CASE("attention equals its definition: ALiBi") {
  if (no_device()) return;
  const std::vector<int> lengths = {1, 63, 300, 700};
  for (const HeadShape shape :
       {HeadShape{8, 8, 64, 64}, HeadShape{6, 1, 128, 128}, HeadShape{12, 2, 40, 40}, HeadShape{4, 2, 512, 512}}) {
    for (const DType type : {DType::F16, DType::Q8_0}) {
      if (type == DType::Q8_0 && shape.dim_k % 32 != 0) continue;
      const Scene s(shape, type, type, lengths, 44);
      for (const float bias : {8.0f, 3.0f}) check_attend(s, 0, some_tokens(lengths), ActFormat::F32, 12, 0, {}, bias);
      check_attend(s, 70, some_tokens(lengths), ActFormat::F32, 13, 20, {}, 8);
    }
  }
}

TEST_CASE("attention equals its definition: windows") {
  if (no_device()) return;
  const std::vector<int> lengths = {40, 64, 700, 1300};
  for (const DType type : kOwnKernels) {
    for (const int dim : {32, 64}) {
      const Scene s({4, 2, dim, dim}, type, type, lengths, 31);
      for (const int window : {1, 20, 64, 100, 257, 600, 1299, 1300, 5000}) {
        check_attend(s, window, some_tokens(lengths), ActFormat::F32, 8);
        check_attend(s, {window, KeyWindow::Form::Chunked}, some_tokens(lengths), ActFormat::F32, 8);
      }
    }
  }
}

TEST_CASE("attention equals its definition: queries of any magnitude, beside each other") {
  if (no_device()) return;
  const std::vector<int> lengths = {400};
  for (const DType type : kOwnKernels) {
    const Scene s({6, 1, 64, 64}, type, type, lengths, 35);
    const DeviceCache cache(s);
    std::mt19937 bits(12);
    const std::vector<float> normal = random_floats(6 * 64, bits, 2.0f);
    for (const float magnitude : {0x1p-120f, 0x1p-30f, 1.0f, 0x1p30f, 0x1p100f}) {
      std::vector<float> q = normal;
      for (float& x : q) x *= magnitude;
      for (int i = 0; i < 64; ++i) q[static_cast<std::size_t>(64 + i)] = i % 2 == 0 ? 0.0f : -0.0f;
      for (int i = 1; i < 64; ++i) q[static_cast<std::size_t>(128 + i)] *= 0x1p-8f;  // one element is most of it
      const float scale = 0.125f / magnitude;
      const std::vector<float> y = run_attend(s, cache, {{0, 399}}, q, {6, scale, 0, ActFormat::F32});
      const std::vector<float> e = expected(s, {0, 399}, q.data(), scale, 0, ActFormat::F32);
      INFO(name(type) << " times " << magnitude);
      CHECK(worst(e, y.data(), f32_limit(64) * largest(e)) <= 1);
    }
  }
}

TEST_CASE("attention equals its definition: every number of E4M3") {
  if (no_device()) return;
  const int length = 700;
  for (const int dim : {20, 64, 80, 128, 256}) {
    Scene s({8, 2, dim, dim}, DType::F8_E4M3, DType::F8_E4M3, {length}, 37);
    std::mt19937 bits(13);
    const auto fill = [&](std::vector<std::byte>& bytes, std::vector<float>& rows) {
      for (int p = 0; p < length; ++p) {
        for (int h = 0; h < 2; ++h) {
          const std::size_t begin = s.row(0, p, h) * static_cast<std::size_t>(dim);
          for (std::size_t i = begin; i < begin + static_cast<std::size_t>(dim); ++i) {
            bytes[i] = static_cast<std::byte>(bits() % 0x7f | (bits() % 2) << 7);
            rows[i] = test::e4m3_value(static_cast<std::uint8_t>(bytes[i]));
          }
        }
      }
    };
    fill(s.k_bytes, s.k_rows);
    fill(s.v_bytes, s.v_rows);
    const DeviceCache cache(s);
    const std::vector<float> q = random_floats(static_cast<std::size_t>(8 * dim), bits, 2.0f);
    const float scale = 0.01f / std::sqrt(static_cast<float>(dim));  // their root mean square is about 100
    const std::vector<float> y = run_attend(s, cache, {{0, length - 1}}, q, {8, scale, 0, ActFormat::F32});
    const std::vector<float> e = expected(s, {0, length - 1}, q.data(), scale, 0, ActFormat::F32);
    INFO("heads of " << dim);
    CHECK(worst(e, y.data(), f32_limit(dim) * largest(e)) <= 1);
  }
}

TEST_CASE("attention equals its definition: deep") {
  if (no_device()) return;
  const std::vector<int> lengths = {3000, 256, 257, 512, 1025};
  for (const DType type : {DType::F32, DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
    check_attend(Scene({8, 2, 64, 64}, type, type, lengths, 41), 0, some_tokens(lengths), ActFormat::F32, 9);
  }
  const std::vector<int> groups = {9000, 8192, 8193};  // more chunks than stripes
  check_attend(Scene({2, 1, 16, 16}, DType::F16, DType::F16, groups, 42), 0, some_tokens(groups), ActFormat::F32, 10);
  check_attend(Scene({2, 1, 16, 16}, DType::F16, DType::F16, groups, 42), 5000, some_tokens(groups), ActFormat::F32,
               10);
  check_attend(Scene({2, 1, 64, 64}, DType::F16, DType::F16, groups, 43), 0, some_tokens(groups), ActFormat::F32, 11);
  check_attend(Scene({2, 1, 64, 64}, DType::F16, DType::F16, groups, 43), 8500, some_tokens(groups), ActFormat::F32,
               11);
}

TEST_CASE("a token's bits depend neither on the step around it nor on how its keys are divided") {
  if (no_device()) return;
  // 4 heads of a CTA; then 8, which one token of at most 4,096 positions has in two CTAs of 4.
  const std::vector<std::pair<HeadShape, std::vector<int>>> scenes = {{{16, 4, 128, 128}, {100, 256, 700, 9000}},
                                                                      {{32, 4, 128, 128}, {100, 256, 700, 4000}}};
  for (const auto& [type, scene] : {std::pair{DType::F16, 0},
                                    {DType::F8_E4M3, 0},
                                    {DType::Q8_0, 0},
                                    {DType::F16, 1},
                                    {DType::F8_E4M3, 1},
                                    {DType::Q8_0, 1}}) {
    const auto& [shape, lengths] = scenes[static_cast<std::size_t>(scene)];
    INFO(name(type) << ", " << shape.heads << " heads");
    const Scene s(shape, type, type, lengths, 51);
    const Scene vast(shape, type, type, lengths, 51, 1 << 17);  // partial results of all its chunks would be too many
    std::vector<Token> tokens;
    for (int i = 0; i < 4; ++i) tokens.push_back({i, lengths[static_cast<std::size_t>(i)] - 1});
    std::mt19937 bits(3);
    const std::size_t q_row = static_cast<std::size_t>(shape.heads * shape.dim_k), y_row = q_row;
    const std::vector<float> q = random_floats(tokens.size() * q_row, bits, 2.0f);
    const cuda::AttentionShape attention{shape.heads, 0.09f, 0, ActFormat::F32};
    const DeviceCache cache(s), vast_cache(vast);
    REQUIRE(s.k_bytes == vast.k_bytes);
    const std::vector<float> together = run_attend(s, cache, tokens, q, attention);

    const auto same = [&](std::size_t t, const float* y) {
      return std::memcmp(together.data() + t * y_row, y, y_row * sizeof(float)) == 0;
    };
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::vector<float> own(q.begin() + static_cast<std::ptrdiff_t>(t * q_row),
                                   q.begin() + static_cast<std::ptrdiff_t>((t + 1) * q_row));
      CHECK(same(t, run_attend(s, cache, {tokens[t]}, own, attention).data()));
    }
    std::vector<Token> padded = tokens;  // so many that no token is divided
    padded.resize(200, {-1, 0});
    std::vector<float> padded_q = q;
    padded_q.resize(padded.size() * q_row, 0.0f);
    const std::vector<float> undivided = run_attend(s, cache, padded, padded_q, attention);
    const std::vector<float> by_groups = run_attend(vast, vast_cache, tokens, q, attention);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      CHECK(same(t, undivided.data() + t * y_row));
      CHECK(same(t, by_groups.data() + t * y_row));
    }
  }
}

TEST_CASE("rows that a step appends are seen by its tokens, whatever is copied before they are written") {
  if (no_device()) return;
  for (const DType type : kOwnKernels) {
    for (const int n : {1, 5}) {
      for (const int length : {5, 40, 64, 300, 1025}) {
        const HeadShape shape{8, 2, 64, 64};
        Scene s(shape, type, type, {length, 700}, 91);
        std::vector<Token> tokens;
        for (int i = 0; i < n; ++i) tokens.push_back({0, length - n + i});
        const std::size_t row_bytes = TensorType{type, {64}}.bytes();
        for (const Token& t : tokens) {
          for (int h = 0; h < shape.kv_heads; ++h) {
            const std::size_t at = s.row(0, t.position, h) * row_bytes;
            std::fill_n(s.k_bytes.data() + at, row_bytes, std::byte{0xff});
            std::fill_n(s.v_bytes.data() + at, row_bytes, std::byte{0xff});
          }
        }
        std::mt19937 bits(8);
        const std::size_t q_row = 8 * 64, kv_row = 2 * 64, rows = tokens.size();
        const Device<float> q(random_floats(rows * q_row, bits)), k(random_floats(rows * kv_row, bits)),
            v(random_floats(rows * kv_row, bits));
        const Device<float> y(poison(rows * q_row)), again(poison(rows * q_row)), other(poison(rows * q_row));
        const DeviceCache cache(s);
        const DeviceStep step(s, tokens), before(s, std::vector<Token>(rows, Token{1, 699}));
        const cuda::AttentionShape attention{shape.heads, 0.1f, 0, ActFormat::F32};
        const std::int64_t most = std::int64_t{s.stride} * 64;
        const cuda::AttentionMemory need = cuda::attention_memory(cache.view, attention, n, most);
        const Device<std::byte> scratch(std::vector<std::byte>(need.scratch, std::byte{0xff}));
        const Device<std::byte> arrivals(std::vector<std::byte>(need.arrivals, std::byte{0}));
        const cuda::Stream stream;
        const cuda::Launch at{stream.get(), true};
        const auto run = [&](const DeviceStep& of, const Device<float>& to) {
          cuda::attend(q.data(), to.data(), cache.view, attention, of.view(), n, most, scratch.data(), arrivals.data(),
                       at);
        };
        run(before, other);  // what is appended waits for it, what is attended begins meanwhile
        cuda::append_to_cache(k.data(), v.data(), cache.view, step.view(), n, at);
        run(step, y);
        stream.synchronize("attending");
        run(step, again);
        stream.synchronize("attending");
        const std::vector<float> first = y.read(), second = again.read();
        INFO(name(type) << ", " << n << " of " << length);
        CHECK(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)) == 0);
        CHECK(std::none_of(first.begin(), first.end(), [](float x) { return std::isnan(x); }));
      }
    }
  }
}

TEST_CASE("a key or value that is not a number shows in what sees it and nowhere else") {
  if (no_device()) return;
  for (const DType type : {DType::F32, DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
    for (const bool values : {false, true}) {
      const int dim = 64;
      const std::size_t heads = 2, width = heads * dim;
      const HeadShape shape{2, 1, dim, dim};
      Scene s(shape, type, type, {600}, 61);
      const std::size_t row_bytes = TensorType{type, {dim}}.bytes(), bad = s.row(0, 290, 0);
      std::vector<float> x(dim, 1.0f);
      x[3] = std::numeric_limits<float>::quiet_NaN();
      host::store_cache_row(type, x.data(), (values ? s.v_bytes : s.k_bytes).data() + bad * row_bytes, dim);
      const DeviceCache cache(s);
      const std::vector<Token> tokens = {{0, 289}, {0, 290}, {0, 599}};
      std::mt19937 bits(4);
      const std::vector<float> y =
          run_attend(s, cache, tokens, random_floats(3 * width, bits), {shape.heads, 0.2f, 0, ActFormat::F32});
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t d = i % dim;  // of a key, all; of a value, the element or its block
        const bool shows = !values || d == 3 || (type == DType::Q8_0 && d < 32);
        CHECK(std::isnan(y[i]) == (i >= width && shows));
      }
    }
  }
}

TEST_CASE("prompts on tensor cores equal the definition within rounding: heads and types") {
  if (no_device()) return;
  // A whole prompt, one that continues, a single token, one that ends with a block.
  const std::vector<int> lengths = {70, 400, 1, 128};
  const std::vector<cuda::PromptSpan> spans = {{0, 70, 0, 0}, {75, 67, 333, 1}, {70, 1, 0, 2}, {150, 30, 98, 3}};
  constexpr HeadShape kShapes[] = {{4, 1, 64, 64},   {7, 1, 64, 64},    {10, 2, 80, 80},
                                   {3, 1, 96, 96},   {2, 2, 112, 112},  {8, 2, 128, 128},
                                   {5, 1, 128, 128}, {16, 2, 192, 192}, {6, 2, 256, 256}};
  for (const HeadShape& shape : kShapes) {
    for (const DType k : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q4_0, DType::Q5_1}) {
      for (const DType v : {DType::F16, DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
        if (!fits(k, shape.dim_k) || !fits(v, shape.dim_v) || (k == DType::BF16) != (v == DType::BF16)) continue;
        if (k != v && shape.dim_k != 128) continue;
        check_prompt(Scene(shape, k, v, lengths, 71), 0, ActFormat::F32, spans);
      }
    }
  }
  check_prompt(Scene({4, 1, 64, 64}, DType::Q8_0, DType::Q8_0, lengths, 72), 0, ActFormat::Q8x32, spans);
}

TEST_CASE("prompts on tensor cores equal the definition within rounding: caps of scores") {
  if (no_device()) return;
  for (const DType type : {DType::F16, DType::BF16, DType::Q8_0}) {
    for (const int dim : {64, 128, 256}) {
      const Scene s({4, 2, dim, dim}, type, type, {200}, 45);
      for (const float cap : {1.5f, 50.0f}) check_prompt(s, 0, ActFormat::F32, {{0, 150, 50, 0}}, cap);
    }
  }
}

TEST_CASE("prompts on tensor cores equal the definition within rounding: windows and many spans") {
  if (no_device()) return;
  const std::vector<int> lengths = {500};
  const Scene s({4, 2, 64, 64}, DType::F16, DType::F16, lengths, 81);
  for (const int window : {1, 20, 64, 100, 300, 1000}) {
    check_prompt(s, window, ActFormat::F32, {{0, 90, 0, 0}, {90, 200, 300, 0}});
    check_prompt(s, {window, KeyWindow::Form::Chunked}, ActFormat::F32, {{0, 90, 0, 0}, {90, 200, 300, 0}});
  }
  std::vector<cuda::PromptSpan> spans;
  for (int i = 0; i < 150; ++i) spans.push_back({3 * i, 3, 3 * i, 0});
  check_prompt(s, 0, ActFormat::F32, spans);
}

TEST_CASE("prompts go by CTAs of fewer rows where there is no shared memory for more") {
  const auto view = [](DType type, int dim) { return cuda::CacheView{nullptr, nullptr, type, type, 8, dim, dim}; };
  const auto device = [](int bytes) { return cuda::DeviceLimits{.multiprocessors = 132, .block_bytes = bytes}; };
  struct Case {
    DType type;
    int dim, many, few;  // bytes of CTAs of 128 and of 64 rows
  };
  // A row of 128 elements takes 272 bytes: 128 or 64 of queries, two tiles of 64 of keys and of values; where they are
  // decoded, one tile of each and two of raw rows, with 16 bytes behind each.
  for (const Case& c : {Case{DType::F16, 128, 128 * 272 + 256 * 272, 64 * 272 + 256 * 272},
                        Case{DType::BF16, 128, 104448, 87040}, Case{DType::F8_E4M3, 128, 102464, 85056},
                        Case{DType::Q8_0, 128, 104512, 87104}, Case{DType::F16, 64, 55296, 46080}}) {
    INFO(name(c.type) << " of " << c.dim);
    CHECK(cuda::prompt_shared_bytes(view(c.type, c.dim), 128) == c.many);
    CHECK(cuda::prompt_shared_bytes(view(c.type, c.dim), 64) == c.few);
    for (const int bytes : {101376, 166912, 232448}) {
      const int expected = c.many <= bytes ? 128 : 64;
      CHECK(cuda::prompt_rows(view(c.type, c.dim), 132, device(bytes)) == expected);
      CHECK(cuda::prompt_rows(view(c.type, c.dim), 100000, device(bytes)) == expected);
      CHECK(cuda::prompt_rows(view(c.type, c.dim), 131, device(bytes)) == 64);
    }
  }
}

TEST_CASE("a key or value that is not a number shows in prompts") {
  if (no_device()) return;
  for (const DType type : kOwnKernels) {
    for (const bool values : {false, true}) {
      const int dim = 64, heads = 2, n = 100;
      Scene s({heads, 1, dim, dim}, type, type, {n}, 62);
      const std::size_t row_bytes = TensorType{type, {dim}}.bytes(), bad = s.row(0, 70, 0);
      std::vector<float> x(dim, 1.0f);
      x[3] = std::numeric_limits<float>::quiet_NaN();
      host::store_cache_row(type, x.data(), (values ? s.v_bytes : s.k_bytes).data() + bad * row_bytes, dim);
      const DeviceCache cache(s);
      const DeviceStep step(s, {});
      std::mt19937 bits(4);
      const Device<float> q(random_floats(std::size_t{n} * heads * dim, bits)), y(poison(std::size_t{n} * heads * dim));
      const cuda::PromptSpan span{0, n, 0, 0};
      cuda::attend_prompt(q.data(), y.data(), cache.view, {heads, 0.2f, 0, ActFormat::F32}, step.view(), &span, 1, {});
      const std::vector<float> found = y.read();
      INFO(name(type) << (values ? ", values" : ", keys"));
      // It may show in the tokens before, too, that share its CTA: whose 128 or 64 rows are tokens from 64 on.
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::size_t position = i / (heads * dim), d = i % dim;
        if (position >= 70 && (!values || d == 3)) REQUIRE(std::isnan(found[i]));
        if (position < 64) REQUIRE_FALSE(std::isnan(found[i]));
      }
    }
  }
}

TEST_CASE("caches that the prompt kernel does not take are refused in words") {
  if (no_device()) return;
  const auto refused = [](DType k, DType v, int dim_k, int dim_v) {
    return cuda::prompt_attention_refusal({nullptr, nullptr, k, v, 2, dim_k, dim_v}) != nullptr;
  };
  CHECK_FALSE(refused(DType::F16, DType::Q8_0, 128, 128));
  CHECK(refused(DType::F32, DType::F32, 128, 128));
  CHECK(refused(DType::F16, DType::BF16, 128, 128));
  CHECK(refused(DType::F8_E4M3, DType::BF16, 128, 128));
  CHECK(refused(DType::F16, DType::F16, 128, 64));
  CHECK(refused(DType::F16, DType::F16, 40, 40));
}
