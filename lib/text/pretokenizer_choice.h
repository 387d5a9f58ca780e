// Which pre-tokenizer a file's vocabulary needs: by its name, or by its tokens where it names none.
#pragma once

#include <cstdint>
#include <string>

#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace llm {

struct ChosenRule {
  const PreTokenizerRule& rule;
  std::string name;
};

/// Throws ErrorKind::Model for a name that is not known. Without a name: a warning, and the rule of the published
/// vocabulary with the same tokens, or the default one.
ChosenRule choose_pretokenizer(const Metadata&, Warnings&);

/// Of the normal tokens in the order of their ids: 64 bits of FNV-1a over each text and a zero byte. Control and added
/// tokens do not count, since those who train a model further rename and add them.
std::uint64_t vocabulary_fingerprint(const Metadata&);

}  // namespace llm
