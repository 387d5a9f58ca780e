// What the rows of a batch may come to, against figures made by hand.
#include "runtime/batch_outlook.h"

#include <vector>

#include "support/catch.h"

using namespace llm;
using Catch::Matchers::WithinRel;

namespace {

BatchRow row(std::size_t prompt, std::int64_t most) {
  return {.prompt = std::vector<Token>(prompt), .answer = AnswerOptions{.max_tokens = most, .sampling = {}}};
}

BatchResult ended(std::size_t row, StopReason reason, std::size_t tokens) {
  BatchResult r;
  r.row = row;
  r.reason = reason;
  r.tokens.resize(tokens);
  return r;
}

}  // namespace

TEST_CASE("the most that rows may take, in blocks of 64 positions") {
  CHECK(most_tokens(row(10, 4), 256) == 4);
  CHECK(most_tokens(row(10, -1), 256) == 247);  // the last token takes no position
  CHECK(most_tokens(row(250, 100), 256) == 7);
  CHECK(most_tokens(row(257, 4), 256) == 0);
  const std::vector<BatchRow> rows{row(10, 4), row(100, 60), row(10, -1), row(300, 4)};
  CHECK(most_positions(rows, 1, 256) == 256);
  CHECK(most_positions(rows, 2, 256) == 256 + 192);
  CHECK(most_positions(rows, 3, 256) == 256 + 192 + 64);
  CHECK(most_positions(rows, 32, 256) == 256 + 192 + 64);  // the last never begins
  CHECK(most_positions({}, 32, 256) == 0);
}

TEST_CASE("time left counts the tokens of rows that run, and after an interrupt no others") {
  const std::vector<BatchRow> rows{row(2, 100), row(2, 100), row(2, 100), row(2, 100)};
  BatchOutlook outlook(rows, 1000);
  BatchProgress p{.rows_running = 2, .rows_waiting = 2, .prompt_tokens = 4};
  CHECK_FALSE(outlook.seconds_left(p, 1));
  p.generated_tokens = 48;
  // Done: 48 and half of 4 prompt tokens. To come: 152 of the rows that run, 200 and half of 4 of the others.
  CHECK_THAT(outlook.seconds_left(p, 5).value(), WithinRel(5.0 / 50 * (152 + 202), 1e-9));
  CHECK_FALSE(outlook.has_ended_rows());
  outlook.drain();
  CHECK_THAT(outlook.seconds_left(p, 5).value(), WithinRel(5.0 / 50 * 152, 1e-9));
}

TEST_CASE("rows that have all their tokens tell nothing of where others end") {
  const std::vector<BatchRow> rows{row(2, 10), row(2, 100), row(2, 100)};
  BatchOutlook outlook(rows, 1000);
  outlook.ended(ended(0, StopReason::Length, 10));
  const BatchProgress p{
      .rows_done = 1, .rows_running = 1, .rows_waiting = 1, .prompt_tokens = 4, .generated_tokens = 38};
  CHECK(outlook.has_ended_rows());
  CHECK_THAT(outlook.seconds_left(p, 4).value(), WithinRel(4.0 / 40 * (72 + 101), 1e-9));
}

TEST_CASE("a row that failed tells nothing of where others end") {
  const std::vector<BatchRow> rows{row(2, 100), row(2, 100), row(2, 100)};
  BatchOutlook outlook(rows, 1000);
  BatchResult failed = ended(0, StopReason::EndOfGeneration, 10);
  failed.error = Error(ErrorKind::Numeric, "not a number");
  outlook.ended(failed);
  const BatchProgress p{
      .rows_done = 1, .rows_running = 1, .rows_waiting = 1, .prompt_tokens = 4, .generated_tokens = 38};
  CHECK_FALSE(outlook.has_ended_rows());
  CHECK_THAT(outlook.seconds_left(p, 4).value(), WithinRel(4.0 / 40 * (72 + 101), 1e-9));
  outlook.ended(ended(1, StopReason::EndOfGeneration, 30));
  CHECK(outlook.has_ended_rows());
}

TEST_CASE("rows to come are as long as the tokens so far let expect") {
  // All may fill a context of a million, and one token in 50 ends its row.
  const std::vector<BatchRow> rows(100, row(2, -1));
  BatchOutlook outlook(rows, 1'000'000);
  for (std::size_t i = 0; i < 10; ++i) outlook.ended(ended(i, StopReason::EndOfGeneration, 20 + i));
  const BatchProgress p{
      .rows_done = 10, .rows_running = 10, .rows_waiting = 80, .prompt_tokens = 40, .generated_tokens = 500};
  CHECK_THAT(outlook.seconds_left(p, 52).value(), WithinRel(52.0 / 520 * (90 * 50 + 80), 1e-3));
}
