// The list of merges of a vocabulary, read into a table of pairs of tokens.
#pragma once

#include <span>
#include <string_view>

#include "text/pretokenizer.h"
#include "text/token_table.h"
#include "text/vocabulary.h"

namespace llm {

struct MergeEntry;

class MergeReader {
 public:
  enum class Texts : std::uint8_t { AllDifferent, SomeEqual };

  /// `texts`: what each token stands for, `table` their ids, `form` how the list spells them. All must outlive it.
  MergeReader(const Vocabulary& vocabulary, TokenTable::Texts texts, const TokenTable& table, TextForm form,
              Texts equal)
      : vocabulary_(vocabulary),
        texts_(texts),
        table_(table),
        form_(form),
        all_different_(equal == Texts::AllDifferent) {}

  /// One warning for entries that cannot act. Throws ErrorKind::Model if there is no list.
  MergeTable read(const Metadata&, Warnings&);

 private:
  void find_merge_tokens(std::string_view bytes, std::span<MergeEntry> batch, Token& previous);
  Token result_of(std::string_view both, Token previous);

  const Vocabulary& vocabulary_;
  TokenTable::Texts texts_;
  const TokenTable& table_;
  TextForm form_;
  bool all_different_;
  MergeTable merges_;
};

}  // namespace llm
