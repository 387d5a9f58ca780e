#include "support/tiny_model.h"

#include <fnmatch.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/tiny_writer.h"

namespace llm::test {
namespace {

std::vector<TinyLayer> arranged(const TinyOptions& o, const TinyFamily& family) {
  const TinyLayer plain{
      .heads = o.heads, .kv_heads = o.kv_heads, .d_ff = o.d_ff, .head_dim = o.head_dim, .norms = family.norms};
  std::vector<TinyLayer> layers(static_cast<std::size_t>(o.layers), plain);
  if (family.first_dense && o.layers > 1) layers[0].dense = true;
  if (family.arrange) family.arrange(o, layers);
  return layers;
}

}  // namespace

TinyWriter::TinyWriter(const TinyOptions& options)
    : o(options), family(tiny_family(o.arch)), layers(arranged(o, family)) {
  experts = o.experts > 0 ? o.experts : family.always_experts ? 4 : 0;
  file.seed = o.seed;
}

void TinyWriter::set(const std::string& suffix, int value) {
  file.set(o.arch + "." + suffix, static_cast<std::uint32_t>(value));
}
void TinyWriter::set(const std::string& suffix, float value) { file.set(o.arch + "." + suffix, value); }
void TinyWriter::set(const std::string& suffix, bool value) { file.set(o.arch + "." + suffix, value); }

void TinyWriter::set(const std::vector<TinyKey>& keys) {
  for (const TinyKey& k : keys) std::visit([&](auto value) { set(std::string(k.name), value); }, k.value);
}

void TinyWriter::set_each(const std::string& suffix, int TinyLayer::*member) {
  std::vector<std::uint32_t> values;
  for (const TinyLayer& l : layers) values.push_back(static_cast<std::uint32_t>(l.*member));
  set_array(suffix, values);
}

void TinyWriter::set_sections(std::vector<int> sections) {
  set_array("rope.dimension_sections", std::vector<std::uint32_t>(sections.begin(), sections.end()));
}

void TinyWriter::vector(const std::string& name, int n, float center, float spread) {
  add({name, {DType::F32, {n}}, center, spread});
}

/// Uniform in +-s has variance s^2 / 3.
void TinyWriter::matrix(const std::string& name, Shape shape) {
  DType type = o.type;
  for (const auto& [pattern, other] : o.types)
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) type = other;
  add({name, {type, shape}, 0, std::sqrt(3.0f / static_cast<float>(shape[0]))});
}

void TinyWriter::linear(const std::string& name, int k, int n, bool bias) {
  matrix(name + ".weight", {k, n});
  if (bias) vector(name + ".bias", n, 0, 0.2f);
}

void TinyWriter::norm(const std::string& name) {
  vector(name + ".weight", o.n_embd, 1, 0.2f);
  if (family.norm_kind == TinyFamily::Norms::BiasedLayer) vector(name + ".bias", o.n_embd, 0, 0.2f);
}

TinyFile tiny_model(const TinyOptions& options) {
  TinyWriter w(options);
  set_tiny_metadata(w);
  add_tiny_tensors(w);
  return std::move(w.file);
}

}  // namespace llm::test
