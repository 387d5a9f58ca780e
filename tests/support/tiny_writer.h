// A tiny model while it is put together: its options, what its family and layers are, and the file.
#pragma once

#include <string>
#include <vector>

#include "support/tiny_family.h"
#include "support/tiny_file.h"
#include "support/tiny_model.h"

namespace llm::test {

class TinyWriter {
 public:
  explicit TinyWriter(const TinyOptions& o);

  const TinyOptions& o;
  const TinyFamily& family;
  std::vector<TinyLayer> layers;
  int experts = 0;
  TinyFile file;

  const TinyLayer& layer(int i) const { return layers[static_cast<std::size_t>(i)]; }
  /// Where files have a window for the other layers.
  static bool sees_all(int layer) { return layer % 2 == 1; }
  bool has_biases() const { return o.biases || family.all_biases; }

  // Keys under the architecture's name.
  void set(const std::string& suffix, int value);
  void set(const std::string& suffix, float value);
  void set(const std::string& suffix, bool value);
  template <class T>
  void set_array(const std::string& suffix, std::vector<T> values) {
    file.set_array(o.arch + "." + suffix, std::move(values));
  }
  void set(const std::vector<TinyKey>&);
  /// What a member of the layers is.
  void set_each(const std::string& suffix, int TinyLayer::*member);
  /// rope.dimension_sections of pictures.
  void set_sections(std::vector<int> sections);

  // Tensors.
  std::string block(int layer) const { return "blk." + std::to_string(layer) + "."; }
  void add(TinyTensor tensor) { file.add_tensor(std::move(tensor)); }
  void vector(const std::string& name, int n, float center, float spread);
  /// By its own storage type, with a spread so that a product keeps its input's variance.
  void matrix(const std::string& name, Shape shape);
  void linear(const std::string& name, int k, int n, bool bias = false);
  /// Of width n_embd, with the family's bias.
  void norm(const std::string& name);
};

/// All keys, and all tensors, of the model.
void set_tiny_metadata(TinyWriter&);
void add_tiny_tensors(TinyWriter&);

// Latent attention, as deepseek2 has it.
void set_tiny_latents(TinyWriter&);
void add_tiny_latents(TinyWriter&, int layer);
/// What selects the keys of those, as deepseek32 has it: as many as the window's option says.
void set_tiny_indexer(TinyWriter&);
void add_tiny_indexer(TinyWriter&, int layer);

// Mixers, and how layers take turns with them: from the last layer backwards they attend and mix; or attend, mix and
// are feed-forward networks; or every layer does the first two beside each other; or all mix alone, or mix and feed. Of
// the delta rule, every second layer attends.
extern const TinyMixer kTinyConv, kTinyMamba, kTinyMamba1, kTinyMamba1Alone, kTinyPlamo2, kTinyKimi, kTinyLing,
    kTinyKimiK3, kTinyGlm5Next, kTinyDelta, kTinyJointDelta, kTinyRwkv6, kTinyRwkv6Qwen2, kTinyRwkv7, kTinyArwkv7;
void arrange_in_turns(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_singles(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_both(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_mixers(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_mixers_feeding(const TinyOptions&, std::vector<TinyLayer>&);
void arrange_delta(const TinyOptions&, std::vector<TinyLayer>&);

}  // namespace llm::test
