// Where a model runs, by -ngl, --device and --backend, as real processes. What only a GPU can show is tested where
// there is one; everything else holds with and without CUDA.
#include <string>
#include <utility>
#include <vector>

#include "backend/registry/registry.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr int kLayers = 2;

class Bench {
 public:
  Bench() { tiny_model({.layers = kLayers, .context = 64}).write(model()); }

  std::string model() const { return (folder_ / "tiny.gguf").string(); }
  Outcome operator()(std::vector<std::string> arguments,
                     std::vector<std::pair<std::string, std::string>> environment = {}) const {
    std::vector<std::string> all{"-m", model(), "-no-cnv", "-p", "ab", "-n", "2", "--temp", "0"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run({.program = program("llm-run"), .arguments = std::move(all), .environment = std::move(environment)});
  }

 private:
  TempDir folder_;
};

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

void check_refusal(const Outcome& o, int code, std::string_view part) {
  INFO(o.err);
  CHECK(o.code == code);
  CHECK(o.out.empty());
  CHECK(contains(o.err, part));
}

bool gpu_is_here() { return look_for_gpus().state == GpuReport::State::Usable; }

}  // namespace

TEST_CASE("-ngl 0 and its like run on the CPU, silently") {
  const Bench bench;
  const Outcome cpu = bench({"--backend", "cpu"});
  REQUIRE(cpu.code == 0);
  using Arguments = std::vector<std::string>;
  for (const Arguments& a : {Arguments{"-ngl", "0"}, Arguments{"--gpu-layers", "0"}, Arguments{"--n-gpu-layers=0"},
                             Arguments{"-dev", "none"}, Arguments{"-nkvo"}, Arguments{"-ngl", "all", "-ngl", "0"},
                             Arguments{"--backend", "cpu", "-ngl", "0"}, Arguments{"--backend", "cpu", "-ngl", "auto"},
                             Arguments{"-ngl", "0", "-cmoe"}, Arguments{"-ngl", "0", "--n-cpu-moe", "1"}}) {
    const Outcome o = bench(a);
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(o.out == cpu.out);
    CHECK_FALSE(contains(o.err, "warning"));
  }
  const Outcome chosen = bench({"-ngl", "0", "-v"});
  CHECK(contains(chosen.err, "\ncpu: "));
  CHECK(bench({}, {{"LLAMA_ARG_N_GPU_LAYERS", "0"}}).out == cpu.out);
}

TEST_CASE("without a GPU auto is the CPU, and all fails with the reason") {
  if (gpu_is_here()) {
    WARN("skipped: there is a GPU");
    return;
  }
  const Bench bench;
  const GpuReport report = look_for_gpus();
  const Outcome automatic = bench({"-ngl", "auto"}), by_default = bench({}), cpu = bench({"-ngl", "0"});
  CHECK(automatic.code == 0);
  CHECK(automatic.out == cpu.out);
  CHECK(by_default.out == cpu.out);
  // Only what stands in the way of a GPU that is there is worth a warning.
  CHECK(contains(automatic.err, "warning[gpu]: the model runs on the CPU: ") ==
        (report.state == GpuReport::State::Unusable));
  for (const char* layers : {"all", "99", "3", "1", "2"}) {
    check_refusal(bench({"-ngl", layers}), 9,
                  "option --gpu-layers " + std::string(layers) + ": no GPU can be used: " + report.reason + "; 0 ");
  }
  check_refusal(bench({"--backend", "cuda"}), 9, "backend cuda is not available");
  check_refusal(bench({}, {{"LLAMA_ARG_N_GPU_LAYERS", "99"}}), 9, "(--gpu-layers is set by LLAMA_ARG_N_GPU_LAYERS)");
  check_refusal(bench({"-md", bench.model(), "-ngl", "0", "-ngld", "all"}), 9, "option --gpu-layers-draft all: ");
  CHECK(bench({"-md", bench.model(), "-ngld", "0"}).out == cpu.out);
}

TEST_CASE("on a GPU the whole model runs there, by default, too") {
  if (!gpu_is_here()) {
    WARN("skipped: no CUDA device");
    return;
  }
  const Bench bench;
  for (const char* layers : {"auto", "all", "99"}) {
    const Outcome o = bench({"-ngl", layers, "-v"});
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(contains(o.err, "\ncuda: "));
  }
}

TEST_CASE("on a GPU a part of the model runs there, and --dry-run counts both memories") {
  if (!gpu_is_here()) {
    WARN("skipped: no CUDA device");
    return;
  }
  const Bench bench;
  for (int layers = 1; layers <= kLayers; ++layers) {
    const Outcome o = bench({"-ngl", std::to_string(layers), "-v"});
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(contains(o.err, "GPU: " + std::to_string(layers) + " of 3 layers, "));
    CHECK(contains(o.err, "segment 1 of 2 on cpu:"));
    CHECK(contains(o.err, "segment 2 of 2 on cuda:"));
    const Outcome plan = bench({"-ngl", std::to_string(layers), "--dry-run"});
    INFO(plan.out);
    CHECK(plan.code == 0);
    for (const char* line : {"placement ", "GPU weights ", "CPU weights ", "GPU work buffers ", "CPU in all "})
      CHECK(contains(plan.out, line));
  }
}

TEST_CASE("--dry-run of a model in one place names no memory") {
  const Bench bench;
  const Outcome plan = bench({"-ngl", "0", "--dry-run"});
  CHECK(plan.code == 0);
  CHECK(contains(plan.out, "\nweights "));
  CHECK_FALSE(contains(plan.out, "CPU"));
  CHECK_FALSE(contains(plan.out, "placement"));
}

TEST_CASE("what cannot be and contradictions are usage errors") {
  const Bench bench;
  check_refusal(bench({"-ncmoe", "-1"}), 2, "option --n-cpu-moe");
  check_refusal(bench({"-ncmoe", "few"}), 2, "option --n-cpu-moe");
  check_refusal(bench({"-ngl", "-1"}), 2, "option --gpu-layers: \"-1\" is not auto, all or a number of layers");
  check_refusal(bench({"-ngl", "most"}), 2, "\"most\" is not auto, all or");
  check_refusal(bench({"-ngl", "all", "--backend", "cpu"}), 2, "--backend cpu and --gpu-layers all contradict");
  check_refusal(bench({"-ngl", "3", "--backend", "blas"}), 2, "--backend blas and --gpu-layers 3 contradict");
  check_refusal(bench({"-ngl", "0", "--backend", "cuda"}), 2, "--backend cuda and --gpu-layers 0 contradict");
  check_refusal(bench({"-ngl", "all", "-dev", "none"}), 2, "--gpu-layers all and --device none contradict");
  check_refusal(bench({"--backend", "cuda", "-nkvo"}), 2, "--backend cuda and --no-kv-offload contradict");
  check_refusal(bench({"-ngl", "all"}, {{"LLM_RUN_BACKEND", "cpu"}}), 2, "--backend is set by LLM_RUN_BACKEND");
  check_refusal(bench({"-dev", "CUDA0"}), 2, "CUDA_VISIBLE_DEVICES chooses");
  for (const char* option : {"-ncffn", "-ot", "--op-offload"}) {
    INFO(option);
    check_refusal(bench({option, "1"}), 2,
                  "is recognised, not supported yet: -ngl and -cmoe say which parts of a model run on the GPU");
  }
  check_refusal(bench({"-ncmoed", "1"}), 2, "-cmoe and -ncmoe count for a draft model, too");
  check_refusal(bench({"-ts", "1,1"}), 2, "a model runs on one GPU");
}

TEST_CASE("--list-devices prints the GPUs or why there is none, in every program that runs a model") {
  const GpuReport report = look_for_gpus();
  for (const char* name : {"llm-run", "llm-bench", "llm-perplexity", "llm-imatrix"}) {
    const Outcome o = run({.program = program(name), .arguments = {"--list-devices"}});
    INFO(name << o.err);
    CHECK(o.code == 0);
    CHECK(o.err.empty());
    if (report.state == GpuReport::State::Usable) {
      CHECK(contains(o.out, "GPU 0: " + report.gpus.front().name));
      CHECK(contains(o.out, " free\n"));
    } else {
      CHECK(contains(o.out, "no GPU can be used: " + report.reason + "\n"));
    }
  }
  for (const char* option : {"-ngl", "-ncmoe"}) {
    check_refusal(run({.program = program("llm-quantize"), .arguments = {option, "1"}}), 2,
                  "it is for programs that run a model");
  }
}
