#include "text/vocabulary_models.h"

namespace llm {
namespace {

constexpr VocabularyModel kModels[] = {
    {"llama", load_spm},
    {"gpt2", load_bpe},
    {"hybriddna", load_bpe},
    {"whitespace", load_whitespace},
    {"bert", load_wpm},
    {"t5", load_ugm},
    {"rwkv", load_rwkv},
    {"plamo2", load_plamo2},
    {"gemma4", load_gemma4},
    {"none", load_no_vocabulary},
    {"no_vocab", load_no_vocabulary},
};

}  // namespace

std::span<const VocabularyModel> vocabulary_models() { return kModels; }

}  // namespace llm
