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
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr int kLayers = 2;

class PlacementBench {
 public:
  PlacementBench() { tiny_model({.layers = kLayers, .context = 64}).write(model()); }

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

void check_refusal(const Outcome& o, int code, std::string_view part) {
  INFO(o.err);
  CHECK(o.code == code);
  CHECK(o.out.empty());
  CHECK(contains(o.err, part));
}

bool gpu_is_here() { return look_for_gpus().state == GpuReport::State::Usable; }

}  // namespace

TEST_CASE("-ngl 0 and its like run on the CPU, silently") {
  const PlacementBench bench;
  const Outcome cpu = bench({"--backend", "cpu"});
  REQUIRE(cpu.code == 0);
  using Arguments = std::vector<std::string>;
  for (const Arguments& a :
       {Arguments{"-ngl", "0"}, Arguments{"--gpu-layers", "0"}, Arguments{"--n-gpu-layers=0"},
        Arguments{"-dev", "none"}, Arguments{"-nkvo"}, Arguments{"-ngl", "all", "-ngl", "0"},
        Arguments{"--backend", "cpu", "-ngl", "0"}, Arguments{"--backend", "cpu", "-ngl", "auto"},
        Arguments{"-ngl", "0", "-cmoe"}, Arguments{"-ngl", "0", "--n-cpu-moe", "1"}, Arguments{"-ngl", "0", "--fp8"},
        Arguments{"-ngl", "0", "-ot", "exps=CPU,attn=CPU", "-ot", "ffn=CPU", "-ncffn", "1"}}) {
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

TEST_CASE("--fp8 depends on how a prompt is cut, which --deterministic excludes") {
  const PlacementBench bench;
  check_refusal(bench({"--fp8", "--deterministic"}), 2, "--fp8 and --deterministic contradict each other");
}

TEST_CASE("without a GPU auto is the CPU, and all fails with the reason") {
  if (gpu_is_here()) {
    WARN("skipped: there is a GPU");
    return;
  }
  const PlacementBench bench;
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
                  "option -ngl " + std::string(layers) + ": no GPU can be used: " + report.reason + "; 0 ");
  }
  check_refusal(bench({"--backend", "cuda"}), 9, "backend cuda is not available");
  check_refusal(bench({}, {{"LLAMA_ARG_N_GPU_LAYERS", "99"}}), 9, "(--gpu-layers is set by LLAMA_ARG_N_GPU_LAYERS)");
  check_refusal(bench({"-dev", "CUDA0"}), 9,
                "option -dev CUDA0: no GPU can be used: " + report.reason + "; none runs the model on the CPU");
  check_refusal(bench({"-dev", "CUDA1,CUDA0", "-ngl", "all"}), 9, "option -ngl all: no GPU can be used");
  check_refusal(bench({"-ot", "ffn=CPU,attn=CUDA0"}), 9, "option -ot attn=CUDA0: no GPU can be used: " + report.reason);
  CHECK(bench({"-ot", "ffn=CPU"}).out == cpu.out);
  check_refusal(bench({"-md", bench.model(), "-ngl", "0", "-ngld", "all"}), 9, "option -ngld all: ");
  CHECK(bench({"-md", bench.model(), "-ngld", "0"}).out == cpu.out);
  // How several GPUs would share changes nothing, which is said once of each option that asks for something.
  using Arguments = std::vector<std::string>;
  const std::string code = "warning[no-effect]: ", why = " has no effect: the model runs on the CPU\n";
  for (const auto& [a, option] :
       {std::pair{Arguments{"-sm", "layer"}, "--split-mode layer"},
        std::pair{Arguments{"-sm", "none", "-mg", "1"}, "--main-gpu 1"},
        std::pair{Arguments{"-ts", "3,1"}, "--tensor-split"},
        std::pair{Arguments{"-ngl", "0", "-ts", "3,1", "-md", bench.model()}, "--tensor-split"},
        std::pair{Arguments{"-sm", "none"}, ""}, std::pair{Arguments{"-ngl", "0", "-dev", "CUDA3"}, ""},
        std::pair{Arguments{"-dev", "CUDA1", "-dev", "none"}, ""}}) {
    const Outcome o = bench(a);
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(o.out == cpu.out);
    const std::size_t at = o.err.find(code);
    CHECK((at != std::string::npos) == !std::string_view(option).empty());
    if (at == std::string::npos) continue;
    CHECK(contains(o.err, code + option + why));
    CHECK(o.err.find(code, at + 1) == std::string::npos);
  }
  CHECK(bench({"-sm", "layer", "--strict"}).code == 10);
}

TEST_CASE("on a GPU the whole model runs there, by default, too") {
  if (!gpu_is_here()) {
    WARN("skipped: no CUDA device");
    return;
  }
  const PlacementBench bench;
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
  const PlacementBench bench;
  const std::string memory = look_for_gpus().gpus.size() == 1 ? "GPU" : "CUDA0";
  for (int layers = 1; layers <= kLayers; ++layers) {
    const Outcome o = bench({"-ngl", std::to_string(layers), "-v", "-mg", "0"});
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(contains(o.err, memory + ": " + std::to_string(layers) + " of 3 layers, "));
    CHECK(contains(o.err, "segment 1 of 2 on cpu:"));
    CHECK(contains(o.err, "segment 2 of 2 on cuda:"));
    const Outcome plan = bench({"-ngl", std::to_string(layers), "--dry-run", "-mg", "0"});
    INFO(plan.out);
    CHECK(plan.code == 0);
    for (const std::string& line : {std::string("placement "), memory + " weights ", std::string("CPU weights "),
                                    memory + " work buffers ", std::string("CPU in all ")})
      CHECK(contains(plan.out, line));
  }
}

TEST_CASE("on a GPU single tensors stay with the CPU, and --dry-run counts them there") {
  if (!gpu_is_here()) {
    WARN("skipped: no CUDA device");
    return;
  }
  const PlacementBench bench;
  for (const auto& [arguments, tensors] : {std::pair{std::vector<std::string>{"-ot", "ffn_(up|down)=CPU"}, 2 * kLayers},
                                           std::pair{std::vector<std::string>{"-ncffn", "1"}, 3}}) {
    auto all = arguments;
    all.insert(all.end(), {"-ngl", "all", "--dry-run", "-mg", "0"});
    const Outcome plan = bench(all);
    INFO(plan.out << plan.err);
    CHECK(plan.code == 0);
    CHECK(contains(plan.out, "; CPU: the rest"));
    CHECK(contains(plan.out, "; tensors by name: " + std::to_string(tensors) + " on CPU"));
    all = arguments;
    all.insert(all.end(), {"-ngl", "all"});
    CHECK(bench(all).code == 0);
  }
  const Outcome nothing = bench({"-ot", "exps=CPU"});
  CHECK(nothing.code == 0);
  CHECK(contains(nothing.err, "warning[no-effect]: --override-tensor exps=CPU has no effect"));
  check_refusal(bench({"-ot", "ffn=CUDA77"}), 9, "option -ot ffn=CUDA77: CUDA77 is not among the GPUs");
}

TEST_CASE("on several GPUs a model is split where it is asked for, and --dry-run counts every memory") {
  const GpuReport report = look_for_gpus();
  if (report.state != GpuReport::State::Usable || report.gpus.size() < 2) {
    WARN("skipped: there are not two GPUs");
    return;
  }
  const PlacementBench bench;
  const Outcome one = bench({"-dev", "CUDA1", "-v"}), split = bench({"-ts", "1,2", "-dev", "CUDA0,CUDA1", "-v"});
  INFO(one.err << split.err);
  CHECK(one.code == 0);
  CHECK(contains(one.err, "\ncuda: CUDA1, "));
  CHECK(split.code == 0);
  CHECK(split.out == one.out);
  CHECK(contains(split.err, "CUDA0: layer 0, "));
  CHECK(contains(split.err, "; CUDA1: layer 1 and the head, "));
  CHECK(contains(split.err, "segment 1 of 2 on CUDA0:"));
  CHECK(contains(split.err, "segment 2 of 2 on CUDA1:"));
  const Outcome quiet = bench({"-sm", "layer"});
  CHECK(contains(quiet.err, "note: CUDA0: "));
  CHECK_FALSE(contains(bench({}).err, "CUDA"));  // it fits on one
  const Outcome plan = bench({"-ts", "1,2", "-dev", "CUDA0,CUDA1", "--dry-run"});
  for (const char* line : {"CUDA0 weights ", "CUDA1 weights ", "CUDA0 work buffers ", "CUDA1 in all "})
    CHECK(contains(plan.out, line));
  check_refusal(bench({"-dev", "CUDA77"}), 9, "option -dev: CUDA77 cannot be used here, CUDA0, CUDA1");
  check_refusal(bench({"-sm", "none", "-mg", "77"}), 9, "option -mg 77: there are ");
}

TEST_CASE("--dry-run of a model in one place names no memory") {
  const PlacementBench bench;
  const Outcome plan = bench({"-ngl", "0", "--dry-run"});
  CHECK(plan.code == 0);
  CHECK(contains(plan.out, "\nweights "));
  CHECK_FALSE(contains(plan.out, "CPU"));
  CHECK_FALSE(contains(plan.out, "placement"));
}

TEST_CASE("what cannot be and contradictions are usage errors") {
  const PlacementBench bench;
  check_refusal(bench({"-ncmoe", "-1"}), 2, "option -ncmoe");
  check_refusal(bench({"-ncmoe", "few"}), 2, "option -ncmoe");
  check_refusal(bench({"-ngl", "-1"}), 2, "option -ngl: \"-1\" is not auto, all or a number of layers");
  check_refusal(bench({"-ngl", "most"}), 2, "\"most\" is not auto, all or");
  check_refusal(bench({"-ngl", "all", "--backend", "cpu"}), 2, "--backend cpu and --gpu-layers all contradict");
  check_refusal(bench({"-ngl", "3", "--backend", "blas"}), 2, "--backend blas and --gpu-layers 3 contradict");
  check_refusal(bench({"-ngl", "0", "--backend", "cuda"}), 2, "--backend cuda and --gpu-layers 0 contradict");
  check_refusal(bench({"-ngl", "all", "-dev", "none"}), 2, "--gpu-layers all and --device none contradict");
  check_refusal(bench({"--backend", "cuda", "-nkvo"}), 2, "--backend cuda and --no-kv-offload contradict");
  check_refusal(bench({"--backend", "cuda", "-kvo", "-nkvo"}), 2, "--backend cuda and --no-kv-offload contradict");
  CHECK(bench({"--backend", "cpu", "-nkvo", "-kvo"}).code == 0);
  CHECK(bench({"--backend", "cuda", "-nkvo", "-kvo"}).err.find("contradict") == std::string::npos);
  check_refusal(bench({"-ngl", "all"}, {{"LLM_RUN_BACKEND", "cpu"}}), 2, "--backend is set by LLM_RUN_BACKEND");
  check_refusal(bench({"-dev", "GPU0"}), 2, "option -dev: \"GPU0\" is not none or GPUs that --list-devices names");
  check_refusal(bench({"-dev", "CUDA0,CUDA0"}), 2, "names a GPU twice");
  check_refusal(bench({"-dev", "CUDA0", "--backend", "cpu"}), 2, "--backend cpu and --device CUDA0 contradict");
  check_refusal(bench({"-dev", "CUDA0", "-nkvo"}), 2, "--device CUDA0 and --no-kv-offload contradict");
  for (const char* mode : {"row", "tensor"}) {
    check_refusal(bench({"-sm", mode}), 2,
                  "option -sm " + std::string(mode) + " is recognised, not supported: the parts of one");
  }
  check_refusal(bench({"-sm", "rows"}), 2, "option -sm: \"rows\" is not none or layer");
  check_refusal(bench({"-ts", "1,-1"}), 2, "option -ts: \"1,-1\" is not a list of shares such as 3,1");
  check_refusal(bench({"-ts", "0,0"}), 2, "gives no GPU a share");
  check_refusal(bench({"-mg", "-1"}), 2, "option -mg");
  check_refusal(bench({"-sm", "none", "-ts", "1,1"}), 2, "--split-mode none and --tensor-split contradict");
  check_refusal(bench({"-sm", "layer", "-mg", "0"}), 2, "--main-gpu and --split-mode layer contradict");
  check_refusal(bench({"-ts", "1", "-mg", "0"}), 2, "--main-gpu and --tensor-split contradict");
  check_refusal(bench({}, {{"LLM_RUN_SPLIT_MODE", "row"}}), 2,
                "LLM_RUN_SPLIT_MODE: the parts of one matrix stay together");
  check_refusal(bench({"-ncffn", "-1"}), 2, "option -ncffn");
  check_refusal(bench({"-ot", "1"}), 2, "option -ot: \"1\" is not a pattern and where its tensors go");
  check_refusal(bench({"-ot", "exps=GPU"}), 2, "\"exps=GPU\" does not end in CPU or a GPU that --list-devices names");
  check_refusal(bench({"-ot", "(=CPU"}), 2, "option -ot: \"(\" is not a regular expression");
  check_refusal(bench({"-otd", "exps"}), 2, "option -otd: \"exps\" is not a pattern");
  check_refusal(bench({}, {{"LLAMA_ARG_OVERRIDE_TENSOR", "exps"}}), 2,
                "LLAMA_ARG_OVERRIDE_TENSOR: \"exps\" is not a pattern");
  check_refusal(bench({"-ngl", "0", "-ot", "a=CPU", "-ot", "a=CUDA0"}), 2,
                "--gpu-layers 0 and --override-tensor a=CUDA0 contradict");
  check_refusal(bench({"--backend", "cpu", "-ot", "a=CUDA0"}), 2,
                "--backend cpu and --override-tensor a=CUDA0 contradict");
  check_refusal(bench({"-nkvo", "-ot", "a=CUDA0"}), 2, "--no-kv-offload and --override-tensor a=CUDA0 contradict");
  check_refusal(bench({"-ncmoed", "1"}), 2, "-cmoe and -ncmoe count for a draft model, too");
}

TEST_CASE("--list-devices prints the GPUs or why there is none, in every program that runs a model") {
  const GpuReport report = look_for_gpus();
  for (const char* name : {"llm-run", "llm-bench", "llm-perplexity", "llm-imatrix"}) {
    const Outcome o = run({.program = program(name), .arguments = {"--list-devices"}});
    INFO(name << o.err);
    CHECK(o.code == 0);
    CHECK(o.err.empty());
    if (report.state == GpuReport::State::Usable) {
      for (std::size_t i = 0; i < report.gpus.size(); ++i)
        CHECK(contains(o.out, "CUDA" + std::to_string(i) + ": " + report.gpus[i].name));
      CHECK(contains(o.out, " free\n"));
    } else {
      CHECK(contains(o.out, "no GPU can be used: " + report.reason + "\n"));
    }
  }
  for (const char* option : {"-ngl", "-ncmoe", "-ncffn", "-ot"}) {
    check_refusal(run({.program = program("llm-quantize"), .arguments = {option, "1"}}), 2,
                  "it is for programs that run a model");
  }
}
