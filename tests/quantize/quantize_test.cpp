// The searching quantisers: errors beside another implementation's on the same input (peer_error.inc), and what follows
// from the definition of the types: representable input comes back, a block depends on itself alone.
#include "quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "quantize/kernels/kernels.h"
#include "support/catch.h"
#include "tensor/decode.h"

using namespace llm;

namespace {

struct PeerError {
  const char* type;
  double plain, weighted;
};
constexpr PeerError kPeerErrors[] = {
#include "peer_error.inc"
};

DType dtype(const char* name) { return dtype_from_name(name).value(); }

/// The i-th number of SplitMix64 started at 0, as in scripts/make-quantize-golden.
std::uint64_t splitmix(std::uint64_t i) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr std::int64_t kRows = 16, kColumns = 1024;

/// The source of scripts/make-quantize-golden.
std::vector<float> bell_shaped(std::int64_t n = kRows * kColumns) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t z = splitmix(static_cast<std::uint64_t>(i));
    int sum = -131070;
    for (int k = 0; k < 4; ++k) sum += static_cast<int>(z >> (16 * k) & 0xffff);
    x.push_back(static_cast<float>(sum * static_cast<int>(1 + i / 32 % 7)) * 0x1p-20f);
  }
  return x;
}

/// Its importance.
std::vector<float> importance() {
  std::vector<float> w;
  for (std::uint64_t c = 0; c < kColumns; ++c) {
    const double byte = static_cast<double>(splitmix(c + (std::uint64_t{1} << 40)) & 0xff);
    w.push_back(static_cast<float>((byte + 1) * (byte + 1) * 0x1p-8));
  }
  return w;
}

std::vector<std::byte> quantized(DType t, const std::vector<float>& x, std::int64_t n, const float* w = nullptr) {
  std::vector<std::byte> blocks(x.size() / info(t).block_elems * info(t).block_bytes);
  quantize(t, x.data(), blocks.data(), static_cast<std::int64_t>(x.size()) / n, n, w);
  return blocks;
}

std::vector<float> decoded(DType t, const std::vector<std::byte>& blocks) {
  std::vector<float> y(blocks.size() / info(t).block_bytes * info(t).block_elems);
  decode(t, blocks.data(), y.data(), static_cast<std::int64_t>(y.size()));
  return y;
}

double rms_error(const std::vector<float>& x, const std::vector<float>& y, const float* w, std::int64_t n) {
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double off = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    const double weight = w == nullptr ? 1.0 : static_cast<double>(w[static_cast<std::int64_t>(i) % n]);
    sum += weight * off * off;
    weights += weight;
  }
  return std::sqrt(sum / weights);
}

/// Elements of a row that the type can store.
std::int64_t row_of(DType t, int blocks = 1) { return static_cast<std::int64_t>(info(t).block_elems) * blocks; }

}  // namespace

TEST_CASE("every type that weights are stored in has a quantiser") {
  for (const DTypeInfo& t : dtypes()) {
    INFO(t.name);
    const bool wanted = t.quantized() && t.use == DTypeUse::Weight;
    CHECK((quantizers::quantizer_portable(t.dtype) != nullptr) == wanted);
    const bool tested = std::any_of(std::begin(kPeerErrors), std::end(kPeerErrors),
                                    [&](const PeerError& p) { return t.name == p.type; });
    CHECK(tested == wanted);
  }
}

TEST_CASE("the types that need importance are llama.cpp's") {
  std::string names;
  for (const DTypeInfo& t : dtypes()) {
    if (needs_importance(t.dtype)) names += std::string(t.name) + " ";
  }
  CHECK(names == "IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ2_S IQ1_M ");
}

TEST_CASE("errors are at most those of the peer's quantisers") {
  const std::vector<float> x = bell_shaped(), w = importance();
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const DType t = dtype(peer.type);
    const double plain = rms_error(x, decoded(t, quantized(t, x, kColumns)), nullptr, kColumns);
    const double weighted = rms_error(x, decoded(t, quantized(t, x, kColumns, w.data())), w.data(), kColumns);
    CHECK(plain <= 1.02 * peer.plain);
    CHECK(weighted <= 1.02 * peer.weighted);
    CHECK(plain > 0.4 * peer.plain);  // so that a mistake of the test's own is seen
  }
}

TEST_CASE("the shrinking of few bits is undone, or half of it") {
  const std::vector<float> x = bell_shaped(), w = importance();
  const auto shrinking = [&](const char* name) {  // of the elements in their direction, by the energy that is lost
    const std::vector<float> y = decoded(dtype(name), quantized(dtype(name), x, kColumns, w.data()));
    double along = 0, energy = 0, lost = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double weight = w[i % kColumns], from = x[i], to = y[i];
      along += weight * from * to;
      energy += weight * from * from;
      lost += weight * (from - to) * (from - to);
    }
    return (energy - along) / lost;
  };
  CHECK(std::fabs(shrinking("IQ2_S")) < 0.1);
  for (const char* name : {"Q2_K", "Q3_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ3_S"}) {
    INFO(name);
    CHECK(std::fabs(shrinking(name) - 0.5) < 0.1);
  }
}

TEST_CASE("importance moves the error to where it matters less") {
  const std::vector<float> x = bell_shaped(), w = importance();
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const DType t = dtype(peer.type);
    const std::vector<float> plain = decoded(t, quantized(t, x, kColumns));
    const std::vector<float> weighted = decoded(t, quantized(t, x, kColumns, w.data()));
    CHECK(rms_error(x, weighted, w.data(), kColumns) < rms_error(x, plain, w.data(), kColumns));
    CHECK(rms_error(x, plain, nullptr, kColumns) < rms_error(x, weighted, nullptr, kColumns));
  }
}

TEST_CASE("columns that outweigh the others by far leave these near where they were") {
  const std::vector<float> x = bell_shaped();
  std::vector<float> w = importance(), of_rest = w;
  for (std::size_t c = 7; c < kColumns; c += 64) {
    w[c] *= 1e8f;
    of_rest[c] = 0;
  }
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const DType t = dtype(peer.type);
    const std::vector<float> plain = decoded(t, quantized(t, x, kColumns));
    const std::vector<float> weighted = decoded(t, quantized(t, x, kColumns, w.data()));
    CHECK(rms_error(x, weighted, of_rest.data(), kColumns) < 1.5 * rms_error(x, plain, of_rest.data(), kColumns));
    CHECK(rms_error(x, weighted, w.data(), kColumns) < rms_error(x, plain, w.data(), kColumns));
  }
}

TEST_CASE("equal importance is no importance") {
  const std::vector<float> x = bell_shaped();
  const std::vector<float> zero(kColumns, 0.0f), four(kColumns, 4.0f);
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const std::vector<std::byte> none = quantized(dtype(peer.type), x, kColumns);
    CHECK(quantized(dtype(peer.type), x, kColumns, zero.data()) == none);
    CHECK(quantized(dtype(peer.type), x, kColumns, four.data()) == none);
  }
}

TEST_CASE("a block depends on itself alone") {
  const std::vector<float> x = bell_shaped(), w = importance();
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const DType t = dtype(peer.type);
    const std::vector<std::byte> whole = quantized(t, x, kColumns, w.data());
    const std::size_t row_bytes = whole.size() / kRows;
    std::vector<std::byte> parts(whole.size());
    for (std::int64_t first = 0, rows = 1; first < kRows; first += rows, rows = std::min(rows + 1, kRows - first)) {
      quantize(t, x.data() + first * kColumns, parts.data() + static_cast<std::size_t>(first) * row_bytes, rows,
               kColumns, w.data());
    }
    CHECK(parts == whole);
    const std::int64_t n = row_of(t);
    const std::vector<float> last(x.end() - n, x.end());
    const auto alone = quantized(t, last, n, w.data() + kColumns - n);
    // The weights of one block are its own: only their ratios matter.
    CHECK(std::equal(alone.begin(), alone.end(), whole.end() - static_cast<std::ptrdiff_t>(alone.size())));
  }
}

TEST_CASE("every instruction set gives the same bytes") {
  const std::vector<float> x = bell_shaped(3 * kColumns);
  std::vector<float> w = importance();
  for (float& v : w) v *= 0x1p-7f;
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const DType t = dtype(peer.type);
    const std::int64_t per_row = kColumns / info(t).block_elems;
    const auto run = [&](quantizers::BlocksFn f) {
      std::vector<std::byte> blocks(x.size() / info(t).block_elems * info(t).block_bytes);
      f({x.data(), w.data(), 3 * per_row, per_row}, blocks.data());
      return blocks;
    };
    const auto portable = run(quantizers::quantizer_portable(t));
#if defined(LLM_HAS_ISA_avx2)
    if (__builtin_cpu_supports("avx2")) CHECK(run(quantizers::quantizer_avx2(t)) == portable);
#endif
#if defined(LLM_HAS_ISA_avx512)
    if (__builtin_cpu_supports("avx512f")) CHECK(run(quantizers::quantizer_avx512(t)) == portable);
#endif
    CHECK(portable == run(quantizers::quantizer_portable(t)));
  }
}

namespace {

/// Bytes of a block that are not free to be random: `value` at first .. last - 1, or'ed in where a byte is shared.
struct Fixed {
  std::size_t first, last;
  int value;
};
struct ExactCase {
  const char* type;
  std::vector<std::size_t> halves;  ///< get 2^-6
  std::vector<Fixed> fixed = {}, shared = {};
};

// Scales at the end of their range, which fixes the half above them, and in every group of evenly spaced levels those
// at the ends, as quantisers leave it.
const ExactCase kExactCases[] = {
    {"Q4_0", {0}, {{2, 3, 0xf0}}},
    {"Q5_0", {0}, {{6, 7, 0xf0}, {2, 3, 0x00}, {4, 5, 0x01}}},
    {"Q4_1", {0, 2}, {{4, 5, 0xf0}}},
    {"Q5_1", {0, 2}, {{8, 9, 0xf0}, {4, 5, 0x00}, {6, 7, 0x01}}},
    {"Q8_0", {0}, {{2, 3, 0x7f}}},
    {"Q2_K", {80, 82}, {{0, 16, 0xff}}},
    {"Q3_K",
     {108},
     {{96, 108, 0x00}, {0, 1, 0x00}, {16, 17, 0x00}, {32, 33, 0x00}, {48, 49, 0x00}, {64, 65, 0x00}, {80, 81, 0x00}}},
    {"Q4_K",
     {0, 2},
     {{4, 16, 0xff},
      {16, 17, 0x00},
      {48, 49, 0x00},
      {80, 81, 0x00},
      {112, 113, 0x00},
      {17, 18, 0xff},
      {49, 50, 0xff},
      {81, 82, 0xff},
      {113, 114, 0xff}}},
    {"Q5_K",
     {0, 2},
     {{4, 16, 0xff},
      {16, 17, 0x00},
      {17, 18, 0xff},
      {48, 49, 0x00},
      {80, 81, 0x00},
      {112, 113, 0x00},
      {144, 145, 0x00},
      {49, 50, 0xff},
      {81, 82, 0xff},
      {113, 114, 0xff},
      {145, 146, 0xff}}},
    {"Q6_K",
     {208},
     {{192, 208, 0x80},
      {0, 1, 0x00},
      {16, 17, 0x00},
      {32, 33, 0x00},
      {48, 49, 0x00},
      {64, 65, 0x00},
      {80, 81, 0x00},
      {96, 97, 0x00},
      {112, 113, 0x00},
      {128, 129, 0x00},
      {144, 145, 0x00},
      {160, 161, 0x00},
      {176, 177, 0x00}}},
    {"IQ4_NL", {0}, {{2, 3, 0xf0}}},
    {"IQ4_XS",
     {0},
     {{2, 8, 0x00},
      {8, 9, 0x00},
      {24, 25, 0x00},
      {40, 41, 0x00},
      {56, 57, 0x00},
      {72, 73, 0x00},
      {88, 89, 0x00},
      {104, 105, 0x00},
      {120, 121, 0x00}}},
    {"MXFP4", {}, {{0, 1, 0x78}, {1, 2, 0x07}}},
    {"NVFP4", {}, {{0, 4, 0x40}, {4, 5, 0x07}, {12, 13, 0x07}, {20, 21, 0x07}, {28, 29, 0x07}}},
    {"Q1_0", {0}},
    {"Q2_0", {0}},
    {"TQ1_0", {52}},
    {"IQ2_XXS",
     {0},
     {},
     {{9, 10, 0xf0},
      {17, 18, 0xf0},
      {25, 26, 0xf0},
      {33, 34, 0xf0},
      {41, 42, 0xf0},
      {49, 50, 0xf0},
      {57, 58, 0xf0},
      {65, 66, 0xf0}}},
    {"IQ2_XS", {0}, {{66, 74, 0xff}}},
    {"IQ2_S", {0}, {{74, 82, 0xff}}},
    {"IQ3_XXS",
     {0},
     {},
     {{69, 70, 0xf0},
      {73, 74, 0xf0},
      {77, 78, 0xf0},
      {81, 82, 0xf0},
      {85, 86, 0xf0},
      {89, 90, 0xf0},
      {93, 94, 0xf0},
      {97, 98, 0xf0}}},
    {"IQ3_S", {0}, {{106, 110, 0xff}}},
    {"IQ1_S",
     {0},
     {},
     {{35, 36, 0x70},
      {37, 38, 0x70},
      {39, 40, 0x70},
      {41, 42, 0x70},
      {43, 44, 0x70},
      {45, 46, 0x70},
      {47, 48, 0x70},
      {49, 50, 0x70}}},
    {"IQ1_M",
     {},
     {{48, 49, 0xff},
      {49, 50, 0x0f},
      {50, 51, 0xff},
      {51, 52, 0x0f},
      {52, 53, 0xff},
      {53, 54, 0x4f},
      {54, 55, 0xff},
      {55, 56, 0x2f}}},
};

std::vector<std::byte> exact_blocks(const ExactCase& c, DType t, int blocks) {
  std::vector<std::byte> bytes;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(blocks) * info(t).block_bytes; ++i) {
    bytes.push_back(static_cast<std::byte>(splitmix(i + (std::uint64_t{1} << 50)) & 0xff));
  }
  const Half unit = to_half(0x1p-6f);
  for (int b = 0; b < blocks; ++b) {
    std::byte* block = bytes.data() + static_cast<std::size_t>(b) * info(t).block_bytes;
    for (const std::size_t at : c.halves) std::memcpy(block + at, &unit, sizeof unit);
    for (const Fixed& f : c.fixed) std::fill(block + f.first, block + f.last, static_cast<std::byte>(f.value));
    for (const Fixed& f : c.shared) block[f.first] |= static_cast<std::byte>(f.value);
    if (std::string_view(c.type) == "Q8_0") std::replace(block + 2, block + 34, std::byte{0x80}, std::byte{0x81});
  }
  return bytes;
}

}  // namespace

TEST_CASE("what a type can express comes back exactly") {
  constexpr int kBlocks = 8;
  for (const ExactCase& c : kExactCases) {
    INFO(c.type);
    const DType t = dtype(c.type);
    const std::vector<float> x = decoded(t, exact_blocks(c, t, kBlocks));
    const std::vector<float> y = decoded(t, quantized(t, x, row_of(t, kBlocks)));
    CHECK(rms_error(x, y, nullptr, row_of(t)) == 0);
  }
}

TEST_CASE("ternary weights come back exactly") {
  for (const char* name : {"TQ1_0", "TQ2_0", "Q2_0"}) {
    INFO(name);
    std::vector<float> x;
    for (std::uint64_t i = 0; i < 1024; ++i)
      x.push_back(0.0123f * static_cast<float>(static_cast<int>(splitmix(i) % 3) - 1));
    const float stored = to_float(to_half(0.0123f));
    const std::vector<float> y = decoded(dtype(name), quantized(dtype(name), x, 1024));
    for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == (x[i] > 0 ? stored : x[i] < 0 ? -stored : 0.0f));
  }
}

TEST_CASE("zeros stay zeros") {
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const DType t = dtype(peer.type);
    const std::vector<float> x(static_cast<std::size_t>(row_of(t, 3)), -0.0f);
    for (const float y : decoded(t, quantized(t, x, row_of(t)))) REQUIRE(y == 0);
  }
}

TEST_CASE("one constant, tiny and huge values") {
  for (const PeerError& peer : kPeerErrors) {
    const DType t = dtype(peer.type);
    for (const float value : {1.0f, -0.3f, 1e-7f, 1e-30f, 1e-42f, -7e4f, 3e38f, -3.4e38f}) {
      INFO(peer.type << " " << value);
      std::vector<float> x(static_cast<std::size_t>(row_of(t, 2)), value);
      x[1] = -0.5f * value;
      for (const float y : decoded(t, quantized(t, x, row_of(t)))) {
        REQUIRE(std::isfinite(y));
        REQUIRE(std::fabs(y) <= 2 * std::max(std::fabs(value), 0x1p-24f));
      }
    }
  }
}

TEST_CASE("a block of one constant is within a few percent") {
  for (const PeerError& peer : kPeerErrors) {
    INFO(peer.type);
    const DType t = dtype(peer.type);
    const std::vector<float> x(static_cast<std::size_t>(row_of(t, 2)), 0.0371f);
    const double off = rms_error(x, decoded(t, quantized(t, x, row_of(t))), nullptr, row_of(t));
    // The levels of E2M1 are up to a fifth off in between, and MXFP4's scales do not help.
    const double bound = info(t).name == "MXFP4" ? 0.2 : info(t).name == "NVFP4" ? 0.0625 : 0.02;
    CHECK(off < bound * 0.0371);
  }
}

TEST_CASE("types of one element are rounded") {
  const std::vector<float> x = {1.0f, -2.5f, 0.1f, 65504.0f};
  CHECK(decoded(DType::F32, quantized(DType::F32, x, 4)) == x);
  for (const DType t : {DType::F16, DType::BF16}) {
    const std::vector<float> y = decoded(t, quantized(t, x, 4));
    CHECK(y[0] == 1.0f);
    CHECK(y[1] == -2.5f);
    CHECK(y[2] == Approx(0.1f).epsilon(0.01));
  }
}

TEST_CASE("values that cannot be quantised are named") {
  std::vector<float> x(512, 1.0f);
  const auto message = [&](const float* w) {
    try {
      quantized(DType::Q4_K, x, 256, w);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Numeric);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message(nullptr).empty());
  x[256 + 17] = std::numeric_limits<float>::infinity();
  CHECK_THAT(message(nullptr), contains("element 17 of row 1 is inf"));
  x[256 + 17] = 1;
  x[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(message(nullptr), contains("element 3 of row 0 is nan"));
  x[3] = 1;
  std::vector<float> w(256, 1.0f);
  CHECK(message(w.data()).empty());
  w[200] = -1;
  CHECK_THAT(message(w.data()), contains("importance of column 200 is -1"));
  w[200] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(message(w.data()), contains("importance of column 200 is nan"));
}
