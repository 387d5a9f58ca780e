#include "gguf/writer.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/output_file.h"
#include "gguf/byte_order.h"

namespace llm {
namespace {

constexpr std::string_view kAlignmentKey = "general.alignment";

template <class T>
constexpr GgufType type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return GgufType::Bool;
  else if constexpr (std::is_same_v<T, float>)
    return GgufType::F32;
  else if constexpr (std::is_same_v<T, double>)
    return GgufType::F64;
  else if constexpr (sizeof(T) == 1)
    return std::is_signed_v<T> ? GgufType::I8 : GgufType::U8;
  else if constexpr (sizeof(T) == 2)
    return std::is_signed_v<T> ? GgufType::I16 : GgufType::U16;
  else if constexpr (sizeof(T) == 4)
    return std::is_signed_v<T> ? GgufType::I32 : GgufType::U32;
  else
    return std::is_signed_v<T> ? GgufType::I64 : GgufType::U64;
}

}  // namespace

GgufWriter::GgufWriter(GgufWriterOptions options) : options_(options) {
  check(options.version >= 1 && options.version <= 3, "GgufWriter: version 1, 2 or 3");
  check(std::has_single_bit(options.alignment) && options.alignment >= 8 && options.alignment <= 1u << 20,
        "GgufWriter: the alignment is a power of two between 8 and 1 MiB");
  if (options.alignment != 32) {
    begin_entry(kAlignmentKey, GgufType::U32);
    put(metadata_, options.alignment);
  }
}

bool GgufWriter::swap_bytes() const { return options_.big_endian == (std::endian::native == std::endian::little); }

template <class T>
void GgufWriter::put(std::vector<std::byte>& out, T value) const {
  std::array<std::byte, sizeof(T)> raw;
  std::memcpy(raw.data(), &value, sizeof value);
  if (swap_bytes()) swap_numbers(raw, sizeof value);
  out.insert(out.end(), raw.begin(), raw.end());
}

void GgufWriter::put_length(std::vector<std::byte>& out, std::uint64_t n) const {
  if (options_.version > 1) return put(out, n);
  check(n <= std::numeric_limits<std::uint32_t>::max(), "GgufWriter: version 1 has 32-bit lengths");
  put(out, static_cast<std::uint32_t>(n));
}

void GgufWriter::put_string(std::vector<std::byte>& out, std::string_view text) const {
  put_length(out, text.size());
  const auto raw = std::as_bytes(std::span(text));
  out.insert(out.end(), raw.begin(), raw.end());
}

void GgufWriter::put_type(std::vector<std::byte>& out, GgufType type) const {
  put(out, static_cast<std::uint32_t>(type));
}

void GgufWriter::begin_entry(std::string_view key, GgufType type) {
  check(keys_.emplace(key).second, "GgufWriter: a key is set once");
  put_string(metadata_, key);
  put_type(metadata_, type);
}

template <class T>
requires std::is_arithmetic_v<T>
void GgufWriter::set(std::string_view key, T value) {
  check(key != kAlignmentKey, "GgufWriter: the alignment is one of its options");
  begin_entry(key, type_of<T>());
  put(metadata_, value);
}

void GgufWriter::set(std::string_view key, std::string_view value) {
  begin_entry(key, GgufType::String);
  put_string(metadata_, value);
}

template <class T>
void GgufWriter::set_array(std::string_view key, std::span<const T> values) {
  begin_entry(key, GgufType::Array);
  put_type(metadata_, type_of<T>());
  put_length(metadata_, values.size());
  for (const T v : values) put(metadata_, v);
}

void GgufWriter::set_array(std::string_view key, std::span<const std::string> values) {
  begin_entry(key, GgufType::Array);
  put_type(metadata_, GgufType::String);
  put_length(metadata_, values.size());
  for (const std::string& v : values) put_string(metadata_, v);
}

void GgufWriter::copy(const Metadata& from, std::string_view key) {
  if (key == kAlignmentKey) return;
  const Metadata::Entry& e = from.require(key);
  begin_entry(key, e.type);
  if (e.type == GgufType::String) return put_string(metadata_, from.get<std::string_view>(key));
  if (e.type == GgufType::Array) {
    put_type(metadata_, e.element);
    put_length(metadata_, e.count);
    for (const std::string_view s : e.strings) put_string(metadata_, s);
    if (e.element == GgufType::String) return;
  }
  const std::size_t at = metadata_.size();
  metadata_.insert(metadata_.end(), e.raw.begin(), e.raw.end());
  if (swap_bytes() != from.swap_bytes_) swap_numbers(std::span(metadata_).subspan(at), value_bytes(e.element));
}

void GgufWriter::add_tensor(std::string_view name, TensorType type, TensorSource source) {
  check(names_.emplace(name).second, "GgufWriter: a tensor is added once");
  check(info(type.dtype).gguf_id.has_value(), "GgufWriter: a tensor has a type that files have");
  const auto dims = static_cast<std::uint64_t>(type.shape.n_dims());
  directory_bytes_ += length_bytes() * (1 + dims) + name.size() + 4 + 4 + 8;
  data_bytes_ += checked_align<std::uint64_t>(type.bytes(), options_.alignment).value();
  tensors_.push_back({std::string(name), type, std::move(source)});
}

void GgufWriter::add_tensor(std::string_view name, TensorType type, std::vector<std::byte> data) {
  check(data.size() == type.bytes(), "GgufWriter: the data has the tensor's size");
  add_tensor(name, type, [data = std::move(data)](const ByteSink& sink) { sink(data); });
}

std::vector<std::byte> GgufWriter::head() const {
  std::vector<std::byte> out;
  for (const char c : {'G', 'G', 'U', 'F'}) out.push_back(static_cast<std::byte>(c));
  put(out, static_cast<std::uint32_t>(options_.version));
  put_length(out, tensors_.size());
  put_length(out, keys_.size());
  out.insert(out.end(), metadata_.begin(), metadata_.end());
  std::uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    put_string(out, t.name);
    put(out, static_cast<std::uint32_t>(t.type.shape.n_dims()));
    for (int d = 0; d < t.type.shape.n_dims(); ++d) put_length(out, static_cast<std::uint64_t>(t.type.shape[d]));
    put(out, info(t.type.dtype).gguf_id.value());
    put(out, offset);
    offset = checked_align<std::uint64_t>(offset + t.type.bytes(), options_.alignment).value();
  }
  out.resize(checked_align<std::size_t>(out.size(), options_.alignment).value());
  return out;
}

void GgufWriter::write(const ByteSink& sink) const {
  sink(head());
  std::vector<std::byte> swapped;
  for (const Tensor& t : tensors_) {
    std::size_t written = 0;
    t.source([&](std::span<const std::byte> data) {
      written += data.size();
      if (!swap_bytes()) return sink(data);
      swapped.assign(data.begin(), data.end());
      swap_tensor(t.type.dtype, swapped);
      sink(swapped);
    });
    check(written == t.type.bytes(), "GgufWriter: a tensor's data has the declared size");
    const std::vector<std::byte> padding(checked_align<std::size_t>(written, options_.alignment).value() - written);
    sink(padding);
  }
}

std::uint64_t GgufWriter::file_bytes() const {
  const std::uint64_t head = 4 + 4 + 2 * length_bytes() + metadata_.size() + directory_bytes_;
  return checked_align<std::uint64_t>(head, options_.alignment).value() + data_bytes_;
}

void GgufWriter::write(const std::filesystem::path& path) const {
  OutputFile file(path);
  write([&](std::span<const std::byte> data) { file.write(data); });
  file.put_in_place();
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::vector<std::byte> out;
  write([&](std::span<const std::byte> data) { out.insert(out.end(), data.begin(), data.end()); });
  return out;
}

#define LLM_INSTANTIATE(T)                               \
  template void GgufWriter::set<T>(std::string_view, T); \
  template void GgufWriter::set_array<T>(std::string_view, std::span<const T>);

LLM_INSTANTIATE(bool)
LLM_INSTANTIATE(signed char)
LLM_INSTANTIATE(unsigned char)
LLM_INSTANTIATE(short)
LLM_INSTANTIATE(unsigned short)
LLM_INSTANTIATE(int)
LLM_INSTANTIATE(unsigned)
LLM_INSTANTIATE(long)
LLM_INSTANTIATE(unsigned long)
LLM_INSTANTIATE(long long)
LLM_INSTANTIATE(unsigned long long)
LLM_INSTANTIATE(float)
LLM_INSTANTIATE(double)
#undef LLM_INSTANTIATE

}  // namespace llm
