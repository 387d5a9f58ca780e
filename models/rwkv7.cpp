// rwkv7, arwkv7: RWKV-7 (arXiv:2503.14456); ARWKV, Qwen2.5 with its attention made over to a time mix. No layer
// attends. A time mix reads each token and the one before it in fixed shares; the state of a head decays row by row,
// and what it holds under a token's key is taken away in part before the token's value is added. Values are mixed with
// the first layer's. Of ARWKV a gated network follows, and there may be no gate and no norm of the heads' results.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hyper_parameters.h"
#include "model/rwkv.h"

namespace llm {
namespace {

constexpr std::string_view kOfQwen = "arwkv7";

struct Config : RwkvConfig {
  std::int64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
};

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c{read_rwkv_config(md, arch, arch == kOfQwen)};
  const HyperParameters hp(md, arch);
  const auto rank = [&](std::string_view key) { return hp.integer({key, 1, 1 << 16}); };
  c.decay_rank = rank("attention.decay_lora_rank");
  c.rate_rank = rank("attention.iclr_lora_rank");
  c.value_rank = rank("attention.value_residual_mix_lora_rank");
  c.gate_rank = c.of_qwen ? hp.optional_integer({"attention.gate_lora_rank", 0, 1 << 16}).value_or(0)
                          : rank("attention.gate_lora_rank");
  return c;
}

/// What w, k, v and others are made of; g where the layer has a gate.
struct Mixed {
  Act r, w, k, v, a;
  std::optional<Act> g;
};
Mixed mix(Scope s, const Config& c, Act x) {
  const Act d = s.token_shift("time_shift", x, RecurrentType::Part::Shift);
  std::vector<std::string> names{"time_mix_xr", "time_mix_xw", "time_mix_xk", "time_mix_xv", "time_mix_xa"};
  const bool gated = c.gate_rank > 0;
  if (gated) names.push_back("time_mix_xg");
  const std::vector<Act> all = s.lerp(names, x, d, "time_mix_lerp_fused");
  Mixed mixed{all[0], all[1], all[2], all[3], all[4], {}};
  if (gated) mixed.g = all[5];
  return mixed;
}

/// The heads' results. `first` is the first layer's value, which that layer sets.
WkvResults results(Scope s, const Config& c, const Mixed& x, std::optional<Act>& first) {
  const Act r = s.linear("time_mix_receptance", x.r, c.n_embd);
  const Act w = curved_low_rank(s, c, {"time_mix_w1", "time_mix_w2", "time_mix_w0", c.decay_rank}, x.w);
  const Act k = s.linear("time_mix_key", x.k, c.n_embd);
  const Act v = s.linear("time_mix_value", x.v, c.n_embd);
  const Act a = low_rank(s, c, {"time_mix_a1", "time_mix_a2", "time_mix_a0", c.rate_rank}, x.a);
  if (!first) {
    first = v;
    return s.wkv7({.r = r, .k = k, .v = v, .w = w, .a = a}, c.head);
  }
  const Act share = low_rank(s, c, {"time_mix_v1", "time_mix_v2", "time_mix_v0", c.value_rank}, x.v);
  const GraphBuilder::FirstValues values{*first, share};
  return s.wkv7({.r = r, .k = k, .v = v, .w = w, .a = a, .first = &values}, c.head);
}

Act time_mix(Scope s, const Config& c, Act x, std::optional<Act>& first) {
  const Mixed mixed = mix(s, c, x);
  const WkvResults heads = results(s, c, mixed, first);
  const bool normal = !c.of_qwen || s.has("time_mix_ln");
  const Act of_state = normal ? wkv_norm(s, heads.y) : s.flatten_heads("wkv_flat", heads.y);
  Act y = s.add("time_mix_all", of_state, s.flatten_heads("wkv_own_flat", heads.own));
  if (mixed.g) {
    const Act low = s.linear("time_mix_g1", *mixed.g, c.gate_rank);
    const Act open = s.activate("time_mix_g1_open", {.function = Nonlinearity::Sigmoid}, low);
    y = s.glu(Activation::Identity, s.linear("time_mix_g2", open, c.n_embd), y, "time_mix_gated");
  }
  return s.linear("time_mix_output", y, c.n_embd);
}

Act channel_mix(Scope s, const Config& c, Act x) {
  const Act d = s.token_shift("channel_shift", x, RecurrentType::Part::ShiftFfn);
  const std::string name = "channel_mix_xk";
  const Act k = s.linear("channel_mix_key", s.lerp({&name, 1}, x, d, "channel_mix_lerp_k")[0], c.of(s.layer()).d_ff);
  const Act squares = s.activate("channel_mix_squares", {.function = Nonlinearity::SquaredRelu}, k);
  return s.linear("channel_mix_value", squares, c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  std::optional<Act> first;
  Act x = rwkv_embedding(net, c, step.tokens);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("time_residual", x, time_mix(a, c, rwkv_norm(a, c, "attn_norm", x), first));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = rwkv_norm(f, c, c.of_qwen ? "ffn_norm" : "attn_norm_2", x);
    x = f.add("channel_residual", x, c.of_qwen ? glu_ffn(f, c, Activation::Silu, y) : channel_mix(f, c, y));
  }
  return rwkv_logits(net, c, x, step.out_rows);
}

}  // namespace

ModelSpec open_rwkv7(const Metadata& md) {
  const Config c = configure(md);
  // Nobody mixes the first layer's values; files have what would.
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"blk.0.time_mix_v[012].weight"}};
}

}  // namespace llm
