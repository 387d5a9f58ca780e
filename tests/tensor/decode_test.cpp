// Decoders against values from another implementation (decode_golden.inc) and, for what that lacks, their definitions.
#include "tensor/decode.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "support/catch.h"
#include "support/e4m3.h"
#include "tensor/blocks.h"

using namespace llm;

namespace {

struct Golden {
  const char* type;
  std::string_view block, values;  ///< hexadecimal, bytes in the order of memory
};
struct Digest {
  const char* type;
  std::uint64_t values;
};
#include "decode_golden.inc"

std::vector<std::byte> from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(16 * digit(hex[2 * i]) + digit(hex[2 * i + 1]));
  }
  return bytes;
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Elements that differ in a bit, any NaN being equal to any other.
std::size_t differences(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool equal = std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]);
    n += equal || (std::isnan(a[i]) && std::isnan(b[i])) ? 0u : 1u;
  }
  return n;
}

std::vector<float> decoded(DType t, const std::byte* src, std::size_t blocks) {
  std::vector<float> y(blocks * info(t).block_elems);
  decode(t, src, y.data(), static_cast<std::int64_t>(y.size()));
  return y;
}

/// stream_blocks() of scripts/decode_cases.py.
std::vector<std::byte> stream_blocks(const DTypeInfo& t) {
  std::vector<std::byte> bytes(65536 / t.block_bytes * t.block_bytes);
  std::uint32_t state = t.gguf_id.value();
  for (std::byte& b : bytes) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

/// digest() of scripts/decode_cases.py.
std::uint64_t digest(const std::vector<float>& values) {
  std::uint64_t state = 0xcbf29ce484222325u;
  for (const float v : values)
    state = (state ^ (std::isnan(v) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(v))) * 0x100000001b3u;
  return state;
}

template <class T>
std::vector<float> decoded_elements(DType t, const std::vector<T>& x) {
  return decoded(t, reinterpret_cast<const std::byte*>(x.data()), x.size());
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), p, p + sizeof value);
}

}  // namespace

TEST_CASE("blocks decode to the published decoder's bits") {
  std::map<std::string_view, int> seen;
  for (const Golden& g : kGolden) {
    const auto t = dtype_from_name(g.type);
    REQUIRE(t.has_value());
    const auto block = from_hex(g.block);
    REQUIRE(block.size() == info(*t).block_bytes);
    const auto expected = floats(from_hex(g.values));
    INFO(g.type << " block " << g.block);
    CHECK(differences(decoded(*t, block.data(), 1), expected) == 0);
    ++seen[g.type];
  }
  CHECK(seen.size() == 25);
  for (const auto& [type, n] : seen) CHECK(n >= 5);
}

TEST_CASE("every row of every grid and every scale decodes to the published decoder's bits") {
  CHECK(std::size(kDigests) == 25);
  for (const Digest& expected : kDigests) {
    INFO(expected.type);
    const DTypeInfo& t = info(*dtype_from_name(expected.type));
    const auto blocks = stream_blocks(t);
    CHECK(digest(decoded(t.dtype, blocks.data(), blocks.size() / t.block_bytes)) == expected.values);
  }
}

TEST_CASE("runs of blocks decode one after the other, at any address") {
  std::map<DType, std::vector<std::byte>> blocks;
  std::map<DType, std::vector<float>> values;
  for (const Golden& g : kGolden) {
    const DType t = *dtype_from_name(g.type);
    const auto block = from_hex(g.block);
    const auto expected = floats(from_hex(g.values));
    blocks[t].insert(blocks[t].end(), block.begin(), block.end());
    values[t].insert(values[t].end(), expected.begin(), expected.end());
  }
  for (const auto& [t, bytes] : blocks) {
    std::vector<std::byte> shifted(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    CHECK(differences(decoded(t, shifted.data() + 1, bytes.size() / info(t).block_bytes), values[t]) == 0);
  }
}

TEST_CASE("every half and bfloat16 decodes to its value") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> halves, bfloats;
  for (const std::uint16_t bits : all) {
    halves.push_back(to_float(Half{bits}));  // half_test.cpp compares these with the definition
    bfloats.push_back(to_float(BFloat16{bits}));
  }
  CHECK(differences(decoded_elements(DType::F16, all), halves) == 0);
  CHECK(differences(decoded_elements(DType::BF16, all), bfloats) == 0);
}

TEST_CASE("every E4M3 decodes to its value") {
  std::vector<std::uint8_t> all(256);
  std::vector<float> values;
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint8_t>(i);
    values.push_back(test::e4m3_value(all[i]));
  }
  CHECK(differences(decoded_elements(DType::F8_E4M3, all), values) == 0);
}

TEST_CASE("floats and integers decode to the nearest f32") {
  const std::vector<float> f32{0.0f, -0.0f, 1.5f, INFINITY, std::numeric_limits<float>::denorm_min(), -3e38f};
  CHECK(differences(decoded_elements(DType::F32, f32), f32) == 0);

  const std::vector<double> f64{1.0, -0.1, 1e300, 0x1.000001p0, 0x1.000003p0, 0x1p-149, 0x1p-151, NAN};
  // Ties to even: 1 + 2^-24 lies between 1 and 1 + 2^-23, 1 + 3 * 2^-24 between 1 + 2^-23 and 1 + 2^-22.
  const std::vector<float> of_f64{1.0f, -0.1f, INFINITY, 1.0f, 0x1.000004p0f, 0x1p-149f, 0.0f, NAN};
  CHECK(differences(decoded_elements(DType::F64, f64), of_f64) == 0);

  CHECK(decoded_elements(DType::I8, std::vector<std::int8_t>{-128, -1, 0, 127}) ==
        std::vector<float>{-128, -1, 0, 127});
  CHECK(decoded_elements(DType::I16, std::vector<std::int16_t>{-32768, 7, 32767}) ==
        std::vector<float>{-32768, 7, 32767});
  CHECK(decoded_elements(DType::I32, std::vector<std::int32_t>{INT32_MIN, 16777217, 16777219, INT32_MAX}) ==
        std::vector<float>{-0x1p31f, 16777216.0f, 16777220.0f, 0x1p31f});
  CHECK(decoded_elements(DType::I64, std::vector<std::int64_t>{INT64_MIN, 16777217, (1ll << 40) + 1, INT64_MAX}) ==
        std::vector<float>{-0x1p63f, 16777216.0f, 0x1p40f, 0x1p63f});
}

TEST_CASE("Q8_1 and Q8_K decode by their definitions") {
  std::vector<std::byte> q8_1;
  append(q8_1, to_half(0.375f));
  append(q8_1, to_half(12345.0f));  // the sum takes no part
  std::vector<float> expected;
  for (int i = 0; i < 32; ++i) {
    const int q = i == 0 ? -128 : 127 - 8 * i;
    append(q8_1, static_cast<std::int8_t>(q));
    expected.push_back(0.375f * static_cast<float>(q));
  }
  REQUIRE(q8_1.size() == info(DType::Q8_1).block_bytes);
  CHECK(decoded(DType::Q8_1, q8_1.data(), 1) == expected);

  std::vector<std::byte> q8_k;
  expected.clear();
  append(q8_k, -1e-30f);
  for (int i = 0; i < 256; ++i) {
    append(q8_k, static_cast<std::int8_t>(i - 128));
    expected.push_back(-1e-30f * static_cast<float>(i - 128));
  }
  for (int i = 0; i < 16; ++i) append(q8_k, std::int16_t{999});
  REQUIRE(q8_k.size() == info(DType::Q8_K).block_bytes);
  CHECK(decoded(DType::Q8_K, q8_k.data(), 1) == expected);
}

TEST_CASE("scales of a byte are half of what the formats define") {
  for (int e = 0; e < 255; ++e) CHECK(e8m0_half(static_cast<std::uint8_t>(e)) == std::ldexp(1.0f, e - 127 - 1));
  CHECK(e8m0_half(255) == 0x1p127f);  // NaN to the OCP format; GGUF's decoders go on counting
  for (int x = 0; x < 256; ++x) {
    const float value = (x & 0x7f) == 0x7f ? 480.0f : std::fabs(test::e4m3_value(static_cast<std::uint8_t>(x)));
    INFO(x);
    CHECK(ue4m3_half(static_cast<std::uint8_t>(x)) == (x == 0x7f ? 0 : value / 2));
  }
}

TEST_CASE("half a block is a bug of the caller") {
  std::byte block[18]{};
  float y[32];
  CHECK_THROWS_AS(decode(DType::Q4_0, block, y, 16), Error);
}
