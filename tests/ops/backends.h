// The backends that the op table runs on, each compared with the reference.
#pragma once

#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/blas/blas.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/instruction_sets.h"

namespace llm::test {

/// What a backend's products take: x as it is, or quantised as the weight's type prescribes.
enum class Activations { Plain, Quantized };

struct NamedBackend {
  std::string name;
  Activations activations;
  /// Whether it must run whatever the reference runs, or may refuse what cannot be on its device.
  enum class Duty { Everything, MayRefuse } duty;
  std::function<std::unique_ptr<Backend>()> make;
  /// Steps of more tokens round to F16 there; tests/cuda has the bounds of that.
  int most_tokens = std::numeric_limits<int>::max();
};

inline std::vector<NamedBackend> all_backends() {
  const auto blas = [](int threads) {
    return [threads] { return make_blas_backend({.threads = threads, .isa = {}}); };
  };
  std::vector<NamedBackend> backends{
      {"blas, 1 thread", Activations::Plain, NamedBackend::Duty::Everything, blas(1)},
      {"blas, 2 threads", Activations::Plain, NamedBackend::Duty::Everything, blas(2)},
  };
  const auto cuda = [](bool deterministic) {
    return [deterministic] { return make_cuda_backend({.threads = 1, .isa = {}, .deterministic = deterministic}); };
  };
  backends.push_back({"cuda", Activations::Quantized, NamedBackend::Duty::MayRefuse, cuda(false), 64});
  backends.push_back({"cuda, deterministic", Activations::Quantized, NamedBackend::Duty::MayRefuse, cuda(true)});
  for (const InstructionSet& set : instruction_sets()) {
    for (int threads : {1, 2}) {
      backends.push_back({"cpu " + std::string(set.name) + ", " + std::to_string(threads) + " threads",
                          Activations::Quantized, NamedBackend::Duty::Everything, [=] {
                            return make_cpu_backend(
                                {.threads = threads, .isa = std::string(set.name), .bytes_per_thread = 0});
                          }});
    }
  }
  return backends;
}

/// Those that this build and this machine have.
inline std::vector<NamedBackend> available_backends() {
  std::vector<NamedBackend> available;
  for (NamedBackend& backend : all_backends()) {
    try {
      backend.make();
      available.push_back(std::move(backend));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device) throw;
      std::printf("skipped, %s: %s\n", backend.name.c_str(), e.what());
    }
  }
  return available;
}

}  // namespace llm::test
