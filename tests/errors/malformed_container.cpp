// Groups Z, A, B, C and H: what is wrong lies in the container.
#include <algorithm>

#include "malformed.h"

namespace llm::test {
namespace {

constexpr std::uint64_t kMax64 = ~std::uint64_t{0};

std::uint64_t pow2(int n) { return std::uint64_t{1} << n; }

/// Where a key's value begins: after the length, the key and the type.
std::size_t value_at(const RawGguf& g, const RawLayout& layout, std::string_view key) {
  return layout.entry_at[g.entry_index(key)] + 8 + key.size() + 4;
}

Bytes text_file(std::string_view text) {
  Bytes out;
  append(out, text);
  return out;
}

Bytes first_bytes(Bytes file, std::size_t n) {
  file.resize(n);
  return file;
}

/// The tiny llama with one 8-byte field of the header replaced.
Bytes header_field(std::size_t at, std::uint64_t value) {
  Bytes file = tiny_llama().build();
  patch(file, at, value);
  return file;
}

Bytes with_version(std::uint32_t version) {
  return changed(tiny_llama(), [&](RawGguf& g) { g.version = version; });
}

Bytes with_entry(RawEntry e) {
  return changed(tiny_llama(), [&](RawGguf& g) { g.entries.push_back(std::move(e)); });
}

Bytes with_alignment(RawEntry e) { return with_entry(std::move(e)); }
Bytes with_alignment(std::uint32_t value) { return with_entry(entry_value("general.alignment", kU32, value)); }

Bytes with_name_length(std::uint64_t length) {
  RawGguf g = tiny_llama();
  RawLayout layout;
  Bytes file = g.build(&layout);
  patch(file, value_at(g, layout, "general.name"), length);
  return file;
}

Bytes with_key_length(std::function<std::uint64_t(std::uint64_t remaining)> length) {
  RawGguf g = tiny_llama();
  RawLayout layout;
  Bytes file = g.build(&layout);
  const std::size_t at = layout.entry_at[g.entry_index("general.name")];
  patch(file, at, length(file.size() - at - 8));
  return file;
}

Bytes with_output_norm(const std::function<void(RawTensor&)>& change) {
  return changed(tiny_llama(), [&](RawGguf& g) { change(g.tensor("output_norm.weight")); });
}

Bytes with_output_norm_offset(
    const std::function<std::uint64_t(std::uint64_t right, std::uint64_t file_size)>& offset) {
  const std::uint64_t right = 34176;  // token_embd's 32 x 267 floats, a multiple of 32
  const std::uint64_t size = tiny_llama().build().size();
  return with_output_norm([&](RawTensor& t) { t.offset = offset(right, size); });
}

Bytes with_output_norm_shape(std::uint32_t type, std::vector<std::uint64_t> dims) {
  return with_output_norm([&](RawTensor& t) {
    t.type = type;
    t.dims = dims;
  });
}

Bytes nested_array(std::size_t depth) {
  RawEntry e{"test.nested", kArray, {}};
  for (std::size_t i = 1; i < depth; ++i) {
    append_value<std::uint32_t>(e.payload, kArray);
    append_value<std::uint64_t>(e.payload, 1);
  }
  append_value<std::uint32_t>(e.payload, kU32);
  append_value<std::uint64_t>(e.payload, 1);
  append_value<std::uint32_t>(e.payload, 7);
  return with_entry(std::move(e));
}

/// Three strings, the third of which claims to go on past the end of the file.
Bytes cut_string_array() {
  RawEntry e = entry_strings("test.array", {"one", "two", "three"});
  patch(e.payload, e.payload.size() - 5 - 8, pow2(40));
  return with_entry(std::move(e));
}

Bytes cut_at(std::function<std::size_t(const RawLayout&)> where) {
  RawLayout layout;
  Bytes file = tiny_llama().build(&layout);
  return first_bytes(std::move(file), where(layout));
}

Bytes with_split(RawEntry no, RawEntry count) {
  return changed(tiny_llama(), [&](RawGguf& g) {
    g.put(std::move(no));
    g.put(std::move(count));
    g.put(entry_value<std::int32_t>("split.tensors.count", kI32, 12));
  });
}

MalformedFile control(std::string id, std::string construction, std::function<Bytes()> build) {
  return {std::move(id), std::move(construction), Layer::Run, Outcome::Accepted, "", std::move(build), ""};
}

MalformedFile refused(std::string id, std::string construction, std::string word, std::function<Bytes()> build) {
  return {std::move(id), std::move(construction), Layer::Gguf, Outcome::Refused, std::move(word), std::move(build), ""};
}

}  // namespace

std::vector<MalformedFile> control_files() {
  return {
      control("Z01", "tiny llama F32, untouched", [] { return tiny_llama().build(); }),
      control("Z02", "tiny llama, Q4_0 matrices", [] { return tiny_llama_q4_0().build(); }),
      control("Z03", "tiny llama MoE, 4 experts, 2 used", [] { return tiny_moe().build(); }),
      control("Z04", "tiny llama, gpt2 BPE tokenizer", [] { return tiny_bpe().build(); }),
      control("Z05", "version=2 header, same body", [] { return with_version(2); }),
  };
}

std::vector<MalformedFile> header_files() {
  std::vector<MalformedFile> out{
      refused("A01", "0-byte file", "size", [] { return Bytes{}; }),
      refused("A02", "3 bytes GGU", "size", [] { return text_file("GGU"); }),
      refused("A03", "4 bytes GGUF only", "size", [] { return text_file("GGUF"); }),
      refused("A04", "magic=FUGG", "magic", [] { return changed(tiny_llama(), [](RawGguf& g) { g.magic = "FUGG"; }); }),
      refused("A05", "old GGML magic lmgg", "magic",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.magic = "lmgg"; }); }),
      refused("A06", "version=0", "version", [] { return with_version(0); }),
      refused("A07", "version=1 over a version 3 body", "", [] { return with_version(1); }),
      refused("A08", "version=4", "version", [] { return with_version(4); }),
      refused("A09", "version=0x03000000 (big endian 3 over a little-endian body)", "count",
              [] { return with_version(0x03000000); }),
      refused("A10", "first 23 bytes of Z01", "truncated", [] { return first_bytes(tiny_llama().build(), 23); }),
      refused("A11", "n_tensors=2^64-1", "tensor count", [] { return header_field(8, kMax64); }),
      refused("A12", "n_tensors=2^61", "tensor count", [] { return header_field(8, pow2(61)); }),
      refused("A13", "n_kv=2^64-1", "key count", [] { return header_field(16, kMax64); }),
      refused("A14", "n_tensors=0, n_kv=0xFFFFFFFF, then 64 zero bytes", "key count",
              [] {
                Bytes file = first_bytes(tiny_llama().build(), 24);
                patch(file, 8, 0);
                patch(file, 16, 0xFFFFFFFF);
                file.resize(24 + 64);
                return file;
              }),
      refused("A15", "n_kv = real+1", "name",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.extra_entries = 1; }); }),
      refused("A16", "n_kv = real-1", "tokenizer.ggml.unknown_token_id",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.extra_entries = -1; }); }),
      refused("A17", "n_tensors = real+1", "name",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.extra_tensors = 1; }); }),
      refused("A18", "n_tensors = real-1", "blk.0.ffn_down",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.extra_tensors = -1; }); }),
      refused("A19", "24-byte header, 0 tensors, 0 kv", "general.architecture",
              [] {
                Bytes file = first_bytes(tiny_llama().build(), 24);
                patch(file, 8, 0);
                patch(file, 16, 0);
                return file;
              }),
      refused("A20", "Git LFS pointer text", "git-lfs",
              [] {
                return text_file(
                    "version https://git-lfs.github.com/spec/v1\n"
                    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                    "size 4368438944\n");
              }),
      refused("A21", "HTML error page", "HTML",
              [] {
                return text_file(
                    "<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n");
              }),
      refused("A22", "4096 junk bytes after the last tensor", "4096",
              [] {
                Bytes file = tiny_llama().build();
                file.resize(file.size() + 4096, std::byte{0x5a});
                return file;
              }),
  };
  for (MalformedFile& f : out)
    if (f.id == "A18" || f.id == "A19") f.layer = Layer::Model;  // well-formed, but no model
  out.back().outcome = Outcome::Warned;
  return out;
}

std::vector<MalformedFile> metadata_files() {
  const auto architecture = [](RawEntry e) { return changed(tiny_llama(), [&](RawGguf& g) { g.put(std::move(e)); }); };
  std::vector<MalformedFile> out{
      refused("B01", "key length 2^64-1", "key", [] { return with_key_length([](std::uint64_t) { return kMax64; }); }),
      refused("B02", "key length = remaining+1", "key",
              [] { return with_key_length([](std::uint64_t remaining) { return remaining + 1; }); }),
      refused("B03", "empty key", "key", [] { return with_entry(entry_value<std::uint8_t>("", kU8, 1)); }),
      refused("B04", "key of 65,536 bytes", "key",
              [] { return with_entry(entry_value<std::uint8_t>(std::string(65536, 'k'), kU8, 1)); }),
      refused("B05", "ESC in a key", "key",
              [] {
                return with_entry(
                    entry_value<std::uint8_t>("a\x1b]0;x\x07"
                                              "b",
                                              kU8, 1));
              }),
      refused("B06", "key bytes FF FE 41", "key",
              [] {
                return with_entry(
                    entry_value<std::uint8_t>("\xff\xfe"
                                              "A",
                                              kU8, 1));
              }),
      refused("B07", "general.name written twice, same value", "duplicate",
              [] { return with_entry(entry_string("general.name", "tiny")); }),
      refused("B08", "general.alignment=32 then =64", "duplicate",
              [] {
                return changed(tiny_llama(), [](RawGguf& g) {
                  g.entries.push_back(entry_value<std::uint32_t>("general.alignment", kU32, 32));
                  g.entries.push_back(entry_value<std::uint32_t>("general.alignment", kU32, 64));
                });
              }),
      refused("B09", "value type 13", "type", [] { return with_entry(entry_value<std::uint32_t>("test.x", 13, 1)); }),
      refused("B10", "value type 0xFFFFFFFF", "type",
              [] { return with_entry(entry_value<std::uint32_t>("test.x", 0xFFFFFFFF, 1)); }),
      refused("B11", "string value length 2^63", "string", [] { return with_name_length(pow2(63)); }),
      refused("B12", "string value length 2^64-1", "string", [] { return with_name_length(kMax64); }),
      refused("B13", "string value length 2^31 in a small file", "string", [] { return with_name_length(pow2(31)); }),
      refused("B14", "array of arrays, depth 2", "nested", [] { return nested_array(2); }),
      refused("B15", "array nesting depth 100,000", "nested", [] { return nested_array(100'000); }),
      refused("B16", "array element type 255, count 2^60", "type",
              [] { return with_entry(entry_array_head("test.array", 255, pow2(60))); }),
      refused("B17", "u8 array count 2^64-1", "array",
              [] { return with_entry(entry_array_head("test.array", kU8, kMax64)); }),
      refused("B18", "u64 array count 2^61", "array",
              [] { return with_entry(entry_array_head("test.array", kU64, pow2(61))); }),
      refused("B19", "string array count 2^60", "array",
              [] { return with_entry(entry_array_head("test.array", kString, pow2(60))); }),
      refused("B20", "string array: 3rd element's length past the end", "array", [] { return cut_string_array(); }),
      refused("B21", "BOOL scalar byte = 2", "bool",
              [] { return with_entry(entry_value<std::uint8_t>("test.flag", kBool, 2)); }),
      refused("B22", "general.alignment=0", "alignment", [] { return with_alignment(0); }),
      refused("B23", "general.alignment=24", "alignment", [] { return with_alignment(24); }),
      refused("B24", "general.alignment=2^31", "alignment", [] { return with_alignment(0x80000000); }),
      refused("B25", "general.alignment=32 typed INT32", "alignment",
              [] { return with_alignment(entry_value<std::int32_t>("general.alignment", kI32, 32)); }),
      refused("B26", "general.alignment as STRING 32", "alignment",
              [] { return with_alignment(entry_string("general.alignment", "32")); }),
      refused("B27", "general.alignment=1", "alignment", [] { return with_alignment(1); }),
      control("B28", "general.alignment=64, data laid out at 64",
              [] {
                return changed(tiny_llama(), [](RawGguf& g) {
                  g.put(entry_value<std::uint32_t>("general.alignment", kU32, 64));
                  g.alignment = 64;
                });
              }),
      refused("B29", "general.architecture removed", "general.architecture",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.remove_entry("general.architecture"); }); }),
      refused("B30", "general.architecture empty", "general.architecture",
              [=] { return architecture(entry_string("general.architecture", "")); }),
      refused("B31", "general.architecture=foo", "foo",
              [=] { return architecture(entry_string("general.architecture", "foo")); }),
      refused("B32", "general.architecture typed U32", "general.architecture",
              [=] { return architecture(entry_value<std::uint32_t>("general.architecture", kU32, 1)); }),
      refused("B33", "200,000 extra u8 keys k.<n>", "",
              [] {
                return changed(tiny_llama(), [](RawGguf& g) {
                  for (int i = 0; i < 200'000; ++i)
                    g.entries.push_back(entry_value<std::uint8_t>("k." + std::to_string(i), kU8, 1));
                });
              }),
      refused("B34", "1,000,000-element array of empty strings", "",
              [] {
                RawEntry e = entry_array_head("test.array", kString, 1'000'000);
                e.payload.resize(e.payload.size() + 8'000'000);
                return with_entry(std::move(e));
              }),
  };
  for (MalformedFile& f : out) {
    if (f.id >= "B29" && f.id <= "B32") f.layer = Layer::Model;
    if (f.id >= "B33") f.outcome = Outcome::Bounded;
  }
  return out;
}

std::vector<MalformedFile> directory_files() {
  const auto named = [](std::string name) { return with_output_norm([&](RawTensor& t) { t.name = std::move(name); }); };
  std::vector<MalformedFile> out{
      refused("C01", "token_embd name length 2^64-1", "name",
              [] {
                RawLayout layout;
                Bytes file = tiny_llama().build(&layout);
                patch(file, layout.tensor_at[0], kMax64);
                return file;
              }),
      refused("C02", "empty tensor name", "name", [=] { return named(""); }),
      refused("C03", "65-byte tensor name", "name", [=] { return named(std::string(65, 'n')); }),
      refused("C04", "output_norm.weight twice", "duplicate",
              [] {
                return changed(tiny_llama(),
                               [](RawGguf& g) { g.tensors.push_back(RawTensor(g.tensor("output_norm.weight"))); });
              }),
      refused("C05", "n_dims=5", "dimensions",
              [] { return with_output_norm([](RawTensor& t) {
                     t.dims = {32, 1, 1, 1, 1};
                   }); }),
      refused("C06", "n_dims=0xFFFFFFFF", "dimensions",
              [] { return with_output_norm([](RawTensor& t) { t.n_dims = 0xFFFFFFFF; }); }),
      refused("C07", "output_norm n_dims=0", "dimensions",
              [] { return with_output_norm([](RawTensor& t) { t.dims.clear(); }); }),
      refused("C08", "output.weight ne=[32,0]", "dimension",
              [] { return changed(tiny_llama(), [](RawGguf& g) {
                     g.tensor("output.weight").dims = {32, 0};
                   }); }),
      refused("C09", "ne=[2^63]", "", [] { return with_output_norm_shape(kTensorF32, {pow2(63)}); }),
      refused("C10", "ne=[2^40,2^40] F32", "overflow",
              [] {
                return with_output_norm_shape(kTensorF32, {pow2(40), pow2(40)});
              }),
      refused("C11", "Q8_0 ne=[32,542551296285575048]: 34*n = 2^64+16", "overflow",
              [] {
                return with_output_norm_shape(kTensorQ8_0, {32, 542551296285575048ull});
              }),
      refused("C12", "F32 ne=[4,2^30-1,2^30+1]: 2^64-16 bytes, padded to 0", "overflow",
              [] {
                return with_output_norm_shape(kTensorF32, {4, pow2(30) - 1, pow2(30) + 1});
              }),
      refused("C13", "I64 ne=[2^61-1]: 2^64-8 bytes, padded to 0", "overflow",
              [] { return with_output_norm_shape(kTensorI64, {pow2(61) - 1}); }),
      refused("C14", "two I8 tensors ne=[0x7FFFFFFFFFFFFFC0]", "overflow",
              [] {
                return changed(tiny_llama(), [](RawGguf& g) {
                  for (const char* name : {"huge.0", "huge.1"})
                    g.tensors.push_back({name, {0x7FFFFFFFFFFFFFC0}, kTensorI8, {}});
                });
              }),
      refused("C15", "tensor type 43", "type", [] { return with_output_norm_shape(43, {32}); }),
      refused("C16", "tensor type 0xFFFFFFFF", "type", [] { return with_output_norm_shape(0xFFFFFFFF, {32}); }),
      refused("C17", "removed type 4 (Q4_2)", "type", [] { return with_output_norm_shape(4, {32}); }),
      refused("C18", "removed type 31 (Q4_0_4_4)", "type", [] { return with_output_norm_shape(31, {32}); }),
      refused("C19", "Q4_0 with ne[0]=33", "block", [] { return with_output_norm_shape(kTensorQ4_0, {33}); }),
      refused(
          "C20", "attn_q as Q4_K with ne[0]=32", "block",
          [] { return changed(tiny_llama(), [](RawGguf& g) { g.tensor("blk.0.attn_q.weight").type = kTensorQ4_K; }); }),
      refused("C21", "output_norm offset+1", "offset",
              [] { return with_output_norm_offset([](std::uint64_t right, std::uint64_t) { return right + 1; }); }),
      refused("C22", "output_norm offset=2^64-32", "offset",
              [] { return with_output_norm_offset([](std::uint64_t, std::uint64_t) { return kMax64 - 31; }); }),
      refused("C23", "output_norm offset past the end of the file", "offset",
              [] {
                return with_output_norm_offset(
                    [](std::uint64_t, std::uint64_t size) { return (size + 31) / 32 * 32 + 32; });
              }),
      refused("C24", "output.weight offset=0 (aliases token_embd)", "overlap",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.tensor("output.weight").offset = 0; }); }),
      refused("C24b", "Q2_0 in a fork's blocks of 128", "blocks of 128 elements",
              [] {
                return changed(tiny_llama(), [](RawGguf& g) {
                  RawTensor& t = g.tensor("blk.0.attn_q.weight");
                  t.type = kTensorQ2_0;
                  t.dims = {128, 16};
                  t.data.resize(16 * 34);
                });
              }),
      refused("C25", "64-byte hole after token_embd", "offset",
              [] { return changed(tiny_llama(), [](RawGguf& g) { g.tensor("token_embd.weight").gap_after = 64; }); }),
      refused("C26", "last byte of the file removed", "truncated",
              [] {
                Bytes file = tiny_llama().build();
                file.pop_back();
                return file;
              }),
      refused("C27", "file cut at the start of the tensor data", "truncated",
              [] { return cut_at([](const RawLayout& l) { return l.data_at; }); }),
      refused("C28", "file cut in the middle of the tensor directory", "truncated",
              [] { return cut_at([](const RawLayout& l) { return l.tensor_at[6] + 20; }); }),
      refused("C29", "tensor name with ESC[2J", "name", [=] { return named("a\x1b[2J"); }),
      refused("C30", "20,000 extra 8-element tensors", "",
              [] {
                return changed(tiny_llama(), [](RawGguf& g) {
                  for (int i = 0; i < 20'000; ++i)
                    g.tensors.push_back({"extra." + std::to_string(i), {8}, kTensorF32, constant_f32(8, 1.0f)});
                });
              }),
  };
  out.back().outcome = Outcome::Bounded;
  out.back().layer = Layer::Model;
  return out;
}

std::vector<MalformedFile> split_files() {
  std::vector<MalformedFile> out{
      refused("H01", "split.count=3, split.no=0, other shards absent", "split",
              [] {
                return with_split(entry_value<std::uint16_t>("split.no", kU16, 0),
                                  entry_value<std::uint16_t>("split.count", kU16, 3));
              }),
      refused("H02", "split.no=1 given as the first file", "split",
              [] {
                return with_split(entry_value<std::uint16_t>("split.no", kU16, 1),
                                  entry_value<std::uint16_t>("split.count", kU16, 3));
              }),
      refused("H03", "split.count typed U32", "split",
              [] {
                return with_split(entry_value<std::uint16_t>("split.no", kU16, 0),
                                  entry_value<std::uint32_t>("split.count", kU32, 3));
              }),
  };
  out[0].file_name = "H01-00001-of-00003.gguf";
  return out;
}

}  // namespace llm::test
