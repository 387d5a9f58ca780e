#include "common/build_info.h"

#include "backend/registry/registry.h"
#include "base/error.h"
#include "base/machine.h"
#include "common/messages.h"
#include "common/placement.h"

namespace llm::app {
namespace {

#if defined(__clang__)
constexpr std::string_view kCompiler = "Clang " __clang_version__;
#else
constexpr std::string_view kCompiler = "GCC " __VERSION__;
#endif

#if defined(__x86_64__)
constexpr std::string_view kProcessor = "x86-64";
#elif defined(__aarch64__)
constexpr std::string_view kProcessor = "aarch64";
#else
constexpr std::string_view kProcessor = "unknown processor";
#endif

/// Nothing is started on a GPU for it.
std::string cuda() {
  const GpuReport report = look_for_gpus();
  if (report.toolkit.empty()) return "not built";
  const bool usable = report.state == GpuReport::State::Usable;
  return report.toolkit + ", " +
         (usable ? gpu_text(report.gpus[static_cast<std::size_t>(first_usable_gpu(report))]) : report.reason);
}

bool is_here(std::string_view backend) {
  // Its libraries take a second to load.
  if (backend == "cuda") return look_for_gpus().state == GpuReport::State::Usable;
  try {
    make_backend(backend, BackendOptions{.threads = 1, .isa = {}});
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::string backends() {
  std::string text;
  for (const std::string_view name : backend_names())
    text += (text.empty() ? "" : ", ") + std::string(name) + (is_here(name) ? "" : " (not here)");
  return text;
}

}  // namespace

std::string_view build_version() { return LLM_VERSION; }
std::string_view build_date() { return LLM_COMMIT_DATE; }

std::string version_text() {
  const auto cpu = make_backend("cpu", BackendOptions{.threads = default_threads().threads, .isa = {}});
  const std::string commit(LLM_COMMIT);
  return std::string(program()) + " " + std::string(build_version()) + " (" + cpu->describe() +
         ")\nbuild: " + (commit.empty() ? "" : "commit " + commit + ", ") + LLM_BUILD_TYPE + ", " +
         std::string(kCompiler) + ", " + std::string(kProcessor) + "\nbackends: " + backends() + "; CUDA: " + cuda();
}

}  // namespace llm::app
