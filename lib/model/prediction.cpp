#include "model/prediction.h"

#include <string>

namespace llm {
namespace {

std::string of_layer(const DecoderConfig& c, std::string_view name) {
  return "blk." + std::to_string(c.n_layers) + "." + std::string(name);
}

Act prediction_norm(Net& net, const DecoderConfig& c, Act x) {
  Scope s = net.layer(c.n_layers, Role::Head);
  for (const char* own : {"nextn.shared_head_norm", "layer_output_norm"})
    if (s.has(own)) return s.rms_norm(own, x, c.norm_eps);
  return net.top(Role::Head).rms_norm("output_norm", x, c.norm_eps);
}

}  // namespace

Act final_norm(Net& net, const DecoderConfig& c, Act x, Index out_rows) {
  if (!net.gives_hidden()) return net.top(Role::Head).rms_norm("output_norm", net.rows(x, out_rows), c.norm_eps);
  const Act all = net.top(Role::Head).rms_norm("output_norm", x, c.norm_eps);
  net.give_hidden(all);
  return net.rows(all, out_rows);
}

Act prediction_input(Net& net, const DecoderConfig& c, Index tokens) {
  Scope s = net.layer(c.n_layers, Role::Embed);
  const std::string own = of_layer(c, "nextn.embed_tokens");
  const Act e = net.embed(s.has("nextn.embed_tokens") ? own : "token_embd", tokens, c.vocab, c.n_embd);
  const Act token = s.split_heads("nextn.token", s.rms_norm("nextn.enorm", e, c.norm_eps), 1);
  const Act h = net.hidden_before(c.n_embd);
  const Act hidden = s.split_heads("nextn.hidden", s.rms_norm("nextn.hnorm", h, c.norm_eps), 1);
  const Act both = s.flatten_heads("nextn.both", s.concat("nextn.joined", token, hidden));
  return s.linear("nextn.eh_proj", both, c.n_embd);
}

Act prediction_logits(Net& net, const DecoderConfig& c, Act x, Index out_rows) {
  Scope s = net.layer(c.n_layers, Role::Head);
  const Act hidden = prediction_norm(net, c, net.rows(x, out_rows));
  net.give_hidden(hidden);
  const std::string own = of_layer(c, "nextn.shared_head_head");
  return net.head(s.has("nextn.shared_head_head") ? own : "output", hidden, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace llm
