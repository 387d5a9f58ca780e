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

std::unique_ptr<Tokenizer> load_spm(const Metadata&, Warnings&);  // spm.cpp
std::unique_ptr<Tokenizer> load_bpe(const Metadata&, Warnings&);  // bpe.cpp

}  // namespace llm
