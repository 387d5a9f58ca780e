#include "common/message_codes.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace llm::app {
namespace {

constexpr ErrorCode kErrors[] = {
    {ErrorKind::Runtime, "E-RUN", "runtime", "-v shows what was chosen before"},
    {ErrorKind::Usage, "E-USAGE", "usage", "{} --help-all lists all options"},
    {ErrorKind::Model, "E-MODEL", "model",
     "a model is named by the path of its GGUF file, or of any part of a split one"},
    {ErrorKind::Memory, "E-MEM", "memory", "llm-run --dry-run says what a run takes; -c and -ctk make it less"},
    {ErrorKind::Context, "E-CTX", "context", "-c gives a longer context"},
    {ErrorKind::Notation, "E-NOTATION", "notation",
     "chat-templates.md, of the documentation, says what templates may hold"},
    {ErrorKind::Io, "E-IO", "io", ""},
    {ErrorKind::Device, "E-DEVICE", "device", "llm-run doctor says what there is here to run a model"},
    {ErrorKind::Numeric, "E-NUMERIC", "numeric", "LLM_RUN_CHECK=1 finds the first step that goes wrong"},
    {ErrorKind::Internal, "E-INTERNAL", "internal",
     "this is a bug of ours: please report it with this line, the command and the output of `{} --version`"},
};

constexpr WarningCode kWarnings[] = {
    {"bad-row", "a row of a batch cannot be run (--dry-run; otherwise the results say so)"},
    {"bos-added", "the file lacks the key that asks for a token that begins texts, and gets it"},
    {"control-token-type", "a token that ends answers is not typed as control in the file"},
    {"ctx-shift",
     "the answer went on in a full context, without the older half of the text, or had none to go on without"},
    {"draft-model", "the draft model, or the prediction layer, computes what is no number, and guesses no more"},
    {"duplicate-tokens", "several tokens have the same text"},
    {"empty-tokens", "tokens have no text"},
    {"fallback-type", "rows do not fit a storage type's blocks, and get another type"},
    {"form-cut", "an answer was cut before its form was complete"},
    {"gpu", "there is a GPU, and the model runs on the CPU"},
    {"gpu-library", "a library that makes a GPU's prompts faster is not there"},
    {"ignored-key", "a key of a row means nothing"},
    {"memory", "the weights take more than the memory that is free"},
    {"merges-ignored", "merges of the vocabulary cannot be used"},
    {"mlock", "--mlock could not keep all weights in memory"},
    {"missing-bytes", "the vocabulary has no tokens for some bytes: texts lose them"},
    {"missing-pre-tokenizer", "the file does not say how texts are cut into words"},
    {"no-cache", "/save kept a chat and could not write its cache"},
    {"no-effect", "an option changes nothing here"},
    {"no-importance", "a dry run: a tensor needs an importance matrix"},
    {"no-importance-entry", "an importance matrix lacks tensors"},
    {"no-state", "a batch goes on whose options nobody knows"},
    {"no-thinking-switch", "--reasoning on or --reasoning-preserve, and the chat template has no variable for it"},
    {"not-utf8", "a text is not UTF-8"},
    {"nul-bytes", "a text has NUL bytes: it may be UTF-16"},
    {"other-model", "a row of a batch names another model"},
    {"prompt-cut", "--on-overflow truncate cut the prompt"},
    {"nothing-quantized", "llm-quantize found no tensor to quantise, as in a LoRA adapter"},
    {"requantized", "tensors were quantised already: what they lost stays lost"},
    {"sampling-key", "a recommendation of the file for sampling cannot be used"},
    {"schema-keyword", "a keyword of a JSON schema has no effect"},
    {"split-size", "a file of a split model is larger than asked for"},
    {"token-id-out-of-range", "a key of the vocabulary names a token that does not exist"},
    {"token-not-utf8", "texts of tokens are not UTF-8"},
    {"trailing-data", "the file goes on behind its last tensor"},
    {"tune", "what --tune found is not kept"},
    {"unknown-role", "a message of a batch has a role that nobody knows, the chat template neither"},
    {"unknown-token-type", "a token has a type that nobody knows"},
    {"unknown-variable", "an environment variable looks like a setting and is none"},
    {"unread-key", "nothing reads a key that --override-kv sets"},
    {"unread-variable", "the chat template does not read what a row of a batch gives it: its tools, for example"},
    {"unseen-experts", "the text of an importance matrix reached no token of some experts"},
    {"unused-option", "an option of llm-quantize matches no tensor"},
    {"unused-tensors", "the model does not use tensors of the file"},
};

constexpr std::string_view kForms = "structured-output.md, of the documentation, says what can be written";

constexpr std::string_view kRights = "ls -ld shows who may read and write there";

/// What is known better than by the kind alone: of errors that have these words.
struct Cause {
  ErrorKind kind;
  std::string_view words, hint;
};
constexpr Cause kCauses[] = {
    {ErrorKind::Notation, "grammar, line", kForms},
    {ErrorKind::Notation, "JSON schema", kForms},
    {ErrorKind::Notation, "regular expression", kForms},
    {ErrorKind::Notation, "choices", kForms},
    {ErrorKind::Notation, "the form of the answer", kForms},
    {ErrorKind::Numeric, "cannot be held by", "--tensor-type 'NAME=TYPE' gives this tensor another type"},
    {ErrorKind::Io, "No space left on device", "df -h shows which disks are full"},
    {ErrorKind::Io, "Permission denied", kRights},
    {ErrorKind::Model, "Permission denied", kRights},
    {ErrorKind::Usage, "Permission denied", kRights},
    {ErrorKind::Io, "No such file or directory",
     "files are not written into folders that do not exist; mkdir -p makes one"},
};

/// Messages are "problem; what to do": a semicolon outside of what they quote.
bool says_what_to_do(std::string_view text) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (text.substr(i).starts_with("; ") || text.substr(i).starts_with("--help"))) {
      return true;
    }
  }
  return false;
}

/// Where memory lacks because the shell has set a limit, no figure of the machine's memory shows it.
std::string hint_of_address_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  constexpr rlim_t kUnit = 1024;  // as the shell counts it
  return "ulimit -v is " + std::to_string(limit.rlim_cur / kUnit) +
         " (KiB) here, for the model's file and all memory: raise it, or ulimit -v unlimited";
}

/// Of a file that is there: at an offset it cannot be read on, elsewhere it is sound and holds something else.
std::string hint_of_model_file(const ErrorParts& parts, std::string_view program) {
  if (program == "llm-inspect") return {};
  if (parts.subject == "magic") return "this is no model in GGUF: name another file, or fetch it again";
  if (parts.offset) return "what lies behind that place was not read: fetch the file again, or convert it again";
  return "llm-inspect show FILE lists the keys and tensors that it has";
}

}  // namespace

std::span<const ErrorCode> error_codes() { return kErrors; }

const ErrorCode& error_code(ErrorKind kind) {
  return *std::find_if(std::begin(kErrors), std::end(kErrors), [kind](const ErrorCode& e) { return e.kind == kind; });
}

std::string hint_for(const Error& error, std::string_view program) {
  if (error.kind() != ErrorKind::Internal && says_what_to_do(error.parts().problem)) return {};
  const ErrorParts& parts = error.parts();
  const auto cause = std::find_if(std::begin(kCauses), std::end(kCauses), [&](const Cause& c) {
    return c.kind == error.kind() && std::string_view(error.what()).find(c.words) != std::string_view::npos;
  });
  if (cause != std::end(kCauses)) return std::string(cause->hint);
  if (error.kind() == ErrorKind::Usage && !parts.file.empty()) return {};  // what a file holds is no option's fault
  if (error.kind() == ErrorKind::Model && (parts.offset || !parts.subject.empty()))
    return hint_of_model_file(parts, program);
  if (error.kind() == ErrorKind::Memory) {
    if (std::string limit = hint_of_address_limit(); !limit.empty()) return limit;
  }
  std::string hint(error_code(error.kind()).hint);
  if (const std::size_t at = hint.find("{}"); at != std::string::npos) hint.replace(at, 2, program);
  return hint;
}

std::span<const WarningCode> warning_codes() { return kWarnings; }

}  // namespace llm::app
