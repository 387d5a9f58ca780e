#include "runtime/step_probe.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/batch_steps.h"
#include "runtime/programs.h"

namespace llm {
namespace {

constexpr int kMostSamples = 9;
constexpr double kLongStep = 1;     ///< seconds: one of them says enough
constexpr double kSampling = 0.4;   ///< seconds for the samples of a size
constexpr double kLongestRead = 3;  ///< seconds: a larger step of prompts is not measured, but taken in proportion
/// Of the cache that is filled only to be looked back at.
constexpr std::uint64_t kMostFilled = std::uint64_t{1} << 30;
constexpr std::int64_t kDeepEnough = std::int64_t{4} * kBlockPositions;

double seconds_of(const std::function<void()>& step) {
  const auto start = Clock::now();
  step();
  return seconds_since(start);
}

/// The median. The first step of a size compiles its program: it counts only where it is long anyway.
double typical_seconds(const std::function<void()>& step) {
  const double first = seconds_of(step);
  if (first > kLongStep) return first;
  std::vector<double> samples;
  double spent = 0;
  while (samples.empty() || (std::ssize(samples) < kMostSamples && spent < kSampling)) {
    samples.push_back(seconds_of(step));
    spent += samples.back();
  }
  const auto middle = samples.begin() + std::ssize(samples) / 2;
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

class Probe {
 public:
  Probe(Model& model, Session& session, std::span<const BatchRow> rows, const ProbeOptions& options)
      : model_(model),
        session_(session),
        rows_(rows),
        options_(options),
        texts_(static_cast<std::size_t>(options.rows)),
        steps_(model, session, [this](std::size_t i) -> RowText& { return *texts_[i]; }) {
    check(options.rows >= 1 && !rows.empty(), "rows of a probe");
    for (const BatchRow& row : rows) {
      if (text_.size() >= static_cast<std::size_t>(kMaxBatchTokens)) break;
      text_.insert(text_.end(), row.prompt->begin(), row.prompt->end());
    }
    check(!text_.empty(), "a prompt for a probe");
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() {
    steps_.abandon();
    clear();
  }

  StepSpeeds run();

 private:
  void clear() {
    for (const SequenceId id : sequences_) session_.remove(id);
    sequences_.clear();
  }
  /// Of the prompts' text, from `at` on, as often as it takes.
  std::vector<Token> tokens(std::size_t at, std::int64_t n) const {
    std::vector<Token> found(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < found.size(); ++i) found[i] = text_[(at + i) % text_.size()];
    return found;
  }
  void read_first_block();
  void fill(int n, std::int64_t depth);
  void restore(SequenceId, std::int64_t depth);
  void fork_to(int n, std::int64_t depth);
  double reading(std::int64_t n, std::int64_t depth);
  double generating(int n);
  void generate(int n);
  RowText& text(std::size_t i);
  void measured() {
    constexpr double kSizes = 7;  ///< that run() looks at, at most
    if (options_.progress) options_.progress(std::min(1.0, ++done_ / kSizes));
  }
  std::int64_t deep() const;

  Model& model_;
  Session& session_;
  std::span<const BatchRow> rows_;
  const ProbeOptions& options_;
  std::vector<Token> text_;
  std::vector<SequenceId> sequences_;
  std::vector<std::optional<RowText>> texts_;  ///< of sequences that generate
  BatchSteps steps_;
  std::vector<std::byte> block_, state_;
  std::int64_t shallow_ = 0;
  double done_ = 0;
};

/// Reads the weights, too, which may come from the disk: this step is not timed.
void Probe::read_first_block() {
  shallow_ = std::clamp<std::int64_t>(session_.context() / 4, 1, kBlockPositions);
  sequences_ = {session_.create()};
  const std::vector<Token> first = tokens(0, shallow_);
  const Append work{sequences_.front(), first, Logits::Last};
  (void)session_.eval({&work, 1});
  block_.resize(session_.cache_block_bytes());
  session_.read_block(sequences_.front(), 0, block_);
  if (session_.bytes_per_state() > 0) {
    state_.resize(session_.bytes_per_state());
    session_.read_state(sequences_.front(), session_.remembered(sequences_.front()).size() - 1, state_);
  }
  clear();
}

/// Sequences with a cache of their own. What is in it does not matter for what reading it takes.
void Probe::fill(int n, std::int64_t depth) {
  clear();
  for (int i = 0; i < n; ++i) {
    sequences_.push_back(session_.create());
    if (depth > 0) restore(sequences_.back(), depth);
  }
}

void Probe::restore(SequenceId sequence, std::int64_t depth) {
  const std::vector<Token> text = tokens(0, depth);
  session_.restore(sequence, {.tokens = text,
                              .block = [this](std::size_t) { return std::span(block_); },
                              .remembered = {&depth, 1},
                              .state = [this](std::size_t) { return std::span(state_); }});
}

void Probe::fork_to(int n, std::int64_t depth) {
  fill(1, depth);
  while (std::ssize(sequences_) < n) sequences_.push_back(session_.fork(sequences_.front(), depth));
}

/// Seconds of a step with so many tokens of a prompt.
double Probe::reading(std::int64_t n, std::int64_t depth) {
  fill(1, depth);
  const std::vector<Token> read = tokens(0, n);
  const Append work{sequences_.front(), read, Logits::Last};
  const double seconds = typical_seconds([&] {
    (void)session_.eval({&work, 1});
    session_.rewind(sequences_.front(), depth);
  });
  measured();
  return seconds;
}

/// Seconds of a step with a token of each of `n` sequences, and of choosing the next ones.
double Probe::generating(int n) {
  const double seconds = typical_seconds([&] { generate(n); });
  measured();
  return seconds;
}

RowText& Probe::text(std::size_t i) {
  std::optional<RowText>& text = texts_[i];
  if (text && !text->answer.ended()) return *text;
  const BatchRow& row = rows_[i * rows_.size() / texts_.size()];
  AnswerOptions options = row.options();
  options.max_tokens = -1;
  return text.emplace(RowText{.answer = Answer(model_, std::move(options), *row.prompt), .tokens = {}});
}

void Probe::generate(int n) {
  const std::vector<Token> next = tokens(static_cast<std::size_t>(shallow_), n);
  std::vector<RowTokens> work;
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < next.size(); ++i) {
    text(i).tokens = {next[i]};
    work.push_back({.place = i, .sequence = sequences_[i], .first = 0, .n = 1, .last = true, .prompt = false});
    lengths.push_back(session_.length(sequences_[i]));
  }
  const auto take = [this](const RowTokens& w, const StepResult& result) {
    take_token(texts_[w.place]->answer, result);
  };
  do {
    steps_.begin_whole(work);
  } while (!steps_.collect(take));
  for (std::size_t i = 0; i < lengths.size(); ++i) session_.rewind(sequences_[i], lengths[i]);
}

/// A depth that shows what looking back takes, in whole blocks; 0: there is no room for it.
std::int64_t Probe::deep() const {
  const auto rows = static_cast<std::int64_t>(options_.rows);
  const auto filled =
      static_cast<std::int64_t>(kMostFilled / std::max<std::uint64_t>(1, session_.cache_bytes_per_position()));
  const std::int64_t most = std::min(
      {session_.context() - kBlockPositions, session_.free_positions() / rows - kBlockPositions, filled / rows});
  const std::int64_t depth = std::min(std::max(options_.depth, kDeepEnough), most) / kBlockPositions * kBlockPositions;
  return shallow_ == kBlockPositions && depth > shallow_ ? depth : 0;
}

StepSpeeds Probe::run() {
  read_first_block();
  const std::int64_t few = shallow_, deep_at = deep();
  const int rows = options_.rows;
  StepSpeeds speeds;
  for (const int n : {1, (rows + 3) / 4, rows}) {
    if (!speeds.steps.empty() && speeds.steps.back().tokens >= n) continue;
    fill(n, few);
    speeds.steps.push_back({n, generating(n)});
  }
  if (deep_at > 0) {
    const double base = speeds.steps.back().seconds;
    const auto slope = [&](double seconds) {
      return std::max(0.0, (seconds - base) / static_cast<double>(rows * (deep_at - few)));
    };
    fill(rows, deep_at);
    speeds.own = speeds.shared = slope(generating(rows));
    if (options_.shared > 0 && rows > 1) {
      fork_to(rows, deep_at);
      speeds.shared = std::min(speeds.own, slope(generating(rows)));
    }
    for (StepSpeeds::Point& p : speeds.steps) {
      p.seconds = std::max(p.seconds / 2, p.seconds - speeds.own * static_cast<double>(p.tokens * few));
    }
  }
  std::int64_t prompt = few;
  double read = reading(prompt, 0);
  const std::int64_t most = std::min<std::int64_t>(session_.batch_tokens(), session_.context() - 1);
  if (most > few && read * static_cast<double>(most) / static_cast<double>(few) < kLongestRead) {
    if (few > rows) speeds.steps.push_back({few, read});
    read = reading(prompt = most, 0);
  }
  if (deep_at > 0 && deep_at + prompt <= session_.context()) {
    const double more = (reading(prompt, deep_at) - read) / static_cast<double>(prompt * deep_at);
    speeds.prompt = std::clamp(more, 0.0, read / static_cast<double>(prompt * prompt));
  }
  if (prompt > speeds.steps.back().tokens) {
    const auto p = static_cast<double>(prompt);
    speeds.steps.push_back({prompt, read - speeds.prompt * p * p / 2});
  }
  return speeds;
}

}  // namespace

StepSpeeds measure_steps(Model& model, Session& session, std::span<const BatchRow> rows, const ProbeOptions& options) {
  return Probe(model, session, rows, options).run();
}

}  // namespace llm
