#include "support/tiny_file.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "tensor/quantize.h"

namespace llm::test {
namespace {

/// splitmix64: the same numbers on every machine, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }  // [-1, 1)

 private:
  std::uint64_t state_;
};

std::uint64_t hash(std::string_view text, std::uint64_t seed) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

std::vector<std::byte> encoded(const TinyTensor& t, std::uint64_t seed) {
  const std::vector<float> values = tiny_values(t, seed);
  std::vector<std::byte> out(t.type.bytes());
  encode(t.type.dtype, values.data(), out.data(), static_cast<std::int64_t>(values.size()));
  return out;
}

}  // namespace

std::vector<float> tiny_values(const TinyTensor& t, std::uint64_t seed) {
  Random random(hash(t.name, seed));
  std::vector<float> out(static_cast<std::size_t>(t.type.shape.elements()));
  for (float& v : out) v = t.center + t.spread * random.uniform();
  return out;
}

void TinyFile::set(const std::string& key, std::string value) {
  put(key, [key, value](GgufWriter& w) { w.set(key, std::string_view(value)); });
}

void TinyFile::put(const std::string& key, std::function<void(GgufWriter&)> set) {
  const auto at = std::ranges::find(metadata_, key, &Entry::first);
  if (at != metadata_.end())
    at->second = std::move(set);
  else
    metadata_.emplace_back(key, std::move(set));
}

bool TinyFile::has(const std::string& key) const {
  return std::ranges::find(metadata_, key, &Entry::first) != metadata_.end();
}

void TinyFile::erase(const std::string& key) {
  if (std::erase_if(metadata_, [&](const Entry& e) { return e.first == key; }) != 1)
    throw std::logic_error("TinyFile: no key " + key);
}

void TinyFile::add_tensor(TinyTensor tensor) { tensors_.push_back(std::move(tensor)); }

TinyTensor& TinyFile::tensor(const std::string& name) {
  const auto at = std::ranges::find(tensors_, name, &TinyTensor::name);
  if (at == tensors_.end()) throw std::logic_error("TinyFile: no tensor " + name);
  return *at;
}

void TinyFile::resize(const std::string& name, Shape shape) { tensor(name).type.shape = shape; }
void TinyFile::retype(const std::string& name, DType type) { tensor(name).type.dtype = type; }
void TinyFile::rename(const std::string& old, const std::string& name) { tensor(old).name = name; }
void TinyFile::erase_tensor(const std::string& name) {
  tensors_.erase(tensors_.begin() + (&tensor(name) - tensors_.data()));
}

GgufWriter TinyFile::writer(GgufWriterOptions options) const {
  GgufWriter w(options);
  for (const Entry& e : metadata_) e.second(w);
  for (const TinyTensor& t : tensors_) w.add_tensor(t.name, t.type, encoded(t, seed));
  return w;
}

void TinyFile::write(const std::filesystem::path& path, GgufWriterOptions options) const {
  writer(options).write(path);
}

std::vector<std::byte> TinyFile::bytes(GgufWriterOptions options) const { return writer(options).bytes(); }

}  // namespace llm::test
