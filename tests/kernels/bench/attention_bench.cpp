// bench_attention: what attention costs over a cache in L2, in core cycles per key and KV head for one token (decode),
// and per key and (token, head) pair for a tile of 64 (prefill), on one thread, the fastest of many repetitions. Not a
// test.
//
//   bench_attention ISA [--heads N] [--dim N] [--positions N] [--repetitions N] [TYPE | KEYS/VALUES ...]
#include <x86intrin.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "kernels/float_cases.h"
#include "kernels/scratch.h"

using namespace llm;
using namespace llm::cpu;
using namespace llm::cpu::test;

namespace {

struct Options {
  std::string isa;
  int heads = 4, dim = 64, positions = 1024, repetitions = 200;
  std::vector<CacheFormat> caches;
};

Options parse(int argc, char** argv) {
  Options o;
  o.isa = argc > 1 ? argv[1] : "avx512";
  for (int i = 2; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto set = [&](std::string_view name, int& to) {
      if (arg != name || i + 1 == argc) return false;
      const std::string_view text = argv[++i];
      std::from_chars(text.data(), text.data() + text.size(), to);
      return true;
    };
    if (set("--heads", o.heads) || set("--dim", o.dim) || set("--positions", o.positions) ||
        set("--repetitions", o.repetitions))
      continue;
    const std::size_t slash = arg.find('/');
    const auto k = dtype_from_name(arg.substr(0, slash));
    const auto v = slash == std::string_view::npos ? k : dtype_from_name(arg.substr(slash + 1));
    if (k && v) o.caches.push_back({*k, *v});
  }
  if (o.caches.empty()) {
    for (const DType t : kCacheTypes) o.caches.push_back({t, t});
  }
  return o;
}

/// Core cycles per tick of the time-stamp counter: a chain of additions takes one cycle each. Of a register: some cores
/// add constants several a cycle, as they rename registers.
double cycles_per_tick() {
  double best = 0;
  for (int repetition = 0; repetition < 100; ++repetition) {
    constexpr int kSteps = 20000;
    unsigned long x = 1;
    const unsigned long one = 1;
    const auto start = __rdtsc();
    for (int i = 0; i < kSteps; ++i)
      __asm__ volatile("add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0" : "+r"(x) : "r"(one));
    best = std::max(best, 4.0 * kSteps / static_cast<double>(__rdtsc() - start));
  }
  return best;
}

double least_ticks(int repetitions, const std::function<void()>& run) {
  double least = 1e300;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = __rdtsc();
    run();
    least = std::min(least, static_cast<double>(__rdtsc() - start));
  }
  return least;
}

void measure(const Options& o, const Kernels& kernels, CacheFormat cache, double cycles) {
  std::mt19937 rng(1);
  PagedCache k(kernels, CacheSide::Keys, cache.k, 1, o.dim, o.positions, rng);
  PagedCache v(kernels, CacheSide::Values, cache.v, 1, o.dim, o.positions, rng);
  v.blocks = k.blocks;
  for (int p = 0; p < o.positions; ++p) {
    k.write(0, p, random_floats(static_cast<std::size_t>(o.dim), rng).data());
    v.write(0, p, random_floats(static_cast<std::size_t>(o.dim), rng).data());
  }
  const int tokens = std::max(1, kQueryTile / o.heads);
  const auto q = random_floats(static_cast<std::size_t>(tokens * o.heads * o.dim), rng);
  std::vector<float> y(q.size());
  const std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens), o.positions - 1);
  AttentionArgs a;
  a.q = q.data();
  a.y = y.data();
  a.k = k.bytes.data();
  a.v = v.bytes.data();
  a.k_element = cache_element(cache.k);
  a.v_element = cache_element(cache.v);
  a.k_block_bytes = k.writer.layout().block_bytes();
  a.v_block_bytes = v.writer.layout().block_bytes();
  a.heads = a.group = o.heads;
  a.kv_heads = 1;
  a.head_dim_k = a.head_dim_v = o.dim;
  a.scale = 1 / std::sqrt(static_cast<float>(o.dim));
  a.positions = positions.data();
  a.blocks = k.blocks.data();
  Scratch scratch;
  const double one = least_ticks(o.repetitions, [&] { kernels.attention(a, 0, 0, 1, scratch.data()); });
  const double many = least_ticks(o.repetitions, [&] { kernels.attention(a, 0, 0, tokens, scratch.data()); });
  const std::string name_ = std::string(name(cache.k)) + "/" + std::string(name(cache.v));
  std::printf("%-14s %8.2f %8.3f\n", name_.c_str(), one * cycles / o.positions,
              many * cycles / o.positions / (tokens * o.heads));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  const Kernels* kernels = nullptr;
  for (const Kernels* table : tables()) {
    if (table->isa == o.isa) kernels = table;
  }
  if (kernels == nullptr) {
    std::printf("usage: bench_attention ISA [TYPE ...]; this machine does not run %s\n", o.isa.c_str());
    return 2;
  }
  const double cycles = cycles_per_tick();
  std::printf("%d heads of %d, %d positions\n%-14s %8s %8s\n", o.heads, o.dim, o.positions, "cache", "decode",
              "prefill");
  for (const CacheFormat& cache : o.caches) measure(o, *kernels, cache, cycles);
}
