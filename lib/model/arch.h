// What an architecture family gives to the rest: its dimensions, and how to build its graph.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "graph/graph.h"
#include "model/net.h"

namespace llm {

/// What the runtime and people want to know of any model.
struct ModelDims {
  std::string architecture;
  std::int64_t vocab = 0;
  std::int64_t context = 0;    ///< that the model was trained with (after scaling)
  std::int64_t positions = 0;  ///< that have an embedding each; 0: positions are not embedded, any can be
  std::int64_t n_embd = 0;
  int n_layers = 0;
  int heads = 0, kv_heads = 0;  ///< the most that any layer has
  int experts = 0, experts_used = 0;
};

struct ModelSpec {
  ModelDims dims;
  std::function<Act(Net&)> build;           ///< gives the logits
  std::vector<std::string> ignorable = {};  ///< shell patterns of tensors that a file may hold unread
  /// Where the family can guess by its prediction layer: the logits of the token after the next one. `build` then gives
  /// what the head reads of every token, for a net that asks for it.
  std::function<Act(Net&)> predict = {};
};

struct Architecture {
  std::string_view name;               ///< general.architecture
  ModelSpec (*open)(const Metadata&);  ///< throws ErrorKind::Model naming the key
};

/// The graph of a bucket as the family wrote it, not yet optimised; `unused` gets the names of tensors that nothing
/// read. Throws ErrorKind::Model naming a tensor that is missing or has another shape or type than the graph needs, or
/// a pair of an adapter that does not belong to the model.
Graph build_graph(const ModelSpec&, const GgufFile&, Bucket, std::vector<std::string>* unused = nullptr,
                  std::span<const LoraAdapter> adapters = {}, Net::Outputs outputs = Net::Outputs::Logits);
/// That of the prediction layer, whose outputs are the logits and what its head reads, both of the rows wanted, and
/// whose input "hidden_before" is that of every token. `spec` has one.
Graph build_prediction_graph(const ModelSpec&, const GgufFile&, Bucket, std::vector<std::string>* unused = nullptr,
                             std::span<const LoraAdapter> adapters = {});

}  // namespace llm
