// Drafts out of the text itself: what followed the last tokens where they stood before.
#pragma once

#include <array>
#include <optional>

#include "runtime/drafter.h"
#include "runtime/hit_rate.h"
#include "runtime/ngram_index.h"

namespace llm {

/// Of two places to copy from the one whose guesses came true more often is taken: behind the longest end that stood
/// before, and, where a copy was left with one other token, behind the token that was replaced. Guesses are checked
/// against every token that comes, whether they were tried or not, so that their worth is known for nothing.
class NgramDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "ngram"; }
  void begin(std::span<const Token> text) override;
  void append(Token) override;
  std::optional<Guess> guess(std::span<const Token> ahead) override;

 private:
  /// A place to copy from, and the class of its guesses.
  struct Source {
    std::size_t next, kind;
  };
  static std::size_t kind_of(std::size_t length);
  std::optional<Source> source(std::size_t ahead) const;

  NgramIndex index_;
  std::optional<std::size_t> resumed_;  ///< behind a replaced token
  /// By the length of the match; the first is that of resumed copies.
  static constexpr std::size_t kKinds = 9;
  std::array<HitRate, kKinds> rates_{HitRate(0.4),  HitRate(0.35), HitRate(0.5),  HitRate(0.6), HitRate(0.75),
                                     HitRate(0.85), HitRate(0.9),  HitRate(0.95), HitRate(0.97)};
};

}  // namespace llm
