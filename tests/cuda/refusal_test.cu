// What the backend refuses when a model is loaded, since its kernels would. Runs without a GPU.
#include <algorithm>
#include <string>
#include <variant>

#include "backend/cuda/instructions.h"
#include "graph/builder.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

std::string refused_router(std::int64_t experts) {
  GraphBuilder b({4, 1, 4});
  const Act x = b.embed(b.weight("table", {DType::F32, {64, 32}}), b.step_input(StepInput::Tokens), "x");
  const Weight router = b.weight("router.weight", {DType::F32, {64, experts}});
  const Act logits = b.linear(x, {.weight = router, .bias = nullptr, .name = "router"});
  const Routes routes = b.route(logits, {.top_k = 2}, "routes");
  const Weight w = b.weight("experts.weight", {DType::F32, {64, 64, experts}});
  const Act y = b.expert_linear(x, routes.expert, {.weight = w, .bias = nullptr, .name = "y"});
  const Graph g = std::move(b).finish(b.combine(y, routes.weight, "sum"));
  const auto is_route = [](const Node& n) { return std::holds_alternative<Route>(n.op); };
  const auto node = std::find_if(g.nodes().begin(), g.nodes().end(), is_route);
  REQUIRE(node != g.nodes().end());
  return refusal(g, *node);
}

}  // namespace

TEST_CASE("routers of more experts than the kernels know are refused") {
  CHECK(refused_router(8).empty());
  CHECK(refused_router(1024).empty());
  for (const std::int64_t experts : {1025, 2048, 4096}) {
    const std::string reason = refused_router(experts);
    CHECK(reason.find(std::to_string(experts)) != std::string::npos);
    CHECK(reason.find("1024") != std::string::npos);
  }
}

}  // namespace llm::cuda::test
