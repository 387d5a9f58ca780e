// The keys of tiny models.
#include <cstdint>
#include <string>
#include <vector>

#include "support/tiny_writer.h"

namespace llm::test {
namespace {

void set_experts(TinyWriter& w) {
  const TinyFamily& f = w.family;
  w.set("expert_count", w.experts);
  w.set("expert_used_count", f.experts_used > 0 ? f.experts_used : w.o.experts_used);
  if (f.expert_width) w.set("expert_feed_forward_length", w.o.d_ff);
  if (f.shared_width) w.set("expert_shared_feed_forward_length", f.shared * w.o.d_ff);
  if (f.first_dense && w.o.layers > 1) w.set("leading_dense_block_count", 1);
  w.set(f.expert_keys);
}

void set_window(TinyWriter& w) {
  using enum TinyFamily::Pattern;
  const int window = w.o.window > 0 ? w.o.window : w.family.always_window ? 16 : 0;
  if (window > 0) w.set("attention.sliding_window", window);
  if (w.family.pattern == Period || (w.family.pattern == PeriodOfWindow && window > 0))
    w.set("attention.sliding_window_pattern", 2);
  if (w.family.pattern != Flags) return;
  std::vector<std::uint32_t> local;
  for (int i = 0; i < w.o.layers; ++i) local.push_back(TinyWriter::sees_all(i) ? 0 : 1);
  w.set_array("attention.sliding_window_pattern", local);
}

void set_rope(TinyWriter& w) {
  if (w.o.rope != TinyRope::Linear && w.o.rope != TinyRope::Yarn) return;
  w.file.set(w.o.arch + ".rope.scaling.type", w.o.rope == TinyRope::Yarn ? "yarn" : "linear");
  w.set("rope.scaling.factor", 4.0f);
  if (w.o.rope == TinyRope::Yarn) w.set("rope.scaling.original_context_length", w.o.context / 4);
}

void set_of_each(TinyWriter& w) {
  for (const std::string_view key : w.family.of_each) {
    const auto member = key == "attention.head_count"      ? &TinyLayer::heads
                        : key == "attention.head_count_kv" ? &TinyLayer::kv_heads
                                                           : &TinyLayer::d_ff;
    w.set_each(std::string(key), member);
  }
}

}  // namespace

void set_tiny_metadata(TinyWriter& w) {
  const TinyOptions& o = w.o;
  const TinyFamily& f = w.family;
  w.file.set("general.architecture", o.arch);
  w.file.set("general.name", "tiny");
  w.set("context_length", o.context);
  w.set("embedding_length", o.n_embd);
  w.set("block_count", o.layers);
  if (o.predicting) w.set("nextn_predict_layers", 1);
  w.set("feed_forward_length", o.d_ff);
  w.set("attention.head_count", o.heads);
  w.set("attention.head_count_kv", o.kv_heads);
  const bool rms = f.norm_kind == TinyFamily::Norms::Rms || f.rms_epsilon;
  w.set(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", 1e-5f);
  w.set("rope.dimension_count", o.head_dim);
  w.set("rope.freq_base", 10000.0f);
  if (f.head_length || o.head_dim * o.heads != o.n_embd) {
    w.set("attention.key_length", o.head_dim);
    w.set("attention.value_length", o.head_dim);
  }
  const bool windows_too = f.indexer == TinyFamily::Indexer::SeeingAll;
  if (f.indexer == TinyFamily::Indexer::None || windows_too) set_window(w);
  if (f.indexer != TinyFamily::Indexer::None) set_tiny_indexer(w);
  if (w.experts > 0) set_experts(w);
  w.set(f.keys);
  if (f.latents != TinyFamily::Latents::None) set_tiny_latents(w);
  if (f.mixer) f.mixer->set_keys(w);
  set_of_each(w);
  if (f.set_own) f.set_own(w);
  set_rope(w);
  set_tiny_vocabulary(w.file, o.tokenizer);
}

}  // namespace llm::test
