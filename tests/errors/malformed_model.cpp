// Groups D, E, F and G: well-formed containers whose model, vocabulary, weights or template are wrong.
#include <cmath>
#include <limits>

#include "malformed.h"

namespace llm::test {
namespace {

using Change = std::function<void(RawGguf&)>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

MalformedFile file(std::string id, std::string construction, Layer layer, Outcome outcome, std::string word,
                   RawGguf (*base)(), Change change) {
  return {std::move(id),
          std::move(construction),
          layer,
          outcome,
          std::move(word),
          [base, change = std::move(change)] { return changed(base(), change); },
          ""};
}

MalformedFile refused(std::string id, std::string construction, std::string word, Change change,
                      RawGguf (*base)() = tiny_llama) {
  const Layer layer = id[0] == 'E' ? Layer::Text : Layer::Model;
  return file(std::move(id), std::move(construction), layer, Outcome::Refused, std::move(word), base,
              std::move(change));
}

MalformedFile warned(std::string id, std::string construction, std::string word, Change change,
                     RawGguf (*base)() = tiny_llama) {
  return file(std::move(id), std::move(construction), Layer::Text, Outcome::Warned, std::move(word), base,
              std::move(change));
}

MalformedFile accepted(std::string id, std::string construction, Change change, RawGguf (*base)() = tiny_llama) {
  return file(std::move(id), std::move(construction), Layer::Run, Outcome::Accepted, "", base, std::move(change));
}

Change set_u32(std::string key, std::uint32_t value) {
  return [=](RawGguf& g) { g.put(entry_value("llama." + key, kU32, value)); };
}
Change set_f32(std::string key, float value) {
  return [=](RawGguf& g) { g.put(entry_value("llama." + key, kF32, value)); };
}
Change remove_key(std::string key) {
  return [=](RawGguf& g) { g.remove_entry(key); };
}
Change remove_tensor(std::string name) {
  return [=](RawGguf& g) { g.remove_tensor(name); };
}
Change set(RawEntry e) {
  return [=](RawGguf& g) { g.put(e); };
}
Change reshape(std::string name, std::vector<std::uint64_t> dims) {
  return [=](RawGguf& g) {
    RawTensor& t = g.tensor(name);
    std::size_t n = 1;
    for (const std::uint64_t d : dims) n *= d;
    t.dims = dims;
    t.data = random_f32(n, 99);
  };
}

/// Scaling entries beside a valid original context.
Change scaling(std::string type, float factor) {
  return [=](RawGguf& g) {
    g.put(entry_string("llama.rope.scaling.type", type));
    g.put(entry_value("llama.rope.scaling.factor", kF32, factor));
    g.put(entry_value<std::uint32_t>("llama.rope.scaling.original_context_length", kU32, 32));
  };
}

/// The strings of the base file's token list, changed.
Change edit_tokens(std::function<void(std::vector<std::string>&)> edit) {
  return [=](RawGguf& g) {
    RawEntry& e = g.entry("tokenizer.ggml.tokens");
    std::vector<std::string> tokens;
    for (std::size_t at = 4 + 8; at < e.payload.size();) {
      std::uint64_t n;
      std::memcpy(&n, e.payload.data() + at, 8);
      tokens.emplace_back(reinterpret_cast<const char*>(e.payload.data() + at + 8), n);
      at += 8 + n;
    }
    edit(tokens);
    e = entry_strings(e.key, tokens);
  };
}
Change set_token(std::size_t id, std::string text) {
  return edit_tokens([=](std::vector<std::string>& tokens) { tokens[id] = text; });
}

/// One 4-byte element of an array.
template <class T>
Change set_element(std::string key, std::size_t index, T value) {
  static_assert(sizeof(T) == 4);
  return [=](RawGguf& g) { std::memcpy(g.entry(key).payload.data() + 4 + 8 + 4 * index, &value, 4); };
}

constexpr std::size_t kByteA = 3 + 'A';  // <0x41> in the SentencePiece-style vocabulary
constexpr std::size_t kFirstByte = 3;
constexpr std::size_t kFirstPiece = 3 + 256;

Change no_byte_texts(std::optional<std::int32_t> type) {
  return [=](RawGguf& g) {
    edit_tokens([](std::vector<std::string>& tokens) {
      for (std::size_t b = 0; b < 256; ++b) tokens[kFirstByte + b] = "q" + std::to_string(b);
    })(g);
    for (std::size_t b = 0; type && b < 256; ++b) set_element("tokenizer.ggml.token_type", kFirstByte + b, *type)(g);
  };
}

Change merges(std::vector<std::string> list) { return set(entry_strings("tokenizer.ggml.merges", list)); }

Change both(Change a, Change b) {
  return [=](RawGguf& g) {
    a(g);
    b(g);
  };
}

Change fill(std::string name, float value) {
  return [=](RawGguf& g) {
    RawTensor& t = g.tensor(name);
    t.data = constant_f32(t.data.size() / 4, value);
  };
}

MalformedFile chat_template(std::string id, std::string construction, std::string text) {
  return file(std::move(id), std::move(construction), Layer::Run, Outcome::Template, "tokenizer.chat_template",
              tiny_llama, set(entry_string("tokenizer.chat_template", text)));
}

std::string repeated(std::string_view text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

}  // namespace

std::vector<MalformedFile> hyper_parameter_files() {
  constexpr std::uint32_t kMax = 0xFFFFFFFF;
  std::vector<MalformedFile> out{
      refused("D01", "block_count=0", "block_count", set_u32("block_count", 0)),
      refused("D02", "block_count=513", "block_count", set_u32("block_count", 513)),
      refused("D03", "block_count=2^32-1", "block_count", set_u32("block_count", kMax)),
      refused("D04", "block_count=2 with only blk.0 present", "blk.1", set_u32("block_count", 2)),
      refused("D05", "block_count typed STRING 1", "block_count", set(entry_string("llama.block_count", "1"))),
      accepted("D06", "block_count typed U64 = 1", set(entry_value<std::uint64_t>("llama.block_count", kU64, 1))),
      refused("D07", "block_count removed", "block_count", remove_key("llama.block_count")),
      refused("D08", "embedding_length=0", "embedding_length", set_u32("embedding_length", 0)),
      refused("D09", "embedding_length=64, tensors stay 32", "token_embd", set_u32("embedding_length", 64)),
      refused("D10", "head_count=0", "head_count", set_u32("attention.head_count", 0)),
      refused("D11", "head_count=5", "head_count", set_u32("attention.head_count", 5)),
      refused("D12", "head_count=64", "head_count", set_u32("attention.head_count", 64)),
      refused("D13", "head_count_kv=0", "head_count_kv", set_u32("attention.head_count_kv", 0)),
      refused("D14", "head_count_kv=3", "head_count_kv", set_u32("attention.head_count_kv", 3)),
      refused("D15", "head_count_kv=8", "head_count_kv", set_u32("attention.head_count_kv", 8)),
      refused("D16", "head_count_kv array of 3 with block_count=1", "head_count_kv",
              set(entry_array<std::uint32_t>("llama.attention.head_count_kv", kU32, {2, 2, 2}))),
      refused("D17", "head_count_kv array [0]", "head_count_kv",
              set(entry_array<std::uint32_t>("llama.attention.head_count_kv", kU32, {0}))),
      refused("D18", "attention.key_length=0", "key_length", set_u32("attention.key_length", 0)),
      refused("D19", "attention.key_length=2^31", "key_length", set_u32("attention.key_length", 1u << 31)),
      refused("D20", "rope.dimension_count=7", "dimension_count", set_u32("rope.dimension_count", 7)),
      refused("D21", "rope.dimension_count=4096", "dimension_count", set_u32("rope.dimension_count", 4096)),
      refused("D22", "rms epsilon = NaN", "epsilon", set_f32("attention.layer_norm_rms_epsilon", kNaN)),
      refused("D23", "rms epsilon = -1", "epsilon", set_f32("attention.layer_norm_rms_epsilon", -1)),
      refused("D24", "rms epsilon removed", "epsilon", remove_key("llama.attention.layer_norm_rms_epsilon")),
      refused("D25", "rope.freq_base=0", "freq_base", set_f32("rope.freq_base", 0)),
      refused("D26", "rope.freq_base=NaN", "freq_base", set_f32("rope.freq_base", kNaN)),
      refused("D27", "rope.freq_base=-1", "freq_base", set_f32("rope.freq_base", -1)),
      refused("D28", "rope.scaling.type=zzz", "rope.scaling", scaling("zzz", 2)),
      refused("D29", "rope.scaling.type=yarn, factor=NaN", "rope.scaling", scaling("yarn", kNaN)),
      refused("D30", "context_length=0 and no -c", "context_length", set_u32("context_length", 0)),
      refused("D31", "context_length=2^32-1, no -c", "memory", set_u32("context_length", kMax)),
      refused("D32", "feed_forward_length=128, tensors stay 64", "ffn_", set_u32("feed_forward_length", 128)),
      refused("D33", "expert_used_count=0", "expert_used_count", set_u32("expert_used_count", 0), tiny_moe),
      refused("D34", "expert_used_count=5 of 4", "expert_used_count", set_u32("expert_used_count", 5), tiny_moe),
      refused("D35", "expert_count=2^31", "expert_count", set_u32("expert_count", 1u << 31), tiny_moe),
      refused("D36", "expert_count=8, tensors hold 4", "ffn_gate_exps",
              both(set_u32("expert_count", 8), reshape("blk.0.ffn_gate_inp.weight", {32, 8})), tiny_moe),
      refused("D37", "router tensor removed", "ffn_gate_inp", remove_tensor("blk.0.ffn_gate_inp.weight"), tiny_moe),
      refused("D38", "output_norm.weight removed", "output_norm", remove_tensor("output_norm.weight")),
      accepted("D39", "output.weight removed: tied embeddings", remove_tensor("output.weight")),
      refused("D40", "attn_norm stored as Q4_0", "attn_norm",
              [](RawGguf& g) {
                RawTensor& t = g.tensor("blk.0.attn_norm.weight");
                t.type = kTensorQ4_0;
                t.data = random_q4_0(32, 1);
              }),
      refused("D41", "token_embd has 100 rows, 267 tokens", "token_embd", reshape("token_embd.weight", {32, 100})),
      refused("D42", "token_embd and output have 320 rows, 267 tokens", "token_embd",
              both(reshape("token_embd.weight", {32, 320}), reshape("output.weight", {32, 320}))),
      refused("D43", "attn_q ne=[16,64]", "attn_q", reshape("blk.0.attn_q.weight", {16, 64})),
      refused("D44", "attention.head_count removed", "head_count", remove_key("llama.attention.head_count")),
  };
  out[30].outcome = Outcome::Bounded;
  return out;
}

std::vector<MalformedFile> tokenizer_files() {
  const std::vector<std::uint8_t> bytes(267, 1);
  const std::string tokens = "tokenizer.ggml.tokens", scores = "tokenizer.ggml.scores",
                    types = "tokenizer.ggml.token_type";
  std::vector<MalformedFile> out{
      refused("E01", "tokens removed", "tokens", remove_key(tokens)),
      refused("E02", "tokens = []", "tokens", set(entry_strings(tokens, {}))),
      refused("E03", "tokens as u32 array", "tokens",
              set(entry_array(tokens, kU32, std::vector<std::uint32_t>(267, 1)))),
      refused("E04", "scores has 10 of 267", "scores", set(entry_array(scores, kF32, std::vector<float>(10, 0.0f)))),
      refused("E05", "scores typed UINT8 x267", "scores", set(entry_array(scores, kU8, bytes))),
      refused("E06", "token_type has 10 of 267", "token_type",
              set(entry_array(types, kI32, std::vector<std::int32_t>(10, 1)))),
      refused("E07", "token_type typed UINT8 x267", "token_type", set(entry_array(types, kU8, bytes))),
      refused("E08", "one score NaN", "scores", set_element(scores, kFirstPiece, kNaN)),
      warned("E09", "one token_type = 99", "token_type", set_element<std::int32_t>(types, kFirstPiece, 99)),
      warned("E10", "bos_token_id=2^32-1", "bos_token_id",
             set(entry_value<std::uint32_t>("tokenizer.ggml.bos_token_id", kU32, 0xFFFFFFFF))),
      warned("E11", "eos_token_id=267 (one past the end)", "eos_token_id",
             set(entry_value<std::uint32_t>("tokenizer.ggml.eos_token_id", kU32, 267))),
      warned("E12", "3 duplicate token strings", "duplicate",
             edit_tokens([](std::vector<std::string>& t) { t[264] = t[265] = t[266] = "a"; })),
      warned("E13", "one empty token string", "token", set_token(kFirstPiece + 6, "")),
      accepted("E14", "one 1 MiB token string", set_token(kFirstPiece + 6, std::string(1 << 20, 'x'))),
      warned("E15", "one token of bytes FF FE", "token", set_token(kFirstPiece + 6, "\xff\xfe")),
      refused("E16", "BYTE token text <0x-1>", "<0x-1>", set_token(kByteA, "<0x-1>")),
      refused("E17", "BYTE token text <0xZZ>", "<0xZZ>", set_token(kByteA, "<0xZZ>")),
      refused("E18", "256 BYTE-typed tokens with texts q0..q255", "q0", no_byte_texts(std::nullopt)),
      refused("E19", "BPE without merges", "merges", remove_key("tokenizer.ggml.merges"), tiny_bpe),
      warned("E20", "merges element ab (no space)", "merges", merges({"a b", "ab c", "ab"}), tiny_bpe),
      warned("E21", "merges element empty", "merges", merges({"a b", "ab c", ""}), tiny_bpe),
      refused("E22", "merges as u32 array", "merges",
              set(entry_array<std::uint32_t>("tokenizer.ggml.merges", kU32, {1, 2})), tiny_bpe),
      warned("E23", "merge whose result is not in the vocabulary: z q", "merge", merges({"a b", "ab c", "z q"}),
             tiny_bpe),
      warned("E24", "10,000 copies of a b", "merge", merges(std::vector<std::string>(10'000, "a b")), tiny_bpe),
      refused("E25", "tokenizer.ggml.model=zzz", "model", set(entry_string("tokenizer.ggml.model", "zzz"))),
      refused("E26", "tokenizer.ggml.model typed U32", "model",
              set(entry_value<std::uint32_t>("tokenizer.ggml.model", kU32, 1))),
      refused("E27", "tokenizer.ggml.pre=zzz", "pre", set(entry_string("tokenizer.ggml.pre", "zzz")), tiny_bpe),
      refused("E28", "add_bos_token=true, bos id removed, vocabulary without <s>", "bos",
              both(both(set(entry_value<std::uint8_t>("tokenizer.ggml.add_bos_token", kBool, 1)),
                        remove_key("tokenizer.ggml.bos_token_id")),
                   set_token(1, "<other>"))),
      refused("E29", "chat_template typed U32", "chat_template",
              set(entry_value<std::uint32_t>("tokenizer.chat_template", kU32, 1))),
      refused("E30", "scores typed as scalar F32", "tokens", set(entry_value(scores, kF32, 0.0f))),
      accepted("E31", "SPM vocabulary with no byte tokens at all", no_byte_texts(1)),
  };
  return out;
}

std::vector<MalformedFile> weight_files() {
  const auto run = [](std::string id, std::string construction, Outcome outcome, std::string word, RawGguf (*base)(),
                      Change change) {
    return file(std::move(id), std::move(construction), Layer::Run, outcome, std::move(word), base, std::move(change));
  };
  return {
      refused("F01", "output_norm[0]=NaN", "output_norm",
              [](RawGguf& g) { std::memcpy(g.tensor("output_norm.weight").data.data(), &kNaN, 4); }),
      run("F02", "Q4_0 token_embd block 0: scale = +Inf; BOS is token 0, so that the block is read", Outcome::Numeric,
          "token_embd", tiny_llama_q4_0,
          [](RawGguf& g) {
            const std::uint16_t infinity = 0x7c00;
            std::memcpy(g.tensor("token_embd.weight").data.data(), &infinity, 2);
            g.put(entry_value<std::uint32_t>("tokenizer.ggml.bos_token_id", kU32, 0));
          }),
      refused(
          "F03", "MoE router row = NaN", "ffn_gate_inp",
          [](RawGguf& g) {
            const Bytes row = constant_f32(32, kNaN);
            std::memcpy(g.tensor("blk.0.ffn_gate_inp.weight").data.data(), row.data(), row.size());
          },
          tiny_moe),
      run("F04", "output.weight all 3e38: logits overflow", Outcome::Numeric, "logits", tiny_llama,
          fill("output.weight", 3e38f)),
      run("F05", "output.weight all zero: uniform logits", Outcome::Accepted, "", tiny_llama,
          fill("output.weight", 0.0f)),
  };
}

std::vector<MalformedFile> template_files() {
  return {
      chat_template("G01", "a macro that calls itself", "{% macro x() %}{{ x() }}{% endmacro %}{{ x() }}"),
      chat_template("G02", "range(1000000000)", "{% for i in range(1000000000) %}a{% endfor %}"),
      chat_template("G03", "100,000 opening parentheses", "{{ " + std::string(100'000, '(')),
      chat_template("G04", "100,000 nested ifs", repeated("{% if true %}", 100'000)),
      chat_template("G05", "a string doubled 64 times",
                    "{% set ns = namespace(s='a') %}" + repeated("{% set ns.s = ns.s ~ ns.s %}", 64) + "{{ ns.s }}"),
      chat_template("G06", "unclosed if", "{% if"),
      chat_template("G07", "Python attributes", "{{ ''.__class__.__mro__ }}"),
      chat_template("G08", "include of a file", "{% include \"/etc/passwd\" %}"),
      chat_template("G09", "unknown filter", "{{ messages|nosuchfilter }}"),
      chat_template("G10", "division by zero", "{{ 1 // 0 }}{{ 1 % 0 }}"),
  };
}

}  // namespace llm::test
