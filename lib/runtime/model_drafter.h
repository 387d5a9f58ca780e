// Drafts by a smaller model with the same vocabulary: its likeliest tokens, one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/drafter.h"
#include "runtime/guess_record.h"
#include "runtime/session.h"

namespace llm {

/// Throws ErrorKind::Usage naming the draft model's file and the first token that the two have different texts for. One
/// may have more tokens than the other.
void require_same_vocabulary(const Model& model, const Model& draft);

/// Its session takes its context as it can: where the text outgrows that, the drafter goes on with the later half of
/// it.
class ModelDrafter final : public Drafter {
 public:
  struct Options {
    double p_min = 0;  ///< the draft ends before a token that is less likely in the draft model's eyes
    SessionOptions session = {};
  };
  /// Drafts for `model`, which must outlive it, as must `draft`.
  ModelDrafter(const Model& model, Model& draft, Options);

  std::string_view name() const override { return "draft"; }
  void begin(std::span<const Token> text) override;
  void append(Token) override;
  bool ready() override;
  std::optional<Guess> guess(std::span<const Token> ahead) override;
  double outlook() const override { return faulty_ ? 0 : record_.outlook(); }
  std::string take_fault() override { return std::exchange(fault_, {}); }

 private:
  Token known(Token) const;
  /// Tokens of the text from start_ on.
  std::size_t part() const { return text_.size() - start_; }
  void start_at(std::size_t place);
  /// False if the draft model computes what is no number.
  bool read(std::span<const Token> tokens, Logits wanted);

  std::size_t n_tokens_;  ///< those that both models have
  Session session_;
  SequenceId sequence_;
  double p_min_;
  bool faulty_ = false;
  std::string fault_;  ///< that nobody has been told
  std::vector<Token> text_;
  std::size_t start_ = 0;    ///< of the part of the text that the draft model looks at
  std::vector<Token> read_;  ///< what its cache holds
  std::size_t agreed_ = 0;   ///< tokens of read_ that are the text's from start_ on
  std::span<const float> logits_;
  std::vector<Token> next_;
  GuessRecord record_;
};

}  // namespace llm
