// Runs tests on a session and takes the machine's limits between their samples.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "common/machine_limits.h"
#include "node_table.h"
#include "runtime/session.h"
#include "workload.h"

namespace llm::bench {

/// How a test is measured.
struct Sampling {
  int repetitions = 5;
  enum class WarmUp : std::uint8_t { Once, None } warm_up = WarmUp::Once;
};

struct Result {
  double tokens_per_second = 0;  ///< mean over the samples
  double deviation = 0;          ///< sample standard deviation; 0 for one sample
  /// Mean over the samples of speed / ceiling, the ceiling from the limits measured right before and after.
  std::optional<double> share_of_limit;
  std::optional<Ceiling> ceiling;   ///< at `limits`
  Limits limits;                    ///< mean of all measurements of the test
  double read_bytes_per_token = 0;  ///< that the test reads at least, of weights and cache
  std::vector<NodeFigures> nodes;   ///< of one more run, if they were asked for
};

/// That all tests can run with: the sequences share what the test that needs most of them needs.
SessionOptions session_options(std::span<const Test>, CacheFormat);

/// Threads that the backend runs on, in steps of a few tokens and of more.
struct Threads {
  int few = 1, many = 1;
  int of(const Test&) const;
};

class Runner {
 public:
  /// Throws ErrorKind::Memory if the cache that a test needs does not fit.
  Runner(Model&, const Threads&, std::span<const Test>, CacheFormat);
  Result run(const Test&, const Sampling&);
  /// What its nodes take in a run that is watched, which takes longer.
  std::vector<NodeFigures> nodes(const Test&);

 private:
  /// Of as many threads as the test has.
  Limits measure_limits(const Test&);
  /// The sequences of the test hold exactly its depth.
  void prepare(const Test&);
  void fill(SequenceId, const Test&);
  double timed(const Test&);
  void prompt(SequenceId, std::span<const Token>);
  void generate(std::span<const Token> tokens, int parallel);
  void generate_drawn(std::span<const Token> first, std::size_t steps);
  void generate_in_groups(std::span<Token> tokens, std::span<const Drawing> work, std::size_t groups,
                          std::size_t steps);
  std::span<const Token> collect();
  std::vector<Token> random_tokens(std::int64_t n);

  Model& model_;
  Session session_;
  Threads threads_;
  std::map<int, app::LimitMeter> meters_;  ///< by threads; none for a GPU, whose limits these cannot measure
  Workload workload_;
  std::vector<SequenceId> sequences_;
  std::mt19937 bits_{42};
};

}  // namespace llm::bench
