// Every op, type and attribute of the table: each backend against the reference.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "backend/host/legalize.h"
#include "backend/reference/reference.h"
#include "backends.h"
#include "op_cases.h"
#include "support/catch.h"

namespace llm::test {
namespace {

std::vector<Results> run_steps(Backend& backend, const OpScene& scene, const Graph& graph) {
  TestSequences sequences(scene.n_sequences, 512);
  GraphRunner runner(backend, graph, scene.weights, sequences.n_blocks(), scene.format, scene.observed,
                     sequences.n_slots());
  std::vector<Results> results;
  for (const auto& parts : scene.steps) results.push_back(runner.run(sequences.step(parts, scene.outputs)));
  return results;
}

/// A sum of n terms in f32 is off by about sqrt(n) roundings of what it sums; 4 of these and 16 roundings more are
/// allowed, measured at the largest result. One missing term of thousands is far outside.
double limit(std::int64_t terms, double largest) {
  if (terms == 0) return 0;
  return (4 * std::sqrt(static_cast<double>(terms)) + 16) * std::numeric_limits<float>::epsilon() * largest;
}

/// Where two results differ most in units of the limit; 0 for equal values, NaN and infinities equal to themselves.
struct Difference {
  double worst = 0;
  std::size_t index = 0;
};
Difference compare(const std::vector<float>& expected, const std::vector<float>& actual, std::int64_t terms,
                   double magnitude = 0) {
  double largest = magnitude;
  for (const float x : expected) largest = std::isfinite(x) ? std::max<double>(largest, std::fabs(x)) : largest;
  const double allowed = limit(terms, largest);
  Difference d;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == actual[i] || (std::isnan(expected[i]) && std::isnan(actual[i]))) continue;
    const double ratio = std::fabs(double{expected[i]} - double{actual[i]}) / allowed;
    if (!(ratio <= d.worst)) d = {ratio, i};
  }
  return d;
}

void expect_near(const std::string& where, const std::vector<Results>& expected, const std::vector<Results>& actual,
                 const OpScene& scene) {
  REQUIRE(expected.size() == actual.size());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    for (const auto& [name, values] : expected[step]) {
      INFO(where << ", step " << step << ", value " << name);
      REQUIRE(actual[step].contains(name));
      const std::vector<float>& other = actual[step].at(name);
      REQUIRE(values.size() == other.size());
      REQUIRE_FALSE(values.empty());
      const Difference d = compare(values, other, scene.terms, scene.magnitude);
      INFO("element " << d.index << ": expected " << values[d.index] << ", got " << other[d.index]);
      CHECK(d.worst <= 1.0);
    }
  }
}

/// Whether a backend that may refuse says no to the scene: to a node, or to the types of its cache.
bool refuses(Backend& backend, const OpScene& scene) {
  for (const Node& node : scene.graph.nodes()) {
    if (!backend.supports(scene.graph, node).ok) return true;
  }
  try {
    const auto caches = GraphRunner::caches(scene.graph);
    backend.allocate({.caches = caches, .format = scene.format, .n_blocks = 1, .most_positions = kBlockPositions});
    return false;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Usage) throw;
    return true;
  }
}

}  // namespace

TEST_CASE("every backend agrees with the reference on the op table") {
  const auto reference = make_reference_backend();
  std::vector<std::pair<NamedBackend, std::unique_ptr<Backend>>> backends;
  for (const NamedBackend& named : available_backends()) backends.emplace_back(named, named.make());
  const auto any = [&](Activations a) {
    return std::any_of(backends.begin(), backends.end(), [&](const auto& b) { return b.first.activations == a; });
  };
  for (const OpCase& op_case : op_cases()) {
    const OpScene scene = op_case.make();
    const Graph quantised = host::quantize_activations(scene.graph);
    std::vector<Results> plain_results, quantised_results;
    if (any(Activations::Plain)) plain_results = run_steps(*reference, scene, scene.graph);
    if (any(Activations::Quantized)) quantised_results = run_steps(*reference, scene, quantised);
    for (const auto& [named, backend] : backends) {
      if (named.duty == NamedBackend::Duty::MayRefuse) {
        if (scene.graph.bucket().tokens > named.most_tokens || refuses(*backend, scene)) continue;
        // Some types are kept in another form there, and x as that form takes it.
        const Graph own = backend->legalize(scene.graph);
        expect_near(named.name + ", " + op_case.name, run_steps(*reference, scene, own),
                    run_steps(*backend, scene, scene.graph), scene);
        continue;
      }
      for (const Node& node : scene.graph.nodes()) CHECK(backend->supports(scene.graph, node).reason.empty());
      const bool plain = named.activations == Activations::Plain;
      const Graph& graph = plain ? scene.graph : quantised;
      expect_near(named.name + ", " + op_case.name, plain ? plain_results : quantised_results,
                  run_steps(*backend, scene, graph), scene);
    }
  }
}

TEST_CASE("a difference outside the limit is found") {
  const std::vector<float> expected{1.0f, -4.0f, 2.0f};
  CHECK(compare(expected, {1.0f, -4.0f, 2.0f}, 0).worst == 0);
  CHECK(compare(expected, {1.0f, -4.0f, std::nextafter(2.0f, 3.0f)}, 0).worst > 1);
  CHECK(compare(expected, {1.0f, -4.0f, std::nextafter(2.0f, 3.0f)}, 1).worst < 1);
  CHECK(compare(expected, {1.0f, -4.0f, 2.001f}, 4096).worst > 1);
  CHECK(!(compare(expected, {1.0f, std::nanf(""), 2.0f}, 4096).worst <= 1));
}

}  // namespace llm::test
