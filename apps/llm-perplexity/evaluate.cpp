#include "evaluate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "common/messages.h"
#include "common/parallel.h"
#include "common/progress.h"

namespace llm::perplexity {
namespace {

/// Of rows of logits held at once: they are the largest thing here, 128,000 floats each in many models.
constexpr std::size_t kRowBytes = std::size_t{64} << 20;
constexpr std::size_t kLeastRows = 16;

class Evaluation {
 public:
  Evaluation(Model& model, const Windows& windows, const Streams& streams, CacheFormat cache, int threads)
      : windows_(windows),
        streams_(streams),
        threads_(threads),
        vocab_(static_cast<std::size_t>(model.dims().vocab)),
        rows_at_once_(static_cast<std::int64_t>(std::max(kLeastRows, kRowBytes / sizeof(float) / vocab_))),
        session_(model, SessionOptions{.context = windows.size(), .cache = cache}),
        sequence_(session_.create()) {}

  Totals run() {
    app::Progress progress("scoring");
    for (std::int64_t w = 0; w < windows_.count(); ++w) {
      run_window(w, progress);
      app::verbose("window " + std::to_string(w + 1) + " of " + std::to_string(windows_.count()) + ": ppl so far " +
                   fixed_text(std::exp(totals_.nll.mean()), 4));
    }
    app::verbose(session_.describe());
    return totals_;
  }

 private:
  void run_window(std::int64_t w, app::Progress& progress) {
    session_.rewind(sequence_, 0);
    const std::vector<Token> input = windows_.input(w);
    const std::span<const Token> tokens = input;
    const auto n = std::ssize(input);
    std::int64_t at = windows_.first_scored();
    eval(tokens.first(static_cast<std::size_t>(at)), Logits::None);
    while (at < n) {
      const std::int64_t rows = std::min(rows_at_once_, n - at);
      take(eval(tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(rows)), Logits::All), w, at,
           rows);
      at += rows;
      progress.update((static_cast<double>(w) + static_cast<double>(at) / static_cast<double>(n)) /
                      static_cast<double>(windows_.count()));
    }
  }

  std::span<const float> eval(std::span<const Token> tokens, Logits logits) {
    const Append work{sequence_, tokens, logits};
    return session_.eval({&work, 1});
  }

  /// logits [rows][vocab] of the positions from `first` on
  void take(std::span<const float> logits, std::int64_t w, std::int64_t first, std::int64_t rows) {
    if (streams_.save) streams_.save->write(logits);
    if (streams_.base) {
      base_.resize(logits.size());
      streams_.base->read(base_);
    }
    scores_.resize(static_cast<std::size_t>(rows));
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::size_t begin = static_cast<std::size_t>(i) * vocab_;
      const std::span<const float> base = streams_.base ? std::span(base_).subspan(begin, vocab_) : std::span<float>();
      scores_[static_cast<std::size_t>(i)] = score(logits.subspan(begin, vocab_), windows_.next(w, first + i), base);
    }
    app::end_parallel();
    for (const RowScore& s : scores_) add(s);  // in order, so that sums do not depend on the number of threads
  }

  void add(const RowScore& s) {
    totals_.nll.add(s.nll);
    if (!streams_.base) return;
    if (!s.base_finite) {
      throw Error(ErrorKind::Io,
                  ErrorParts{.file = streams_.base->path(),
                             .problem = "row " + std::to_string(totals_.nll.count() - 1) + " holds NaN or infinity"});
    }
    totals_.kl.add(s.kl);
    totals_.kl_max = std::max(totals_.kl_max, s.kl);
    totals_.max_logit_diff = std::max(totals_.max_logit_diff, s.max_logit_diff);
    totals_.same_top += s.same_top ? 1 : 0;
  }

  const Windows& windows_;
  const Streams& streams_;
  int threads_;
  std::size_t vocab_;
  std::int64_t rows_at_once_;
  Session session_;
  SequenceId sequence_;
  Totals totals_;
  std::vector<float> base_;
  std::vector<RowScore> scores_;
};

}  // namespace

Totals evaluate(Model& model, const Windows& windows, const Streams& streams, CacheFormat cache, int threads) {
  return Evaluation(model, windows, streams, cache, threads).run();
}

}  // namespace llm::perplexity
