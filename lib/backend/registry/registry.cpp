#include "backend/registry/registry.h"

#include <string>

#include "backend/blas/blas.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/reference/reference.h"
#include "base/error.h"

namespace llm {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const BackendOptions&);
};

const Entry kBackends[] = {
    {"cpu", make_cpu_backend},
    {"cuda", make_cuda_backend},
    {"blas", make_blas_backend},
    {"reference", [](const BackendOptions&) { return make_reference_backend(); }},
};

}  // namespace

std::span<const std::string_view> backend_names() {
  static constexpr std::string_view kNames[] = {"cpu", "cuda", "blas", "reference"};
  static_assert(std::size(kNames) == std::size(kBackends));
  return kNames;
}

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  for (const Entry& e : kBackends) {
    if (e.name == name) return e.make(options);
  }
  std::string known;
  for (std::string_view n : backend_names()) known += (known.empty() ? "" : ", ") + std::string(n);
  throw Error(ErrorKind::Usage, "unknown backend \"" + escaped(name) + "\"; there are: " + known);
}

}  // namespace llm
