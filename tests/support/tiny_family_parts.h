// What options have a say in of single families: their layers, keys and tensors, as TinyFamily calls them.
#pragma once

#include <vector>

#include "support/tiny_writer.h"

namespace llm::test {

void arrange_arctic(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_deci(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_deepseek4(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_openelm(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_mimo2(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_step35(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_llama4(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_jamba(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_plamo2(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_kimi(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_gemma3n(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_gemma4(const TinyOptions&, std::vector<TinyLayer>&);

void set_glm5_next(TinyWriter&);
void set_granite_swa(TinyWriter&);
void set_grovemoe(TinyWriter&);
void set_kimi_k3(TinyWriter&);
void set_nanbeige(TinyWriter&);
void set_qwen(TinyWriter&);
void set_dots3note(TinyWriter&);
void set_minimax_m3(TinyWriter&);
void set_expert_limits(TinyWriter&);
void set_limits(TinyWriter&);
void set_llama4(TinyWriter&);
void set_apertus(TinyWriter&);
void set_pictures(TinyWriter&);
void set_qwen35(TinyWriter&);
void set_qwen4exp(TinyWriter&);
void set_deepseek4(TinyWriter&);
void set_mamba2(TinyWriter&);
void set_rwkv_heads(TinyWriter&);
void set_no_heads(TinyWriter&);
void set_gemma3n(TinyWriter&);
void set_gemma4(TinyWriter&);

void add_chameleon(TinyWriter&, int layer);
void add_deci_product(TinyWriter&, int layer);
void add_ffn_norm(TinyWriter&, int layer);
void add_glm5_next(TinyWriter&, int layer);
void add_grovemoe(TinyWriter&, int layer);
void add_head_gates(TinyWriter&, int layer);
void add_kimi_k3_ends(TinyWriter&);
void add_kimi_k3(TinyWriter&, int layer);
void add_dots3note(TinyWriter&, int layer);
void add_minimax_m3(TinyWriter&, int layer);
void add_talkie(TinyWriter&, int layer);
void add_plamo2(TinyWriter&, int layer);
void add_post_norms(TinyWriter&, int layer);
void add_sub_norms(TinyWriter&, int layer);
void add_gemma3n_ends(TinyWriter&);
void add_gemma3n(TinyWriter&, int layer);
void add_gemma4_ends(TinyWriter&);
void add_gemma4(TinyWriter&, int layer);
void add_gemma4_experts(TinyWriter&, int layer);
void add_qwen4exp_ends(TinyWriter&);
void add_qwen4exp(TinyWriter&, int layer);
void add_deepseek4_ends(TinyWriter&);
void add_deepseek4(TinyWriter&, int layer);

}  // namespace llm::test
