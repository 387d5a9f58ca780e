#include "runner.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "common/messages.h"
#include "common/progress.h"
#include "runtime/batch_steps.h"
#include "runtime/memory_budget.h"
#include "runtime/programs.h"

namespace llm::bench {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double center = mean(values);
  double squares = 0;
  for (const double v : values) squares += (v - center) * (v - center);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::optional<double> mean_of(std::span<const Limits> all, std::optional<double> Limits::*figure) {
  double sum = 0;
  for (const Limits& l : all) {
    if (!(l.*figure)) return std::nullopt;
    sum += *(l.*figure);
  }
  return sum / static_cast<double>(all.size());
}

Limits mean_of(std::span<const Limits> all) {
  return {mean_of(all, &Limits::read_bytes), mean_of(all, &Limits::int8_ops), mean_of(all, &Limits::bf16_ops),
          mean_of(all, &Limits::f32_ops)};
}

std::int64_t length(const Test& t) { return static_cast<std::int64_t>(t.depth) + t.n; }
/// Of the cache, in whole blocks of each sequence.
std::int64_t positions(const Test& t) { return t.parallel * whole_blocks(length(t)) * kBlockPositions; }

}  // namespace

SessionOptions session_options(std::span<const Test> tests, CacheFormat cache) {
  SessionOptions o{.pool = 0, .cache = cache};
  for (const Test& t : tests) {
    o.context = std::max(o.context, length(t));
    o.sequences = std::max(o.sequences, t.parallel);
    o.pool = std::max(*o.pool, positions(t));
  }
  return o;
}

int Threads::of(const Test& test) const {
  return (test.kind == Test::Kind::Prompt ? test.n : test.parallel) > kFewTokens ? many : few;
}

Runner::Runner(Model& model, const Threads& threads, std::span<const Test> tests, CacheFormat cache)
    : model_(model),
      session_(model, session_options(tests, cache)),
      threads_(threads),
      workload_(measure_workload(model, session_)) {
  for (const Test& t : tests) {
    if (positions(t) > session_.free_positions())
      throw Error(ErrorKind::Memory, t.name() + " takes a cache of " + number_text(positions(t)) +
                                         " positions, memory holds " + number_text(session_.free_positions()) +
                                         "; fewer sequences (-np), less depth (-d) or -ctk q8_0 take less");
  }
}

Limits Runner::measure_limits(const Test& test) {
  if (model_.kind() == "cuda") return {};  // nor where the CPU computes a part
  return meters_.try_emplace(threads_.of(test), threads_.of(test)).first->second.measure();
}

Result Runner::run(const Test& test, const Sampling& sampling) {
  prepare(test);
  app::Progress progress(test.name());
  const Test warm_up{test.kind, test.kind == Test::Kind::Prompt ? test.n : 1, test.depth, test.parallel};
  if (sampling.warm_up == Sampling::WarmUp::Once) timed(warm_up);

  std::vector<double> speeds, shares;
  std::vector<Limits> limits{measure_limits(test)};
  for (int i = 0; i < sampling.repetitions; ++i) {
    progress.update(static_cast<double>(i) / sampling.repetitions);
    prepare(test);
    speeds.push_back(static_cast<double>(test.tokens()) / timed(test));
    limits.push_back(measure_limits(test));
    const auto best = ceiling(workload_, test, mean_of(std::span(limits).last(2)));
    if (best) shares.push_back(speeds.back() / best->tokens_per_second);
  }

  Result r;
  r.tokens_per_second = mean(speeds);
  r.deviation = deviation(speeds);
  if (!shares.empty()) r.share_of_limit = mean(shares);
  r.limits = mean_of(limits);
  r.ceiling = ceiling(workload_, test, r.limits);
  r.read_bytes_per_token = read_bytes(workload_, test) / static_cast<double>(test.tokens());
  return r;
}

std::vector<NodeFigures> Runner::nodes(const Test& test) {
  prepare(test);
  NodeTimes times(model_);
  const Limits before = measure_limits(test);
  session_.observer = &times;
  timed(test);
  session_.observer = nullptr;
  return times.figures(mean_of(std::array{before, measure_limits(test)}));
}

void Runner::prepare(const Test& test) {
  if (session_.free_positions() < positions(test)) {  // other tests' sequences have them
    for (std::size_t i = static_cast<std::size_t>(test.parallel); i < sequences_.size(); ++i)
      session_.rewind(sequences_[i], 0);
  }
  for (int i = 0; i < test.parallel; ++i) {
    if (i == static_cast<int>(sequences_.size())) sequences_.push_back(session_.create());
    const SequenceId sequence = sequences_[static_cast<std::size_t>(i)];
    session_.rewind(sequence, std::min<std::int64_t>(session_.length(sequence), test.depth));
    // What recurrent layers had to see again would be timed, and no step begins behind another with it.
    session_.rewind(sequence, session_.length(sequence) - session_.to_read_again(sequence));
    fill(sequence, test);
  }
}

/// Each sequence gets tokens of its own: shared prefixes would be read from memory once for all.
void Runner::fill(SequenceId sequence, const Test& test) {
  app::Progress progress(test.name() + ": filling the cache");
  while (session_.length(sequence) < test.depth) {
    const std::int64_t length = session_.length(sequence);
    std::vector<Token> tokens = random_tokens(std::min<std::int64_t>(test.depth - length, session_.batch_tokens()));
    if (length == 0 && model_.tokenizer().special().add_bos) tokens.front() = model_.tokenizer().special().bos;
    const Append work{sequence, tokens, Logits::None};
    session_.eval({&work, 1});
    progress.update(static_cast<double>(session_.length(sequence)) / test.depth);
  }
}

double Runner::timed(const Test& test) {
  std::vector<Token> tokens = random_tokens(test.tokens());
  const SpecialTokens& special = model_.tokenizer().special();
  if (test.depth == 0 && special.add_bos) std::fill_n(tokens.begin(), test.parallel, special.bos);
  const auto start = Clock::now();
  if (test.kind == Test::Kind::Prompt) {
    prompt(sequences_.front(), tokens);
  } else {
    generate(tokens, test.parallel);
  }
  return seconds_since(start);
}

void Runner::prompt(SequenceId sequence, std::span<const Token> tokens) {
  const Append work{sequence, tokens, Logits::Last};
  session_.eval({&work, 1});
}

/// tokens [steps][parallel]
void Runner::generate(std::span<const Token> tokens, int parallel) {
  const auto n = static_cast<std::size_t>(parallel);
  if (session_.draws() && parallel <= kMaxOutputs) return generate_drawn(tokens.first(n), tokens.size() / n);
  std::vector<Append> work(n);
  for (; !tokens.empty(); tokens = tokens.subspan(n)) {
    for (std::size_t i = 0; i < n; ++i) work[i] = {sequences_[i], tokens.subspan(i, 1), Logits::Last};
    session_.eval(work);
  }
}

/// As answers are generated where the backend draws: it takes the best token of each row, which is the next step's.
void Runner::generate_drawn(std::span<const Token> first, std::size_t steps) {
  std::vector<Token> tokens(first.begin(), first.end());
  std::vector<Drawing> work;
  const DrawRule best{.n_tokens = static_cast<std::int32_t>(model_.dims().vocab)};
  for (std::size_t i = 0; i < tokens.size(); ++i)
    work.push_back({sequences_[i], std::span(tokens).subspan(i, 1), best});
  const auto groups = static_cast<std::size_t>(groups_of_rows(model_, tokens.size()));
  if (groups > 1) return generate_in_groups(tokens, work, groups, steps);
  for (std::size_t step = 0; step < steps; ++step) {
    session_.begin(work);
    if (step == 0) {
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = drawn_by(static_cast<std::int32_t>(i));
      continue;
    }
    collect();
  }
  collect();
}

/// Each group's next step begins when its last one has given its tokens, while the others are on their way.
void Runner::generate_in_groups(std::span<Token> tokens, std::span<const Drawing> work, std::size_t groups,
                                std::size_t steps) {
  const auto begin_of = [&](std::size_t group) { return work.size() * group / groups; };
  for (std::size_t step = 0; step < (steps + 1) * groups; ++step) {
    const std::size_t group = step % groups, first = begin_of(group), n = begin_of(group + 1) - first;
    if (step >= groups) {
      const std::span<const Token> drawn = collect();
      std::copy(drawn.begin(), drawn.end(), tokens.begin() + static_cast<std::ptrdiff_t>(first));
    }
    if (step < steps * groups) session_.begin(work.subspan(first, n));
  }
}

std::span<const Token> Runner::collect() {
  const auto drawn = session_.collect();
  if (!drawn) throw Error(ErrorKind::Numeric, "logits that are not finite");
  return *drawn;
}

std::vector<Token> Runner::random_tokens(std::int64_t n) {
  std::vector<Token> tokens(static_cast<std::size_t>(n));
  const auto vocab = static_cast<std::uint32_t>(model_.dims().vocab);
  for (Token& t : tokens) t = static_cast<Token>(bits_() % vocab);
  return tokens;
}

}  // namespace llm::bench
