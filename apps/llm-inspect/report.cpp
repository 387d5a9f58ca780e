#include "report.h"

#include <algorithm>

#include "backend/registry/registry.h"
#include "graph/passes/passes.h"
#include "models/registry.h"
#include "runtime/memory_budget.h"
#include "text/tokenizer.h"

namespace llm::inspect {
namespace {

constexpr std::uint64_t kCachePositions = 1024;

/// The error without the file's name, which the report begins with.
std::string problem(const Error& e) {
  const ErrorParts& parts = e.parts();
  return parts.subject.empty() ? parts.problem : parts.subject + ": " + parts.problem;
}
Finding not_supported(const Error& e) { return {"not supported: " + problem(e), false}; }

std::vector<TypeSum> sum_types(std::span<const TensorInfo> tensors) {
  std::vector<TypeSum> sums;
  for (const TensorInfo& t : tensors) {
    auto at = std::ranges::find(sums, t.type.dtype, &TypeSum::type);
    if (at == sums.end()) at = sums.insert(at, {t.type.dtype});
    at->tensors += 1;
    at->elements += static_cast<std::uint64_t>(t.type.shape.elements());
    at->bytes += t.type.bytes();
  }
  std::ranges::stable_sort(sums, std::greater{}, &TypeSum::bytes);
  return sums;
}

void describe_model(const GgufFile& file, Here& here) {
  const ModelSpec spec = open_model(file.metadata());
  here.dims = spec.dims;
  here.architecture = {spec.dims.architecture};
  const Graph graph = optimize(build_graph(spec, file, Bucket{}, &here.unused));
  std::uint64_t bytes = 0;
  for (const ValueInfo& v : graph.values()) {
    if (v.kind == ValueKind::Weight) bytes += v.type.bytes();
  }
  here.weight_bytes = bytes;
  here.cache_bytes = bytes_per_position(cache_types(graph), CacheFormat{}) * kCachePositions;
}

Finding describe_tokenizer(const GgufFile& file, Warnings& warnings) {
  try {
    return {Tokenizer::load(file.metadata(), warnings)->describe()};
  } catch (const Error& e) {
    return not_supported(e);
  }
}

/// Where a model runs whose weights fit.
Finding describe_backend(int threads) {
  try {
    const GpuReport report = look_for_gpus();
    if (report.state == GpuReport::State::Usable)
      return {make_backend("cuda", {.isa = {}, .device = first_usable_gpu(report)})->describe()};
    return {make_backend("cpu", BackendOptions{.threads = threads, .isa = {}})->describe()};
  } catch (const Error& e) {
    return not_supported(e);
  }
}

std::optional<std::uint64_t> template_bytes(const Metadata& metadata) {
  const Metadata::Entry* entry = metadata.find("tokenizer.chat_template");
  if (entry == nullptr || entry->type != GgufType::String) return std::nullopt;
  return entry->raw.size();
}

Here look_here(const GgufFile& file, Warnings& warnings) {
  Here here;
  here.threads = default_threads();
  here.backend = describe_backend(here.threads.threads);
  here.tokenizer = describe_tokenizer(file, warnings);
  here.template_bytes = template_bytes(file.metadata());
  try {
    describe_model(file, here);
  } catch (const Error& e) {
    here.architecture = not_supported(e);
    if (here.dims) here.architecture.text = here.dims->architecture + ", but this file cannot run: " + problem(e);
  }
  return here;
}

}  // namespace

Report make_report(const std::string& path, const GgufFile& file, Warnings& warnings) {
  Report r{.path = path, .file = file, .types = sum_types(file.tensors().all()), .here = look_here(file, warnings)};
  for (const TypeSum& t : r.types) {
    r.parameters += t.elements;
    r.tensor_bytes += t.bytes;
  }
  return r;
}

}  // namespace llm::inspect
