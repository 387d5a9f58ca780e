// Tensors that go elsewhere than their layer: --override-tensor, --n-cpu-ffn.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "graph/partition.h"

namespace llm {

struct TensorOverride {
  static constexpr int kHost = -1;
  std::string pattern;                           ///< NamePattern, over names of tensors
  int layers = std::numeric_limits<int>::max();  ///< only tensors of the first so many; without this limit all
  int device = kHost;                            ///< or a device's number
  std::string given;                             ///< the option and its value, for messages
  int tensors = 0;                               ///< of the model's that it names, once that is known
};

/// "exps=CPU" or "blk\.3\.=CUDA1,exps=CPU": the host or GPUs that --list-devices names. A comma
/// separates where a device stands before it. Throws ErrorKind::Usage.
std::vector<TensorOverride> parse_tensor_overrides(std::string_view option, std::string_view text);

/// The dense feed-forward matrices of the first layers, for the host.
TensorOverride host_ffn(int layers);

/// Of each weight of the graph the first override that names it; counts them there.
OverriddenWeights overridden_weights(std::vector<TensorOverride>&, const Graph&);

}  // namespace llm
