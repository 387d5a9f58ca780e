// What a cache holds of one sequence, with the sequence's tokens, as a file: another run goes on from there and need
// not read the text again. Its numbers are those of one model, one backend and one format of the cache.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "runtime/session.h"

namespace llm {

/// Throws ErrorKind::Usage if another file than a state is there: none is replaced.
void require_state_or_nothing(const std::filesystem::path&);

/// Writes what `sequence` holds: it holds `tokens`. Replaces a state, nothing else. Throws ErrorKind::Usage,
/// ErrorKind::Io.
void save_state(const std::filesystem::path&, Model&, const Session&, SequenceId sequence,
                std::span<const Token> tokens);

class StateFile {
 public:
  /// Throws ErrorKind::Usage, naming the file, for one that is damaged (its checksum is wrong), that is none, or that
  /// another model, backend or format of the cache made.
  static StateFile open(const std::filesystem::path&, Model&, const CacheFormat&);

  std::span<const Token> tokens() const { return tokens_; }
  /// Gives an empty sequence the first `n` of the tokens. Throws ErrorKind::Usage if another version of this program
  /// wrote blocks of another size.
  void restore(Session&, SequenceId, std::int64_t n) const;

 private:
  StateFile(std::filesystem::path path, MappedFile file) : path_(std::move(path)), file_(std::move(file)) {}
  std::filesystem::path path_;
  MappedFile file_;
  std::vector<Token> tokens_;
  std::uint64_t block_positions_ = 0, block_bytes_ = 0, bytes_per_state_ = 0;
  std::size_t first_block_ = 0;           ///< offset
  std::vector<std::int64_t> remembered_;  ///< lengths of the sequence that it has states of
  std::size_t first_state_ = 0;
};

}  // namespace llm
