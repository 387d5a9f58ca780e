// Steps of a batch's rows. Where the backend can draw every row's next token, it does, and a second step is on its way
// while the first one's tokens are read; else a step gives logits, and is computed when it is collected. A numeric
// fault is one row's: the rows of a step that has one are computed one by one.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "runtime/answer.h"
#include "runtime/row_queue.h"
#include "runtime/session.h"

namespace llm {

/// In how many steps of its own rows each a token is generated for so many rows: several where devices that have a part
/// of the model each are at work at once that way, and a step of fewer rows is shorter by more than it loses.
int groups_of_rows(const Model&, std::size_t rows);

/// A row as a step reads it.
struct RowText {
  Answer answer;
  std::vector<Token> tokens;  ///< known: the prompt's and those generated
};

/// What a step has for a row of which it took tokens: if they were the last ones a token that was drawn, or logits that
/// are valid until it was told; or why the row has failed.
using StepResult = std::variant<std::monostate, Token, std::span<const float>, Error>;
using TakeResult = std::function<void(const RowTokens&, const StepResult&)>;
/// Gives an answer the token that a step has for it. Throws the row's Error, and as Answer::sample() does.
void take_token(Answer&, const StepResult&);

class BatchSteps {
 public:
  /// `text` knows the rows that have not ended.
  BatchSteps(const Model&, Session&, std::function<RowText&(std::size_t place)> text);
  BatchSteps(const BatchSteps&) = delete;
  BatchSteps& operator=(const BatchSteps&) = delete;
  ~BatchSteps() { abandon(); }
  /// Waits for the steps on their way; nobody is told of them.
  void abandon() noexcept;

  std::size_t on_their_way() const { return drawing_.size() + (logits_.empty() ? 0 : 1); }
  /// With none on its way: a step of this work, or of half of it where groups pay.
  void begin(std::vector<RowTokens> work);
  /// The same of all of it.
  void begin_whole(std::vector<RowTokens> work);
  /// Begins the step behind the one on its way, if it can: of the tokens after those that this one draws, unless the
  /// rows are in groups, and of whatever is known of other rows.
  void run_ahead(const RowQueue<Session>&);
  /// Of the oldest step: told is each row of it. False if its logits were not finite; then every step is taken back,
  /// and the next one gives logits, which say whose they are.
  bool collect(const TakeResult&);

 private:
  /// One whose tokens the backend draws, while it is put together.
  struct Draft {
    Draft() = default;
    Draft(const Draft&) = delete;  // `drawings` have tokens of `drawn`
    Draft& operator=(const Draft&) = delete;
    void keep_first(std::size_t n);

    std::vector<RowTokens> work;
    std::vector<Drawing> drawings;  ///< of work
    std::vector<Token> drawn;       ///< memory of tokens that the step before draws
  };

  std::span<const Token> tokens(const RowTokens&) const;
  bool lags(std::span<const RowTokens>) const;
  bool is_cut(std::span<const RowTokens>) const;
  bool draw_first(std::span<const RowTokens>);
  bool draw_second(const RowQueue<Session>&);
  bool add_known(std::span<const RowTokens>, Draft&);
  bool add_next_drawn(const RowQueue<Session>&, Draft&);
  void begin(Draft&);
  void eval(std::span<const RowTokens>, const TakeResult&);

  const Model& model_;
  Session& session_;
  std::function<RowText&(std::size_t)> text_;
  std::deque<std::vector<RowTokens>> drawing_;  ///< on their way
  std::vector<RowTokens> logits_;               ///< of the step that is computed when it is collected
  bool not_finite_ = false;                     ///< the step that was drawn last: the next one gives logits
  bool grouped_ = false;   ///< steps on their way have rows of their own; else the second has those of the first, too
  bool together_ = false;  ///< the next step that begins alone has all rows, since the last one's other half could not
};

}  // namespace llm
