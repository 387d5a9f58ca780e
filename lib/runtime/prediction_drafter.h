// Drafts by the model's own prediction layer: the likeliest token behind the next one, from what the model's head read
// of the text, and on from its own guesses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/drafter.h"
#include "runtime/guess_record.h"
#include "runtime/prediction_steps.h"
#include "runtime/session.h"

namespace llm {

/// The layer reads pairs: a token and the hidden row of the one before it. The session tells rows as its steps end, so
/// they come ahead of the text that begin() and append() tell, with guesses that may not come true; a pair counts as
/// long as its tokens and all before it are the text's. Rows that nobody told (of a text that a saved cache held, or of
/// another branch) are missed: the layer then begins behind them. That makes guesses worse, never the text.
class PredictionDrafter final : public Drafter {
 public:
  struct Options {
    double p_min = 0;  ///< the draft ends before a token that is less likely in the layer's eyes
    std::int64_t context = 0;
    CacheFormat cache = {};
  };
  /// For texts of one session of this context. The model predicts().
  PredictionDrafter(Model&, Options);

  /// What Session::tell_hidden() tells.
  void saw(const HiddenRows&);

  std::string_view name() const override { return "prediction layer"; }
  void begin(std::span<const Token> text) override;
  void append(Token) override;
  void shifted(std::span<const Token> held) override { begin(held); }
  bool ready() override;
  std::optional<Guess> guess(std::span<const Token> ahead) override;
  double outlook() const override { return faulty_ ? 0 : record_.outlook(); }
  std::string take_fault() override { return std::exchange(fault_, {}); }

 private:
  void start_at(std::int64_t position);
  void forget_from(std::size_t index);
  std::optional<PredictionSteps::Result> read(std::span<const Token> tokens, std::span<const float> hidden);
  std::optional<PredictionSteps::Result> catch_up(std::span<const Token> tokens);
  void drop_old_rows();

  std::size_t width_;
  PredictionSteps steps_;
  double p_min_;
  bool faulty_ = false;
  std::string fault_;  ///< that nobody has been told
  GuessRecord record_;
  std::vector<Token> text_;
  // Indices count from position start_ on; pair i is of the tokens i and i + 1.
  std::int64_t start_ = 0;
  std::vector<Token> told_;  ///< tokens whose rows were told
  std::vector<float> rows_;  ///< the last of these rows, from index first_row_ on
  std::size_t first_row_ = 0;
  std::vector<Token> paired_;  ///< the second token of each pair that was read with a row of the model's
  std::size_t last_ = 0;       ///< of the text, while there are guesses; 0: there can be none
  std::vector<float> chain_;   ///< the layer's own row behind the last guess
};

}  // namespace llm
