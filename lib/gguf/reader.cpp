#include "gguf/reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "base/utf8.h"
#include "gguf/name_order.h"

namespace llm {
namespace {

// Limits on top of what the file's size allows; real files stay far below them.
constexpr std::uint64_t kMaxKeys = 65'536;
constexpr std::uint64_t kMaxTensors = 262'144;
constexpr std::uint64_t kMaxKeyBytes = 65'535;  // the format's own limits: keys, tensor names, dimensions
constexpr std::uint64_t kMaxNameBytes = 64;
constexpr std::uint64_t kMaxStringBytes = 64u << 20;
constexpr std::uint64_t kMaxStrings = 64u << 20;  ///< of an array; 1 GiB, before one of them is looked at
constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 40;
constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::uint32_t kMinAlignment = 8;
constexpr std::uint32_t kMaxAlignment = 1u << 20;

std::string number(std::uint64_t n) { return std::to_string(n); }

std::string hex(std::uint64_t n) {
  std::array<char, 19> text{};
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, n);
  return text.data();
}

bool starts_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

/// A web page: its first tag is <!doctype html> or <html>, in any case, after blanks or a byte order mark.
bool looks_like_html(std::span<const std::byte> bytes) {
  std::string head(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 256));
  if (head.starts_with("\xef\xbb\xbf")) head.erase(0, 3);
  head.erase(0, head.find_first_not_of(" \t\r\n"));
  for (char& c : head)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return head.starts_with("<!doctype html") || head.starts_with("<html");
}

/// Offset of the first byte of a name that is not valid UTF-8 or is a control character (C0, DEL, C1); npos if none.
std::size_t find_unprintable(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    const utf8::Unit unit = utf8::unit_at(s, i);
    if (unit.form != utf8::Form::Valid) return i;
    const char32_t c = utf8::code_point(s.substr(i, unit.length));
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return i;
    i += unit.length;
  }
  return std::string_view::npos;
}

}  // namespace

struct GgufReader::Record {
  std::string_view name;
  TensorType type;
  std::uint64_t bytes = 0;         // of the data, without padding
  std::uint64_t offset = 0;        // of the data, from the start of the data section
  std::uint64_t at = 0;            // file offset of the record
  std::uint64_t offset_field = 0;  // file offset of `offset`
};

GgufReader::GgufReader(std::string file, std::span<const std::byte> bytes)
    : file_(std::move(file)), bytes_(bytes), in_(file_, bytes) {}

GgufContent GgufReader::read() {
  read_header();
  out_.metadata.file_ = file_;
  out_.metadata.section_offset_ = in_.position();
  read_entries();
  out_.directory_offset = in_.position();
  const std::uint32_t alignment = read_alignment();
  const std::vector<Record> records = read_directory();
  check_duplicate_names(records);
  place_tensors(records, alignment);
  return std::move(out_);
}

void GgufReader::recognize_other_formats() const {
  const auto refuse = [&](std::string what) { in_.fail(0, "magic", std::move(what)); };
  if (bytes_.empty()) refuse("the file is empty, its size is 0");
  if (starts_with(bytes_, "version https://git-lfs"))
    refuse(
        "this is a git-lfs pointer, a text file that stands for the model; fetch the model itself with \"git lfs "
        "pull\"");
  if (looks_like_html(bytes_)) refuse("this is an HTML page, not a model; the download saved a web page in its place");
  if (bytes_.size() < 4) return;
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg"})
    if (starts_with(bytes_, old))
      refuse("this is a GGML file of before GGUF, which is no longer read; convert it to GGUF");
  if (starts_with(bytes_, "PK\x03\x04")) refuse("this is a zip archive, not a GGUF file");
  if (starts_with(bytes_, "GGUF")) return;
  const std::string found(reinterpret_cast<const char*>(bytes_.data()), 4);
  refuse("found \"" + escaped(found) + "\" where a GGUF file begins with \"GGUF\"");
}

void GgufReader::read_header() {
  recognize_other_formats();
  in_.take(4, "the magic \"GGUF\"");
  const std::uint64_t version_at = in_.position();
  const auto raw = in_.take(4, "the version");
  constexpr bool kLittleHost = std::endian::native == std::endian::little;
  std::uint32_t version = load<std::uint32_t>(raw.data(), !kLittleHost);
  const std::uint32_t other = load<std::uint32_t>(raw.data(), kLittleHost);
  const auto known = [](std::uint32_t v) { return v >= 1 && v <= 3; };
  const bool big_endian = !known(version) && known(other);
  if (big_endian) version = other;
  if (!known(version)) in_.fail(version_at, "version", "GGUF version " + number(version) + " is not 1, 2 or 3");

  out_.version = static_cast<int>(version);
  out_.metadata.swap_bytes_ = big_endian == kLittleHost;
  in_.set_layout(out_.metadata.swap_bytes_, version == 1);
  const std::uint64_t n_tensors_at = in_.position();
  n_tensors_ = in_.read_length("the tensor count");
  const std::uint64_t n_entries_at = in_.position();
  n_entries_ = in_.read_length("the key count");

  // The smallest records: a key of one byte with a value of one, a tensor of one dimension with a name of one byte.
  const std::uint64_t least_entry = in_.length_bytes() + 1 + 4 + 1;
  const std::uint64_t least_tensor = in_.length_bytes() + 1 + 4 + in_.length_bytes() + 4 + 8;
  const auto check_count = [&](std::uint64_t n, std::uint64_t least, std::uint64_t cap, std::uint64_t at,
                               const char* what) {
    if (n > in_.remaining() / least)
      in_.fail(at, what, number(n) + " records cannot fit in the " + number(in_.remaining()) + " bytes that follow");
    if (n > cap) in_.fail(at, what, number(n) + " is above the limit of " + number(cap));
  };
  check_count(n_tensors_, least_tensor, kMaxTensors, n_tensors_at, "tensor count");
  check_count(n_entries_, least_entry, kMaxKeys, n_entries_at, "key count");
}

std::string_view GgufReader::read_name(std::string_view what, std::uint64_t max_bytes) {
  const std::uint64_t at = in_.position();
  const std::uint64_t n = in_.read_length("the length of a name");
  const auto describe = [&] { return std::string(what) + " of " + number(n) + " bytes"; };
  if (n > max_bytes) in_.fail(at, describe() + " is longer than the limit of " + number(max_bytes));
  if (n == 0) in_.fail(at, describe() + ": it must not be empty");
  if (!in_.fits(n))
    in_.fail(at, describe() + " is longer than the " + number(in_.remaining()) + " bytes left in the file");
  const auto raw = in_.take(n, what);
  const std::string_view text(reinterpret_cast<const char*>(raw.data()), raw.size());
  if (const std::size_t bad = find_unprintable(text); bad != std::string_view::npos) {
    in_.set_name(text);
    in_.fail(at + in_.length_bytes() + bad,
             std::string(what) + " holds a control character or invalid UTF-8 at its byte " + number(bad));
  }
  return text;
}

std::string_view GgufReader::read_string(std::string_view what) {
  const std::uint64_t at = in_.position();
  const std::uint64_t n = in_.read_length("the length of a string");
  if (n > in_.remaining() || n > kMaxStringBytes) [[unlikely]] {
    const std::string found = std::string(what) + " of " + number(n) + " bytes is longer than ";
    in_.fail(at, found + (n > in_.remaining() ? "the " + number(in_.remaining()) + " bytes left in the file"
                                              : "the limit of " + number(kMaxStringBytes)));
  }
  const auto raw = in_.take(n, what);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

void GgufReader::read_entries() {
  auto& entries = out_.metadata.entries_;
  entries.reserve(n_entries_);
  for (std::uint64_t i = 0; i < n_entries_; ++i) entries.push_back(read_entry(i + 1));
  out_.metadata.order_ = sorted_names(entries.size(), [&](std::size_t i) { return entries[i].key; });
  check_duplicate_keys();
}

Metadata::Entry GgufReader::read_entry(std::uint64_t number_of_key) {
  Metadata::Entry e{};
  in_.set_subject("key", number_of_key);
  e.key = read_name("key", kMaxKeyBytes);
  in_.set_name(e.key);
  const std::uint64_t at = in_.position();
  const auto id = in_.read<std::uint32_t>("the value's type");
  if (id > static_cast<std::uint32_t>(GgufType::F64))
    in_.fail(at, "value type " + number(id) + " is not one of 0 to 12");
  e.type = static_cast<GgufType>(id);
  read_value(e);
  return e;
}

void GgufReader::read_value(Metadata::Entry& e) {
  if (e.type == GgufType::Array) return read_array(e);
  e.element = e.type;
  e.count = 1;
  e.offset = in_.position();
  if (e.type == GgufType::String) {
    e.raw = std::as_bytes(std::span(read_string("string")));
    return;
  }
  e.raw = in_.take(value_bytes(e.type), "the value");
  if (e.type == GgufType::Bool && std::to_integer<unsigned>(e.raw[0]) > 1)
    in_.fail(e.offset, "bool value " + number(std::to_integer<unsigned>(e.raw[0])) + " is neither 0 nor 1");
}

void GgufReader::read_array(Metadata::Entry& e) {
  const std::uint64_t type_at = in_.position();
  const auto id = in_.read<std::uint32_t>("the array's element type");
  if (id == static_cast<std::uint32_t>(GgufType::Array))
    in_.fail(type_at, "nested arrays (an array of arrays) are not supported");
  if (id > static_cast<std::uint32_t>(GgufType::F64))
    in_.fail(type_at, "array element type " + number(id) + " is not one of 0 to 12");
  e.element = static_cast<GgufType>(id);
  e.offset = in_.position();
  e.count = in_.read_length("the array's count");
  const bool strings = e.element == GgufType::String;
  const std::uint64_t least = strings ? in_.length_bytes() : value_bytes(e.element);
  if (e.count > in_.remaining() / least)
    in_.fail(e.offset, "array of " + number(e.count) + " elements of type " + std::string(name(e.element)) +
                           " cannot fit in the " + number(in_.remaining()) + " bytes left in the file");
  if (strings && e.count > kMaxStrings)
    in_.fail(e.offset, "array of " + number(e.count) + " strings, at most " + number(kMaxStrings) + " are supported");
  if (!strings) {
    e.raw = in_.take(e.count * least, "the array");
    if (e.element != GgufType::Bool) return;
    const auto bad = std::ranges::find_if(e.raw, [](std::byte b) { return std::to_integer<unsigned>(b) > 1; });
    if (bad != e.raw.end())
      in_.fail(e.offset + in_.length_bytes() + static_cast<std::uint64_t>(bad - e.raw.begin()),
               "array of bool holds a value that is neither 0 nor 1");
    return;
  }
  const std::uint64_t begin = in_.position();
  e.strings.reserve(e.count);
  for (std::uint64_t i = 0; i < e.count; ++i) e.strings.push_back(read_string("string in the array"));
  e.raw = bytes_.subspan(begin, in_.position() - begin);
}

void GgufReader::check_duplicate_keys() {
  const auto& entries = out_.metadata.entries_;
  const auto repeated = first_repeated(out_.metadata.order_, [&](std::size_t i) { return entries[i].key; });
  if (!repeated) return;
  const std::string_view key = entries[*repeated].key;
  const auto at = static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(key.data()) - bytes_.data());
  in_.fail(at - in_.length_bytes(), key_subject(key), "duplicate key: the file holds it more than once");
}

std::uint32_t GgufReader::read_alignment() const {
  constexpr std::string_view kKey = "general.alignment";
  const Metadata::Entry* e = out_.metadata.find(kKey);
  if (!e) return kDefaultAlignment;
  if (e->type != GgufType::U32)
    out_.metadata.fail(kKey, "has type " + std::string(name(e->type)) + ", u32 is required");
  const auto value = out_.metadata.get<std::uint32_t>(kKey);
  if (!std::has_single_bit(value) || value < kMinAlignment || value > kMaxAlignment)
    out_.metadata.fail(kKey, "value " + number(value) + " is not a power of two between " + number(kMinAlignment) +
                                 " and " + number(kMaxAlignment));
  return value;
}

std::vector<GgufReader::Record> GgufReader::read_directory() {
  std::vector<Record> records;
  // Checked again: the keys have taken their part of what the header's check still counted as room.
  const std::uint64_t least = in_.length_bytes() * 2 + 17;
  if (n_tensors_ > in_.remaining() / least)
    in_.fail(8, "tensor count",
             "truncated: " + number(n_tensors_) + " directory records cannot fit in the " + number(in_.remaining()) +
                 " bytes left after the keys");
  records.reserve(n_tensors_);
  for (std::uint64_t i = 0; i < n_tensors_; ++i) records.push_back(read_record(i + 1));
  return records;
}

GgufReader::Record GgufReader::read_record(std::uint64_t number_of_tensor) {
  Record r;
  in_.set_subject("tensor", number_of_tensor);
  r.at = in_.position();
  r.name = read_name("tensor name", kMaxNameBytes);
  in_.set_name(r.name);
  r.type = read_type(r);
  r.offset_field = in_.position();
  r.offset = in_.read<std::uint64_t>("the data's offset");
  return r;
}

TensorType GgufReader::read_type(Record& r) {
  const std::uint64_t n_dims_at = in_.position();
  const auto n_dims = in_.read<std::uint32_t>("the number of dimensions");
  if (n_dims < 1 || n_dims > Shape::kMaxDims)
    in_.fail(n_dims_at, number(n_dims) + " dimensions, 1 to " + number(Shape::kMaxDims) + " are supported");
  std::array<std::uint64_t, Shape::kMaxDims> dims{1, 1, 1, 1};
  const std::uint64_t dims_at = in_.position();
  for (std::uint32_t d = 0; d < n_dims; ++d) {
    const std::uint64_t at = in_.position();
    dims[d] = in_.read_length("a dimension");
    if (dims[d] == 0) in_.fail(at, "dimension " + number(d) + " is 0; dimensions must be at least 1");
  }
  const std::uint64_t type_at = in_.position();
  const auto id = in_.read<std::uint32_t>("the storage type");
  const auto dtype = dtype_from_gguf(id);
  if (!dtype) in_.fail(type_at, explain_unsupported_gguf_type(id));
  const DTypeInfo& type = info(*dtype);
  if (dims[0] % type.block_elems != 0)
    in_.fail(dims_at, "rows of " + number(dims[0]) + " elements are not whole blocks of " + number(type.block_elems) +
                          " (type " + std::string(type.name) + ")");

  // bytes = dims[0] / block_elems * block_bytes * the other dimensions, and room for the padding after it
  std::optional<std::uint64_t> bytes = checked_mul<std::uint64_t>(dims[0] / type.block_elems, type.block_bytes);
  for (std::size_t d = 1; d < dims.size() && bytes; ++d) bytes = checked_mul(*bytes, dims[d]);
  if (!bytes || !checked_align<std::uint64_t>(*bytes, kMaxAlignment))
    in_.fail(dims_at, "the size of its data overflows 64 bits");
  TensorType out;
  out.dtype = *dtype;
  std::uint64_t elements = 1;
  for (std::uint32_t d = 0; d < n_dims; ++d) {
    const std::uint64_t at = dims_at + d * in_.length_bytes();
    if (dims[d] > kMaxDim)
      in_.fail(at, "dimension " + number(d) + " is " + number(dims[d]) + ", above 2^40: sizes would overflow");
    const auto product = checked_mul(elements, dims[d]);
    if (!product || *product > std::uint64_t{1} << 62) in_.fail(at, "the number of its elements overflows");
    elements = *product;
    out.shape.push_back(static_cast<std::int64_t>(dims[d]));
  }
  r.bytes = *bytes;
  return out;
}

void GgufReader::check_duplicate_names(const std::vector<Record>& records) const {
  const auto name_of = [&](std::size_t i) { return records[i].name; };
  if (const auto repeated = first_repeated(sorted_names(records.size(), name_of), name_of))
    in_.fail(records[*repeated].at, tensor_subject(records[*repeated].name),
             "duplicate tensor: the directory holds it more than once");
}

void GgufReader::place_tensors(const std::vector<Record>& records, std::uint32_t alignment) {
  const std::uint64_t size = bytes_.size();
  // Cannot overflow: both are bounded by the file's size and the largest alignment.
  const std::uint64_t begin = checked_align<std::uint64_t>(in_.position(), alignment).value();
  const std::uint64_t data_size = size > begin ? size - begin : 0;
  std::uint64_t expected = 0;
  const Record* before = nullptr;
  out_.tensors.reserve(records.size());
  for (const Record& r : records) {
    const auto fail = [&](std::string problem) {
      in_.fail(r.offset_field, tensor_subject(r.name), std::move(problem));
    };
    const std::string found = "data offset " + hex(r.offset);
    if (r.offset % alignment != 0) fail(found + " is not a multiple of the alignment " + number(alignment));
    if (r.offset < expected) {
      const std::string_view hint = other_use_of_gguf_id(before->type.dtype);
      fail(found + " makes its data overlap " + tensor_subject(before->name) + "; " + hex(expected) + " is required" +
           (hint.empty() ? "" : " (" + std::string(hint) + ")"));
    }
    if (r.offset > expected)
      fail(found + (r.offset > data_size ? " lies beyond the end of the file" : " leaves a hole in the data") + "; " +
           hex(expected) + " is required");
    if (r.offset > data_size || r.bytes > data_size - r.offset)
      fail("truncated: its " + number(r.bytes) + " bytes of data begin at " + hex(begin + r.offset) +
           ", but the file has a size of " + number(size) + " bytes");
    out_.tensors.push_back({r.name, r.type, 0, r.at, begin + r.offset});
    expected = checked_align<std::uint64_t>(r.offset + r.bytes, alignment).value();
    before = &r;
  }
  out_.data_end = std::min(begin + expected, size);
}

}  // namespace llm
