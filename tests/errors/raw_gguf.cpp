#include "raw_gguf.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

namespace llm::test {
namespace {

void append_string(Bytes& out, std::string_view text) {
  append_value<std::uint64_t>(out, text.size());
  append(out, text);
}

void pad(Bytes& out, std::size_t alignment) { out.resize((out.size() + alignment - 1) / alignment * alignment); }

/// A linear congruential generator (the constants of Numerical Recipes): the same bytes everywhere.
std::uint32_t next(std::uint32_t& state) { return state = state * 1664525u + 1013904223u; }

std::string utf8(std::uint32_t c) {
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))};
}

/// GPT-2's printable character for each byte: itself where it is printable Latin-1, else the next one from U+0100 on.
std::vector<std::string> byte_characters() {
  std::vector<std::string> out(256);
  std::uint32_t next_free = 256;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    out[b] = utf8(printable ? b : next_free++);
  }
  return out;
}

void add_matrix(RawGguf& g, const std::string& name, std::vector<std::uint64_t> dims) {
  std::size_t n = 1;
  for (const std::uint64_t d : dims) n *= d;
  g.tensors.push_back(
      {name, std::move(dims), kTensorF32, random_f32(n, static_cast<std::uint32_t>(g.tensors.size() + 1))});
}

void add_norm(RawGguf& g, const std::string& name) {
  g.tensors.push_back({name, {32}, kTensorF32, constant_f32(32, 1.0f)});
}

void add_hyper_parameters(RawGguf& g) {
  g.put(entry_string("general.architecture", "llama"));
  g.put(entry_string("general.name", "tiny"));
  g.put(entry_value<std::uint32_t>("llama.context_length", kU32, 64));
  g.put(entry_value<std::uint32_t>("llama.embedding_length", kU32, 32));
  g.put(entry_value<std::uint32_t>("llama.block_count", kU32, 1));
  g.put(entry_value<std::uint32_t>("llama.feed_forward_length", kU32, 64));
  g.put(entry_value<std::uint32_t>("llama.attention.head_count", kU32, 4));
  g.put(entry_value<std::uint32_t>("llama.attention.head_count_kv", kU32, 2));
  g.put(entry_value<std::uint32_t>("llama.rope.dimension_count", kU32, 8));
  g.put(entry_value("llama.attention.layer_norm_rms_epsilon", kF32, 1e-5f));
  g.put(entry_value("llama.rope.freq_base", kF32, 10000.0f));
}

/// <unk> <s> </s>, the 256 byte tokens, 8 pieces.
void add_spm_vocabulary(RawGguf& g) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types{2, 3, 3};  // unknown, control, control
  for (int b = 0; b < 256; ++b) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02X>", b);
    tokens.emplace_back(text.data());
    types.push_back(6);  // byte
  }
  for (const char* piece : {"\xe2\x96\x81", "a", "b", "ab",
                            "\xe2\x96\x81"
                            "a",
                            "\xe2\x96\x81"
                            "ab",
                            "c", "abc"}) {
    tokens.emplace_back(piece);
    types.push_back(1);  // normal
  }
  std::vector<float> scores(tokens.size(), 0.0f);
  for (std::size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(i - 258);
  g.put(entry_string("tokenizer.ggml.model", "llama"));
  g.put(entry_strings("tokenizer.ggml.tokens", tokens));
  g.put(entry_array("tokenizer.ggml.scores", kF32, scores));
  g.put(entry_array("tokenizer.ggml.token_type", kI32, types));
  g.put(entry_value<std::uint32_t>("tokenizer.ggml.bos_token_id", kU32, 1));
  g.put(entry_value<std::uint32_t>("tokenizer.ggml.eos_token_id", kU32, 2));
  g.put(entry_value<std::uint32_t>("tokenizer.ggml.unknown_token_id", kU32, 0));
}

void add_bpe_vocabulary(RawGguf& g) {
  std::vector<std::string> tokens = byte_characters();
  std::vector<std::int32_t> types(256, 1);
  for (const char* t : {"ab", "abc"}) {
    tokens.emplace_back(t);
    types.push_back(1);
  }
  tokens.emplace_back("<|endoftext|>");
  types.push_back(3);
  g.put(entry_string("tokenizer.ggml.model", "gpt2"));
  g.put(entry_string("tokenizer.ggml.pre", "gpt-2"));
  g.put(entry_strings("tokenizer.ggml.tokens", tokens));
  g.put(entry_array("tokenizer.ggml.token_type", kI32, types));
  g.put(entry_strings("tokenizer.ggml.merges", {"a b", "ab c"}));
  g.put(entry_value<std::uint32_t>("tokenizer.ggml.bos_token_id", kU32, 258));
  g.put(entry_value<std::uint32_t>("tokenizer.ggml.eos_token_id", kU32, 258));
}

void add_attention(RawGguf& g, std::uint64_t vocabulary) {
  add_matrix(g, "token_embd.weight", {32, vocabulary});
  add_norm(g, "output_norm.weight");
  add_matrix(g, "output.weight", {32, vocabulary});
  add_norm(g, "blk.0.attn_norm.weight");
  add_matrix(g, "blk.0.attn_q.weight", {32, 32});
  add_matrix(g, "blk.0.attn_k.weight", {32, 16});
  add_matrix(g, "blk.0.attn_v.weight", {32, 16});
  add_matrix(g, "blk.0.attn_output.weight", {32, 32});
  add_norm(g, "blk.0.ffn_norm.weight");
}

void add_dense_ffn(RawGguf& g) {
  add_matrix(g, "blk.0.ffn_gate.weight", {32, 64});
  add_matrix(g, "blk.0.ffn_up.weight", {32, 64});
  add_matrix(g, "blk.0.ffn_down.weight", {64, 32});
}

template <class List, class NameOf>
std::size_t index_of(const List& list, std::string_view name, NameOf name_of) {
  const auto it = std::find_if(list.begin(), list.end(), [&](const auto& x) { return name_of(x) == name; });
  if (it == list.end()) throw std::logic_error("no " + std::string(name) + " in the base file");
  return static_cast<std::size_t>(it - list.begin());
}

}  // namespace

void append(Bytes& out, std::string_view text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), p, p + text.size());
}
void append(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }

Bytes random_f32(std::size_t n, std::uint32_t seed) {
  Bytes out;
  out.reserve(n * 4);
  for (std::size_t i = 0; i < n; ++i) append_value(out, (static_cast<float>(next(seed) >> 8) * 0x1p-24f - 0.5f) * 0.2f);
  return out;
}

Bytes random_q4_0(std::size_t n, std::uint32_t seed) {
  Bytes out;
  for (std::size_t block = 0; block < n / 32; ++block) {
    append_value<std::uint16_t>(out, 0x2000);  // 2^-7: weights in [-0.0625, 0.0547]
    for (int i = 0; i < 16; ++i) out.push_back(static_cast<std::byte>(next(seed) >> 24));
  }
  return out;
}

Bytes constant_f32(std::size_t n, float value) {
  Bytes out;
  for (std::size_t i = 0; i < n; ++i) append_value(out, value);
  return out;
}

RawEntry entry_string(std::string key, std::string_view value) {
  RawEntry e{std::move(key), kString, {}};
  append_string(e.payload, value);
  return e;
}

RawEntry entry_array_head(std::string key, std::uint32_t element, std::uint64_t count) {
  RawEntry e{std::move(key), kArray, {}};
  append_value(e.payload, element);
  append_value(e.payload, count);
  return e;
}

RawEntry entry_strings(std::string key, const std::vector<std::string>& values) {
  RawEntry e = entry_array_head(std::move(key), kString, values.size());
  for (const std::string& v : values) append_string(e.payload, v);
  return e;
}

Bytes RawGguf::build(RawLayout* layout) const {
  RawLayout places;
  Bytes out;
  append(out, magic);
  append_value(out, version);
  append_value<std::uint64_t>(out, tensors.size() + static_cast<std::uint64_t>(extra_tensors));
  append_value<std::uint64_t>(out, entries.size() + static_cast<std::uint64_t>(extra_entries));
  for (const RawEntry& e : entries) {
    places.entry_at.push_back(out.size());
    append_string(out, e.key);
    append_value(out, e.type);
    append(out, e.payload);
  }
  std::uint64_t offset = 0;
  for (const RawTensor& t : tensors) {
    places.tensor_at.push_back(out.size());
    append_string(out, t.name);
    append_value(out, t.n_dims.value_or(static_cast<std::uint32_t>(t.dims.size())));
    for (const std::uint64_t d : t.dims) append_value(out, d);
    append_value(out, t.type);
    append_value(out, t.offset.value_or(offset));
    offset = (offset + t.data.size() + alignment - 1) / alignment * alignment + t.gap_after;
  }
  pad(out, alignment);
  places.data_at = out.size();
  for (const RawTensor& t : tensors) {
    append(out, t.data);
    pad(out, alignment);
    out.resize(out.size() + t.gap_after);
  }
  if (layout) *layout = std::move(places);
  return out;
}

std::size_t RawGguf::entry_index(std::string_view key) const {
  return index_of(entries, key, [](const RawEntry& e) { return std::string_view(e.key); });
}
std::size_t RawGguf::tensor_index(std::string_view name) const {
  return index_of(tensors, name, [](const RawTensor& t) { return std::string_view(t.name); });
}
RawEntry& RawGguf::entry(std::string_view key) { return entries[entry_index(key)]; }
RawTensor& RawGguf::tensor(std::string_view name) { return tensors[tensor_index(name)]; }

void RawGguf::put(RawEntry e) {
  const auto it = std::find_if(entries.begin(), entries.end(), [&](const RawEntry& x) { return x.key == e.key; });
  if (it == entries.end())
    entries.push_back(std::move(e));
  else
    *it = std::move(e);
}
void RawGguf::remove_entry(std::string_view key) {
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(entry_index(key)));
}
void RawGguf::remove_tensor(std::string_view name) {
  tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(tensor_index(name)));
}

RawGguf tiny_llama() {
  RawGguf g;
  add_hyper_parameters(g);
  add_spm_vocabulary(g);
  add_attention(g, 267);
  add_dense_ffn(g);
  return g;
}

RawGguf tiny_llama_q4_0() {
  RawGguf g = tiny_llama();
  for (RawTensor& t : g.tensors) {
    if (t.dims.size() < 2) continue;
    t.type = kTensorQ4_0;
    t.data = random_q4_0(t.dims[0] * t.dims[1], static_cast<std::uint32_t>(t.data.size()));
  }
  return g;
}

RawGguf tiny_moe() {
  RawGguf g;
  add_hyper_parameters(g);
  g.put(entry_value<std::uint32_t>("llama.expert_count", kU32, 4));
  g.put(entry_value<std::uint32_t>("llama.expert_used_count", kU32, 2));
  add_spm_vocabulary(g);
  add_attention(g, 267);
  add_matrix(g, "blk.0.ffn_gate_inp.weight", {32, 4});
  add_matrix(g, "blk.0.ffn_gate_exps.weight", {32, 64, 4});
  add_matrix(g, "blk.0.ffn_up_exps.weight", {32, 64, 4});
  add_matrix(g, "blk.0.ffn_down_exps.weight", {64, 32, 4});
  return g;
}

RawGguf tiny_bpe() {
  RawGguf g;
  add_hyper_parameters(g);
  add_bpe_vocabulary(g);
  add_attention(g, 259);
  add_dense_ffn(g);
  return g;
}

}  // namespace llm::test
