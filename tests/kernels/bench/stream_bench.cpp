// bench_streams: how fast products of few columns read weights from memory, in each of the ways of kernels.h, beside a
// loop that only reads them at ascending addresses: GB/s of all threads, and the share of that loop's, medians of
// repetitions in turns. Not a test.
//
//   bench_streams ISA [--threads N] [--mib N] [--k N] [--columns N] [--repetitions N] [TYPE ...]
#include <omp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quant_cases.h"

using namespace llm;
using namespace llm::cpu;
using namespace llm::cpu::test;

namespace {

struct Options {
  std::string_view isa;
  int threads = 2;
  std::int64_t mib = 512, k = 2048, columns = 1, repetitions = 15;
  std::vector<DType> types;
};

Options parse(int argc, char** argv) {
  Options o;
  o.isa = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto number = [&](auto& into) {
      const std::string_view text = argv[++i];
      std::from_chars(text.data(), text.data() + text.size(), into);
    };
    if (i + 1 < argc && arg == "--threads") {
      number(o.threads);
    } else if (i + 1 < argc && arg == "--mib") {
      number(o.mib);
    } else if (i + 1 < argc && arg == "--k") {
      number(o.k);
    } else if (i + 1 < argc && arg == "--columns") {
      number(o.columns);
    } else if (i + 1 < argc && arg == "--repetitions") {
      number(o.repetitions);
    } else if (const auto type = dtype_from_name(arg)) {
      o.types.push_back(*type);
    }
  }
  if (o.types.empty()) o.types = quant_types();
  return o;
}

/// Seconds that all threads take for `work` (thread, threads).
double seconds(int threads, const std::function<void(int, int)>& work) {
  const auto begin = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(threads)
  work(omp_get_thread_num(), omp_get_num_threads());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Every cache line of a thread's share, at ascending addresses.
void read_share(const std::byte* data, std::size_t bytes, int thread, int threads) {
  using Line [[gnu::vector_size(64)]] = std::uint64_t;
  const std::size_t share = bytes / static_cast<std::size_t>(threads) / 512 * 512;
  const std::byte* p = data + share * static_cast<std::size_t>(thread);
  Line sums[8] = {};
  for (std::size_t i = 0; i < share; i += 512) {
    for (std::size_t line = 0; line < 8; ++line) {
      Line x;
      __builtin_memcpy(&x, p + i + 64 * line, sizeof x);
      sums[line] += x;
    }
  }
  for (const Line& s : sums) __asm__ volatile("" : : "m"(s));
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + std::ssize(v) / 2, v.end());
  return v[v.size() / 2];
}

void measure(const Options& o, const Kernels& kernels, DType type) {
  const auto row_bytes = static_cast<std::int64_t>(Problem::row_size(type, o.k));
  Problem p(type, 1024, o.k, o.columns, 3);
  p.quantize(kernels);
  // Rows that repeat: whole matrices of as many rows as share out evenly.
  const std::int64_t rows = (o.mib << 20) / row_bytes / 1024 * 1024;
  const auto bytes = static_cast<std::size_t>(rows * row_bytes);
  const std::unique_ptr<std::byte[]> weights(new std::byte[bytes + 4096]);  // not touched yet
  for (std::int64_t r = 0; r < rows; r += 1024)
    std::copy_n(p.weights.data(), 1024 * row_bytes, weights.get() + r * row_bytes);
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> scratch;
  for (int t = 0; t < o.threads; ++t)
    scratch.emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, kScratchBytes)), std::free);
  std::vector<float> y(static_cast<std::size_t>(rows * o.columns));
  const auto product = [&](Streams streams) {
    return seconds(o.threads, [&](int thread, int threads) {
      LinearArgs args = p.args(y.data(), o.columns);
      args.w = weights.get();
      args.ldy = rows;
      args.ways.streams = streams;
      const std::int64_t share = rows / threads / kRowTile * kRowTile;
      kernels.linear[static_cast<int>(type)](args, share * thread, share * (thread + 1),
                                             scratch[static_cast<std::size_t>(thread)].get());
    });
  };
  std::array<std::vector<double>, 4> speed, share;
  for (std::int64_t i = 0; i < o.repetitions; ++i) {
    const double reading = seconds(o.threads, [&](int t, int n) { read_share(weights.get(), bytes, t, n); });
    const std::array taken{reading, product(Streams::One), product(Streams::Two), product(Streams::TwoAhead)};
    const double again = seconds(o.threads, [&](int t, int n) { read_share(weights.get(), bytes, t, n); });
    for (std::size_t s = 0; s < taken.size(); ++s) {
      speed[s].push_back(static_cast<double>(bytes) / taken[s] / 1e9);
      share[s].push_back(100 * std::min(reading, again) / taken[s]);
    }
  }
  std::printf("%-8s  %7.1f", std::string(name(type)).c_str(), median(speed[0]));
  for (std::size_t s = 1; s < speed.size(); ++s) std::printf("  %7.1f %3.0f %%", median(speed[s]), median(share[s]));
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "bench_streams ISA [--threads N] [--mib N] [--k N] [--columns N] [--repetitions N] [TYPE ...]\n");
    return 2;
  }
  const Options o = parse(argc, argv);
  for (const Kernels* kernels : tables()) {
    if (o.isa != kernels->isa) continue;
    std::printf("GB/s      reading   one stream     two streams    two, ahead\n");
    for (const DType type : o.types) measure(o, *kernels, type);
    return 0;
  }
  std::fprintf(stderr, "bench_streams: no instruction set '%s' here\n", std::string(o.isa).c_str());
  return 9;
}
