// Manifold-constrained hyper-connections (arXiv:2512.24880): what runs through the layers is several streams of a
// token, [n_embd, streams, tokens], which each part reads as a weighted sum and shares its result out to, mixing them
// by a matrix that Sinkhorn's iterations balance.
#pragma once

#include <cstdint>
#include <string>

#include "model/hyper_parameters.h"
#include "model/net.h"

namespace llm {

struct ConnectionConfig {
  int streams = 0;
  StreamWeights weights = {};
};
/// hyper_connection.count, .epsilon and .sinkhorn_iterations.
ConnectionConfig read_connections(const HyperParameters&);

/// What a part of a layer works with: the streams' weighted sum [n_embd, tokens], and how its result and the streams
/// make the next ones.
struct StreamReading {
  Act x;
  StreamShares shares;
};
/// n numbers of the streams as one vector, normalised: `name`_fn.
Act weigh_streams(Scope s, const std::string& name, Act streams, std::int64_t n, float norm_eps);
/// Their sum by these weights [streams, 1, tokens].
Act read_streams(Scope s, const std::string& name, Act streams, Act weights);
/// By `name`_fn, `name`_scale and `name`_base.
StreamReading read_connection(Scope s, const ConnectionConfig& c, const std::string& name, Act streams, float norm_eps);
/// The streams behind a part that gives y.
Act write_connection(Scope s, const std::string& name, Act streams, Act y, const StreamShares& shares);

}  // namespace llm
