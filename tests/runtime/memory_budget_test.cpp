// How a context is chosen and refused, on machines that are only numbers.
#include "runtime/memory_budget.h"

#include "base/error.h"
#include "support/catch.h"

using namespace llm;

namespace {

constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

/// Llama 3 8B: 32 layers, 8 KV heads of 128: 128 KiB per position in F16.
ContextRequest llama8b(std::int64_t context, std::uint64_t available) {
  return {.context = context,
          .trained = 131072,
          .sequences = 1,
          .memories = {{.bytes_per_position = 128 * 1024,
                        .work_bytes = 64 * kMiB,
                        .weight_bytes = 4 * kGiB + 600 * kMiB,
                        .available = available}}};
}

}  // namespace

TEST_CASE("bytes of a position are those of every layer's keys and values") {
  std::vector<CacheType> layers;
  for (int i = 0; i < 32; ++i) layers.push_back({.layer = i, .kv_heads = 8, .head_dim_k = 128, .head_dim_v = 128});
  CHECK(bytes_per_position(layers, {DType::F16, DType::F16}) == 128 * 1024);
  CHECK(bytes_per_position(layers, {DType::F32, DType::BF16}) == 192 * 1024);
  CHECK(bytes_per_position(layers, {DType::F8_E4M3, DType::F8_E4M3}) == 64 * 1024);
  CHECK(bytes_per_position(layers, {DType::Q8_0, DType::Q4_0}) == 32 * 8 * 128 / 32 * (34 + 18));
}

TEST_CASE("a cache's type whose blocks heads do not fill is refused") {
  const std::vector<CacheType> layers{{.layer = 0, .kv_heads = 8, .head_dim_k = 64, .head_dim_v = 80}};
  CHECK(bytes_per_position(layers, {DType::Q8_0, DType::F16}) == 8 * (2 * 34 + 160));
  try {
    bytes_per_position(layers, {DType::Q8_0, DType::Q4_0});
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find(
              "cached values cannot be Q4_0: the model's heads of 80 are not whole blocks of 32") != std::string::npos);
  }
}

TEST_CASE("without a wish the context is the model's, or what fits beside the weights") {
  CHECK(choose_context(llama8b(0, 64 * kGiB)).context == 131072);
  const ContextChoice small = choose_context(llama8b(0, 8 * kGiB));
  // (8 GiB - 4.586 GiB - 64 MiB) / 128 KiB = 27456 positions
  CHECK(small.context == 27456);
  CHECK(small.reason.find("memory") != std::string::npos);
}

TEST_CASE("a context is no longer than the positions that a model has embeddings of") {
  const auto choice = [](std::int64_t context) {
    ContextRequest r = llama8b(context, 64 * kGiB);
    r.most = 1024;
    return choose_context(r).context;
  };
  CHECK(choice(1024) == 1024);
  try {
    choice(1025);
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find("1,025 tokens is longer than the 1,024 positions") != std::string::npos);
  }
}

TEST_CASE("weights larger than memory leave an eighth of it for the cache") {
  CHECK(choose_context(llama8b(0, 4 * kGiB)).context == 512 * 8);
  // Less than the work takes, and what was asked for would fit as well.
  CHECK(choose_context(llama8b(0, 480 * kMiB)).context == 60 * 8 / kBlockPositions * kBlockPositions);
  CHECK(choose_context(llama8b(2048, 480 * kMiB)).context == 2048);
  // No more than there is beside the work: 8 MiB, of which an eighth of 72 would be 9.
  CHECK(choose_context(llama8b(0, 72 * kMiB)).context == 8 * 8);
}

TEST_CASE("weights that a backend keeps are counted in full") {
  const auto kept = [](std::int64_t context, std::uint64_t available) {
    ContextRequest r = llama8b(context, available);
    r.memories[0].weights = MemoryNeeds::Weights::Kept;
    return choose_context(r);
  };
  CHECK(kept(0, 8 * kGiB).context == 27456);
  CHECK_THROWS_AS(kept(0, 4 * kGiB), Error);  // no eighth of memory: the weights do not give way
  CHECK(kept(27456, 8 * kGiB).context == 27456);
  try {
    kept(27457, 8 * kGiB);
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Memory);
    CHECK(std::string(e.what()).find("3.4 GiB available beside weights of 4.6 GiB") != std::string::npos);
  }
}

TEST_CASE("a context that was asked for is given or refused with the figures") {
  CHECK(choose_context(llama8b(4096, 2 * kGiB)).context == 4096);
  CHECK(choose_context(llama8b(100, 2 * kGiB)).context == 100);
  try {
    choose_context(llama8b(32768, 2 * kGiB));
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Memory);
    const std::string text = e.what();
    for (const char* part : {"32,768", "4.0 GiB", "2.0 GiB", "64.0 MiB", "4.6 GiB", "memory"}) {
      INFO(part);
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("contexts beyond any memory are clamped or refused without overflow") {
  for (const std::int64_t huge : {std::int64_t{1} << 31, std::int64_t{1} << 32, (std::int64_t{1} << 62)}) {
    ContextRequest r = llama8b(huge, 64 * kGiB);
    CHECK_THROWS_AS(choose_context(r), Error);
    r = llama8b(0, ~std::uint64_t{0});
    r.trained = huge;
    const std::int64_t chosen = choose_context(r).context;
    CHECK(chosen < (std::int64_t{1} << 31));
    CHECK(chosen % kBlockPositions == 0);
  }
}

TEST_CASE("no memory for one block is an error") { CHECK_THROWS_AS(choose_context(llama8b(0, 10 * kMiB)), Error); }

TEST_CASE("a model in two memories has the context that fits into each") {
  // 24 of the 32 layers on a GPU: three quarters of the weights and of the cache.
  const auto split = [](std::int64_t context, std::uint64_t gpu, std::uint64_t cpu) {
    ContextRequest r = llama8b(context, cpu);
    MemoryNeeds& host = r.memories[0];
    MemoryNeeds device{.name = "GPU",
                       .bytes_per_position = 96 * 1024,
                       .work_bytes = 64 * kMiB,
                       .weight_bytes = 3 * kGiB,
                       .weights = MemoryNeeds::Weights::Kept,
                       .available = gpu};
    host.bytes_per_position = 32 * 1024;
    host.weight_bytes = kGiB + 600 * kMiB;
    r.memories.insert(r.memories.begin(), device);
    return r;
  };
  CHECK(choose_context(split(0, 64 * kGiB, 64 * kGiB)).context == 131072);
  // (4 GiB - 3 GiB - 64 MiB) / 96 KiB = 10240 positions, whatever the CPU has
  const ContextChoice by_gpu = choose_context(split(0, 4 * kGiB, 64 * kGiB));
  CHECK(by_gpu.context == 10240);
  CHECK(by_gpu.reason.find("a position takes 96.0 KiB, 4.0 GiB available in the GPU's memory") != std::string::npos);
  // (2 GiB - 1.586 GiB - 64 MiB) / 32 KiB = 11520 positions
  CHECK(choose_context(split(0, 64 * kGiB, 2 * kGiB)).context == 11520);
  CHECK(choose_context(split(10240, 4 * kGiB, 64 * kGiB)).context == 10240);
  try {
    choose_context(split(10241, 4 * kGiB, 64 * kGiB));
    FAIL("not refused");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Memory);
    const std::string text = e.what();
    CHECK(text.find("needs more memory than is available in the GPU's memory: cache 966.0 MiB") != std::string::npos);
    CHECK(text.find("1.0 GiB available beside weights of 3.0 GiB") != std::string::npos);
  }
  CHECK(fits(split(0, 4 * kGiB, 64 * kGiB), 10240));
  CHECK_FALSE(fits(split(0, 4 * kGiB, 64 * kGiB), 10241));
  CHECK_FALSE(fits(split(0, 2 * kGiB, 64 * kGiB), 1));  // the weights alone do not
}

TEST_CASE("what others need counts where they need it") {
  ContextRequest r = llama8b(0, 8 * kGiB);
  const MemoryNeeds others[] = {{.name = "CPU", .bytes_per_position = 1024, .work_bytes = 5, .weight_bytes = 7},
                                {.name = "GPU", .bytes_per_position = 4096, .work_bytes = 50, .weight_bytes = 70}};
  add_needs(r, others);
  REQUIRE(r.memories.size() == 1);
  CHECK(bytes_per_position(r) == 129 * 1024);
  CHECK(work_bytes(r) == 64 * kMiB + 5);
  CHECK(weight_bytes(r) == 4 * kGiB + 600 * kMiB + 7);
}
