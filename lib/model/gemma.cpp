#include "model/gemma.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/hyper_parameters.h"

namespace llm {
namespace {

Cache keep(Scope s, const GemmaConfig& c, const Rotary& rot, Act x) {
  const int heads = c.of(s.layer()).kv_heads;
  const std::int64_t width = heads * c.head_dim_of(s.layer());
  Act k = s.split_heads("attn_k_heads", s.linear("attn_k", x, width), heads);
  const bool shared = c.spares_values && !s.has("attn_v");
  Act v = shared ? k : s.split_heads("attn_v_heads", s.linear("attn_v", x, width), heads);
  k = s.rope("attn_k_rope", s.rms_norm("attn_k_norm", k, c.norm_eps), rot);
  v = s.unit_rms_norm("attn_v_norm", v, c.norm_eps);
  return s.kv_append(k, v);
}

}  // namespace

void read_scale_of_27b(const Metadata& md, DecoderConfig& c) {
  if (HyperParameters(md, c.architecture).has("attention.scale")) return;
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.n_embd / c.most().heads));
}

int GemmaConfig::kept_by(int layer) const {
  int by = std::min(layer, keeping_layers - 1);
  while (layer >= keeping_layers && by > 0 && is_local(by) != is_local(layer)) --by;
  return by;
}

void read_gemma(const Metadata& md, GemmaConfig& c, int shared) {
  const HyperParameters hp(md, c.architecture);
  const IntegerRule rule{"attention.shared_kv_layers", 0, c.n_layers - 1};
  c.local_head_dim = c.head_dim;
  c.keeping_layers = c.n_layers - static_cast<int>(hp.optional_integer(rule).value_or(shared));
  for (int i = c.keeping_layers; i < c.n_layers; ++i)
    if (c.is_local(c.kept_by(i)) != c.is_local(i))
      hp.fail(rule.key, "leaves no layer whose keys and values layer " + std::to_string(i) + " could read");
  c.d_per_layer = hp.optional_integer({"embedding_length_per_layer_input", 0, 1 << 20}).value_or(0);
  c.logit_cap = hp.nonzero_real({"final_logit_softcapping", 0, kUnbounded}).value_or(0.0f);
}

Act kept_attention(Scope s, const GemmaConfig& c, const Rotary& rot, KeptCaches& caches, Act x) {
  const int i = s.layer(), heads = c.of(i).heads;
  Act q = s.split_heads("attn_q_heads", s.linear("attn_q", x, heads * c.head_dim_of(i)), heads);
  q = s.rope("attn_q_rope", s.rms_norm("attn_q_norm", q, c.norm_eps), rot);
  if (i < c.keeping_layers) caches.emplace(i, keep(s, c, rot, x));
  const Act y = s.attention(q, caches.at(c.kept_by(i)), {.scale = c.attention_scale, .window = c.window_of(i)});
  return attention_output(s, c, y);
}

Act per_layer_inputs(Net& net, const GemmaConfig& c, Index tokens, Act x) {
  Scope s = net.top(Role::Embed);
  const std::int64_t all = c.d_per_layer * c.n_layers;
  Act own = net.embed("per_layer_token_embd", tokens, c.vocab, all);
  own = s.scale("per_layer_embed_scaled", own, std::sqrt(static_cast<float>(c.d_per_layer)));
  Act made = s.linear("per_layer_model_proj", x, all);
  made = s.scale("per_layer_proj_scaled", made, 1 / std::sqrt(static_cast<float>(c.n_embd)));
  made = s.split_heads("per_layer_proj_parts", made, c.n_layers);
  made = s.flatten_heads("per_layer_proj_flat", s.rms_norm("per_layer_proj_norm", made, c.norm_eps));
  return s.scale("per_layer_inputs", s.add("per_layer_sum", made, own), std::sqrt(0.5f));
}

Act per_layer_part(Scope s, const GemmaConfig& c, Act x, Act inputs) {
  const Act part = s.slice("per_layer_input", inputs, {.begin = s.layer() * c.d_per_layer, .n = c.d_per_layer});
  const Act gate = s.linear("inp_gate", x, c.d_per_layer);
  const Act y = s.linear("proj", s.glu(Activation::Gelu, gate, part, "per_layer_glu"), c.n_embd);
  return s.rms_norm("post_norm", y, c.norm_eps);
}

}  // namespace llm
