#include "text/pretokenizer_choice.h"

#include <algorithm>
#include <iterator>

namespace llm {
namespace {

struct KnownVocabulary {
  std::uint64_t fingerprint;
  std::string_view pre;
};
// Made by scripts/make-known-vocabularies.
constexpr KnownVocabulary kKnown[] = {
#include "text/known_vocabularies.inc"
};

ChosenRule guess(const Metadata& metadata, Warnings& warnings) {
  const std::uint64_t fingerprint = vocabulary_fingerprint(metadata);
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const KnownVocabulary& k) { return k.fingerprint == fingerprint; });
  const std::string silent = "the file does not say how its vocabulary splits text (" + std::string(kPreKey) + ")";
  if (known != std::end(kKnown)) {
    warnings.push_back({"missing-pre-tokenizer", silent + "; its tokens are those of a known vocabulary: using '" +
                                                     std::string(known->pre) + "'"});
    return {*find_pretokenizer(known->pre), std::string(known->pre)};
  }
  warnings.push_back({"missing-pre-tokenizer",
                      silent +
                          " and its tokens are not those of a known one: using 'default', which may be wrong for "
                          "this model and make its answers much worse; a newer conversion of the model has the key"});
  return {*find_pretokenizer("default"), "default"};
}

}  // namespace

ChosenRule choose_pretokenizer(const Metadata& metadata, Warnings& warnings) {
  if (!metadata.has(kPreKey)) return guess(metadata, warnings);
  const auto name = metadata.get<std::string_view>(kPreKey);
  if (const PreTokenizerRule* rule = find_pretokenizer(name)) return {*rule, std::string(name)};
  std::string nearest;
  for (const std::string_view near : nearest_pretokenizers(name, 5)) {
    nearest += nearest.empty() ? "" : ", ";
    nearest += near;
  }
  metadata.fail(kPreKey, "pre-tokenizer \"" + escaped(name) + "\" is not known; nearest known names: " + nearest);
}

std::uint64_t vocabulary_fingerprint(const Metadata& metadata) {
  const auto texts = metadata.array<std::string_view>(kTokensKey);
  std::vector<std::int64_t> kinds;
  if (metadata.has(kTokenTypeKey)) kinds = metadata.array<std::int64_t>(kTokenTypeKey);
  kinds.resize(texts.size(), static_cast<std::int64_t>(TokenKind::Normal));
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3u; };
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (kinds[i] != static_cast<std::int64_t>(TokenKind::Normal)) continue;
    for (const char c : texts[i]) add(static_cast<std::uint8_t>(c));
    add(0);
  }
  return hash;
}

}  // namespace llm
