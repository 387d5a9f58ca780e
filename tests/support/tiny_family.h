// What the files of an architecture have that those of llama have not: the rows of tiny_families.cpp.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "support/tiny_model.h"

namespace llm::test {

class TinyWriter;

/// A key without "<architecture>." whose value no option changes.
struct TinyKey {
  std::string_view name;
  std::variant<int, float, bool> value;
};

struct TinyLayer {
  int heads = 0, kv_heads = 0;  ///< what the file says of the layer, where it says something of each
  int d_ff = 0;
  int head_dim = 0;
  std::vector<std::string_view> norms = {};  ///< vectors of width n_embd
  bool attends = true, feeds = true;
  bool mixes = false;               ///< by TinyFamily::mixer
  bool keys = true, values = true;  ///< of its own, where it attends
  bool dense = false;               ///< without experts in a model that has some
};

/// What goes on in layers that do not attend.
struct TinyMixer {
  void (*set_keys)(TinyWriter&);
  void (*add)(TinyWriter&, int layer);
};

struct TinyFamily {
  std::string_view arch;

  // Norms.
  enum class Norms { Rms, Layer, BiasedLayer } norm_kind = Norms::Rms;
  bool rms_epsilon = false;  ///< the key of the epsilon is that of Norms::Rms, whatever the norms are
  std::vector<std::string_view> norms = {"attn_norm", "ffn_norm"};
  std::string_view final_norm = "output_norm";  ///< empty: it has no weights
  bool embedding_norm = false;

  // Attention. Of every two layers the second sees all positions, where a file says that the others do not.
  enum class HeadNorms { None, Heads, Whole } qk_norm = HeadNorms::None;
  bool fused_qkv = false, qkv_biases = false, output_bias = false;
  /// Latent attention as deepseek2 has it, by what the cache holds; EitherForm: heads in files without output.weight.
  enum class Latents { None, Keys, Heads, EitherForm } latents = Latents::None;
  /// Layers that select their keys; SeeingAll: those without a window.
  enum class Indexer { None, All, EveryOther, SeeingAll } indexer = Indexer::None;
  bool whole_queries = false;  ///< of latent attention, queries are made from the input itself
  bool unshared_keys = false;  ///< of latent attention, heads share no part of their keys, and nothing is turned
  enum class Gates { None, OfElements, OfHeads } gates = Gates::None;
  enum class Sinks { None, All, WithWindow } sinks = Sinks::None;
  enum class Pattern { None, Period, PeriodOfWindow, Flags } pattern = Pattern::None;
  bool always_window = false;      ///< of 16 positions, where an option does not say
  bool positions = false;          ///< have embeddings
  bool joint_query_gates = false;  ///< rows of attn_q

  // Feed-forward networks.
  bool ungated = false, fused_ffn = false, all_biases = false, logit_bias = false;
  bool always_experts = false;
  bool expert_width = false;  ///< a key for it; else experts are feed_forward_length wide
  int experts_used = 0;       ///< 0: what the options say
  bool choice_bias = false, expert_biases = false;
  int shared = 0;             ///< the expert that all tokens share in widths of the others
  bool shared_width = false;  ///< a key for it
  bool shared_gate = false;
  bool first_dense = false;   ///< of several layers, which leading_dense_block_count says
  bool dense_beside = false;  ///< a network beside the experts

  // Keys: single ones, and those of which the file has a value for each layer.
  std::vector<TinyKey> keys = {}, expert_keys = {};
  std::vector<std::string_view> of_each = {};
  bool head_length = false;  ///< always has keys for it

  // What options have a say in.
  void (*arrange)(const TinyOptions&, std::vector<TinyLayer>&) = nullptr;  ///< layers, from all alike
  const TinyMixer* mixer = nullptr;
  void (*set_own)(TinyWriter&) = nullptr;
  void (*add_ends)(TinyWriter&) = nullptr;
  void (*add_to_layer)(TinyWriter&, int layer) = nullptr;
  void (*add_experts)(TinyWriter&, int layer) = nullptr;  ///< in place of the usual ones
};

const TinyFamily& tiny_family(std::string_view arch);

}  // namespace llm::test
