// The experts of one token in two launches against the kernels that do one step each, bit for bit; those are tested
// against double precision.
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/tile_ring.h"
#include "backend/cuda/kernels/token_experts.h"
#include "device_data.h"
#include "support/catch.h"
#include "tile_data.h"

namespace llm::cuda::test {
namespace {

/// Matrices of all experts, one behind the other.
DeviceBuffer experts_of(const MatrixType& m, int experts, std::uint32_t seed) {
  const std::size_t bytes = matrix_bytes(m);
  DeviceBuffer all = poisoned(bytes * static_cast<std::size_t>(experts));
  for (int e = 0; e < experts; ++e) {
    const DeviceBuffer one = packed(Rows(m.type, m.n, m.k, seed + static_cast<std::uint32_t>(e)));
    copy_to_device(all.data() + static_cast<std::size_t>(e) * bytes, one.data(), bytes, "copying");
  }
  return all;
}

struct Shape {
  DType gate, down;
  int embd, ff, experts, top_k;
  bool extras = false;  ///< biases and scales
  Activation activation = Activation::Silu;
  RouteWeights weights = RouteWeights::Renormalized;
  Gating gating = Gating::Softmax;
};

/// A layer's experts and what one token gives them, computed in either way.
class Layer {
 public:
  Layer(const Shape& s, Random& random)
      : s_(s),
        gates_(experts_of(gate_type(), s.experts, 1)),
        ups_(experts_of(gate_type(), s.experts, 100)),
        downs_(experts_of(down_type(), s.experts, 200)),
        bias_(random.floats(static_cast<std::size_t>(s.experts) * static_cast<std::size_t>(std::max(s.ff, s.embd)))),
        scale_(random.floats(static_cast<std::size_t>(s.experts))),
        logits_(random.floats(static_cast<std::size_t>(s.experts), 2)),
        x_(random.floats(static_cast<std::size_t>(s.embd))) {}

  struct Found {
    std::vector<std::int32_t> ids;
    std::vector<float> weights, glu, y;
  };

  Found in_two_launches(const Launch& at) const {
    const Results r(s_);
    enqueue(logits_, r, r.y, at);
    return r.read();
  }
  /// y of tokens whose launches follow one another and share all memory but that of y.
  std::vector<std::vector<float>> in_turn(std::span<const OnDevice<float>> logits, const Launch& at) const {
    const Results r(s_);
    std::vector<OnDevice<float>> y;
    for (std::size_t i = 0; i < logits.size(); ++i) y.emplace_back(static_cast<std::size_t>(s_.embd));
    for (std::size_t i = 0; i < logits.size(); ++i) enqueue(logits[i], r, y[i], at);
    std::vector<std::vector<float>> found;
    for (const OnDevice<float>& one : y) found.push_back(one.read());
    return found;
  }

  Found step_by_step(const Launch& at) const { return step_by_step(logits_, at); }
  Found step_by_step(const OnDevice<float>& logits, const Launch& at) const {
    const Results r(s_);
    const std::size_t routes = static_cast<std::size_t>(s_.top_k), ff = static_cast<std::size_t>(s_.ff);
    const OnDevice<float> g(routes * ff), u(routes * ff), d(routes * static_cast<std::size_t>(s_.embd));
    const OnDevice<std::int32_t> counts(std::vector<std::int32_t>{1, 1});
    StepView step;
    step.counts = counts.data();
    const OnDevice<std::uint8_t> memory(route_groups_bytes(s_.experts, 1, s_.top_k));
    RouteGroups groups = route_and_group({op()}, logits.data(), s_.experts, 1, 8, step, r.ids.data(), r.weights.data(),
                                         reinterpret_cast<std::byte*>(memory.data()), at);
    const auto form_of = [](DType type, int k, int columns) {
      return OnDevice<std::uint8_t>(quantized_bytes(info(type).activation, k, columns));
    };
    const OnDevice<std::uint8_t> x_form = form_of(s_.gate, s_.embd, 1), h_form = form_of(s_.down, s_.ff, s_.top_k);
    make_forms(x_.data(), s_.embd, 1, forms(s_.gate, x_form, 1, nullptr), at);
    groups.routes_per_row = s_.top_k;
    Target first[] = {gate(), up()};
    first[0].y = g.data(), first[1].y = u.data();
    expert_tile_products(first, reinterpret_cast<const std::byte*>(x_form.data()), 1, groups, at);
    glu({.activation = s_.activation}, g.data(), u.data(), s_.ff, s_.top_k,
        forms(s_.down, h_form, s_.top_k, r.glu.data()), at);
    groups.routes_per_row = 1;
    Target last = down();
    last.y = d.data();
    expert_tile_products({&last, 1}, reinterpret_cast<const std::byte*>(h_form.data()), s_.top_k, groups, at);
    combine(d.data(), r.weights.data(), s_.top_k, s_.embd, 1, r.y.data(), at);
    return r.read();
  }

  ExpertShapes shapes() const { return {gate_type(), gate_type(), down_type(), s_.top_k}; }

 private:
  struct Results {
    explicit Results(const Shape& s)
        : ids(static_cast<std::size_t>(s.top_k)),
          weights(static_cast<std::size_t>(s.top_k)),
          glu(static_cast<std::size_t>(s.top_k) * static_cast<std::size_t>(s.ff)),
          y(static_cast<std::size_t>(s.embd)) {}
    Found read() const { return {ids.read(), weights.read(), glu.read(), y.read()}; }
    OnDevice<std::int32_t> ids;
    OnDevice<float> weights, glu, y;
  };
  void enqueue(const OnDevice<float>& logits, const Results& r, const OnDevice<float>& y, const Launch& at) const {
    TokenRoute route{op(), s_.experts, logits.data(), r.ids.data(), r.weights.data()};
    if (!chooses_token_experts(op(), false, s_.experts)) {
      cuda::route({op()}, logits.data(), s_.experts, 1, r.ids.data(), r.weights.data(), at);
      route.logits = nullptr;
    }
    token_gate_up(gate(), up(), route, x_.data(), {.y = r.glu.data(), .activation = s_.activation}, at);
    Target last = down();
    last.y = y.data();
    token_down(last, route, r.glu.data(), at);
  }
  static Forms forms(DType type, const OnDevice<std::uint8_t>& q, int capacity, float* f32) {
    Forms f{.f32 = f32};
    (info(type).activation == ActFormat::Q8x256 ? f.q8x256 : f.q8x32) = reinterpret_cast<std::byte*>(q.data());
    f.capacity = capacity;
    return f;
  }
  Route op() const { return {.top_k = s_.top_k, .gating = s_.gating, .weights = s_.weights, .scale = 1.5f}; }
  MatrixType gate_type() const { return {s_.gate, s_.embd, s_.ff}; }
  MatrixType down_type() const { return {s_.down, s_.ff, s_.embd}; }
  Target target(const MatrixType& type, const DeviceBuffer& matrix, bool bias, bool scale) const {
    return {.type = type,
            .matrix = matrix.data(),
            .bias = s_.extras && bias ? bias_.data() : nullptr,
            .scale = s_.extras && scale ? scale_.data() : nullptr};
  }
  Target gate() const { return target(gate_type(), gates_, true, false); }
  Target up() const { return target(gate_type(), ups_, false, true); }
  Target down() const { return target(down_type(), downs_, true, true); }

  Shape s_;
  DeviceBuffer gates_, ups_, downs_;
  OnDevice<float> bias_, scale_, logits_, x_;
};

bool has_ring() { return !no_device() && device_limits().capability >= 9; }

void expect_same(const Layer& layer, const Stream& stream) {
  REQUIRE(takes_token_experts(layer.shapes()));
  const Layer::Found expected = layer.step_by_step({.stream = stream.get(), .overlap = false});
  for (const bool overlap : {false, true}) {
    const Layer::Found found = layer.in_two_launches({.stream = stream.get(), .overlap = overlap});
    INFO("overlap " << overlap);
    REQUIRE(found.ids == expected.ids);
    REQUIRE(first_difference(expected.weights, found.weights) == -1);
    REQUIRE(first_difference(expected.glu, found.glu) == -1);
    REQUIRE(first_difference(expected.y, found.y) == -1);
    REQUIRE_FALSE(std::isnan(found.y.back()));
  }
}

}  // namespace

TEST_CASE("one token's experts in two launches give the bits of a kernel for each step", "[experts]") {
  if (!has_ring()) return;
  Random random(11);
  const Stream stream;
  for (const Shape& s :
       {Shape{DType::Q4_K, DType::Q6_K, 2048, 768, 16, 8}, Shape{DType::Q4_K, DType::Q4_K, 2048, 768, 16, 8},
        Shape{DType::Q5_K, DType::Q8_0, 2048, 1024, 9, 4, true}, Shape{DType::Q8_0, DType::Q8_0, 256, 256, 8, 2},
        Shape{DType::Q4_0, DType::Q5_1, 96, 288, 5, 3, true, Activation::Gelu},
        Shape{DType::MXFP4, DType::MXFP4, 2880, 2880, 6, 4}, Shape{DType::Q3_K, DType::Q2_K, 4096, 1536, 4, 2, true},
        Shape{DType::Q6_K, DType::Q4_K, 512, 9472, 3, 2}, Shape{DType::IQ4_XS, DType::IQ2_S, 1280, 256, 40, 10},
        Shape{DType::Q4_K, DType::Q5_K, 9472, 256, 2, 1},
        Shape{DType::Q4_K, DType::Q6_K, 256, 512, 200, 32, false, Activation::Silu, RouteWeights::AsGated},
        Shape{DType::Q4_K, DType::Q6_K, 2048, 768, 16, 8, false, Activation::Silu, RouteWeights::Renormalized,
              Gating::Sigmoid},
        Shape{DType::Q4_K, DType::Q4_K, 256, 256, 300, 9}}) {
    INFO(name(s.gate) << ", " << name(s.down) << ", " << s.embd << " x " << s.ff << ", " << s.top_k << " of "
                      << s.experts);
    expect_same(Layer(s, random), stream);
  }
}

TEST_CASE("experts of one token after another, overlapping", "[experts]") {
  if (!has_ring()) return;
  constexpr int kTokens = 5, kRounds = 20;
  Random random(13);
  const Stream stream;
  for (const Shape& s :
       {Shape{DType::Q4_K, DType::Q6_K, 2048, 768, 16, 8}, Shape{DType::Q8_0, DType::Q8_0, 256, 256, 8, 2},
        Shape{DType::Q4_K, DType::Q6_K, 2048, 768, 16, 8, false, Activation::Silu, RouteWeights::Renormalized,
              Gating::Sigmoid}}) {
    INFO(s.embd << " x " << s.ff);
    const Layer layer(s, random);
    std::vector<OnDevice<float>> logits;
    std::vector<std::vector<float>> expected;
    for (int i = 0; i < kTokens * kRounds; ++i) {
      if (i < kTokens) {
        logits.emplace_back(random.floats(static_cast<std::size_t>(s.experts), 2));
        expected.push_back(layer.step_by_step(logits.back(), {.stream = stream.get(), .overlap = false}).y);
      } else {
        logits.emplace_back(logits[static_cast<std::size_t>(i % kTokens)].read());
        expected.push_back(expected[static_cast<std::size_t>(i % kTokens)]);
      }
    }
    const auto found = layer.in_turn(logits, {.stream = stream.get(), .overlap = true});
    for (std::size_t i = 0; i < found.size(); ++i) {
      INFO("token " << i);
      REQUIRE(first_difference(expected[i], found[i]) == -1);
    }
  }
}

TEST_CASE("one token's experts of every type", "[experts]") {
  if (!has_ring()) return;
  Random random(12);
  const Stream stream;
  for (const DType type : kTypes) {
    INFO(name(type));
    expect_same(Layer({type, type, 512, 1280, 5, 3, true}, random), stream);
  }
}

TEST_CASE("which experts one token takes in two launches", "[experts]") {
  if (!has_ring()) return;
  const MatrixType gate{DType::Q4_K, 2048, 768}, down{DType::Q6_K, 768, 2048};
  REQUIRE(takes_token_experts({gate, gate, down, 8}));
  REQUIRE_FALSE(takes_token_experts({gate, {DType::Q6_K, 2048, 768}, down, 8}));
  REQUIRE_FALSE(takes_token_experts({gate, gate, down, 33}));
  REQUIRE_FALSE(takes_token_experts({gate, gate, {DType::F16, 768, 2048}, 8}));
  REQUIRE_FALSE(takes_token_experts({gate, gate, {DType::Q4_K, 1 << 20, 2048}, 8}));
}

}  // namespace llm::cuda::test
