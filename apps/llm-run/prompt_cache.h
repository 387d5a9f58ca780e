// --prompt-cache: what a run has read is kept in a file, and the next run whose prompt begins the same goes on from
// there. The text of an answer does not depend on it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/command.h"
#include "runtime/generator.h"
#include "runtime/session.h"
#include "runtime/state_file.h"

namespace llm::app {

struct PromptCacheOptions {
  std::string file;  ///< empty: none
  bool all = false;  ///< the answer is kept, too
  bool read_only = false;
};

void add_prompt_cache_options(Command&, PromptCacheOptions&);
/// Throws ErrorKind::Usage for what makes no sense without a file.
void check_prompt_cache_options(const PromptCacheOptions&);

/// Throws ErrorKind::Io if the file could not be written when the answer is there.
void require_writable_cache(const PromptCacheOptions&);
/// Whether the file holds anything yet. Warns of one that is only to be read and is not there.
bool has_cache_to_read(const PromptCacheOptions&);
/// Nothing: it does not. Throws ErrorKind::Usage for one that is damaged or another model's.
std::optional<StateFile> open_cache(const PromptCacheOptions&, Model&, const CacheFormat&);

class PromptCache {
 public:
  /// `stored`: what open_cache() gave. All else must outlive it.
  PromptCache(const PromptCacheOptions& o, std::optional<StateFile> stored, Model& m, Session& s)
      : options_(o), model_(m), session_(s), stored_(std::move(stored)) {}

  bool wanted() const { return !options_.file.empty(); }
  /// Fills an empty sequence with what the file has of the prompt, but its last token: the number of tokens.
  std::int64_t take(SequenceId, std::span<const Token> prompt);
  /// Writes what the sequence holds of the prompt, and of the answer if that is wanted, unless the file has it already.
  /// Nothing is written of a context that was shifted: it no longer begins with the prompt. Throws ErrorKind::Io.
  void keep(SequenceId, std::span<const Token> prompt, const GenerateResult& answer);

 private:
  const PromptCacheOptions& options_;
  Model& model_;
  Session& session_;
  std::optional<StateFile> stored_;
};

}  // namespace llm::app
