// bench_kernels: what the quantised products cost, in core cycles per 256 weights of a row, for 1, 2, ... columns, from
// the second cache on one thread, the fastest of many repetitions. Not a test.
//
//   bench_kernels ISA COLUMN,COLUMN,... [--rows N] [--k N] [--repetitions N] [--peer DIR] [TYPE ...]
//
// DIR has llama.cpp's libggml-cpu.so: what its dot product of a row and one column costs is then measured in turn.
#include <dlfcn.h>
#include <x86intrin.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
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
  std::string isa, peer;
  std::vector<std::int64_t> columns;
  std::int64_t rows = 128, k = 2048, repetitions = 60;
  std::vector<DType> types;
};

std::int64_t number(std::string_view text) {
  std::int64_t n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return std::max<std::int64_t>(n, 1);
}

Options parse(int argc, char** argv) {
  Options o;
  o.isa = argv[1];
  for (std::string_view list = argv[2]; !list.empty();) {
    const std::size_t comma = std::min(list.find(','), list.size());
    o.columns.push_back(number(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  for (int i = 3; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--rows" && i + 1 < argc) {
      o.rows = number(argv[++i]);
    } else if (arg == "--k" && i + 1 < argc) {
      o.k = number(argv[++i]);
    } else if (arg == "--repetitions" && i + 1 < argc) {
      o.repetitions = number(argv[++i]);
    } else if (arg == "--peer" && i + 1 < argc) {
      o.peer = argv[++i];
    } else if (const auto type = dtype_from_name(arg)) {
      o.types.push_back(*type);
    }
  }
  if (o.types.empty()) o.types = quant_types();
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

template <class Fn>
double ticks(const Fn& run) {
  const auto start = __rdtsc();
  run();
  return static_cast<double>(__rdtsc() - start);
}

/// llama.cpp's dot products by GGUF type id.
class Peer {
 public:
  explicit Peer(const std::string& folder) {
    ::dlopen((folder + "/libggml-base.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
    library_ = ::dlopen((folder + "/libggml-cpu.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library_ == nullptr) return;
    reinterpret_cast<void (*)()>(::dlsym(library_, "ggml_cpu_init"))();
  }
  /// Ticks for all rows of the problem times its first column, 0 if there is no such product.
  double run(const Problem& p) const {
    const Traits* weights = library_ == nullptr ? nullptr : traits(static_cast<int>(info(p.type).gguf_id.value()));
    if (weights == nullptr || weights->vec_dot == nullptr) return 0;
    std::vector<std::byte> column(static_cast<std::size_t>(8 * p.k));
    const Traits* activations = traits(weights->vec_dot_type);
    activations->from_float(p.x.data(), column.data(), p.k);
    float sum = 0;
    return ticks([&] {
      for (std::int64_t r = 0; r < p.rows; ++r)
        weights->vec_dot(static_cast<int>(p.k), &sum, 0, p.weights.data() + static_cast<std::size_t>(r) * p.row_bytes,
                         0, column.data(), 0, 1);
    });
  }

 private:
  struct Traits {  // of version 0.5.0
    void (*from_float)(const float*, void*, std::int64_t);
    void (*vec_dot)(int, float*, std::size_t, const void*, std::size_t, const void*, std::size_t, int);
    int vec_dot_type;
  };
  const Traits* traits(int type) const {
    return reinterpret_cast<const Traits* (*)(int)>(::dlsym(library_, "ggml_get_type_traits_cpu"))(type);
  }
  void* library_ = nullptr;
};

/// Aligned as a backend's buffers are.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : begin_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free) {
    std::memset(begin_.get(), 0, bytes);
  }
  std::byte* begin() const { return begin_.get(); }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> begin_;
};

/// What streams ask for behind their last row: in a model there are other weights, and a line that is nowhere takes a
/// walk through the page tables in vain.
constexpr std::size_t kFetchedBeyond = 32 << 10;

void measure(const Options& o, const Kernels& kernels, const Peer& peer, DType type, double cycles) {
  const std::int64_t most = *std::max_element(o.columns.begin(), o.columns.end());
  Problem p(type, o.rows, o.k, most, 3);
  p.quantize(kernels);
  const std::size_t weight_bytes = static_cast<std::size_t>(o.rows) * p.row_bytes;
  const Memory weights(weight_bytes + kFetchedBeyond);
  std::memcpy(weights.begin(), p.weights.data(), weight_bytes);
  const Memory scratch(kScratchBytes), outputs(static_cast<std::size_t>(o.rows * most) * sizeof(float));
  auto* y = reinterpret_cast<float*>(outputs.begin());
  std::vector<double> best(o.columns.size() + 1, 1e300);
  for (std::int64_t repetition = 0; repetition < o.repetitions; ++repetition) {
    for (std::size_t i = 0; i < o.columns.size(); ++i) {
      LinearArgs args = p.args(y, o.columns[i]);
      args.w = weights.begin();
      args.ways = best_ways(kernels);
      const LinearFn linear = kernels.linear[static_cast<int>(type)];
      best[i] = std::min(best[i], ticks([&] { linear(args, 0, o.rows, scratch.begin()); }));
    }
    best.back() = std::min(best.back(), peer.run(p));
  }
  std::printf("%-8s", std::string(name(type)).c_str());
  const double per_256 = cycles / (static_cast<double>(o.rows * o.k) / 256);
  for (std::size_t i = 0; i < o.columns.size(); ++i) std::printf("  %7.1f", best[i] * per_256);
  if (best.back() > 0) std::printf("  %7.1f", best.back() * per_256);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "bench_kernels ISA COLUMN,... [--rows N] [--k N] [--repetitions N] [--peer DIR] [TYPE ...]\n");
    return 2;
  }
  const Options o = parse(argc, argv);
  const Peer peer(o.peer);
  const double cycles = cycles_per_tick();
  for (const Kernels* kernels : tables()) {
    if (o.isa != kernels->isa) continue;
    std::printf("cycles per 256 weights with columns:\n%-8s", "");
    for (std::int64_t n : o.columns) std::printf("  %7ld", static_cast<long>(n));
    std::printf("%s\n", o.peer.empty() ? "" : "  llama.cpp, 1");
    for (DType type : o.types) measure(o, *kernels, peer, type, cycles);
    return 0;
  }
  std::fprintf(stderr, "bench_kernels: no instruction set '%s' here\n", o.isa.c_str());
  return 9;
}
