#include "model/arch.h"

#include <utility>

namespace llm {

Graph build_graph(const ModelSpec& spec, const GgufFile& file, Bucket bucket, std::vector<std::string>* unused,
                  std::span<const LoraAdapter> adapters, Net::Outputs outputs) {
  Net net(file, bucket, adapters, outputs);
  const Act logits = spec.build(net);
  net.require_adapters_used();
  if (unused) *unused = net.unused(spec.ignorable);
  return std::move(net).finish(logits);
}

Graph build_prediction_graph(const ModelSpec& spec, const GgufFile& file, Bucket bucket,
                             std::vector<std::string>* unused, std::span<const LoraAdapter> adapters) {
  Net net(file, bucket, adapters, Net::Outputs::LogitsAndHidden);
  const Act logits = spec.predict(net);
  if (unused) *unused = net.unused({});
  return std::move(net).finish(logits);
}

}  // namespace llm
