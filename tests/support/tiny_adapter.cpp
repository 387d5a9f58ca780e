#include "support/tiny_adapter.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <utility>

#include "gguf/file.h"
#include "tensor/decode.h"

namespace llm::test {
namespace {

constexpr const char* kTable = "token_embd.weight";
constexpr const char* kHead = "output.weight";

bool is_named(const std::string& name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& p) { return fnmatch(p.c_str(), name.c_str(), 0) == 0; });
}

/// A's product with what comes in keeps the variance, B's takes a part of it: the text changes and stays finite.
void add_pair(TinyFile& file, const std::string& target, const Shape& w, const TinyAdapterOptions& o) {
  const bool table = target == kTable;
  Shape a = table ? Shape{o.rank, w[1]} : Shape{w[0], o.rank};
  Shape b{o.rank, table ? w[0] : w[1]};
  if (w.n_dims() == 3) {
    a.push_back(w[2]);
    b.push_back(w[2]);
  }
  const auto spread = [](std::int64_t width) { return std::sqrt(3.0f / static_cast<float>(width)); };
  file.add_tensor({target + ".lora_a", {o.type, a}, 0, table ? 1.7f : spread(w[0])});
  file.add_tensor({target + ".lora_b", {o.type, b}, 0, 0.3f * spread(o.rank)});
}

using Values = std::map<std::string, std::vector<double>>;

std::vector<double> decoded(const GgufFile& file, const TensorInfo& t) {
  std::vector<std::byte> stored(t.type.bytes());
  file.read(t, stored);
  std::vector<float> values(static_cast<std::size_t>(t.type.shape.elements()));
  decode(t.type.dtype, stored.data(), values.data(), t.type.shape.elements());
  return {values.begin(), values.end()};
}

/// w[c, r] += factor * sum over i of b[i, r] a[c, i], in each of the experts' matrices.
void add_product(std::vector<double>& w, const std::vector<double>& a, const std::vector<double>& b, const Shape& shape,
                 std::int64_t rank, double factor) {
  const auto k = static_cast<std::size_t>(shape[0]), n = static_cast<std::size_t>(shape[1]),
             m = static_cast<std::size_t>(rank);
  for (std::size_t e = 0; e < static_cast<std::size_t>(shape[2]); ++e) {
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = 0; c < k; ++c) {
        double sum = 0;
        for (std::size_t i = 0; i < m; ++i) sum += b[(e * n + r) * m + i] * a[(e * m + i) * k + c];
        w[(e * n + r) * k + c] += factor * sum;
      }
    }
  }
}

/// row r of the table gains factor * B a_r
void add_to_table(std::vector<double>& w, const std::vector<double>& a, const std::vector<double>& b,
                  const Shape& shape, std::int64_t rank, double factor) {
  const auto d = static_cast<std::size_t>(shape[0]), vocab = static_cast<std::size_t>(shape[1]),
             m = static_cast<std::size_t>(rank);
  for (std::size_t token = 0; token < vocab; ++token) {
    for (std::size_t c = 0; c < d; ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < m; ++i) sum += b[c * m + i] * a[token * m + i];
      w[token * d + c] += factor * sum;
    }
  }
}

void apply(const AppliedAdapter& applied, Values& values, const std::map<std::string, Shape>& shapes) {
  Warnings warnings;
  const GgufFile file = GgufFile::open(applied.path, warnings);
  for (const TensorInfo& a : file.tensors().all()) {
    if (!a.name.ends_with(".lora_a")) continue;
    const std::string target(a.name.substr(0, a.name.size() - std::strlen(".lora_a")));
    const TensorInfo& b = *file.tensors().find(target + ".lora_b");
    const auto change = target == kTable ? add_to_table : add_product;
    change(values.at(target), decoded(file, a), decoded(file, b), shapes.at(target), b.type.shape[0], applied.factor);
  }
}

}  // namespace

TinyFile tiny_adapter(const TinyFile& model, const TinyAdapterOptions& o) {
  TinyFile file;
  file.seed = o.seed;
  file.set("general.type", "adapter");
  file.set("general.architecture", o.arch);
  file.set("adapter.type", "lora");
  file.set("adapter.lora.alpha", o.alpha);
  for (const TinyTensor& t : model.tensors()) {
    const bool matrix = t.type.shape.n_dims() >= 2 && t.name.ends_with(".weight");
    if (matrix && is_named(t.name, o.targets)) add_pair(file, t.name, t.type.shape, o);
  }
  return file;
}

void write_merged(const std::filesystem::path& model, const std::vector<AppliedAdapter>& adapters,
                  const std::filesystem::path& merged) {
  Warnings warnings;
  const GgufFile file = GgufFile::open(model, warnings);
  Values values;
  std::map<std::string, Shape> shapes;
  for (const TensorInfo& t : file.tensors().all()) {
    if (t.type.dtype != DType::F32) throw std::logic_error("write_merged: a model in F32 is needed");
    values[std::string(t.name)] = decoded(file, t);
    shapes[std::string(t.name)] = t.type.shape;
  }
  if (!values.contains(kHead)) {
    values[kHead] = values.at(kTable);
    shapes[kHead] = shapes.at(kTable);
  }
  for (const AppliedAdapter& a : adapters) apply(a, values, shapes);
  GgufWriter writer;
  for (const Metadata::Entry& e : file.metadata().entries()) writer.copy(file.metadata(), e.key);
  for (const auto& [name, doubles] : values) {
    const std::vector<float> floats(doubles.begin(), doubles.end());
    const auto bytes = std::as_bytes(std::span(floats));
    writer.add_tensor(name, {DType::F32, shapes.at(name)}, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  writer.write(merged);
}

}  // namespace llm::test
