// The table of vocabulary models: what tokenizer.ggml.model may name.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "text/tokenizer.h"

namespace llm {

struct VocabularyModel {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*load)(const Metadata&, Warnings&);
};

std::span<const VocabularyModel> vocabulary_models();

std::unique_ptr<Tokenizer> load_spm(const Metadata&, Warnings&);            // spm.cpp
std::unique_ptr<Tokenizer> load_bpe(const Metadata&, Warnings&);            // bpe.cpp
std::unique_ptr<Tokenizer> load_gemma4(const Metadata&, Warnings&);         // character_bpe.cpp
std::unique_ptr<Tokenizer> load_whitespace(const Metadata&, Warnings&);     // character_bpe.cpp
std::unique_ptr<Tokenizer> load_wpm(const Metadata&, Warnings&);            // wpm.cpp
std::unique_ptr<Tokenizer> load_ugm(const Metadata&, Warnings&);            // ugm.cpp
std::unique_ptr<Tokenizer> load_rwkv(const Metadata&, Warnings&);           // rwkv.cpp
std::unique_ptr<Tokenizer> load_plamo2(const Metadata&, Warnings&);         // plamo2.cpp
std::unique_ptr<Tokenizer> load_no_vocabulary(const Metadata&, Warnings&);  // no_vocabulary.cpp

/// What `gpt2` is with a pre-tokenizer whose vocabularies spell text in characters. In character_bpe.cpp.
struct ChosenRule;
std::unique_ptr<Tokenizer> load_character_bpe(const Metadata&, const ChosenRule&, Warnings&);

}  // namespace llm
