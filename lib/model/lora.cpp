#include "model/lora.h"

#include <cmath>
#include <cstdio>
#include <utility>

namespace llm {
namespace {

constexpr std::string_view kFileType = "general.type", kAdapterType = "adapter.type", kAlpha = "adapter.lora.alpha",
                           kInvocation = "adapter.alora.invocation_tokens", kArchitecture = "general.architecture",
                           kHalfA = ".lora_a", kHalfB = ".lora_b";

/// "0.5" for 0.5
std::string scale_text(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
  return text;
}

std::string target_of(std::string_view name, std::string_view half) {
  return std::string(name.substr(0, name.size() - half.size()));
}

}  // namespace

LoraAdapter::LoraAdapter(GgufFile&& file, float scale, std::size_t number)
    : file_(std::move(file)), scale_(scale), suffix_(number == 0 ? "" : "." + std::to_string(number + 1)) {}

LoraAdapter LoraAdapter::open(const AdapterFile& wanted, std::size_t number, std::string_view architecture,
                              Warnings& warnings) {
  LoraAdapter adapter(GgufFile::open(wanted.path, warnings), wanted.scale, number);
  adapter.check_kind(architecture);
  const Metadata& md = adapter.file_.metadata();
  adapter.alpha_ = md.get_or<float>(kAlpha, 0);
  if (!std::isfinite(adapter.alpha_)) md.fail(kAlpha, "is not a finite number");
  adapter.pair_up(warnings);
  return adapter;
}

void LoraAdapter::check_kind(std::string_view architecture) const {
  const Metadata& md = file_.metadata();
  if (const auto type = md.get_or<std::string_view>(kFileType, "model"); type != "adapter")
    md.fail(kFileType, (type == "model" ? "the file is a model" : "\"" + escaped(type) + "\"") +
                           ", an adapter is needed; -m takes the model, --lora what changes it");
  if (const auto type = md.get<std::string_view>(kAdapterType); type != "lora")
    md.fail(kAdapterType, "is \"" + escaped(type) + "\", only \"lora\" is known");
  if (const auto own = md.get<std::string_view>(kArchitecture); own != architecture)
    md.fail(kArchitecture, "the adapter is for models of architecture \"" + escaped(own) + "\", this one is of \"" +
                               escaped(architecture) + "\"; an adapter fits the model that it was trained on");
  if (md.has(kInvocation))
    md.fail(kInvocation,
            "the adapter acts only behind these tokens (activated LoRA), which is not supported; without them it would "
            "change the whole text");
}

void LoraAdapter::pair_up(Warnings& warnings) {
  std::size_t norms = 0;
  for (const TensorInfo& t : file_.tensors().all()) {
    if (t.name.ends_with(kHalfA)) {
      pairs_[target_of(t.name, kHalfA)].a = &t;
    } else if (t.name.ends_with(kHalfB)) {
      pairs_[target_of(t.name, kHalfB)].b = &t;
    } else if (t.name.ends_with("_norm.weight")) {
      ++norms;  // whole vectors of the trained model, which some tools put beside the pairs
    } else {
      file_.fail(t, "is no half of a pair: in an adapter names end in .lora_a or .lora_b");
    }
  }
  for (const auto& [target, pair] : pairs_) {
    if (pair.a == nullptr) file_.fail(*pair.b, "is half of a pair: " + escaped(target) + ".lora_a is missing");
    if (pair.b == nullptr) file_.fail(*pair.a, "is half of a pair: " + escaped(target) + ".lora_b is missing");
  }
  if (pairs_.empty())
    file_.metadata().fail(kAdapterType, "the file holds no pair of matrices: it would change nothing");
  if (norms > 0)
    warnings.push_back({"unused-tensors", escaped(file_.metadata().file(), 4096) + ": " + std::to_string(norms) +
                                              (norms == 1 ? " norm of the adapter is" : " norms of the adapter are") +
                                              " not used: the model's own count"});
}

const LoraAdapter::Pair* LoraAdapter::find(std::string_view target) const {
  const auto found = pairs_.find(target);
  return found == pairs_.end() ? nullptr : &found->second;
}

float LoraAdapter::factor(const Pair& pair) const {
  return alpha_ == 0 ? scale_ : scale_ * alpha_ / static_cast<float>(pair.rank());
}

std::string LoraAdapter::title() const {
  const std::string name = std::filesystem::path(file_.metadata().file()).filename().string();
  return scale_ == 1 ? name : name + " x " + scale_text(scale_);
}

std::uint64_t LoraAdapter::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [target, pair] : pairs_) sum += pair.a->type.bytes() + pair.b->type.bytes();
  return sum;
}

const TensorInfo* LoraAdapter::find_in_graph(std::string_view name) const {
  if (!name.ends_with(suffix_)) return nullptr;
  name.remove_suffix(suffix_.size());
  return name.ends_with(kHalfA) || name.ends_with(kHalfB) ? file_.tensors().find(name) : nullptr;
}

LoraAdapter::Shapes LoraAdapter::require_product(const std::string& target, const Pair& pair, const Shape& w) const {
  Shapes shapes{.a = {w[0], pair.rank()}, .b = {pair.rank(), w[1]}};
  std::string experts;
  if (w.n_dims() == 3) {
    shapes.a.push_back(w[2]);
    shapes.b.push_back(w[2]);
    experts = ", " + std::to_string(w[2]);
  }
  require_shapes(
      target, pair, w, shapes,
      "[" + std::to_string(w[0]) + ", rank" + experts + "] and [rank, " + std::to_string(w[1]) + experts + "]");
  return shapes;
}

LoraAdapter::Shapes LoraAdapter::require_table(const std::string& target, const Pair& pair, const Shape& w) const {
  const Shapes shapes{.a = {pair.rank(), w[1]}, .b = {pair.rank(), w[0]}};
  require_shapes(target, pair, w, shapes,
                 "[rank, " + std::to_string(w[1]) + "] and [rank, " + std::to_string(w[0]) + "]");
  return shapes;
}

void LoraAdapter::require_shapes(const std::string& target, const Pair& pair, const Shape& weight, const Shapes& shapes,
                                 const std::string& in_words) const {
  if (pair.a->type.shape == shapes.a && pair.b->type.shape == shapes.b) return;
  file_.fail(*pair.a, "the pair has shapes " + to_string(pair.a->type.shape) + " and " + to_string(pair.b->type.shape) +
                          ", and needs " + in_words + " beside " + escaped(target) + " " + to_string(weight) +
                          " of the model; an adapter fits the model that it was trained on");
}

}  // namespace llm
