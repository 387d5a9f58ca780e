#include "model/hyper_connections.h"

namespace llm {

ConnectionConfig read_connections(const HyperParameters& hp) {
  ConnectionConfig c;
  c.streams = static_cast<int>(hp.integer({"hyper_connection.count", 1, kMostStreams}));
  c.weights = {.eps = hp.real({"hyper_connection.epsilon", 0, 1}),
               .iterations = static_cast<int>(hp.integer({"hyper_connection.sinkhorn_iterations", 1, 1000}))};
  for (const char* key : {"hyper_connection.low_rank", "hyper_connection.magnitude"}) hp.expect_neutral(key, 0, 0);
  return c;
}

Act weigh_streams(Scope s, const std::string& name, Act streams, std::int64_t n, float norm_eps) {
  const Act flat = s.flatten_heads(name + "_flat", streams);
  return s.linear(name + "_fn", s.unit_rms_norm(name + "_norm", flat, norm_eps), n);
}

Act read_streams(Scope s, const std::string& name, Act streams, Act weights) {
  return s.flatten_heads(name + "_one", s.stream_mix(name + "_sum", streams, weights));
}

StreamReading read_connection(Scope s, const ConnectionConfig& c, const std::string& name, Act streams,
                              float norm_eps) {
  const Act weights = weigh_streams(s, name, streams, (std::int64_t{2} + c.streams) * c.streams, norm_eps);
  const StreamShares shares = s.stream_weights(name, weights, name + "_scale", name + "_base", c.weights);
  return {read_streams(s, name, streams, shares.read), shares};
}

Act write_connection(Scope s, const std::string& name, Act streams, Act y, const StreamShares& shares) {
  const Act mixed = s.stream_mix(name + "_mixed", streams, shares.mix);
  return s.stream_add(name + "_residual", mixed, y, shares.write, {.first = 0});
}

}  // namespace llm
