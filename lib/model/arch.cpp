#include "model/arch.h"

#include <utility>

namespace llm {

Graph build_graph(const ModelSpec& spec, const GgufFile& file, Bucket bucket, std::vector<std::string>* unused) {
  Net net(file, bucket);
  const Act logits = spec.build(net);
  if (unused) *unused = net.unused(spec.ignorable);
  return std::move(net).finish(logits);
}

}  // namespace llm
