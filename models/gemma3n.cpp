// gemma3n: Gemma 3n, E2B and E4B, the text part. The residual stream is four (AltUp, arXiv:2301.13310): each layer
// predicts all of them from one another, computes with the first, and corrects all by what came of it. Beside attention
// there is a narrow path (LAuReL, arXiv:2411.07501), in the first layers only gates that stand out are used, tokens
// have an embedding for each layer, and the last layers read the keys and values of earlier ones.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "model/blocks.h"
#include "model/gemma.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 5, kKeeping = 20, kStreams = 4, kNarrow = 64, kSparseLayers = 10;
constexpr float kLocalBase = 10000, kLogitCap = 30, kDeviations = 1.6448533535f;  // 5 % of a normal distribution

struct Config : GemmaConfig {
  std::vector<float> deviations = {};  ///< of each layer's gates, what stands out; 0: all are used
};

/// What files write of layers without it is minus infinity.
std::vector<float> read_deviations(const HyperParameters& hp, int layers) {
  constexpr std::string_view kKey = "activation_sparsity_scale";
  std::vector<float> deviations(static_cast<std::size_t>(layers), 0.0f);
  if (!hp.has(kKey)) {
    std::fill_n(deviations.begin(), std::min(layers, kSparseLayers), kDeviations);
    return deviations;
  }
  const auto given = hp.metadata().array<float>(hp.key(kKey));
  if (given.size() != deviations.size())
    hp.fail(kKey, "has " + std::to_string(given.size()) + " elements, one for each of " + std::to_string(layers) +
                      " layers is required");
  for (std::size_t i = 0; i < given.size(); ++i)
    if (std::isfinite(given[i])) deviations[i] = given[i];
  return deviations;
}

Config configure(const Metadata& md) {
  Config c{{read_decoder_config(md, "gemma3n",
                                {"attention.shared_kv_layers", "attention.sliding_window_pattern",
                                 "embedding_length_per_layer_input", "final_logit_softcapping"})}};
  const HyperParameters hp(md, "gemma3n");
  refuse_experts(md, c);
  hp.integer({"attention.sliding_window", 1, std::numeric_limits<std::uint32_t>::max()});
  read_local_layers(md, c, kPeriod);
  read_gemma(md, c, std::max(0, c.n_layers - kKeeping));
  if (c.d_per_layer == 0) hp.fail("embedding_length_per_layer_input", "is missing");
  if (!hp.has("final_logit_softcapping")) c.logit_cap = kLogitCap;
  if (!hp.has("attention.scale")) c.attention_scale = 1;  // the norm of queries takes its place
  c.local_rope = {.n_rot = c.rope.n_rot, .base = read_local_base(md, c, kLocalBase)};
  hp.expect_neutral("altup.num_inputs", kStreams, kStreams);
  hp.expect_neutral("altup.active_idx", 0, 0);
  c.deviations = read_deviations(hp, c.n_layers);
  return c;
}

/// The streams of a token: [n_embd, kStreams, tokens]. The first of them.
Act first_of(Scope s, const Config& c, std::string_view name, Act streams) {
  return s.slice(name, s.flatten_heads(std::string(name) + "_of", streams), {.begin = 0, .n = c.n_embd});
}

/// Vectors of a row [n_embd, m, tokens], brought to the length of x [n_embd, tokens]; one after another.
Act as_long_as(Scope s, const Config& c, const std::string& name, Act vectors, Act x) {
  const auto n = static_cast<int>(c.n_embd);
  const Act unit = s.split_heads(name + "_unit", s.unit_rms_norm(name + "_direction", x, 0), 1);
  const Act product = s.stream_mix(name + "_product", s.split_heads(name + "_elements", x, n), unit);
  const Act length = s.scale(name + "_length", s.flatten_heads(name + "_sum", product), 1 / static_cast<float>(n));
  const Act flat = s.flatten_heads(name + "_flat", s.unit_rms_norm(name + "_normed", vectors, 0));
  return s.glu(Activation::Identity, length, flat, name);
}

Act several(Scope s, Act x) {
  const Act one = s.split_heads("altup_one", x, 1);
  Act all = one;
  for (int i = 2; i < kStreams; ++i) all = s.concat("altup_times_" + std::to_string(i), all, one);
  return s.split_heads("altup_several", s.flatten_heads("altup_several_flat", all), kStreams - 1);
}

/// The embedding, and products of it that are as long.
Act streams_of(Net& net, const Config& c, Act x) {
  Scope s = net.top(Role::Embed);
  const Act made = s.head_linear("altup_proj", several(s, x), c.n_embd);
  const Act others = as_long_as(s, c, "altup_added", made, x);
  const Act one = s.split_heads("altup_first", x, 1);
  const Act all = s.concat("altup_all", one, s.split_heads("altup_others", others, 1));
  return s.split_heads("altup_streams", s.flatten_heads("altup_all_flat", all), kStreams);
}

/// The mean of the first stream and of products of the others that are as long.
Act merged(Net& net, const Config& c, Act streams) {
  Scope s = net.top(Role::Head);
  const Act flat = s.flatten_heads("altup_last_flat", streams);
  const Act first = s.slice("altup_last", flat, {.begin = 0, .n = c.n_embd});
  const Act rest = s.slice("altup_rest", flat, {.begin = c.n_embd, .n = (kStreams - 1) * c.n_embd});
  const Act made = s.head_linear("altup_unembd_proj", s.split_heads("altup_rest_parts", rest, kStreams - 1), c.n_embd);
  const Act others = as_long_as(s, c, "altup_removed", made, first);
  Act sum = first;
  for (int i = 1; i < kStreams; ++i) {
    const std::string name = "altup_part_" + std::to_string(i);
    const Act part = s.slice(name, others, {.begin = (i - 1) * c.n_embd, .n = c.n_embd});
    sum = s.add(name + "_sum", sum, part);
  }
  return s.scale("altup_merged", sum, 1 / static_cast<float>(kStreams));
}

/// How much each stream has to do with x: [kStreams, tokens].
Act modalities(Scope s, const Config& c, const std::string& name, Act x) {
  Act y = s.rms_norm(name + "_norm", x, c.norm_eps, "altup_router_norm.weight");
  y = s.scale(name + "_scaled", y, 1 / static_cast<float>(c.n_embd));
  y = s.linear_rows(name + "_router", "altup_router", kStreams, y, {0, kStreams});
  return s.soft_cap(name, y, 1);  // tanh
}

Act predicted(Scope s, const Config& c, Act streams) {
  const Act kinds = modalities(s, c, "altup_predict", first_of(s, c, "altup_active", streams));
  const Act w = s.linear("altup_predict_coef", kinds, kStreams * kStreams);
  const Act mixed = s.stream_mix("altup_mixed", streams, s.split_heads("altup_mix", w, kStreams));
  return s.add("altup_predicted", mixed, streams);
}

/// All streams by how far the first one's prediction was from what came of it, y.
Act corrected(Scope s, const Config& c, Act prediction, Act first, Act y) {
  const Act kinds = modalities(s, c, "altup_correct", y);
  const Act w = s.linear("altup_correct_coef", kinds, kStreams);
  const Act off = s.add("altup_innovation", y, s.scale("altup_expected", first, -1));
  return s.stream_add("altup_corrected", prediction, off, w, {.first = 0});
}

/// x and a narrow product of it.
Act laurel(Scope s, const Config& c, Act x) {
  const Act y = s.linear("laurel_r", s.linear("laurel_l", x, kNarrow), c.n_embd);
  return s.add("laurel_out", x, s.rms_norm("laurel_post_norm", y, c.norm_eps));
}

Act ffn(Scope s, const Config& c, Act x) {
  const float deviations = c.deviations[static_cast<std::size_t>(s.layer())];
  const std::int64_t d_ff = c.of(s.layer()).d_ff;
  Act gate = s.linear("ffn_gate", x, d_ff);
  const Act up = s.linear("ffn_up", x, d_ff);
  if (deviations != 0) gate = s.gaussian_top("ffn_gate_top", gate, deviations);
  return s.linear("ffn_down", s.glu(Activation::Gelu, gate, up), c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves);
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, std::sqrt(static_cast<float>(c.n_embd)));
  const Act inputs = per_layer_inputs(net, c, step.tokens, x);
  Act streams = streams_of(net, c, x);
  KeptCaches caches;
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act prediction = predicted(a, c, streams);
    const Act active = first_of(a, c, "altup_prediction", prediction);
    const Act in = a.rms_norm("attn_norm", active, c.norm_eps);
    const Act side = laurel(a, c, in);
    Act y = kept_attention(a, c, c.is_local(i) ? local : global, caches, in);
    y = a.add("attn_residual", active, a.rms_norm("post_attention_norm", y, c.norm_eps));
    y = a.scale("attn_laurel", a.add("laurel_residual", y, side), std::sqrt(0.5f));
    Scope f = net.layer(i, Role::Ffn);
    const Act z = ffn(f, c, f.rms_norm("ffn_norm", y, c.norm_eps));
    y = f.add("ffn_residual", y, f.rms_norm("post_ffw_norm", z, c.norm_eps));
    streams = corrected(f, c, prediction, active, y);
    const Act first = f.scale_elements("altup_scaled", first_of(f, c, "altup_result", streams), "altup_correct_scale");
    const Act part = per_layer_part(f, c, first, inputs);
    streams = f.stream_add("layer_output", streams, part, {.first = 1});
  }
  x = merged(net, c, net.rows(streams, step.out_rows));
  x = net.top(Role::Head).rms_norm("output_norm", x, c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return capped_logits(net, x, c.logit_cap);
}

}  // namespace

ModelSpec open_gemma3n(const Metadata& md) {
  const Config c = configure(md);
  // Files hold projections of layers that read those of others.
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"blk.*.attn_k.weight", "blk.*.attn_v.weight", "blk.*.attn_k_norm.weight"}};
}

}  // namespace llm
