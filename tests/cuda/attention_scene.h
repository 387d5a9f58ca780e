// Scenes of attention over a paged cache for the tests of its kernels, the scalar definition in double, and how far
// from it results may be.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/host/ops.h"
#include "support/catch.h"
#include "tensor/activation.h"
#include "tensor/decode.h"

namespace llm::attention_test {

inline bool no_device() {
  int n = 0;
  if (cudaGetDeviceCount(&n) == cudaSuccess && n > 0) return false;
  std::cout << "SKIPPED: no CUDA device\n";
  return true;
}

template <class T>
class Device {
 public:
  explicit Device(const std::vector<T>& values)
      : size_(values.size()), memory_(std::max<std::size_t>(1, size_ * sizeof(T))) {
    cuda::copy_to_device(memory_.data(), values.data(), size_ * sizeof(T), "copying");
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    cuda::check_cuda(cudaDeviceSynchronize(), "running");
    cuda::check_cuda(cudaMemcpy(values.data(), memory_.data(), size_ * sizeof(T), cudaMemcpyDeviceToHost), "copying");
    return values;
  }

 private:
  std::size_t size_;
  cuda::DeviceBuffer memory_;
};

inline std::vector<float> random_floats(std::size_t n, std::mt19937& bits, float deviation = 1.0f) {
  std::vector<float> values(n);
  for (float& v : values) {
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(bits() >> 8) * 0x1p-24f;
    v = sum * deviation;
  }
  return values;
}
inline std::vector<float> poison(std::size_t n) { return std::vector<float>(n, std::bit_cast<float>(0xffffffffu)); }

struct HeadShape {
  int heads, kv_heads, dim_k, dim_v;
};
inline std::string words(const HeadShape& s, DType k, DType v) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " + std::to_string(s.dim_k) + "/" +
         std::to_string(s.dim_v) + " " + std::string(name(k)) + "/" + std::string(name(v));
}
inline bool fits(DType t, int dim) { return dim % static_cast<int>(info(t).block_elems) == 0; }

/// Sequences of given lengths over a paged cache with scattered blocks. Positions that no sequence has are NaN.
struct Scene {
  HeadShape shape;
  DType k_type, v_type;
  std::vector<int> lengths;
  int stride = 0;
  std::vector<std::int32_t> table;
  std::vector<float> k_rows, v_rows;  ///< as stored, decoded, in the cache's layout
  std::vector<std::byte> k_bytes, v_bytes;
  bool values_in_keys = false;

  Scene(const HeadShape& s, DType k, DType v, std::vector<int> n, std::uint32_t seed, int table_stride = 0)
      : shape(s), k_type(k), v_type(v), lengths(std::move(n)) {
    std::mt19937 bits(seed);
    for (const int length : lengths) stride = std::max(stride, (length + 63) / 64);
    const int used = stride;
    stride = std::max(stride, table_stride);
    const int sequences = static_cast<int>(lengths.size());
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(sequences * used + 3));
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
    for (std::size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[bits() % i]);
    table.assign(static_cast<std::size_t>(sequences * stride), 0);
    for (int i = 0; i < sequences; ++i) {
      for (int b = 0; b < used; ++b)
        table[static_cast<std::size_t>(i * stride + b)] = blocks[static_cast<std::size_t>(i * used + b)];
    }
    fill(k_type, shape.dim_k, blocks.size(), bits, k_rows, k_bytes);
    fill(v_type, shape.dim_v, blocks.size(), bits, v_rows, v_bytes);
  }

  /// Values become the first elements of keys, and what has been theirs is spoilt.
  void put_values_in_keys() {
    values_in_keys = true;
    const auto k = static_cast<std::size_t>(shape.dim_k), v = static_cast<std::size_t>(shape.dim_v);
    for (std::size_t r = 0; r < v_rows.size() / v; ++r) std::copy_n(k_rows.data() + r * k, v, v_rows.data() + r * v);
    std::fill(v_bytes.begin(), v_bytes.end(), std::byte{0xff});
  }

  std::size_t row(int sequence, int position, int kv_head) const {
    const std::int32_t block = table[static_cast<std::size_t>(sequence * stride + position / 64)];
    return (static_cast<std::size_t>(block) * static_cast<std::size_t>(shape.kv_heads) +
            static_cast<std::size_t>(kv_head)) *
               64 +
           static_cast<std::size_t>(position % 64);
  }

  void fill(DType type, int dim, std::size_t blocks, std::mt19937& bits, std::vector<float>& rows,
            std::vector<std::byte>& bytes) const {
    const std::size_t n = blocks * static_cast<std::size_t>(shape.kv_heads) * 64;
    const std::size_t row_bytes = TensorType{type, {dim}}.bytes(), width = static_cast<std::size_t>(dim);
    bytes.assign(n * row_bytes, std::byte{0xff});
    rows = poison(n * width);
    for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
      for (int p = 0; p < lengths[static_cast<std::size_t>(s)]; ++p) {
        for (int h = 0; h < shape.kv_heads; ++h) {
          const std::size_t r = row(s, p, h);
          const std::vector<float> x = random_floats(width, bits);
          host::store_cache_row(type, x.data(), bytes.data() + r * row_bytes, dim);
          decode(type, bytes.data() + r * row_bytes, rows.data() + r * width, dim);
        }
      }
    }
  }
};

struct Token {
  int sequence, position;
};

/// Neighbours of one sequence, whose positions ascend by one.
inline std::vector<cuda::PromptSpan> spans_of(const std::vector<Token>& tokens) {
  std::vector<cuda::PromptSpan> spans;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto [sequence, position] = tokens[t];
    if (sequence < 0) continue;
    const bool goes_on = t > 0 && tokens[t - 1].sequence == sequence && tokens[t - 1].position + 1 == position;
    if (goes_on)
      ++spans.back().n_tokens;
    else
      spans.push_back({static_cast<std::int32_t>(t), 1, position, sequence});
  }
  return spans;
}

inline int first_seen(const KeyWindow& window, int position) {
  if (window.form == KeyWindow::Form::Chunked) return position - position % window.length;
  return window.length > 0 ? std::max(0, position - window.length + 1) : 0;
}

/// y of one token by the scalar definition; `q` [heads][dim_k]. With `magnitudes` values and results are absolute: what
/// errors of weights are multiplied with.
inline std::vector<float> expected(const Scene& s, const Token& t, const float* q, float scale, const KeyWindow& window,
                                   ActFormat format, bool magnitudes = false, float soft_cap = 0,
                                   const std::vector<float>& sinks = {}, float max_bias = 0) {
  const HeadShape& shape = s.shape;
  std::vector<float> y(static_cast<std::size_t>(shape.heads * shape.dim_v));
  std::vector<float> query(static_cast<std::size_t>(shape.dim_k)), values;
  std::vector<double> sums(static_cast<std::size_t>(shape.dim_v));
  if (magnitudes) {
    values = s.v_rows;
    for (float& v : values) v = std::fabs(v);
  }
  for (int h = 0; h < shape.heads; ++h) {
    host::AttentionHead a;
    round_trip_activation(info(s.k_type).quantized() ? format : ActFormat::F32, q + h * shape.dim_k, query.data(),
                          shape.dim_k);
    a.q = query.data();
    a.y = y.data() + h * shape.dim_v;
    a.k = {reinterpret_cast<const std::byte*>(s.k_rows.data()), DType::F32, shape.kv_heads, shape.dim_k};
    a.v = {reinterpret_cast<const std::byte*>((magnitudes ? values : s.v_rows).data()), DType::F32, shape.kv_heads,
           shape.dim_v};
    a.kv_head = h / (shape.heads / shape.kv_heads);
    a.scale = scale;
    a.soft_cap = soft_cap;
    if (max_bias > 0) a.slope = alibi_slope(max_bias, shape.heads, h);
    if (!sinks.empty()) a.sink = sinks.data() + h;
    a.first_key = first_seen(window, t.position);
    a.end_key = t.position + 1;
    a.blocks = s.table.data() + t.sequence * s.stride;
    host::attention_head<double, host::PlainRow<float>, host::PlainRow<float>>(a, sums.data(), nullptr);
  }
  return y;
}

/// A step on the device.
struct DeviceStep {
  Device<std::int32_t> positions, sequence, slots, table;
  int stride;
  DeviceStep(const Scene& s, const std::vector<Token>& tokens)
      : positions(column(tokens, &Token::position)),
        sequence(column(tokens, &Token::sequence)),
        slots(slots_of(s, tokens)),
        table(s.table),
        stride(s.stride) {}
  cuda::StepView view() const {
    cuda::StepView v;
    v.positions = positions.data();
    v.sequence = sequence.data();
    v.slots = slots.data();
    v.block_table = table.data();
    v.table_stride = stride;
    return v;
  }
  static std::vector<std::int32_t> column(const std::vector<Token>& tokens, int Token::*member) {
    std::vector<std::int32_t> values;
    for (const Token& t : tokens) values.push_back(t.*member);
    return values;
  }
  static std::vector<std::int32_t> slots_of(const Scene& s, const std::vector<Token>& tokens) {
    std::vector<std::int32_t> slots;
    for (const Token& t : tokens) {
      slots.push_back(t.sequence < 0 ? -1
                                     : s.table[static_cast<std::size_t>(t.sequence * s.stride + t.position / 64)] * 64 +
                                           t.position % 64);
    }
    return slots;
  }
};

struct DeviceCache {
  Device<std::byte> k, v;
  cuda::CacheView view;
  explicit DeviceCache(const Scene& s)
      : k(s.k_bytes), v(s.v_bytes), view{k.data(),         v.data(),      s.k_type,      s.v_type,
                                         s.shape.kv_heads, s.shape.dim_k, s.shape.dim_v, s.values_in_keys} {}
};

inline std::vector<float> run_attend(const Scene& s, const DeviceCache& cache, const std::vector<Token>& tokens,
                                     const std::vector<float>& q, const cuda::AttentionShape& shape) {
  const DeviceStep step(s, tokens);
  const Device<float> queries(q), y(poison(tokens.size() * static_cast<std::size_t>(s.shape.heads * s.shape.dim_v)));
  const int n = static_cast<int>(tokens.size());
  const std::int64_t most = std::int64_t{s.stride} * 64;
  const cuda::AttentionMemory need = cuda::attention_memory(cache.view, shape, n, most);
  const Device<std::byte> scratch(std::vector<std::byte>(need.scratch, std::byte{0xff}));
  const Device<std::byte> arrivals(std::vector<std::byte>(need.arrivals, std::byte{0}));
  cuda::attend(queries.data(), y.data(), cache.view, shape, step.view(), n, most, scratch.data(), arrivals.data(), {});
  const std::vector<float> result = y.read();
  const std::vector<std::byte> left = arrivals.read();
  CHECK(std::all_of(left.begin(), left.end(), [](std::byte b) { return b == std::byte{0}; }));
  return result;
}

inline double largest(const std::vector<float>& x) {
  double most = 0;
  for (const float v : x) most = std::max(most, std::fabs(static_cast<double>(v)));
  return most;
}

/// The bound of the table of operations: a score's error of eps |q||k| becomes a relative error of its weight.
inline double f32_limit(int dim_k) {
  return (4 * std::sqrt(16.0 * dim_k) + 16) * std::numeric_limits<float>::epsilon();
}

/// Largest difference over the bound; infinite where something is not a number.
inline double worst(const std::vector<float>& expected, const float* actual, double limit) {
  double most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = std::fabs(static_cast<double>(expected[i]) - static_cast<double>(actual[i]));
    if (!(d <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    most = std::max(most, d / limit);
  }
  return most;
}

inline void check_attend(const Scene& s, const KeyWindow& window, const std::vector<Token>& tokens, ActFormat format,
                         std::uint32_t seed, float soft_cap = 0, const std::vector<float>& sinks = {},
                         float max_bias = 0) {
  std::mt19937 bits(seed);
  const float scale = 1 / std::sqrt(static_cast<float>(s.shape.dim_k));
  const std::size_t q_row = static_cast<std::size_t>(s.shape.heads * s.shape.dim_k);
  const std::size_t y_row = static_cast<std::size_t>(s.shape.heads * s.shape.dim_v);
  const std::vector<float> q = random_floats(tokens.size() * q_row, bits, 2.0f);
  const DeviceCache cache(s);
  const Device<float> of_heads(sinks);
  const cuda::AttentionShape shape{.heads = s.shape.heads,
                                   .scale = scale,
                                   .window = window,
                                   .query = format,
                                   .sinks = sinks.empty() ? nullptr : of_heads.data(),
                                   .soft_cap = soft_cap,
                                   .max_bias = max_bias};
  const std::vector<float> y = run_attend(s, cache, tokens, q, shape);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t].sequence < 0) continue;
    const std::vector<float> e =
        expected(s, tokens[t], q.data() + t * q_row, scale, window, format, false, soft_cap, sinks, max_bias);
    INFO(words(s.shape, s.k_type, s.v_type) << " cap " << soft_cap << " bias " << max_bias << " window "
                                            << window.length << ", token " << t << " at " << tokens[t].position);
    CHECK(worst(e, y.data() + t * y_row, f32_limit(s.shape.dim_k) * largest(e)) <= 1);
  }
}

/// The last token of each sequence and some before.
inline std::vector<Token> some_tokens(const std::vector<int>& lengths) {
  std::vector<Token> tokens;
  for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
    const int n = lengths[static_cast<std::size_t>(s)];
    for (int back : {0, 1, n / 2}) {
      if (back < n && (back == 0 || back != n / 2 || n / 2 > 1)) tokens.push_back({s, n - 1 - back});
    }
  }
  tokens.insert(tokens.begin() + 1, Token{-1, 0});
  return tokens;
}

inline float rounded(float x, bool bfloat16) { return bfloat16 ? to_float(to_bfloat16(x)) : to_float(to_half(x)); }

/// The prompt kernel rounds queries and what it decodes to F16 (or all is BF16): the reference gets these values. What
/// is left is the rounding of the weights p, by 2^-11 of themselves or 2^-25 where they are small (BF16: 2^-8, 0), and
/// of f32 sums, which tensor cores truncate: for every result
///   |y - reference| <= u sum(p |v|) / sum(p) + 2^-25 n max|v| + 4 (bound of attend())
/// since sum(p) >= 1, the weights being relative to the largest.
inline void check_prompt(const Scene& s, const KeyWindow& window, ActFormat format,
                         const std::vector<cuda::PromptSpan>& spans, float soft_cap = 0,
                         const std::vector<float>& sinks = {}) {
  std::mt19937 bits(99);
  const bool bfloat16 = s.k_type == DType::BF16;
  const float scale = 1 / std::sqrt(static_cast<float>(s.shape.dim_k));
  std::size_t tokens = 0;
  for (const cuda::PromptSpan& span : spans) {
    tokens = std::max(tokens, static_cast<std::size_t>(span.first_token + span.n_tokens));
  }
  const std::size_t q_row = static_cast<std::size_t>(s.shape.heads * s.shape.dim_k);
  const std::size_t y_row = static_cast<std::size_t>(s.shape.heads * s.shape.dim_v);
  const std::vector<float> q = random_floats(tokens * q_row, bits, 2.0f);
  const DeviceCache cache(s);
  if (const char* refusal = cuda::prompt_attention_refusal(cache.view)) {  // GPUs with 99 KB of shared memory
    WARN(words(s.shape, s.k_type, s.v_type) << ": " << refusal);
    return;
  }
  const DeviceStep step(s, {});
  const Device<float> queries(q), y(poison(tokens * y_row));
  const Device<float> of_heads(sinks);
  const cuda::AttentionShape shape{.heads = s.shape.heads,
                                   .scale = scale,
                                   .window = window,
                                   .query = format,
                                   .sinks = sinks.empty() ? nullptr : of_heads.data(),
                                   .soft_cap = soft_cap};
  cuda::attend_prompt(queries.data(), y.data(), cache.view, shape, step.view(), spans.data(),
                      static_cast<int>(spans.size()), {});
  const std::vector<float> result = y.read();
  // So many more that CTAs take twice as many rows, which must not show.
  std::vector<cuda::PromptSpan> repeated;
  for (int i = 0; i <= cuda::device_limits().multiprocessors; ++i)
    repeated.insert(repeated.end(), spans.begin(), spans.end());
  const Device<float> again(poison(tokens * y_row));
  cuda::attend_prompt(queries.data(), again.data(), cache.view, shape, step.view(), repeated.data(),
                      static_cast<int>(repeated.size()), {});
  const std::vector<float> of_many = again.read();
  REQUIRE(std::memcmp(result.data(), of_many.data(), result.size() * sizeof(float)) == 0);

  Scene exact = s;
  for (float& x : exact.k_rows) x = rounded(x, bfloat16);
  for (float& x : exact.v_rows) x = rounded(x, bfloat16);
  std::vector<float> seen = q;
  if (info(s.k_type).quantized()) round_trip_activation(format, q.data(), seen.data(), std::ssize(q));
  for (float& x : seen) x = rounded(x, bfloat16);
  double most_v = 0;
  for (const float x : exact.v_rows) {
    if (!std::isnan(x)) most_v = std::max(most_v, std::fabs(static_cast<double>(x)));
  }
  const double unit = bfloat16 ? 0x1p-8 : 0x1p-11;
  for (const cuda::PromptSpan& span : spans) {
    for (int t = 0; t < span.n_tokens; ++t) {
      const Token token{span.sequence, span.first_position + t};
      const std::size_t at = static_cast<std::size_t>(span.first_token + t);
      const std::vector<float> e =
          expected(exact, token, seen.data() + at * q_row, scale, window, ActFormat::F32, false, soft_cap, sinks);
      const std::vector<float> magnitude =
          expected(exact, token, seen.data() + at * q_row, scale, window, ActFormat::F32, true, soft_cap, sinks);
      const double rest =
          (bfloat16 ? 0 : 0x1p-25 * (token.position + 1) * most_v) + 4 * f32_limit(s.shape.dim_k) * largest(e);
      double over = 0;
      for (std::size_t i = 0; i < e.size(); ++i) {
        const double d = std::fabs(static_cast<double>(e[i]) - static_cast<double>(result[at * y_row + i]));
        over = std::max(over, std::isnan(d) ? 1e9 : d / (unit * magnitude[i] + rest));
      }
      INFO(words(s.shape, s.k_type, s.v_type)
           << " window " << window.length << ", sequence " << token.sequence << " at " << token.position);
      CHECK(over <= 1);
      if (over > 1) return;
    }
  }
}

}  // namespace llm::attention_test
