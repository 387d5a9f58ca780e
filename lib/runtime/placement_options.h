// Where parts of a model are to run: what a user may ask for.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "runtime/tensor_overrides.h"

namespace llm {

/// Layers are counted as llama.cpp counts them: the head that makes the logits is one more, behind the others.
struct PlacementOptions {
  static constexpr int kAll = std::numeric_limits<int>::max(), kFitting = -1;
  /// So many of the last ones run on the devices, the rest on the host; with kAll the embedding, too. kFitting: as many
  /// as fit into their memory.
  int layers = kAll;
  /// Layers, from the first, whose experts are the host's.
  int host_experts = 0;
  /// Before all else; of several that name a tensor the first one counts. Devices are among `devices`.
  std::vector<TensorOverride> overrides = {};
  /// What kFitting makes room for.
  struct Room {
    std::optional<std::int64_t> context = {};  ///< 0: the trained one; nothing: 4,096 of it at least
    int sequences = 1;
    CacheFormat cache = {};
    int batch_tokens = 0;  ///< most tokens of one step, as SessionOptions has them
  } room = {};
  /// Devices of the backend, by number, that may be used, in the order in which they get layers.
  std::vector<int> devices = {0};
  /// Index in `devices` of the one that gets the model where one is enough.
  int preferred = 0;
  enum class Split : std::uint8_t {
    WhereNeeded,  ///< only a model that does not fit on the preferred device
    Always,
  } split = Split::WhereNeeded;
  /// Of `devices` in the layers; nothing: by what is free.
  std::vector<double> shares = {};
  /// Whether devices compute with the host's weights where steps are long enough to bring them; never with those of a
  /// file in foreign byte order.
  bool streams = true;
};

}  // namespace llm
