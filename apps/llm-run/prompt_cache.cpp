#include "prompt_cache.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/output_file.h"
#include "common/messages.h"

namespace llm::app {

void add_prompt_cache_options(Command& cli, PromptCacheOptions& o) {
  cli.add_option("--prompt-cache", o.file,
                 "keep what was read of the prompt in this file, and begin with what it holds of this one")
      ->type_name("FILE")
      ->take_last();
  cli.add_flag("--prompt-cache-all", o.all, "keep the answer there, too");
  cli.add_flag("--prompt-cache-ro", o.read_only, "read the file, do not write it");
}

void check_prompt_cache_options(const PromptCacheOptions& o) {
  if (o.file.empty() && (o.all || o.read_only)) {
    throw Error(ErrorKind::Usage,
                std::string(o.all ? "--prompt-cache-all" : "--prompt-cache-ro") + " needs --prompt-cache FILE");
  }
}

void require_writable_cache(const PromptCacheOptions& o) {
  if (!o.file.empty() && !o.read_only) require_writable(o.file);
}

bool has_cache_to_read(const PromptCacheOptions& o) {
  if (o.file.empty()) return false;
  if (!is_there(o.file)) {
    if (o.read_only) print_warnings({{"no-effect", o.file + " is not there: --prompt-cache-ro has nothing to read"}});
    return false;
  }
  std::error_code unknown;
  const bool just_made = std::filesystem::is_regular_file(o.file, unknown) &&
                         std::filesystem::file_size(o.file, unknown) == 0;  // as mktemp does
  return !just_made;
}

std::optional<StateFile> open_cache(const PromptCacheOptions& o, Model& model, const CacheFormat& format) {
  if (!has_cache_to_read(o)) return std::nullopt;
  return StateFile::open(o.file, model, format);
}

std::int64_t PromptCache::take(SequenceId sequence, std::span<const Token> prompt) {
  if (!stored_) return 0;
  const std::span<const Token> stored = stored_->tokens();
  const auto same = std::mismatch(stored.begin(), stored.end(), prompt.begin(), prompt.end()).first - stored.begin();
  // The logits after the last token are not in the file.
  const std::int64_t n = std::min<std::int64_t>(same, static_cast<std::int64_t>(prompt.size()) - 1);
  stored_->restore(session_, sequence, n);
  return n;
}

void PromptCache::keep(SequenceId sequence, std::span<const Token> prompt, const GenerateResult& answer) {
  if (!wanted() || options_.read_only) return;
  if (answer.shifts.times > 0) {
    note("the context was shifted, so that it no longer begins with the prompt: " + options_.file + " is not written");
    return;
  }
  std::vector<Token> tokens(prompt.begin(), prompt.end());
  if (options_.all) tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  // Of a prompt whose reading was stopped there is less, and the last token of an answer is not evaluated.
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(session_.length(sequence))));
  const std::span<const Token> stored = stored_ ? stored_->tokens() : std::span<const Token>();
  if (tokens.empty() || (tokens.size() <= stored.size() && std::equal(tokens.begin(), tokens.end(), stored.begin())))
    return;
  session_.rewind(sequence, static_cast<std::int64_t>(tokens.size()));
  save_state(options_.file, model_, session_, sequence, tokens);
  verbose("kept " + number_text(tokens.size()) + " tokens in " + options_.file);
}

}  // namespace llm::app
