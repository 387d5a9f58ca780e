// What a chain is made of: each narrows a set of candidates or changes their logits, and leaves one candidate at least.
// Ties are broken by `better`.
#pragma once

#include <cstddef>

#include "runtime/candidates.h"

namespace llm {

/// The fewest best whose probabilities reach p together (nucleus sampling: Holtzman and others, 2019).
void keep_top_p(Candidates&, double p, std::size_t min_keep);
/// Those at least p times as likely as the best (Nguyen and others, 2024).
void keep_min_p(Candidates&, double p, std::size_t min_keep);
/// Logits no further below the best than n standard deviations of all of them (Tang and others: Top-n-sigma, 2024).
void keep_top_n_sigma(Candidates&, double n);
/// The fewest whose probabilities exceed p together, those first whose information is nearest to the entropy (Meister
/// and others: Locally typical sampling, 2022).
void keep_typical(Candidates&, double p, std::size_t min_keep);
/// Of the candidates with at least this probability, if there are two, all but the least likely go ("exclude top
/// choices"). The chance by which it happens is the caller's.
void exclude_top(Candidates&, double threshold, std::size_t min_keep);

/// Divides the logits. <= 0 leaves the best.
void scale_by_temperature(Candidates&, double temperature);
/// Between temperature - range (but 0) and temperature + range: by the entropy relative to the largest that so many
/// candidates can have, to the power of `exponent`. <= 0 leaves the best.
double dynamic_temperature(const Candidates&, double temperature, double range, double exponent);

/// Truncation of Mirostat (Basu and others, 2020) to a surprise of `mu` bits. Version 1 estimates from the 100 best how
/// fast probabilities fall (Zipf's exponent) and from it how many of a vocabulary of `n_vocab` to keep; version 2 keeps
/// those whose surprise is at most mu.
void keep_mirostat_1(Candidates&, double mu, std::size_t n_vocab);
void keep_mirostat_2(Candidates&, double mu);

/// The candidate whose share of the probabilities holds the point `uniform` in [0, 1).
Token draw(const Candidates&, double uniform);

}  // namespace llm
