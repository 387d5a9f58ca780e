#include "common/reserved.h"

#include <algorithm>
#include <iterator>

namespace llm::app {
namespace {

constexpr std::string_view kReserved[] = {
    // prompt and model
    "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token", "-dr", "--docker-repo",
    "-sys", "--system-prompt", "-sysf", "--system-prompt-file", "-sp", "--special", "--lora", "--lora-scaled",
    "--control-vector", "--override-kv", "--check-tensors", "-mm", "--mmproj", "--image", "--audio", "--offline", "-b",
    "--batch-size", "-ub", "--ubatch-size", "--interactive-first", "-if", "--in-prefix", "--in-suffix",
    // chat
    "-cnv", "--conversation", "-mli", "--multiline-input", "--simple-io", "--jinja", "--no-jinja", "--chat-template",
    "--chat-template-file", "--chat-template-kwargs", "--skip-chat-parsing", "-rea", "--reasoning",
    "--reasoning-format", "--reasoning-effort", "--reasoning-budget", "--reasoning-budget-message",
    "--reasoning-preserve", "--show-thinking", "--verbose-prompt", "--show-timings", "--no-show-timings", "-co",
    "--color",
    // sampling
    "--adaptive-target", "--adaptive-decay", "-bs", "--backend-sampling", "--deterministic",
    // cache and context
    "-ctk", "--cache-type-k", "-ctv", "--cache-type-v", "-kvo", "--kv-offload", "-nkvo", "--no-kv-offload",
    "--swa-full", "-ctxcp", "--ctx-checkpoints", "-cram", "--cache-ram",
    "-fa", "--flash-attn", "--cache-reuse",
    // cpu
    "-tb", "--threads-batch", "-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict", "--prio", "--poll", "-Cb",
    "--cpu-mask-batch", "-Crb", "--cpu-range-batch", "--cpu-strict-batch", "--prio-batch", "--poll-batch", "--numa",
    "--repack", "-nr", "--no-repack", "--no-host", "--op-offload", "--no-op-offload", "--perf", "--no-perf", "--tune",
    // loading and devices
    "-lm", "--load-mode", "-lzm", "--mlock", "--mmap", "--no-mmap", "-dio", "--direct-io", "-dev", "--device",
    "--list-devices", "-ngl", "--gpu-layers", "--n-gpu-layers", "-sm", "--split-mode", "-ts", "--tensor-split", "-mg",
    "--main-gpu", "-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe", "-ncffn", "-fit", "--fit",
    "-fitt", "--fit-target", "-fitc", "--fit-ctx", "--rpc", "--warmup", "--no-warmup",
    // rope
    "--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx", "--yarn-ext-factor",
    "--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast", "-gan", "--grp-attn-n", "-gaw", "--grp-attn-w",
    // speculation and batches
    "-md", "--model-draft", "--spec-type", "--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min",
    "--spec-default", "--spec-auto", "--draft-max", "--draft-min", "-cb", "--cont-batching",

    // logs and the rest
    "--log-disable", "--log-file", "--log-jsonl", "--log-colors", "-lv", "--log-verbosity", "--verbosity",
    "--log-prefix", "--log-timestamps", "--completion-bash", "--events", "--help-all", "--config", "--raw"};

}  // namespace

bool is_reserved_option(std::string_view name) {
  return std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

}  // namespace llm::app
