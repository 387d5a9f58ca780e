// qwen4exp: Qwen3.8-Flash-Next, the text part. Layers are those of qwen35moe, with four differences. What runs through
// them is several streams of a token, which each part reads as a mean gated by a narrow product of all of them and adds
// its result to in shares that it chooses (hyper-connections, arXiv:2409.19606, of low rank), so that there are no
// norms but those of streams. Results of the delta rule are gated by a sigmoid. Layers that attend do so to blocks of
// neighbouring keys alone, which an index of their means selects. In front of one layer, rows of a large table that
// hashes of the last tokens name are added to the streams (Engram, arXiv:2601.07372).
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/delta_net.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr std::string_view kTopK = "attention.indexer.top_k", kRatios = "attention.compress_ratios",
                           kRow = "embedding_length_per_layer_input", kHashed = "ple.layers",
                           kMultipliers = "ple.layer_multipliers", kSizes = "ple.head_vocab_sizes",
                           kOffsets = "ple.head_offsets";

/// Embeddings of several tokens, in front of one layer.
struct HashedEmbedding {
  int layer = 0;
  HashIds ids;
  std::int64_t row = 0;  ///< of the table, one for each of ids' heads
  int conv_width = 0;
};

struct Config : DeltaConfig {
  int streams = 0;
  std::int64_t rank = 0;  ///< of the product that gates them
  int index_heads = 0, index_dim = 0, top_k = 0;
  std::vector<std::int64_t> ratios = {};  ///< of a layer, keys that are selected together; 0: it attends to all
  std::optional<HashedEmbedding> hashed = {};

  int ratio(int layer) const { return static_cast<int>(ratios[static_cast<std::size_t>(layer)]); }
};

void read_streams(const HyperParameters& hp, Config& c) {
  c.streams = static_cast<int>(hp.integer({"hyper_connection.count", 2, 256}));
  c.rank = hp.integer({"hyper_connection.low_rank", 1, 1 << 20});
}

void read_index(const HyperParameters& hp, Config& c) {
  const auto of_file = static_cast<int>(hp.integer({"block_count", c.n_layers, 1 << 20}));
  c.index_heads = static_cast<int>(hp.integer({"attention.indexer.head_count", 1, 4096}));
  c.index_dim = static_cast<int>(hp.integer({"attention.indexer.key_length", c.rope.n_rot, 1 << 16}));
  c.top_k = static_cast<int>(hp.integer({kTopK, 1, 1 << 20}));
  c.ratios.assign(static_cast<std::size_t>(of_file), 0);
  if (hp.has(kRatios)) c.ratios = hp.in_each({kRatios, 0, kBlockPositions}, of_file);
  for (int i = 0; i < c.n_layers; ++i) {
    const std::int64_t ratio = c.ratios[static_cast<std::size_t>(i)];
    if (ratio == 0 || c.recurrent[static_cast<std::size_t>(i)]) continue;
    if (kBlockPositions % ratio != 0)
      hp.fail(kRatios, "value " + std::to_string(ratio) + " does not divide " + std::to_string(kBlockPositions) +
                           ", the positions of a block of the cache");
    if (c.top_k % ratio != 0)
      hp.fail(kTopK, "value " + std::to_string(c.top_k) + " is no multiple of " + std::string(kRatios) + " " +
                         std::to_string(ratio));
  }
}

/// As many integers as are needed, of any type; files may have more.
template <class T>
std::vector<T> read_list(const HyperParameters& hp, std::string_view key, std::size_t n) {
  const Metadata::Entry* const entry = hp.metadata().find(hp.key(key));
  const std::uint64_t all = entry != nullptr ? entry->count : n;
  std::vector<T> list = hp.metadata().one_or_each<T>(hp.key(key), static_cast<std::size_t>(all));
  if (list.size() < n)
    hp.fail(key, "has " + std::to_string(list.size()) + " elements, at least " + std::to_string(n) + " are needed");
  list.resize(n);
  return list;
}

HashIds read_hash(const HyperParameters& hp, const Config& c) {
  if (c.vocab > kMostHashedTokens)
    hp.fail(kHashed, "hashes tokens of a vocabulary of more than " + std::to_string(kMostHashedTokens));
  HashIds ids;
  const auto tokens = static_cast<std::size_t>(hp.integer({"ple.ngram_size", 2, kMostMultipliers}));
  const auto heads = (tokens - 1) * static_cast<std::size_t>(hp.integer({"ple.heads_per_ngram", 1, 256}));
  ids.multipliers = read_list<std::uint64_t>(hp, kMultipliers, tokens);
  ids.sizes = read_list<std::int32_t>(hp, kSizes, heads);
  ids.offsets = read_list<std::int32_t>(hp, kOffsets, heads);
  ids.stop = static_cast<std::int32_t>(hp.integer({"ple.eos_token_id", 0, c.vocab - 1}));
  for (std::size_t h = 0; h < heads; ++h) {
    if (ids.sizes[h] < 1) hp.fail(kSizes, "value " + std::to_string(ids.sizes[h]) + " is below 1");
    if (ids.offsets[h] < 0 || std::int64_t{ids.offsets[h]} + ids.sizes[h] > std::int64_t{1} << 31)
      hp.fail(kOffsets, "value " + std::to_string(ids.offsets[h]) + " is no row of a table");
  }
  return ids;
}

void read_hashed_embedding(const HyperParameters& hp, Config& c) {
  if (!hp.has(kHashed)) return;
  const std::uint64_t count = hp.metadata().find(hp.key(kHashed))->count;
  if (count == 0) return;
  const auto layer = read_list<std::int64_t>(hp, kHashed, 1)[0];
  if (count > 1 || layer < 0 || layer >= c.n_layers)
    hp.fail(kHashed, "needs one of " + std::to_string(c.n_layers) + " layers");
  c.hashed = {.layer = static_cast<int>(layer),
              .ids = read_hash(hp, c),
              .row = hp.integer({kRow, 1, c.n_embd}),
              .conv_width = static_cast<int>(hp.integer({"ple.conv_kernel", 2, 1024}))};
  const std::int64_t length = c.hashed->row * std::ssize(c.hashed->ids.sizes);
  if (length != c.n_embd)
    hp.fail(kRow, "value " + std::to_string(c.hashed->row) + " makes embeddings of " + std::to_string(length) +
                      " elements, not of embedding_length " + std::to_string(c.n_embd));
}

Config configure(const Metadata& md) {
  constexpr std::string_view kArch = "qwen4exp";
  Config c{{read_delta_config(md, kArch, {"nextn_predict_layers", "expert_shared_feed_forward_length", kTopK, kRow})}};
  const HyperParameters hp(md, kArch);
  c.gate = Activation::Sigmoid;
  read_delta_experts(md, c);
  require_text_sections(md, c);
  read_streams(hp, c);
  read_index(hp, c);
  read_hashed_embedding(hp, c);
  return c;
}

/// What a part of a layer works with: of the streams [n_embd, streams, tokens] their gated mean, and how much of its
/// result it adds to each of them, but for 1.
struct Reading {
  Act x, shares;
};

Act gated_mean(Scope s, const Config& c, const std::string& name, Act normal, Act flat) {
  const Act low = s.linear(name + "_down", flat, c.rank);
  const Act scaled = s.scale(name + "_low", low, 1 / static_cast<float>(c.streams));
  const Act gate =
      s.linear(name + "_up", s.glu(Activation::Sigmoid, scaled, scaled, name + "_silu"), c.streams * c.n_embd);
  return s.stream_mean(name + "_mean", normal, s.split_heads(name + "_gate", gate, c.streams));
}

/// The shares are 2 sigmoid(injection / streams): 1 and a tanh of half of that.
Reading reading(Scope s, const Config& c, const std::string& name, Act streams) {
  const Act normal = s.head_rms_norm(name + "_norm", streams, c.norm_eps);
  const Act flat = s.flatten_heads(name + "_flat", normal);
  const Act x = gated_mean(s, c, name, normal, flat);
  const Act injection = s.linear(name + "_inject", flat, c.streams);
  const Act half = s.scale(name + "_half", injection, 0.5f / static_cast<float>(c.streams));
  return {x, s.soft_cap(name + "_shares", half, 1)};
}

/// Tables of angles: of tokens, and of blocks of so many tokens, of which they are the last ones.
struct Angles {
  Rotary tokens;
  std::map<int, Rotary> blocks;
};
Angles tables(Net& net, const Config& c) {
  Angles angles{net.rotary(c.rope, RopePairing::Halves), {}};
  for (int i = 0; i < c.n_layers; ++i) {
    const int ratio = c.ratio(i);
    if (ratio < 2 || c.recurrent[static_cast<std::size_t>(i)] || angles.blocks.contains(ratio)) continue;
    RopeTable table = c.rope;
    table.offset = 1 - ratio;
    angles.blocks.emplace(ratio,
                          net.rotary(table, RopePairing::Halves, {}, "rope_table_blocks_" + std::to_string(ratio)));
  }
  return angles;
}

/// The index has a key for each block: of the mean of what its tokens have, at the position of the first of them.
Index select_blocks(Scope s, const Config& c, const Angles& angles, int ratio, Act x) {
  Act k = s.linear("indexer.k_proj", x, c.index_dim);
  if (ratio > 1) k = s.window_mean("indexer.k_mean", k, ratio);
  k = s.split_heads("indexer.k_head", s.rms_norm("indexer.k_norm", k, c.norm_eps), 1);
  k = s.rope("indexer.k_rope", k, ratio > 1 ? angles.blocks.at(ratio) : angles.tokens);
  const Cache index = s.index_append(k, ratio);
  const Act all = s.linear("indexer.q_proj", x, std::int64_t{c.index_heads} * c.index_dim);
  const Act q = s.rms_norm("indexer.q_norm", s.split_heads("indexer.q_heads", all, c.index_heads), c.norm_eps);
  return s.select_keys(s.rope("indexer.q_rope", q, angles.tokens), index, c.top_k + ratio - 1);
}

Act attention(Scope s, const Config& c, const Angles& angles, Act x) {
  const int ratio = c.ratio(s.layer());
  if (ratio == 0) return gated_attention(s, c, angles.tokens, x);
  const Index selected = select_blocks(s, c, angles, ratio, x);
  const auto [heads, gate] = gated_heads(s, c, angles.tokens, x);
  const Cache cache = s.selected_kv_append(heads.k, heads.v);
  return gated_output(s, c, s.selected_attention(heads.q, cache, selected, {.scale = c.attention_scale}), gate);
}

Act mixer(Scope s, const Config& c, const Angles& angles, Act x) {
  if (!c.recurrent[static_cast<std::size_t>(s.layer())]) return attention(s, c, angles, x);
  return delta_layer(s, c, x, delta_gates(s, c, x), HeadSharing::Tiled);
}

/// To each stream, the value of the last tokens' embedding as far as its key goes with the stream, and what a
/// convolution makes of that and of the values before it.
Act add_hashed(Scope s, const Config& c, Index tokens, Act streams) {
  const HashedEmbedding& h = *c.hashed;
  const Act embedding = s.flatten_heads("ple_embd", s.embed_hashed("per_layer_token_embd", h.row, tokens, h.ids));
  const Act key = s.split_heads("ple_keys", s.linear("ple_key", embedding, c.streams * c.n_embd), c.streams);
  const Act normal_key = s.head_rms_norm("ple_norm_key", key, c.norm_eps);
  const Act query = s.head_rms_norm("ple_norm_query", streams, c.norm_eps);
  const Act gates = s.split_heads("ple_gates", s.match_gate("ple_gate", normal_key, query), c.streams);
  const Act value = s.split_heads("ple_one_value", s.linear("ple_value", embedding, c.n_embd), 1);
  const Act values = s.stream_mix("ple_values", value, gates);
  const Act flat = s.flatten_heads("ple_conv_input", s.head_rms_norm("ple_norm_conv", values, c.norm_eps));
  const Act conv =
      s.short_conv("ple_conv1d", flat, h.conv_width, {.dilation = static_cast<int>(h.ids.multipliers.size())},
                   RecurrentType::Part::ConvHash);
  const Act added = s.add("ple_added", values, s.split_heads("ple_conv", conv, c.streams));
  return s.add("ple_residual", streams, added);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Angles angles = tables(net, c);
  const Act embedding = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  Act streams = several_streams(net.top(Role::Embed), embedding, c.streams);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    if (c.hashed && c.hashed->layer == i) streams = add_hashed(a, c, step.tokens, streams);
    const Reading in = reading(a, c, "hc_attn", streams);
    streams = a.stream_add("attn_residual", streams, mixer(a, c, angles, in.x), in.shares, {.first = 0});
    Scope f = net.layer(i, Role::Ffn);
    const Reading between = reading(f, c, "hc_ffn", streams);
    const Act y = gated_shared_moe_ffn(f, *c.moe, between.x, c.n_embd);
    streams = f.stream_add("ffn_residual", streams, y, between.shares, {.first = 0});
  }
  Scope h = net.top(Role::Head);
  const Act normal = h.head_rms_norm("output_hc_norm", net.rows(streams, step.out_rows), c.norm_eps);
  const Act x = gated_mean(h, c, "output_hc", normal, h.flatten_heads("output_hc_flat", normal));
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_qwen4exp(const Metadata& md) {
  Config c = configure(md);
  for (int i = 0; i < c.n_layers; ++i)
    if (c.ratio(i) == 0) c.unread.push_back("blk." + std::to_string(i) + ".indexer.*");
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
