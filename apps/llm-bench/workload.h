// What a model's steps cost at least, counted from its graph, and how fast this machine's limits let them be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/machine_limits.h"
#include "runtime/model.h"
#include "runtime/session.h"

namespace llm::bench {

using app::Limits;

enum class Bound : std::uint8_t { ReadBandwidth, Int8Peak, Bf16Peak, F32Peak };
std::string_view name(Bound);

/// One test, by llama-bench's definitions: a prompt of `n` tokens in batches, or `n` steps of one token for each of
/// `parallel` sequences; before it `depth` positions are in the cache of each.
struct Test {
  enum class Kind : std::uint8_t { Prompt, Generate } kind = Kind::Prompt;
  int n = 0;
  int depth = 0;
  int parallel = 1;
  std::string name() const;  ///< "pp512", "tg128@d8192", "tg128 x8"
  std::int64_t tokens() const { return static_cast<std::int64_t>(n) * parallel; }
};

/// Matrix elements that a token is multiplied by, by the arithmetic that the products take.
struct Multiplied {
  double int8 = 0, bf16 = 0, f32 = 0;
};

struct Workload {
  Multiplied all;  ///< of products with every token's row; of the experts only those in use
  Multiplied
      wanted;  ///< of products with the rows alone that logits are wanted of: the head's, most of the last layer's
  double shared_bytes = 0;  ///< weights that every step reads, however many tokens it has
  /// Matrices side by side of which a token uses some.
  struct Experts {
    double bytes;  ///< of all
    double share;  ///< of them that one token uses
  };
  std::vector<Experts> experts;
  double bytes_per_position = 0;  ///< of the cache
  double bytes_per_state = 0;     ///< of a sequence's recurrent layers
  int step_tokens = 1;            ///< most tokens of a step
};
/// Of steps of a session, by the products of its model's backend.
Workload measure_workload(const Model&, const Session&);

/// Bytes that a test reads at least: weights in every step (of experts as many as random routes would touch), the cache
/// of what lies before a prompt's batch, or of a generating sequence at its mean length, and its recurrent state.
double read_bytes(const Workload&, const Test&);

struct Ceiling {
  double tokens_per_second;
  Bound bound;
};
/// The speed at which a test would be bound by a limit of the machine:
/// - prompts: 2 operations per weight and row that is multiplied with it (of the last token alone behind the last
///   layer's attention) at the int8 peak, or at the bf16 or f32 peak for weights that are multiplied so; or one read of
///   the weights, and of the cache, per batch, if that takes longer;
/// - generation: per step one read of the weights (experts: as many as random routes would touch) and of the cache at
///   its mean length; or the operations, if they take longer.
/// Nothing if a limit that may decide was not measured; of generation, which is bound by reading as a rule, if the
/// reading was not.
std::optional<Ceiling> ceiling(const Workload&, const Test&, const Limits&);

/// The arithmetic of products with weights of a type; Bound::F32Peak where they are not quantised.
Bound arithmetic_of(DType, std::string_view backend);
std::optional<double> limit_of(const Limits&, Bound);

}  // namespace llm::bench
