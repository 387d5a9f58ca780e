// chameleon: Chameleon 7B and 30B, the text part. Each head of q and k has a layer norm of its own. Blocks are
// normalised in front, or, of the larger model, behind. Tokens of pictures never come: their logits are the lowest.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  bool norms_behind = false;
  Silence pictures = {};  ///< n is 0 where the vocabulary has none
};

/// Tokens of pictures have names that begin alike, and are neighbours.
Silence picture_tokens(const Metadata& md, std::int64_t vocab) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens", kBegin = "IMGIMG";
  const Metadata::Entry* const tokens = md.find(kTokens);
  Silence range;
  if (tokens == nullptr) return range;
  const auto& names = tokens->strings;
  for (std::int64_t i = 0; i < std::min(vocab, std::ssize(names)); ++i) {
    if (!names[static_cast<std::size_t>(i)].starts_with(kBegin)) continue;
    if (range.n == 0) range.begin = i;
    if (i != range.begin + range.n)
      md.fail(kTokens, "has tokens of pictures, " + std::string(kBegin) + "..., in several places");
    ++range.n;
  }
  return range;
}

Config configure(const Metadata& md) {
  constexpr std::string_view kArch = "chameleon";
  Config c{read_dense_config(md, kArch)};
  c.norms_behind = HyperParameters(md, kArch).flag("swin_norm", false);
  c.pictures = picture_tokens(md, c.vocab);
  return c;
}

/// What the files do not say.
constexpr float kHeadEpsilon = 1e-5f;

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const Act q = s.head_layer_norm("attn_q_norm", heads.q, kHeadEpsilon);
  const Act k = s.head_layer_norm("attn_k_norm", heads.k, kHeadEpsilon);
  return rotary_attention(s, c, rot, {q, k, heads.v});
}

/// A block with its norm on the side that the model has it on.
template <class Block>
Act normed(Scope s, const Config& c, std::string_view norm, Act x, const Block& block) {
  if (c.norms_behind) return s.rms_norm(norm, block(x), c.norm_eps);
  return block(s.rms_norm(norm, x, c.norm_eps));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, normed(a, c, "attn_norm", x, [&](Act y) { return attention(a, c, rot, y); }));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x,
              normed(f, c, "ffn_norm", x, [&](Act y) { return glu_ffn(f, c, Activation::Silu, y); }));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  const Act logits = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return c.pictures.n > 0 ? net.top(Role::Head).silence("output_text", logits, c.pictures) : logits;
}

}  // namespace

ModelSpec open_chameleon(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
