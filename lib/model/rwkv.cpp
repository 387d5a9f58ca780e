#include "model/rwkv.h"

#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr IntegerRule kHeadSize{"wkv.head_size", 1, 1 << 10};
constexpr IntegerRule kShifts{"token_shift_count", 1, 2};
constexpr float kHeadNormEps = 64e-5f;

}  // namespace

RwkvConfig read_rwkv_config(const Metadata& md, std::string_view arch, bool of_qwen) {
  RwkvConfig c{of_qwen ? read_recurrent_config(md, arch, {"feed_forward_length"})
                       : read_recurrent_config(md, arch, {"feed_forward_length", "attention.layer_norm_rms_epsilon"})};
  c.of_qwen = of_qwen;
  const HyperParameters hp(md, arch);
  c.head = hp.integer(kHeadSize);
  if (c.n_embd % c.head != 0)
    hp.fail(kHeadSize.key,
            "value " + std::to_string(c.head) + " does not divide embedding_length " + std::to_string(c.n_embd));
  const std::int64_t shifts = hp.optional_integer(kShifts).value_or(2), wanted = of_qwen ? 1 : 2;
  if (shifts != wanted)
    hp.fail(kShifts.key, "value " + std::to_string(shifts) + " is not supported, only " + std::to_string(wanted));
  return c;
}

Act low_rank(Scope s, const RwkvConfig& c, const LowRank& of, Act x) {
  return s.biased_linear(of.up, s.linear(of.down, x, of.rank), c.n_embd, of.bias);
}

Act curved_low_rank(Scope s, const RwkvConfig& c, const LowRank& of, Act x) {
  const Act low = s.soft_cap(std::string(of.down) + "_tanh", s.linear(of.down, x, of.rank), 1);
  return s.biased_linear(of.up, low, c.n_embd, of.bias);
}

Act rwkv_norm(Scope s, const RwkvConfig& c, std::string_view name, Act x) {
  return c.of_qwen ? s.rms_norm(name, x, c.norm_eps) : s.layer_norm(name, x, c.norm_eps);
}

Act wkv_norm(Scope s, Act results) {
  return s.flatten_heads("wkv_normal", s.head_layer_norm("time_mix_ln", results, kHeadNormEps));
}

Act rwkv_embedding(Net& net, const RwkvConfig& c, Index tokens) {
  const Act x = net.embed("token_embd", tokens, c.vocab, c.n_embd);
  return c.of_qwen ? x : rwkv_norm(net.top(Role::Embed), c, "token_embd_norm", x);
}

Act rwkv_logits(Net& net, const RwkvConfig& c, Act x, Index out_rows) {
  const Act normal = rwkv_norm(net.top(Role::Head), c, "output_norm", net.rows(x, out_rows));
  return net.head("output", normal, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace llm
