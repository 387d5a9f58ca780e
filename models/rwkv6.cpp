// rwkv6, rwkv6qwen2: RWKV-6 (arXiv:2404.05892); QRWKV6, Qwen2.5 with its attention made over to a time mix. No layer
// attends. A time mix reads each token and the one before it, in shares that the token itself decides, and keeps a
// state for each head whose rows decay by what the token says. Of QRWKV6 the state is that of gated linear attention,
// keys and values are shared by groups of heads, and a gated network follows.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "model/hyper_parameters.h"
#include "model/rwkv.h"

namespace llm {
namespace {

constexpr std::string_view kOfQwen = "rwkv6qwen2";
constexpr int kMixed = 5;  ///< of what w, k, v, r and g are made, in this order
using Mixed = std::array<Act, kMixed>;

struct Config : RwkvConfig {
  std::int64_t mix_rank = 0, decay_rank = 0;
  std::int64_t kv_heads = 0;
  int halved_every = 0;  ///< layers behind which all is halved; 0: none
};

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c{read_rwkv_config(md, arch, arch == kOfQwen)};
  const HyperParameters hp(md, arch);
  c.mix_rank = hp.integer({"time_mix_extra_dim", 1, 1 << 16});
  c.decay_rank = hp.integer({"time_decay_extra_dim", 1, 1 << 16});
  c.kv_heads = c.heads();
  if (c.of_qwen) {
    constexpr IntegerRule kKvHeads{"attention.head_count_kv", 0, 4096};
    const std::int64_t kv_heads = hp.same_in_all(kKvHeads, c.n_layers);
    if (kv_heads != 0 && c.heads() % kv_heads != 0)
      hp.fail(kKvHeads.key,
              "value " + std::to_string(kv_heads) + " does not divide the " + std::to_string(c.heads()) + " heads");
    if (kv_heads != 0) c.kv_heads = kv_heads;
    hp.expect_neutral("rescale_every_n_layers", 0, 0);
  } else {
    c.halved_every = static_cast<int>(hp.optional_integer({"rescale_every_n_layers", 0, 1 << 20}).value_or(0));
  }
  return c;
}

std::vector<std::string> named(std::string_view begin, std::string_view letters) {
  std::vector<std::string> names;
  for (const char letter : letters) names.push_back(std::string(begin) + letter);
  return names;
}

/// By one tensor of shares, or by five, as the first converters wrote them.
Mixed mix_by_shares(Scope s, const Config& c, Act x, Act d, Act more) {
  const std::vector<std::string> names = named("time_mix_x", "wkvrg");
  Mixed mixed;
  if (s.has("time_mix_lerp_fused")) {
    const std::vector<Act> all = s.lerp(names, x, d, "time_mix_lerp_fused", &more);
    std::copy(all.begin(), all.end(), mixed.begin());
    return mixed;
  }
  const Act flat = s.flatten_heads("time_mix_shares", more);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto begin = static_cast<std::int64_t>(i) * c.n_embd;
    const Act part = s.slice("time_mix_share_" + names[i].substr(10), flat, {.begin = begin, .n = c.n_embd});
    const Act of_one = s.split_heads("time_mix_shares_" + names[i].substr(10), part, 1);
    mixed[i] = s.lerp({&names[i], 1}, x, d, "time_mix_lerp_" + names[i].substr(10), &of_one)[0];
  }
  return mixed;
}

/// x and the row before it, in shares that come from both.
Mixed mix(Scope s, const Config& c, Act x) {
  const Act d = s.token_shift("time_shift", x, RecurrentType::Part::Shift);
  const std::string name = "time_mix_xx";
  const Act low = s.linear("time_mix_w1", s.lerp({&name, 1}, x, d, "time_mix_lerp_x")[0], kMixed * c.mix_rank);
  const Act parts = s.split_heads("time_mix_low", s.soft_cap("time_mix_w1_tanh", low, 1), kMixed);
  return mix_by_shares(s, c, x, d, s.head_linear("time_mix_w2", parts, c.n_embd));
}

Act time_mix(Scope s, const Config& c, Act x) {
  const auto [xw, xk, xv, xr, xg] = mix(s, c, x);
  const Act r = s.linear("time_mix_receptance", xr, c.n_embd);
  const Act k = s.linear("time_mix_key", xk, c.kv_heads * c.head);
  const Act v = s.linear("time_mix_value", xv, c.kv_heads * c.head);
  const Act gate = s.linear("time_mix_gate", xg, c.n_embd);
  const Act w = curved_low_rank(s, c, {"time_mix_decay_w1", "time_mix_decay_w2", "time_mix_decay", c.decay_rank}, xw);
  Act y = s.wkv6(r, k, v, w, c.head, c.of_qwen ? "" : "time_mix_first");
  y = c.of_qwen ? s.flatten_heads("wkv_flat", y) : wkv_norm(s, y);
  y = s.glu(c.of_qwen ? Activation::Sigmoid : Activation::Silu, gate, y, "time_mix_gated");
  return s.linear("time_mix_output", y, c.n_embd);
}

Act channel_mix(Scope s, const Config& c, Act x) {
  const Act d = s.token_shift("channel_shift", x, RecurrentType::Part::ShiftFfn);
  const std::string of_k = "channel_mix_xk", of_r = "channel_mix_xr";
  const Act xk = s.lerp({&of_k, 1}, x, d, "channel_mix_lerp_k")[0];
  const Act xr = s.lerp({&of_r, 1}, x, d, "channel_mix_lerp_r")[0];
  const Act k = s.linear("channel_mix_key", xk, c.of(s.layer()).d_ff);
  const Act squares = s.activate("channel_mix_squares", {.function = Nonlinearity::SquaredRelu}, k);
  const Act value = s.linear("channel_mix_value", squares, c.n_embd);
  const Act r = s.linear("channel_mix_receptance", xr, c.n_embd);
  return s.glu(Activation::Sigmoid, r, value, "channel_mix_gated");
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  Act x = rwkv_embedding(net, c, step.tokens);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("time_residual", x, time_mix(a, c, rwkv_norm(a, c, "attn_norm", x)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = rwkv_norm(f, c, c.of_qwen ? "ffn_norm" : "attn_norm_2", x);
    x = f.add("channel_residual", x, c.of_qwen ? glu_ffn(f, c, Activation::Silu, y) : channel_mix(f, c, y));
    if (c.halved_every > 0 && (i + 1) % c.halved_every == 0) x = f.scale("halved", x, 0.5f);
  }
  return rwkv_logits(net, c, x, step.out_rows);
}

}  // namespace

ModelSpec open_rwkv6(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
