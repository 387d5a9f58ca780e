// phi3: Phi-3, 3.5 and 4, dense. Queries, keys and values are rows of one matrix, gate and up of another; files for
// long contexts have two sets of divisors of the rotary frequencies (arXiv:2402.13753).
#include <cstdint>
#include <limits>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr IntegerRule kOriginalContext{"rope.scaling.original_context_length", 0,
                                       std::numeric_limits<std::uint32_t>::max()};

struct Config : DecoderConfig {
  std::string_view factors;  ///< the tensor, where a file has it
};

/// Keys in the cache are turned once, so a model has one set for all positions: the long one if it may go beyond the
/// context that the short one is for.
Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "phi3", {"rope.scaling.type"}), {}};
  refuse_experts(md, c);
  const std::int64_t original = HyperParameters(md, "phi3").optional_integer(kOriginalContext).value_or(0);
  c.factors = original > 0 && c.context > original ? "rope_factors_long" : "rope_factors_short";
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, c.factors);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, y));
    Scope f = net.layer(i, Role::Ffn);
    y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, fused_glu_ffn(f, Activation::Silu, y, c.d_ff, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_phi3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"rope_factors_long.weight", "rope_factors_short.weight"}};
}

}  // namespace llm
