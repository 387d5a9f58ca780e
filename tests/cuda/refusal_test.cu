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

enum class Selects { Keys, Blocks };

/// Of attention to keys that an index of the stride selects.
std::string refused_selection(int stride, int dim_k, int dim_v, Selects what = Selects::Keys) {
  GraphBuilder b({4, 1, 4});
  const auto heads = [&](const char* name, int dim) {
    const Weight table = b.weight(name, {DType::F32, {dim, 32}});
    const Act x = b.embed(table, b.step_input(StepInput::Tokens), std::string(name) + "_in");
    return b.split_heads(x, 1, std::string(name) + "_heads");
  };
  const Act iq = heads("iq", 32), ik = heads("ik", 32), q = heads("q", dim_k), k = heads("k", dim_k),
            v = heads("v", dim_v);
  const CacheType kept{.kv_heads = 1, .head_dim_k = 32, .part = CacheType::Part::Index, .stride = stride};
  const Cache index = b.index_append(ik, b.cache(kept), "index");
  const Index selected = what == Selects::Keys ? b.select_keys(iq, index, 2 * stride - 1, "selected")
                                               : b.select_blocks(iq, index, {.top_k = 8, .block = 4}, "selected");
  const CacheType of_keys{
      .kv_heads = 1, .head_dim_k = dim_k, .head_dim_v = dim_v, .access = CacheType::Access::Selected};
  const Cache cache = b.kv_append(k, v, b.cache(of_keys), "kv");
  const Act seen = b.selected_attention(q, cache, selected, {.scale = 1}, "seen");
  const Graph g = std::move(b).finish(b.flatten_heads(seen, "flat"));
  std::string reasons;
  for (const Node& n : g.nodes()) reasons += refusal(g, n);
  return reasons;
}

/// Of attention to a window and to compressed keys of heads of `dim`.
std::string refused_beside_compressed(int dim) {
  GraphBuilder b({4, 1, 4});
  const auto heads = [&](const char* name) {
    const Weight table = b.weight(name, {DType::F32, {dim, 32}});
    const Act x = b.embed(table, b.step_input(StepInput::Tokens), std::string(name) + "_in");
    return b.split_heads(x, 1, std::string(name) + "_heads");
  };
  const Act q = heads("q"), k = heads("k"), c = heads("c");
  const Cache kv = b.kv_append(k, k, b.cache({.kv_heads = 1, .head_dim_k = dim, .head_dim_v = dim}), "kv");
  const CacheType kept{.kv_heads = 1,
                       .head_dim_k = dim,
                       .part = CacheType::Part::Compressed,
                       .access = CacheType::Access::Selected,
                       .stride = 128};
  const Cache compressed = b.index_append(c, b.cache(kept), "compressed");
  const Weight sinks = b.weight("sinks", {DType::F32, {1}});
  const Act seen = b.compressed_attention({q, kv, compressed, sinks, nullptr}, {.scale = 1, .window = 8}, "seen");
  const Graph g = std::move(b).finish(b.flatten_heads(seen, "flat"));
  std::string reasons;
  for (const Node& n : g.nodes()) reasons += refusal(g, n);
  return reasons;
}

std::string refused_wkv(int head) {
  GraphBuilder b({4, 1, 4});
  const Weight table = b.weight("table", {DType::F32, {2 * head, 32}});
  const Act x = b.embed(table, b.step_input(StepInput::Tokens), "x");
  const auto state = [&](int layer) { return b.recurrent({layer, RecurrentType::Part::Wkv, {head, head, 2}}); };
  const Weight all = b.weight("all", {DType::F32, {2 * head}});
  const Act six = b.wkv6({x, x, x, x, state(0)}, "six");
  const WkvResults seven = b.wkv7({x, x, x, x, x, all, all, all, state(1)}, "seven");
  const Graph g = std::move(b).finish(b.add(b.add(six, seven.y, "both"), seven.own, "all_three"));
  std::string reasons;
  for (const Node& n : g.nodes()) reasons += refusal(g, n);
  return reasons;
}

}  // namespace

TEST_CASE("heads wider than 512 beside compressed keys are refused") {
  CHECK(refused_beside_compressed(96).empty());
  CHECK(refused_beside_compressed(512).empty());
  CHECK(refused_beside_compressed(544).find("up to 512") != std::string::npos);
}

TEST_CASE("heads of RWKV that are longer than the kernels' columns are refused") {
  CHECK(refused_wkv(64).empty());
  CHECK(refused_wkv(128).empty());
  const std::string reasons = refused_wkv(129);
  const std::size_t first = reasons.find("up to 128");
  CHECK(first != std::string::npos);
  CHECK(reasons.find("up to 128", first + 1) != std::string::npos);
}

TEST_CASE("latents by keys of several positions are refused") {
  CHECK(refused_selection(4, 128, 128).empty());
  CHECK(refused_selection(1, 576, 512).empty());
  CHECK(refused_selection(4, 576, 512).find("one by one") != std::string::npos);
  CHECK(refused_selection(1, 128, 128, Selects::Blocks).empty());
  CHECK(refused_selection(1, 576, 512, Selects::Blocks).find("one by one") != std::string::npos);
}

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
