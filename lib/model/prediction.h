// A model's own layer for guessing ahead (multi-token prediction, arXiv:2412.19437): a layer like the others, with a
// cache of its own, that reads a token's embedding joined with what the head read one token earlier, and whose results
// go through the model's head. It is a graph of its own over the same file, its layer numbered behind the model's; what
// it has read of is what the model's graph gives. For a guess after a guess, its own hidden state takes that place.
#pragma once

#include "model/decoder_config.h"
#include "model/net.h"

namespace llm {

/// What the head reads, of the rows wanted; of all rows where the net gives it.
Act final_norm(Net& net, const DecoderConfig& c, Act x, Index out_rows);

/// What the prediction layer works on, [n_embd, tokens]: nextn.enorm and nextn.hnorm of the two, nextn.eh_proj. The
/// embedding is nextn.embed_tokens, or the model's where the file has none.
Act prediction_input(Net& net, const DecoderConfig& c, Index tokens);
/// Logits of what it made: nextn.shared_head_norm or layer_output_norm, nextn.shared_head_head, or the model's where
/// the file has none.
Act prediction_logits(Net& net, const DecoderConfig& c, Act x, Index out_rows);

}  // namespace llm
