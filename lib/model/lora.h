// LoRA adapters (arXiv:2106.09685): a GGUF file of thin matrices, a pair for each weight of a model that it changes:
// W x becomes W x + factor * B (A x). Nothing is merged; the pairs are weights of the model's graph beside its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/file.h"

namespace llm {

/// An adapter as somebody asks for it.
struct AdapterFile {
  std::filesystem::path path;
  float scale = 1;
};

class LoraAdapter {
 public:
  /// "<target>.lora_a" and "<target>.lora_b". Of a product's weight [k, n] they are [k, rank] and [rank, n], of
  /// experts' weights with the experts as a third dimension; of an embedding table [d, vocab] they are [rank, vocab]
  /// and [rank, d].
  struct Pair {
    const TensorInfo* a = nullptr;
    const TensorInfo* b = nullptr;
    std::int64_t rank() const { return b->type.shape[0]; }
  };

  /// `number`: which of a model's adapters it is, from 0. Throws ErrorKind::Model where the file is no adapter, is one
  /// of another architecture, or has halves of pairs.
  static LoraAdapter open(const AdapterFile&, std::size_t number, std::string_view architecture, Warnings&);

  const GgufFile& file() const { return file_; }
  GgufFile& file() { return file_; }
  float scale() const { return scale_; }
  /// By the name of the weight that it changes.
  const std::map<std::string, Pair, std::less<>>& pairs() const { return pairs_; }
  const Pair* find(std::string_view target) const;
  /// What its product is multiplied by: scale * alpha / rank; the scale where the file has no alpha.
  float factor(const Pair&) const;
  /// "story.gguf" or "story.gguf x 0.5"
  std::string title() const;
  std::uint64_t bytes() const;  ///< of its matrices

  /// Its matrices' names in graphs, where several adapters may change one weight.
  std::string graph_name(const TensorInfo& t) const { return std::string(t.name) + suffix_; }
  const std::string& suffix() const { return suffix_; }
  /// The matrix by that name, or null.
  const TensorInfo* find_in_graph(std::string_view graph_name) const;

  /// The shapes that the pair of a product's weight, of an embedding table must have. Throw ErrorKind::Model naming
  /// them, the pair's and the weight's.
  struct Shapes {
    Shape a, b;
  };
  using ShapeRule = Shapes (LoraAdapter::*)(const std::string& target, const Pair&, const Shape& weight) const;
  Shapes require_product(const std::string& target, const Pair&, const Shape& weight) const;
  Shapes require_table(const std::string& target, const Pair&, const Shape& weight) const;

 private:
  LoraAdapter(GgufFile&& file, float scale, std::size_t number);
  void check_kind(std::string_view architecture) const;
  void pair_up(Warnings&);
  void require_shapes(const std::string& target, const Pair&, const Shape& weight, const Shapes&,
                      const std::string& in_words) const;
  GgufFile file_;
  float scale_, alpha_ = 0;
  std::string suffix_;  ///< of names in graphs
  std::map<std::string, Pair, std::less<>> pairs_;
};

}  // namespace llm
