// Layers of RWKV: a time mix, which a state of heads goes through, and a channel mix, both of each token and the row
// before it. Qwen models made over to it have the time mix beside their own networks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"

namespace llm {

struct RwkvConfig : DecoderConfig {
  std::int64_t head = 0;  ///< elements
  bool of_qwen = false;   ///< root mean square norms and a gated network in the place of the channel mix
  int heads() const { return static_cast<int>(n_embd / head); }
};
/// `of_qwen`: whose files say that only the time mix has a row before.
RwkvConfig read_rwkv_config(const Metadata&, std::string_view arch, bool of_qwen);

/// The low-rank product up(f(down(x))) + bias.weight, as wide as the model; `f` is tanh where `curved`.
struct LowRank {
  std::string_view down, up, bias;
  std::int64_t rank = 0;
};
Act low_rank(Scope s, const RwkvConfig& c, const LowRank& of, Act x);
Act curved_low_rank(Scope s, const RwkvConfig& c, const LowRank& of, Act x);

/// attn_norm, attn_norm_2, ffn_norm and others: with what they subtract where the model is not of Qwen.
Act rwkv_norm(Scope s, const RwkvConfig& c, std::string_view name, Act x);
/// Each head's results normalised: time_mix_ln. [n_embd, tokens]
Act wkv_norm(Scope s, Act results);

/// The embedding of the step's tokens, normalised where the model is not of Qwen: token_embd_norm.
Act rwkv_embedding(Net& net, const RwkvConfig& c, Index tokens);
/// Logits of the rows that are wanted: output_norm, output.
Act rwkv_logits(Net& net, const RwkvConfig& c, Act x, Index out_rows);

}  // namespace llm
