#include "text/vocabulary_models.h"

namespace llm {
namespace {

constexpr VocabularyModel kModels[] = {
    {"llama", load_spm},
    {"gpt2", load_bpe},
};

}  // namespace

std::span<const VocabularyModel> vocabulary_models() { return kModels; }

}  // namespace llm
