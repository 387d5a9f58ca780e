#include "common/reserved.h"

#include <algorithm>
#include <iterator>

namespace llm::app {
namespace {

constexpr LlamaOption kLlamaOptions[] = {
#include "common/llama_options.inc"
};

constexpr LlamaOption kEarlierOptions[] = {
    {"--mmap", "--no-mmap", "LLAMA_ARG_MMAP", LlamaProgram::Run},
    {"--mlock", "", "LLAMA_ARG_MLOCK", LlamaProgram::Run},
    {"-dio --direct-io", "", "LLAMA_ARG_DIO", LlamaProgram::Run},
};

/// Names of earlier releases of llama.cpp, and names that a later version of this program will have.
constexpr std::string_view kOthers =
    "--mmap --no-mmap -dio --direct-io -ins --instruct -cml --chatml --tfs --penalize-nl --no-penalize-nl "
    "--log-enable --log-new --log-append -pg --stream --cfg-scale --prune-layers --split --merge "
    "--include-weights --exclude-weights --tensor-type-file -oe --output-err --delay --progress -embd -rpc "
    "--max-buffer-size --delete-splits";

/// What to say beside "recognised, not supported".
struct Reason {
  std::string_view names, text;
};
constexpr Reason kReasons[] = {
    {"--gpu-layers --n-gpu-layers --device --list-devices --kv-offload --no-kv-offload -hf -hfr --hf-repo -hff "
     "--hf-file --offline --override-kv --check-tensors -lm --load-mode --mlock --mmap --no-mmap -tb --threads-batch "
     "--rope-scaling --rope-scale "
     "--rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow "
     "--yarn-beta-fast",
     "it is for programs that run a model"},
    {"-m --model", "the file is named without an option"},
    {"--kl-divergence --save-all-logits --kl-divergence-base",
     "llm-perplexity --save-logits FILE keeps the logits of one model, --kl-base FILE compares another's with them"},
    {"-ins --instruct", "-i chats"},
    {"-cml --chatml", "--chat-template chatml"},
    {"--tfs", "llama.cpp has no such sampler any more, either; --top-p and --min-p are near it"},
    {"--penalize-nl --no-penalize-nl", "line feeds are tokens as others are; --logit-bias weakens or helps one"},
    {"--stream", "an answer is always written as it comes; --output-format jsonl has a line for each token"},
    {"--cfg-scale", "nothing is generated against a second prompt; -sys says what an answer shall be like"},
    {"--prune-layers", "all layers are kept"},
    {"--include-weights --exclude-weights", "--imatrix counts for all tensors that it has entries of"},
    {"--tensor-type-file", "--tensor-type can be given several times, with several PATTERN=TYPE after commas, too"},
    {"--split --merge", "split and merge are commands of llm-inspect: llm-inspect split --help"},
    {"--lora --lora-scaled", "llm-run, llm-perplexity and llm-bench run models with adapters"},
    {"-cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn -ot --override-tensor -sm --split-mode -ts --tensor-split "
     "-mg --main-gpu "
     "--op-offload --no-op-offload",
     "it is for programs that run a model"},
    {"--spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft",
     "-cmoe and -ncmoe count for a draft model, too"},
    {"--spec-draft-device -devd --device-draft", "--device, -sm, -ts and -mg count for a draft model, too"},
    {"-fit --fit -fitt --fit-target -fitc --fit-ctx",
     "-ngl auto fits layers into a GPU's memory, no other option is changed; --dry-run says what a run takes"},
    {"-bs --backend-sampling", "a GPU draws tokens unasked where the samplers allow it (docs/cuda.md)"},
    {"-hft --hf-token -mu --model-url -dr --docker-repo -mmu --mmproj-url -cl "
     "--cache-list",
     "nothing is downloaded; -m takes a file, -hf a name that is in a local cache"},
    {"-mm --mmproj -mmdev --mmproj-device --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload "
     "--no-mmproj-offload --image --audio "
     "--video --image-min-tokens --image-max-tokens",
     "models read text only"},
    {"--rpc -rpc --server-base", "all work is done by this process"},
    {"-p --prompt", "a text is read from a file: -f FILE, -f - for stdin"},
    {"-oe --output-err", "results go to stdout, in the form of -o"},
    {"--delay", "tests follow each other at once"},
    {"--progress", "a terminal shows it unasked"},
    {"-embd --embeddings", "models are run for the text that they generate"},
    {"--max-buffer-size", "memory is taken as tensors need it"},
    {"--delete-splits", "rm removes the parts when the merged file is there"},
    {"--verbose-prompt", "--explain-prompt shows the prompt and its tokens"},
    {"-ptc --print-token-count", "llm-inspect tokenize --show-count counts tokens"},
    {"--no-jinja", "templates are always rendered as Jinja"},
    {"-dio --direct-io", "the file is mapped, or read through the system's cache: --load-mode"},
    {"-lzm --lazy-mode", "a mapped file is read where it is needed, --mlock and --no-mmap read all of it first"},
    {"--repack", "weights always stay as they are in the file"},
    {"-b --batch-size -ub --ubatch-size", "a step takes up to 512 tokens, on the GPU up to 2,048"},
    {"--warmup", "the first step is as fast as the others; llm-bench runs each test once before it measures"},
    {"-pg", "prompts and generation are tests of their own: -p, and -n with -d"},
    {"--numa", "numactl(8) chooses nodes for a program"},
    {"--prio --prio-batch", "nice(1) and chrt(1) start a program with another priority"},
    {"--poll --poll-batch",
     "threads that wait for each other spin for 20 µs, then sleep; between steps OMP_WAIT_POLICY says"},
    {"-Cb --cpu-mask-batch -Crb --cpu-range-batch", "-C and -Cr are for the threads of prompts, too"},
    {"--cpu-strict --cpu-strict-batch", "OMP_PROC_BIND=true binds threads to cores"},
    {"--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft "
     "--spec-draft-cpu-mask "
     "-Cd --cpu-mask-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-range -Crd "
     "--cpu-range-draft --spec-draft-cpu-range-batch -Crbd --cpu-range-batch-draft",
     "-t, -tb, -C and -Cr count for a draft model, too"},
    {"--spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd --cache-type-v-draft",
     "-ctk and -ctv count for a draft model, too"},
    {"--spec-ngram-map-k-min-hits --spec-ngram-map-k-size-m --spec-ngram-map-k-size-n --spec-ngram-map-k4v-min-hits "
     "--spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-size-n --spec-ngram-mod-n-match --spec-ngram-mod-n-max "
     "--spec-ngram-mod-n-min --spec-ngram-simple-min-hits --spec-ngram-simple-size-m --spec-ngram-simple-size-n "
     "--lookup-cache-static -lcs --lookup-cache-dynamic -lcd",
     "how far guesses from the text go follows from what came of them (docs/speculation.md)"},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints", "the cache keeps all positions, and can go back to any of them"},
    {"-cram --cache-ram", "--prompt-cache keeps what was read of a prompt, /save what a chat has"},
    {"-dt --defrag-thold", "the cache is paged, and has no gaps"},
    {"-gan --grp-attn-n -gaw --grp-attn-w", "--rope-scaling and --rope-scale make contexts longer"},
    {"-mli --multiline-input", "docs/chat.md says how messages of several lines are typed"},
    {"-if --interactive-first", "-i without -p begins with the user's message"},
    {"--in-prefix --in-prefix-bos --in-suffix",
     "what stands around messages is the chat template's, and --chat-template gives another"},
    {"--log-colors", "--color says what has colours"},
    {"--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps",
     "--log-jsonl has the time and the level of every line"},
    {"--skip-chat-parsing --no-skip-chat-parsing", "--reasoning-format none leaves the thinking in the text"},
    {"-nocb --no-cont-batching", "rows of a batch always run together"},
    {"-fa --flash-attn", "attention never writes its whole matrix; it is always on, leave the option out"},
};

}  // namespace

std::span<const LlamaOption> llama_options() { return kLlamaOptions; }

std::span<const LlamaOption> earlier_llama_options() { return kEarlierOptions; }

bool has_name(std::string_view names, std::string_view name) {
  for (std::size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' ')) return true;
  }
  return false;
}

std::optional<std::string> reserved_because(std::string_view name) {
  const auto named = [name](const LlamaOption& o) { return has_name(o.names, name) || has_name(o.off, name); };
  const auto option = std::find_if(std::begin(kLlamaOptions), std::end(kLlamaOptions), named);
  if (option == std::end(kLlamaOptions) && !has_name(kOthers, name)) return std::nullopt;
  const auto reason = std::find_if(std::begin(kReasons), std::end(kReasons),
                                   [name](const Reason& r) { return has_name(r.names, name); });
  if (reason != std::end(kReasons)) return "is recognised, not supported: " + std::string(reason->text);
  if (option != std::end(kLlamaOptions) && option->program == LlamaProgram::Server) {
    return "is recognised, not supported: it belongs to llama.cpp's server";
  }
  return "is recognised, not supported yet";
}

}  // namespace llm::app
