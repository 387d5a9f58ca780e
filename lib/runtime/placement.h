// Which part of a model computes where: from what was asked for, and from what fits, to the rules that cut its graphs.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/partition.h"

namespace llm {

/// Layers are counted as llama.cpp counts them: the head that makes the logits is one more, behind the others.
struct PlacementOptions {
  static constexpr int kAll = std::numeric_limits<int>::max(), kFitting = -1;
  /// So many of the last ones run on the device, the rest on the host; with kAll the embedding, too. kFitting: as many
  /// as fit into its memory.
  int layers = kAll;
  /// Layers, from the first, whose experts are the host's.
  int host_experts = 0;
  /// What kFitting makes room for.
  struct Room {
    std::optional<std::int64_t> context = {};  ///< 0: the trained one; nothing: 4,096 of it at least
    int sequences = 1;
    CacheFormat cache = {};
  } room = {};
};

/// Layers of a model, and whether they have experts.
struct ModelLayers {
  int count = 0;
  bool experts = false;
};

/// Whether the host computes anything. With kFitting it may.
bool has_host_part(const PlacementOptions&, ModelLayers);

/// For devices {the device, the host}. `layers` is not kFitting.
std::vector<PlacementRule> placement_rules(const PlacementOptions&, ModelLayers);
/// "cuda and cpu, cuda from layer 12, cpu the experts of layers 0-3": no two placements of a model have the same.
std::string placement_name(const PlacementOptions&, ModelLayers, const Backend& device, const Backend& host);

/// Layers, the head among them, that fit into the device's memory with their part of the cache and of the work that the
/// largest step takes; 0 if not even one does. `devices` are {the device, the host}.
int fitting_layers(const PlacementOptions&, ModelLayers, std::span<const std::unique_ptr<Backend>> devices,
                   const Graph& largest, std::int64_t trained_context);

/// "GPU: 20 of 33 layers, 7.1 GiB; CPU: the rest", of the memories that hold the model.
std::string placement_text(const PlacementOptions&, ModelLayers, std::span<const MemoryShare>);

}  // namespace llm
