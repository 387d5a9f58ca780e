// When prompts attend to selected keys by way of all keys and a mask, and the memory that steps keep for it. Runs
// without a GPU.
#include <algorithm>
#include <string>
#include <variant>

#include "backend/cuda/forms_plan.h"
#include "backend/cuda/kernels/attend_masked.h"
#include "graph/builder.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

/// Of one sequence: `tokens` behind `before` others.
MaskedWork work(int tokens, std::int64_t before, int top_k, int heads, int kv_heads) {
  MaskedWork w{
      .tokens = tokens, .group = heads / kv_heads, .kv_heads = kv_heads, .at_once = tokens, .multiprocessors = 132};
  for (int t = 0; t < tokens; ++t) w.seen += before + t + 1;
  w.selected = std::int64_t{tokens} * top_k;
  return w;
}
MaskedWork latents(int tokens, std::int64_t before, int heads) {
  MaskedWork w = work(tokens, before, 2048, heads, 1);
  w.otherwise = MaskedWork::Otherwise::InPlace;
  return w;
}

/// Attention to what an index selects, in steps of so many tokens; of each KV head's own where `block` is not 0.
Graph attention_to_selected(int tokens, int block) {
  GraphBuilder b({tokens, 1, tokens});
  const auto heads = [&](const char* name, int n, int dim) {
    const Weight table = b.weight(name, {DType::F32, {std::int64_t{n} * dim, 32}});
    const Act x = b.embed(table, b.step_input(StepInput::Tokens), std::string(name) + "_in");
    return b.split_heads(x, n, std::string(name) + "_heads");
  };
  const Act iq = heads("iq", 2, 32), ik = heads("ik", 1, 32), q = heads("q", 4, 64), k = heads("k", 2, 64),
            v = heads("v", 2, 64);
  const Cache index =
      b.index_append(ik, b.cache({.kv_heads = 1, .head_dim_k = 32, .part = CacheType::Part::Index}), "index");
  const SelectBlocks blocks{.top_k = 128, .block = block, .local = 1};
  const Index selected =
      block > 0 ? b.select_blocks(iq, index, blocks, "selected") : b.select_keys(iq, index, 128, "selected");
  const CacheType of_keys{.kv_heads = 2, .head_dim_k = 64, .head_dim_v = 64, .access = CacheType::Access::Selected};
  const Cache cache = b.kv_append(k, v, b.cache(of_keys), "kv");
  return std::move(b).finish(b.flatten_heads(b.selected_attention(q, cache, selected, {.scale = 1}, "seen"), "flat"));
}

/// Where the memory for masks begins; MemoryPlan::kNone where there is none.
struct MaskMemory {
  std::uint64_t at = MemoryPlan::kNone, plan_bytes = 0;
};
MaskMemory mask_memory(const Graph& g) {
  const StepPlan plan = plan_step(g, Many::AsFew, {});
  const auto is_attention = [](const Node& n) { return std::holds_alternative<Attention>(n.op); };
  const auto node = std::find_if(g.nodes().begin(), g.nodes().end(), is_attention);
  REQUIRE(node != g.nodes().end());
  return {plan.memory.scratch_offset[static_cast<std::size_t>(node - g.nodes().begin())], plan.bytes};
}

}  // namespace

TEST_CASE("prompts are masked as long as that is faster", "[masked]") {
  // qwen4exp: 16 heads on 2. 9.3 and 10.2 ms for the packed keys of 2,048 tokens, 1.3 and 4.5 for all at 8,192 and
  // 32,768, so some 17 at 131,072 (docs/cuda-kernels.md).
  CHECK(masks_pay(work(2048, 0, 2051, 16, 2)));
  CHECK(masks_pay(work(2048, 8192, 2051, 16, 2)));
  CHECK(masks_pay(work(2048, 32768, 2051, 16, 2)));
  CHECK(!masks_pay(work(2048, 131072, 2051, 16, 2)));
  // 128 tokens are 32 blocks of 64 rows, where 132 multiprocessors are.
  CHECK(masks_pay(work(128, 8192, 2051, 16, 2)));
  CHECK(!masks_pay(work(128, 32768, 2051, 16, 2)));
  // Of few keys, few are packed; of one head on each KV head few products are made.
  CHECK(!masks_pay(work(2048, 8192, 128, 16, 2)));
  CHECK(masks_pay(work(2048, 131072, 2051, 16, 16)));
  // Latents: 128 heads are two tiles for each token, whose selected keys take a quarter longer than neighbours; 16
  // heads fill a quarter of a tile.
  CHECK(masks_pay(latents(2048, 0, 128)));
  CHECK(!masks_pay(latents(2048, 8192, 128)));
  CHECK(!masks_pay(latents(2048, 8192, 64)));
  CHECK(masks_pay(latents(2048, 7000, 16)));
  CHECK(!masks_pay(latents(2048, 32768, 16)));
  // minimax-m3: 64 heads on 4, blocks where they lie. 3.1 ms for those of 2,048 tokens, 1.9 and 3.4 for masks of random
  // blocks at 8,192 and 32,768 (docs/cuda-kernels.md).
  const auto blocks = [](int tokens, std::int64_t before) {
    MaskedWork w = work(tokens, before, 2048, 64, 4);
    w.otherwise = MaskedWork::Otherwise::Blocks;
    return w;
  };
  CHECK(masks_pay(blocks(2048, 8192)));
  CHECK(masks_pay(blocks(512, 8192)));
  CHECK(!masks_pay(blocks(2048, 32768)));
  // Memory for the masks of few tokens makes few blocks of a launch.
  MaskedWork split = work(2048, 32768, 2051, 16, 2);
  split.at_once = 64;
  CHECK(!masks_pay(split));
  split.at_once = 0;
  CHECK(!masks_pay(split));
}

TEST_CASE("steps that may be prompts keep memory for the masks of their tokens", "[masked]") {
  CHECK(key_mask_bytes(512) == 512 * 65536 / 8);
  for (const int block : {0, 32}) {
    const MaskMemory with = mask_memory(attention_to_selected(512, block));
    REQUIRE(with.at != MemoryPlan::kNone);
    CHECK(with.at % 16 == 0);
    CHECK(with.at + 512 * 8192 <= with.plan_bytes);
    CHECK(mask_memory(attention_to_selected(64, block)).at == MemoryPlan::kNone);
  }
}

}  // namespace llm::cuda::test
