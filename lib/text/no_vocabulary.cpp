// Vocabulary model `none`: a model whose tokens stand for no text. Only their number is known.
#include <string>

#include "text/token_sink.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

class NoVocabulary final : public Tokenizer {
 public:
  NoVocabulary(Vocabulary vocabulary, std::string file) : Tokenizer(std::move(vocabulary)), file_(std::move(file)) {}

 private:
  void encode_fragments(std::span<const Fragment> fragments, TokenSink&) const override {
    if (fragments.empty()) return;
    throw Error(ErrorKind::Model, {.file = file_,
                                   .subject = key_subject(kModelKey),
                                   .problem = "the model has no vocabulary: text cannot become tokens"});
  }
  void append_text(Token, std::string&) const override {}

  std::string file_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_no_vocabulary(const Metadata& metadata, Warnings&) {
  const std::string key = std::string(metadata.get_or<std::string_view>("general.architecture", {})) + ".vocab_size";
  constexpr std::uint32_t kMost = 1u << 28;
  const auto size = metadata.get_or<std::uint32_t>(key, 0);
  if (size > kMost)
    metadata.fail(key, std::to_string(size) + " tokens; at most " + std::to_string(kMost) + " are possible");
  Vocabulary v;
  v.model = metadata.get<std::string_view>(kModelKey);
  v.texts.resize(size);
  v.kinds.resize(size, TokenKind::Undefined);
  v.markup.resize(size);
  return std::make_unique<NoVocabulary>(std::move(v), metadata.file());
}

}  // namespace llm
