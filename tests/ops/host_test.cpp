// Memory, cache, angles and step checks that backends over host memory share.
#include "backend/host/host.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "backend/host/legalize.h"
#include "backend/host/step_check.h"
#include "base/error.h"
#include "graph/builder.h"
#include "support/catch.h"
#include "support/graph_runner.h"

namespace llm::test {
namespace {

ErrorKind kind_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.kind();
  }
  FAIL("nothing was thrown");
  return ErrorKind::Runtime;
}

}  // namespace

TEST_CASE("pages are zero, writable to the last byte and refused where they cannot be") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, std::size_t{5} << 20}) {
    host::Pages pages(bytes);
    REQUIRE(pages.bytes() == bytes);
    CHECK(pages.data()[0] == std::byte{0});
    CHECK(pages.data()[bytes - 1] == std::byte{0});
    std::memset(pages.data(), 0x5a, bytes);
    host::Pages moved = std::move(pages);
    CHECK(pages.data() == nullptr);
    CHECK(moved.data()[bytes - 1] == std::byte{0x5a});
    pages = std::move(moved);
    CHECK(pages.data()[0] == std::byte{0x5a});
  }
  CHECK(host::Pages(0).data() == nullptr);
  CHECK(kind_of([] { const host::Pages pages{std::numeric_limits<std::size_t>::max()}; }) == ErrorKind::Memory);
  CHECK(kind_of([] { const host::Pages pages{std::size_t{1} << 62}; }) == ErrorKind::Memory);
}

TEST_CASE("a slot holds the states of every layer, and nothing of another slot") {
  const std::vector<CacheType> caches{{3, 1, 4, 4}};
  const std::vector<RecurrentType> states{{0, RecurrentType::Part::Conv, {5, 3}},
                                          {0, RecurrentType::Part::Delta, {4, 4, 2}},
                                          {1, RecurrentType::Part::Conv, {5, 3}}};
  host::HostCache store({.caches = caches, .n_blocks = 1, .recurrent = states, .n_slots = 3});
  REQUIRE(store.bytes_per_slot() == (15 + 32 + 15) * sizeof(float));
  std::vector<std::byte> written(store.bytes_per_slot()), read(store.bytes_per_slot());
  for (std::size_t i = 0; i < written.size(); ++i) written[i] = static_cast<std::byte>(1 + i % 251);
  store.write_slot(1, written);
  store.read_slot(1, read);
  CHECK(read == written);
  for (const std::int32_t other : {0, 2}) {
    store.read_slot(other, read);
    CHECK(std::ranges::all_of(read, [](std::byte b) { return b == std::byte{0}; }));
  }
  const std::byte* const second =
      store.recurrent(states[1]) + states[1].bytes();  // of slot 1, behind the convolution's
  CHECK(std::equal(second, second + states[1].bytes(), written.begin() + 15 * sizeof(float)));
  CHECK(kind_of([&] { store.recurrent({2, RecurrentType::Part::Conv, {5, 3}}); }) == ErrorKind::Internal);
  CHECK(kind_of([&] { store.read_slot(3, read); }) == ErrorKind::Internal);
}

TEST_CASE("a step's moves of states name slots that no two sequences write") {
  const std::int32_t tokens[]{1, 2, 3}, positions[]{0, 1, 9};
  const SequenceSpan sequences[]{{0, 2, 2}, {2, 1, 10}};
  Graph graph;
  graph.set_bucket({4, 2, 2});
  graph.add_value({.kind = ValueKind::Recurrent, .name = "state"});
  const auto refused = [&](StateMove first, StateMove second) {
    const StateMove moves[]{first, second};
    StepData step{tokens, positions, sequences, {}, {}};
    step.states = moves;
    try {
      host::StepCheck(graph, 0, 4)(step);
      return false;
    } catch (const Error& e) {
      return e.kind() == ErrorKind::Internal;
    }
  };
  CHECK_FALSE(refused({-1, 0}, {1, 1}));
  CHECK_FALSE(refused({-1, 0}, {1, 3}));
  CHECK(refused({2, 0}, {1, 1}));    // a sequence that begins has none
  CHECK(refused({-1, 0}, {-1, 1}));  // one that goes on has
  CHECK(refused({-1, 0}, {1, 0}));
  CHECK(refused({-1, 1}, {1, 2}));
  CHECK(refused({-1, 4}, {1, 1}));
  CHECK(refused({-1, 0}, {4, 1}));
}

TEST_CASE("a cache block is copied in every layer, keys and values, and nothing else changes") {
  const std::vector<CacheType> types{{0, 2, 4, 3}, {5, 1, 8, 8}};
  host::HostCache cache({.caches = types, .format = {DType::F16, DType::F32}, .n_blocks = 4});
  CHECK(cache.bytes_per_block() == 64 * (2 * (4 * 2 + 3 * 4) + 1 * (8 * 2 + 8 * 4)));
  struct Area {
    std::byte* data;
    std::size_t block_bytes;
  };
  const std::vector<Area> areas{
      {cache.k(0), 64 * 2 * 4 * 2}, {cache.v(0), 64 * 2 * 3 * 4}, {cache.k(5), 64 * 8 * 2}, {cache.v(5), 64 * 8 * 4}};
  for (std::size_t a = 0; a < areas.size(); ++a) {
    for (std::size_t i = 0; i < 4 * areas[a].block_bytes; ++i)
      areas[a].data[i] = static_cast<std::byte>(i * 7 + i / 251 + a);
  }
  std::vector<std::vector<std::byte>> expected;
  for (const Area& area : areas) {
    auto& bytes = expected.emplace_back(area.data, area.data + 4 * area.block_bytes);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(3 * area.block_bytes), area.block_bytes,
                bytes.begin() + static_cast<std::ptrdiff_t>(area.block_bytes));
  }
  cache.copy_block(3, 1);
  for (std::size_t a = 0; a < areas.size(); ++a) {
    CHECK(std::equal(expected[a].begin(), expected[a].end(), areas[a].data));
  }
  CHECK(kind_of([&] { cache.copy_block(4, 0); }) == ErrorKind::Internal);
  CHECK(kind_of([&] { cache.k(1); }) == ErrorKind::Internal);
}

TEST_CASE("a cache gives and takes rows of some positions of all heads") {
  const std::vector<CacheType> types{{0, 3, 4, 2}, {7, 2, 8, 4}};
  host::HostCache cache({.caches = types, .format = {DType::F16, DType::F32}, .n_blocks = 3});
  const auto fill = [](std::byte* data, std::size_t bytes, std::size_t seed) {
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 13 + i / 97 + seed);
  };
  const std::size_t k_row = 8 * 2, v_row = 4 * 4;
  fill(cache.k(7), 3 * 2 * 64 * k_row, 1);
  fill(cache.v(7), 3 * 2 * 64 * v_row, 2);
  const CacheSlice slice{.layer = 7, .block = 1, .begin = 5, .end = 9};
  std::vector<std::byte> k(2 * 4 * k_row), v(2 * 4 * v_row);
  cache.read_rows(slice, k.data(), v.data());
  // Row r of head h lies behind all rows of the heads before.
  const auto place = [](std::byte* data, std::size_t row_bytes, std::size_t h, std::size_t r) {
    return data + ((1 * 2 + h) * 64 + 5 + r) * row_bytes;
  };
  for (std::size_t h = 0; h < 2; ++h) {
    for (std::size_t r = 0; r < 4; ++r) {
      CHECK(std::equal(place(cache.k(7), k_row, h, r), place(cache.k(7), k_row, h, r + 1), &k[(h * 4 + r) * k_row]));
      CHECK(std::equal(place(cache.v(7), v_row, h, r), place(cache.v(7), v_row, h, r + 1), &v[(h * 4 + r) * v_row]));
    }
  }
  // Written, they are there, and nothing else has changed.
  std::vector<std::byte> before(cache.k(7), cache.k(7) + 3 * 2 * 64 * k_row), written(k.size(), std::byte{0xee});
  cache.write_rows(slice, written.data(), v.data());
  for (std::size_t h = 0; h < 2; ++h) std::fill_n(place(before.data(), k_row, h, 0), 4 * k_row, std::byte{0xee});
  CHECK(std::equal(before.begin(), before.end(), cache.k(7)));
  cache.read_rows(slice, k.data(), v.data());
  CHECK(k == written);
  CHECK(kind_of([&] { cache.read_rows({.layer = 7, .block = 3}, k.data(), v.data()); }) == ErrorKind::Internal);
  CHECK(kind_of([&] { cache.read_rows({.layer = 1, .block = 0}, k.data(), v.data()); }) == ErrorKind::Internal);
  CHECK(kind_of([&] { cache.write_rows({.layer = 7, .block = 0, .begin = 60, .end = 65}, k.data(), v.data()); }) ==
        ErrorKind::Internal);
}

TEST_CASE("a fleeting cache in the same memory is the rows that are kept") {
  const CacheFormat format{DType::F16, DType::F16};
  std::vector<CacheType> types{{0, 2, 8, 8}, {1, 2, 8, 8}};
  host::HostCache keeper({.caches = types, .format = format, .n_blocks = 4});
  types[1].place = 0;
  types[0].layer = 2;
  host::HostCache cache({.caches = types, .format = format, .n_blocks = 4});
  CHECK(kind_of([&] { cache.k(1); }) == ErrorKind::Internal);
  cache.keep_fleeting_in(keeper);
  CHECK(cache.k(1) == keeper.k(1));
  CHECK(cache.v(1) == keeper.v(1));
  CHECK(cache.k(2) != keeper.k(0));
  CHECK(cache.bytes_per_block() == keeper.bytes_per_block() / 2);
  host::HostCache shorter({.caches = types, .format = format, .n_blocks = 3}),
      other({.caches = types, .format = {DType::F32, DType::F16}, .n_blocks = 4});
  CHECK(kind_of([&] { shorter.keep_fleeting_in(keeper); }) == ErrorKind::Internal);
  CHECK(kind_of([&] { other.keep_fleeting_in(keeper); }) == ErrorKind::Internal);
}

TEST_CASE("cache formats and sizes that cannot be are refused") {
  const std::vector<CacheType> types{{0, 8, 128, 128}};
  CHECK(kind_of([&] {
          host::HostCache({.caches = types, .format = {DType::Q4_K, DType::F16}, .n_blocks = 1});
        }) == ErrorKind::Internal);
  const std::vector<CacheType> narrow{{0, 8, 128, 80}};
  CHECK(kind_of([&] {
          host::HostCache({.caches = narrow, .format = {DType::F16, DType::Q8_0}, .n_blocks = 1});
        }) == ErrorKind::Internal);
  CHECK(host::HostCache({.caches = narrow, .format = {DType::Q8_0, DType::F16}, .n_blocks = 1}).bytes_per_block() ==
        64 * 8 * (4 * 34 + 160));
  const std::vector<CacheType> enormous{{0, 1 << 30, 1 << 30, 1}};
  CHECK(kind_of([&] { host::HostCache({.caches = enormous, .format = {}, .n_blocks = 1 << 30}); }) ==
        ErrorKind::Memory);
}

TEST_CASE("rotary angles: plain, divided, with factors") {
  const std::vector<float> factors{1, 2, 4, 8};
  float row[8];
  host::RopeAngles({.n_rot = 8, .base = 10000}, nullptr).row(3, row);
  const double theta[] = {1, 0.1, 0.01, 0.001};  // 10000^(-2i/8)
  for (int i = 0; i < 4; ++i) {
    CHECK(row[2 * i] == Approx(std::cos(3 * theta[i])).epsilon(1e-7));
    CHECK(row[2 * i + 1] == Approx(std::sin(3 * theta[i])).epsilon(1e-7));
  }
  host::RopeAngles({.n_rot = 8, .base = 10000, .scaling = RopeScaling::Linear, .factor = 5}, factors.data())
      .row(40, row);
  for (int i = 0; i < 4; ++i) {
    CHECK(row[2 * i] == Approx(std::cos(8 * theta[i] / factors[static_cast<std::size_t>(i)])).epsilon(1e-7));
    CHECK(row[2 * i + 1] == Approx(std::sin(8 * theta[i] / factors[static_cast<std::size_t>(i)])).epsilon(1e-7));
  }
}

TEST_CASE("rotary angles: YaRN gives the published implementation's numbers") {
  // Computed with NumPy by the parameters of transformers' `yarn` rope type: dim 32, base 10000, factor 4, original
  // context 2048, beta 32 and 1, position 1000; the magnitude 0.1 ln 4 + 1 included.
  const double cosines[] = {0.640341371, -1.13862139, -0.543592667, -0.366762464, 0.981861651, 1.13681667,
                            1.0922903,   0.999528,    0.959288787,  -0.982001554, 0.486440771, 1.02794981,
                            1.1032322,   1.12739589,  1.13507307,   1.13750441};
  const double sines[] = {0.941509385,  0.0042810114, 1.00049188,   1.07794355,  -0.576562824, -0.0642250909,
                          -0.321525878, -0.545362972, -0.613385699, 0.57632451,  1.02949132,   0.489689889,
                          0.281701431,  0.159547825,  0.0899228228, 0.0506033593};
  RopeTable table{.n_rot = 32, .base = 10000, .scaling = RopeScaling::Yarn, .factor = 4, .original_context = 2048};
  float row[32];
  host::RopeAngles(table, nullptr).row(1000, row);
  for (int i = 0; i < 16; ++i) {
    CHECK(row[2 * i] == Approx(cosines[i]).margin(2e-7));
    CHECK(row[2 * i + 1] == Approx(sines[i]).margin(2e-7));
  }
  table.attention_factor = 0.5f;
  host::RopeAngles(table, nullptr).row(1000, row);
  for (int i = 0; i < 16; ++i) CHECK(row[2 * i] == Approx(cosines[i] / 2).margin(2e-7));
}

TEST_CASE("rotary angles: YaRN that mixes in less of the original angle, and a magnitude without it") {
  // By the formula, for a ramp from 0 to 2 (8 elements, base 10000, 32 to 1 turns over 512 positions): pair 1 has half
  // of its angle kept, pairs 2 and 3 none of it. The mix is taken half.
  const double theta[] = {1, 0.1, 0.01, 0.001}, kept[] = {1, 0.5, 0, 0};
  RopeTable table{.n_rot = 8,
                  .base = 10000,
                  .scaling = RopeScaling::Yarn,
                  .factor = 4,
                  .original_context = 512,
                  .extrapolation = 0.5f};
  const double magnitude = 1 + 0.1 * std::log(4.0);
  float row[8];
  host::RopeAngles(table, nullptr).row(9, row);
  for (int i = 0; i < 4; ++i) {
    const double angle = 9 * theta[i] * ((1 - 0.5 * kept[i]) / 4 + 0.5 * kept[i]);
    CHECK(row[2 * i] == Approx(magnitude * std::cos(angle)).margin(2e-7));
    CHECK(row[2 * i + 1] == Approx(magnitude * std::sin(angle)).margin(2e-7));
  }
  for (const RopeScaling scaling : {RopeScaling::None, RopeScaling::Linear}) {
    const RopeTable loud{.n_rot = 8, .base = 10000, .scaling = scaling, .factor = 4, .attention_factor = 1.5f};
    host::RopeAngles(loud, nullptr).row(8, row);
    const double by = scaling == RopeScaling::None ? 8 : 2;
    for (int i = 0; i < 4; ++i) CHECK(row[2 * i] == Approx(1.5 * std::cos(by * theta[i])).margin(2e-7));
  }
}

TEST_CASE("rotary angles: YaRN with one bound for both ends of the ramp") {
  // Kimi K2's numbers: 64 ln(4096 / 2 pi) / (2 ln 50000) = 19.16, so that the ramp goes from pair 19 to pair 20. An
  // original context of less than a turn has no ramp at all: behind the first pair everything is divided.
  RopeTable table{.n_rot = 64,
                  .base = 50000,
                  .scaling = RopeScaling::Yarn,
                  .factor = 32,
                  .original_context = 4096,
                  .beta_fast = 1,
                  .beta_slow = 1};
  const double magnitude = 1 + 0.1 * std::log(32.0);
  for (const auto& [context, kept] : {std::pair{4096.0f, 20}, {4.0f, 1}}) {
    table.original_context = context;
    float row[64];
    host::RopeAngles(table, nullptr).row(5, row);
    for (int i = 0; i < 32; ++i) {
      INFO(context << ", pair " << i);
      const double angle = 5 * std::pow(50000.0, -i / 32.0) / (i < kept ? 1 : 32);
      CHECK(row[2 * i] == Approx(magnitude * std::cos(angle)).margin(3e-7));
      CHECK(row[2 * i + 1] == Approx(magnitude * std::sin(angle)).margin(3e-7));
    }
  }
}

TEST_CASE("YaRN without a longer context is the plain rotation") {
  const RopeTable plain{.n_rot = 16, .base = 10000};
  RopeTable yarn = plain;
  yarn.scaling = RopeScaling::Yarn;
  yarn.original_context = 64;
  float a[16], b[16];
  host::RopeAngles(plain, nullptr).row(77, a);
  host::RopeAngles(yarn, nullptr).row(77, b);
  for (int i = 0; i < 16; ++i) CHECK(a[i] == Approx(b[i]).margin(1e-7));
}

namespace {

/// A legal step of two sequences, one of them with a past, over scattered blocks.
struct Step {
  std::vector<std::int32_t> tokens{10, 11, 12, 13}, positions{0, 1, 2, 64}, table{7, 9, 3, 4},
      slots{7 * 64, 7 * 64 + 1, -1, 4 * 64}, out_rows{2, 3};
  std::vector<SequenceSpan> sequences{{0, 3, 3}, {3, 1, 65}};
  std::int32_t stride = 2;
  Bucket bucket{4, 2, 2};

  host::StepRows check() const {
    const std::vector<StateGroup> groups{{table, stride, slots}};
    Graph graph;
    graph.set_bucket(bucket);
    return host::StepCheck(graph, 0, 0)({tokens, positions, sequences, groups, out_rows});
  }
};

}  // namespace

TEST_CASE("a legal step is counted") {
  const host::StepRows rows = Step().check();
  CHECK(rows.tokens == 4);
  CHECK(rows.outputs == 2);
  CHECK(rows.count(RowSpace::None) == 1);
}

TEST_CASE("steps that would read or write elsewhere are refused") {
  const std::vector<std::function<void(Step&)>> faults{
      [](Step& s) { s.bucket.tokens = 3; },
      [](Step& s) { s.bucket.sequences = 1; },
      [](Step& s) { s.bucket.outputs = 1; },
      [](Step& s) { s.tokens.clear(), s.positions.clear(), s.slots.clear(), s.sequences.clear(), s.out_rows.clear(); },
      [](Step& s) { s.positions.pop_back(); },
      [](Step& s) { s.slots.pop_back(); },
      [](Step& s) { s.sequences.pop_back(); },
      [](Step& s) { s.sequences[1].first_token = 2; },
      [](Step& s) { s.sequences[1].n_tokens = 2; },
      [](Step& s) { s.sequences[1].kv_len = 66; },
      [](Step& s) { s.sequences[0].kv_len = 2; },
      [](Step& s) { s.positions[1] = 5; },
      [](Step& s) { s.stride = 1; },
      [](Step& s) { s.table.pop_back(); },
      [](Step& s) { s.slots[3] = 3 * 64; },
      [](Step& s) { s.slots[0] = 7 * 64 + 1; },
      [](Step& s) {
        s.out_rows = {3, 2};
      },
      [](Step& s) {
        s.out_rows = {2, 2};
      },
      [](Step& s) { s.out_rows = {4}; },
      [](Step& s) { s.out_rows = {-1}; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    INFO("fault " << i);
    Step step;
    faults[i](step);
    CHECK(kind_of([&] { step.check(); }) == ErrorKind::Internal);
  }
}

TEST_CASE("each product takes the activation format of its weight's type") {
  GraphBuilder b({1, 1, 1});
  const Act x = b.embed(b.weight("x", {DType::Q4_K, {256, 1}}), b.step_input(StepInput::Tokens), "in");
  const Act y = b.linear(x, {b.weight("w", {DType::Q4_K, {256, 32}}), nullptr, "y"});
  const Act z = b.linear(y, {b.weight("v", {DType::Q8_0, {32, 4}}), nullptr, "z"});
  const Graph graph = host::quantize_activations(
      std::move(b).finish(b.linear(z, {b.weight("u", {DType::F16, {4, 4}}), nullptr, "out"})));
  std::vector<ActFormat> formats;
  for (const Node& node : graph.nodes()) {
    if (const auto* linear = std::get_if<Linear>(&node.op)) formats.push_back(linear->products[0].activation);
  }
  CHECK(formats == std::vector<ActFormat>{ActFormat::Q8x256, ActFormat::Q8x32, ActFormat::F32});
}

}  // namespace llm::test
