#include "runtime/read_text.h"

#include <algorithm>

#include "base/clock.h"

namespace llm {
namespace {

/// Tokens of one call: all where steps run behind one another, else as many as one step takes, or fewer where a step
/// takes long, so that progress and cancelling stay alive. Results of the cpu backend do not depend on it; those of
/// blas may in the last bits.
class ChunkSize {
 public:
  ChunkSize(const Session& session, std::size_t all)
      : tokens_(session.steps_at_once() > 1 ? all : static_cast<std::size_t>(session.batch_tokens())) {}
  std::size_t next() const { return tokens_; }
  void took(double seconds) {
    constexpr double kLong = 2;
    constexpr std::size_t kLeast = 64;
    if (seconds > kLong) tokens_ = std::max(kLeast, tokens_ / 2);
  }

 private:
  std::size_t tokens_;
};

}  // namespace

std::span<const float> read_text(Session& session, SequenceId sequence, std::span<const Token> tokens,
                                 const GoOn& go_on) {
  ChunkSize chunk(session, tokens.size());
  const std::int64_t before = session.length(sequence);
  std::span<const float> logits;
  std::size_t done = 0;
  for (bool goes_on = true; goes_on && logits.empty();) {
    const std::size_t n = std::min(chunk.next(), tokens.size() - done);
    const Append work{sequence, tokens.subspan(done, n), done + n == tokens.size() ? Logits::Last : Logits::None};
    const auto start = Clock::now();
    logits = session.eval({&work, 1}, [&](std::int64_t computed) {
      goes_on = go_on(static_cast<std::int64_t>(done) + computed);
      return goes_on;
    });
    chunk.took(seconds_since(start));
    done = static_cast<std::size_t>(session.length(sequence) - before);
  }
  return logits;
}

}  // namespace llm
