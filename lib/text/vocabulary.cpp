#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>

#include "base/utf8.h"
#include "text/token_sink.h"
#include "text/token_table.h"

namespace llm {
namespace {

// Texts by which vocabularies name the end of a turn, in the order of preference where a file has several and no
// tokenizer.ggml.eot_token_id.
constexpr std::string_view kEndOfTurn[] = {
    "<|eot_id|>",
    "<|eot|>",  // Llama 4
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",  // DeepSeek: full-width bars, U+2581
};
// Texts by which vocabularies name the beginning of a turn: markup like those, even where a file types them otherwise.
constexpr std::string_view kStartOfTurn[] = {"<start_of_turn>", "<|turn>", "<|im_start|>", "<|start_header_id|>"};
// Other texts at which generation ends.
constexpr std::string_view kEndOfMessage[] = {
    "<|eom_id|>", "<|eom|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<|tool_response>", "[EOS]", "[e~[",
};
// The same, if the file types them as special: some vocabularies have them as plain text. Those after "<eos>" end a
// fill-in-the-middle answer.
constexpr std::string_view kEndIfSpecial[] = {
    "</s>",         "<eos>",         "<|fim_pad|>", "<fim-pad>", "<fim_pad>",  "<PAD>",        "[PAD]",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",  "<REPO>",    "<reponame>", "<|file_sep|>",
};

// Elements of HTML, which some vocabularies have as user-defined tokens since texts are made of them. Not <s>: where it
// is one of these it begins a text elsewhere.
constexpr std::string_view kHtml[] = {
    "a",   "b",   "blockquote", "br",    "caption", "code",  "div", "em",    "h1",  "h2",   "h3",
    "h4",  "h5",  "h6",         "hr",    "i",       "li",    "ol",  "p",     "pre", "span", "strong",
    "sub", "sup", "table",      "tbody", "td",      "tfoot", "th",  "thead", "tr",  "u",    "ul",
};

constexpr std::string_view kEndIdKeys[] = {
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
};

template <std::size_t N>
std::optional<std::size_t> index_in(const std::string_view (&list)[N], std::string_view text) {
  const auto* found = std::find(std::begin(list), std::end(list), text);
  if (found == std::end(list)) return std::nullopt;
  return static_cast<std::size_t>(found - std::begin(list));
}

bool is_byte_text(std::string_view text) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && hex(text[3]) && hex(text[4]) && text[5] == '>';
}

/// An array beside the tokens: one of these element types, one element per token.
void check_parallel(const Metadata& metadata, std::string_view key, std::initializer_list<GgufType> elements,
                    std::size_t n_tokens) {
  const Metadata::Entry& entry = *metadata.find(key);
  const bool type_fits =
      entry.type == GgufType::Array && std::find(elements.begin(), elements.end(), entry.element) != elements.end();
  if (type_fits && entry.count == n_tokens) return;
  std::string found = entry.type == GgufType::Array
                          ? "an array of " + std::to_string(entry.count) + " " + std::string(name(entry.element))
                          : "a single " + std::string(name(entry.type));
  metadata.fail(key, found + "; must be an array of " + std::string(name(*elements.begin())) +
                         " with one value for each of the " + std::to_string(n_tokens) + " entries of " +
                         std::string(kTokensKey));
}

void read_texts(const Metadata& metadata, Vocabulary& v, Warnings& warnings) {
  v.texts = metadata.array<std::string_view>(kTokensKey);
  if (v.texts.empty()) metadata.fail(kTokensKey, "holds no tokens");
  std::size_t empty = 0, not_utf8 = 0, last_empty = 0, last_not_utf8 = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (v.texts[i].empty()) ++empty, last_empty = i;
    if (!utf8::valid(v.texts[i])) ++not_utf8, last_not_utf8 = i;
  }
  if (empty > 0) {
    warnings.push_back({"empty-tokens", std::string(kTokensKey) + ": " + counted(empty, "empty string") + " (id " +
                                            std::to_string(last_empty) + "), never produced by encoding"});
  }
  if (not_utf8 > 0) {
    warnings.push_back({"token-not-utf8", std::string(kTokensKey) + ": " + counted(not_utf8, "string") +
                                              " not valid UTF-8 (id " + std::to_string(last_not_utf8) +
                                              "), kept as raw bytes"});
  }
}

void read_scores(const Metadata& metadata, Vocabulary& v) {
  if (!metadata.has(kScoresKey)) return;
  check_parallel(metadata, kScoresKey, {GgufType::F32}, v.size());
  v.scores = metadata.array<float>(kScoresKey);
  const auto nan = std::find_if(v.scores.begin(), v.scores.end(), [](float s) { return std::isnan(s); });
  if (nan == v.scores.end()) return;
  metadata.fail(kScoresKey, "the score of token " + std::to_string(nan - v.scores.begin()) + " is NaN");
}

/// Without types, byte tokens are known by their text; other special ones are found by their ids and texts later.
void infer_kinds(Vocabulary& v) {
  v.kinds.assign(v.size(), TokenKind::Normal);
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (is_byte_text(v.texts[i])) v.kinds[i] = TokenKind::Byte;
  }
}

void read_kinds(const Metadata& metadata, Vocabulary& v, Warnings& warnings) {
  if (!metadata.has(kTokenTypeKey)) return infer_kinds(v);
  check_parallel(metadata, kTokenTypeKey, {GgufType::I32, GgufType::U32}, v.size());
  const auto types = metadata.array<std::int64_t>(kTokenTypeKey);
  v.kinds.resize(v.size());
  std::size_t unknown = 0, last_unknown = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const bool known = types[i] >= 0 && types[i] <= static_cast<std::int64_t>(TokenKind::Byte);
    v.kinds[i] = known ? static_cast<TokenKind>(types[i]) : TokenKind::Undefined;
    if (!known) ++unknown, last_unknown = i;
    if (v.kinds[i] == TokenKind::Byte && !is_byte_text(v.texts[i])) {
      metadata.fail(kTokensKey, "token " + std::to_string(i) + " is of type byte, but its text is \"" +
                                    escaped(v.texts[i]) + "\" and not of the form <0x00> to <0xFF>");
    }
  }
  if (unknown > 0) {
    warnings.push_back({"unknown-token-type", std::string(kTokenTypeKey) + ": " + counted(unknown, "unknown value") +
                                                  " (" + std::to_string(types[last_unknown]) + " for token " +
                                                  std::to_string(last_unknown) + "), taken for normal tokens"});
  }
}

/// The id that a key gives; kNoToken with a warning if it is not one of the vocabulary's.
Token read_id(const Metadata& metadata, std::string_view key, const Vocabulary& v, Warnings& warnings) {
  if (!metadata.has(key)) return kNoToken;
  const auto id = metadata.get<std::int64_t>(key);
  if (id >= 0 && static_cast<std::uint64_t>(id) < v.size()) return static_cast<Token>(id);
  warnings.push_back({"token-id-out-of-range", std::string(key) + ": " + std::to_string(id) + " is not one of the " +
                                                   counted(v.size(), "token") + "; ignored"});
  return kNoToken;
}

Token find_special(const Vocabulary& v, std::string_view text) {
  if (text.empty()) return kNoToken;
  const auto found = std::find(v.texts.begin(), v.texts.end(), text);
  return found == v.texts.end() ? kNoToken : static_cast<Token>(found - v.texts.begin());
}

void read_special_ids(const Metadata& metadata, const VocabularyDefaults& defaults, Vocabulary& v, Warnings& warnings) {
  SpecialTokens& s = v.special;
  s.bos = read_id(metadata, "tokenizer.ggml.bos_token_id", v, warnings);
  s.eos = read_id(metadata, "tokenizer.ggml.eos_token_id", v, warnings);
  s.eot = read_id(metadata, "tokenizer.ggml.eot_token_id", v, warnings);
  s.unk = read_id(metadata, "tokenizer.ggml.unknown_token_id", v, warnings);
  s.sep = read_id(metadata, "tokenizer.ggml.seperator_token_id", v, warnings);  // spelled so in the format
  s.pad = read_id(metadata, "tokenizer.ggml.padding_token_id", v, warnings);
  if (s.bos == kNoToken) s.bos = find_special(v, defaults.bos_text);
  if (s.eos == kNoToken) s.eos = find_special(v, defaults.eos_text);
  if (s.sep == kNoToken) s.sep = find_special(v, defaults.sep_text);
  if (s.unk == kNoToken) {
    const auto unk = std::find(v.kinds.begin(), v.kinds.end(), TokenKind::Unknown);
    s.unk = unk != v.kinds.end() ? static_cast<Token>(unk - v.kinds.begin()) : find_special(v, defaults.unk_text);
  }
  if (metadata.has(kTokenTypeKey)) return;
  for (const Token id : {s.bos, s.eos, s.eot}) {
    if (id != kNoToken) v.kinds[static_cast<std::size_t>(id)] = TokenKind::Control;
  }
  if (s.unk != kNoToken) v.kinds[static_cast<std::size_t>(s.unk)] = TokenKind::Unknown;
}

/// A flag that asks for a token: an explicit true needs that token, a default gives way.
bool read_add_flag(const Metadata& metadata, std::string_view key, std::string_view token_name, Token token,
                   bool fallback) {
  const bool add = metadata.get_or<bool>(key, fallback);
  if (add && token == kNoToken && metadata.has(key)) {
    metadata.fail(key, "is true, but the file names no " + std::string(token_name) + " token");
  }
  return add && token != kNoToken;
}

/// Texts that end a generation in any vocabulary, found among its tokens.
struct EndTexts {
  std::vector<Token> ends;
  Token eot = kNoToken;  ///< the best of kEndOfTurn
  Token end = kNoToken;  ///< "<|end|>"
  bool has_return = false, has_call = false, has_flush = false;
  std::vector<Token> retyped;  ///< were text, and are of type control now
};

EndTexts find_end_texts(Vocabulary& v) {
  EndTexts found;
  std::size_t best = std::size(kEndOfTurn);
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    const std::string_view text = v.text(id);
    if (text.empty() || (text[0] != '<' && text[0] != '[' && text[0] != '_')) continue;
    TokenKind& kind = v.kinds[static_cast<std::size_t>(id)];
    const auto turn = index_in(kEndOfTurn, text);
    if (turn || index_in(kEndOfMessage, text)) {
      found.ends.push_back(id);
      if (kind != TokenKind::Control && kind != TokenKind::UserDefined) found.retyped.push_back(id);
      kind = TokenKind::Control;
    } else if (index_in(kStartOfTurn, text)) {
      kind = kind == TokenKind::UserDefined ? TokenKind::Control : kind;
    } else if (index_in(kEndIfSpecial, text)) {
      if (kind == TokenKind::Control || kind == TokenKind::UserDefined) found.ends.push_back(id);
    }
    if (turn && *turn < best) {
      best = *turn;
      found.eot = id;
    }
    if (text == "<|end|>") found.end = id;
    found.has_return |= text == "<|return|>";
    found.has_call |= text == "<|call|>" || text == "<|calls|>";
    found.has_flush |= text == "<|flush|>";
  }
  return found;
}

void find_end_tokens(const Metadata& metadata, Vocabulary& v, Warnings& warnings) {
  EndTexts found = find_end_texts(v);
  if (v.special.eot == kNoToken) v.special.eot = found.eot;
  std::vector<Token>& ends = v.end_tokens;
  ends = found.ends;
  for (const std::string_view key : kEndIdKeys) ends.push_back(read_id(metadata, key, v, warnings));
  ends.push_back(v.special.eos);
  ends.push_back(v.special.eot);
  // Where a message has parts (thinking, tool calls), "<|end|>" ends a part; the answer ends with one of the others.
  const bool end_of_part = found.has_call && (found.has_return || found.has_flush);
  const Token drop = end_of_part ? found.end : kNoToken;
  std::erase_if(ends, [drop](Token id) { return id == kNoToken || id == drop; });
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());

  if (found.retyped.empty() || !metadata.has(kTokenTypeKey)) return;
  warnings.push_back({"control-token-type", std::string(kTokenTypeKey) + ": " + counted(found.retyped.size(), "token") +
                                                " that end a generation (\"" + escaped(v.text(found.retyped.front())) +
                                                "\") not typed as control, taken for control tokens"});
}

/// What stands between brackets; nothing if there are none.
std::string_view in_brackets(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kBrackets[] = {
      {"<", ">"}, {"[", "]"}, {"\u25c1", "\u25b7"}};  // the last ones: Kimi-VL
  for (const auto& [open, close] : kBrackets) {
    if (text.size() <= open.size() + close.size() || !text.starts_with(open) || !text.ends_with(close)) continue;
    return text.substr(open.size(), text.size() - open.size() - close.size());
  }
  return {};
}

/// Of a user-defined token. Files call so what a person may see in an answer ("<tool_call>", "<think>"), some also
/// marks of turns ("<|USER_TOKEN|>"); and on the other hand what texts are made of: runs of spaces, letters, HTML.
bool is_part_of_formats(std::string_view text) {
  constexpr std::string_view kBars[] = {"|", "\uff5c"};
  const std::string_view inside = in_brackets(text);
  if (inside.empty()) return false;
  for (const std::string_view bar : kBars) {
    if (inside.starts_with(bar) || inside.ends_with(bar)) return true;
  }
  const auto is_word = [](char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); };
  const std::string_view element = inside.substr(inside.starts_with('/') ? 1 : 0);
  return std::any_of(inside.begin(), inside.end(), is_word) && !(text.starts_with('<') && index_in(kHtml, element));
}

void find_markup(Vocabulary& v) {
  v.markup.resize(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) {
    const TokenKind kind = v.kinds[i];
    v.markup[i] = kind == TokenKind::Control || kind == TokenKind::Unknown ||
                  (kind == TokenKind::UserDefined && is_part_of_formats(v.texts[i]));
  }
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

/// Which special tokens swallow the white space after or before them, as their tokenizers' rstrip and lstrip flags say.
/// GGUF has no key for that: it goes by the model's name, as it does everywhere.
void read_trimming(const Metadata& metadata, Vocabulary& v) {
  std::string model(metadata.get_or<std::string_view>("general.name", {}));
  for (char& c : model) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const auto architecture = metadata.get_or<std::string_view>("general.architecture", {});
  const auto pre = metadata.get_or<std::string_view>(kPreKey, {});
  if (contains_any(pre, {"jina-v2-de", "jina-v2-es", "jina-v2-code", "roberta-bpe"}) ||
      contains_any(architecture, {"nomic-bert-moe", "jina-bert-v3"})) {
    v.trims_before = find_special(v, "<mask>");
  } else if (contains_any(model, {"phi-3", "phi3"})) {
    v.trims_after.resize(v.size());
    for (std::size_t i = 0; i < v.size(); ++i) {
      const bool trims = v.texts[i] != "<unk>" && v.texts[i] != "<s>" && v.texts[i] != "<|endoftext|>";
      v.trims_after[i] = trims && v.kinds[i] != TokenKind::Normal && v.kinds[i] != TokenKind::Byte;
    }
  } else if (contains_any(model, {"modern-bert", "modernbert"})) {
    v.trims_before = find_special(v, "[MASK]");
  }
}

}  // namespace

std::uint8_t byte_value(std::string_view text) {
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'A' + 10); };
  return static_cast<std::uint8_t>(digit(text[3]) << 4 | digit(text[4]));
}

std::array<Token, 256> byte_tokens(const Vocabulary& v) {
  std::array<Token, 256> tokens;
  tokens.fill(kNoToken);
  for (Token id = static_cast<Token>(v.size()) - 1; id >= 0; --id) {
    if (v.kind(id) == TokenKind::Byte) tokens[byte_value(v.text(id))] = id;
  }
  return tokens;
}

void append_bytes(std::string_view bytes, std::size_t begin, const std::array<Token, 256>& byte_tokens, Token unknown,
                  TokenSink& out) {
  const auto token = [&](char c) { return byte_tokens[static_cast<std::uint8_t>(c)]; };
  if (std::all_of(bytes.begin(), bytes.end(), [&](char c) { return token(c) != kNoToken; })) {
    for (const char c : bytes) out.push(token(c), ++begin);
  } else if (unknown != kNoToken) {
    out.push(unknown, begin + bytes.size());
  }
}

void append_unescaped(std::string_view text, std::string& out) {
  std::size_t begin = 0;
  for (std::size_t at = text.find(kEscapedSpace); at != std::string_view::npos; at = text.find(kEscapedSpace, begin)) {
    out.append(text, begin, at - begin).push_back(' ');
    begin = at + kEscapedSpace.size();
  }
  out.append(text, begin);
}

void fail_length(std::size_t bytes) {
  throw Error(ErrorKind::Context, "text of " + std::to_string(bytes) + " bytes is too long to be encoded at once");
}

std::string counted(std::size_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

void warn_duplicates(std::size_t count, std::string_view example, Warnings& warnings) {
  if (count == 0) return;
  warnings.push_back({"duplicate-tokens", std::string(kTokensKey) + ": " + counted(count, "duplicate token string") +
                                              " (\"" + escaped(example) + "\"); the first id is used for encoding"});
}

void warn_duplicates(const Vocabulary& v, Warnings& warnings) {
  TokenTable table(v.size());
  std::size_t duplicates = 0;
  std::string_view example;
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    if (v.text(id).empty() || table.insert(id, v.texts)) continue;
    ++duplicates;
    example = v.text(id);
  }
  warn_duplicates(duplicates, example, warnings);
}

Vocabulary read_vocabulary(const Metadata& metadata, const VocabularyDefaults& defaults, Warnings& warnings) {
  Vocabulary v;
  v.model = metadata.get<std::string_view>(kModelKey);
  read_texts(metadata, v, warnings);
  read_scores(metadata, v);
  read_kinds(metadata, v, warnings);
  read_special_ids(metadata, defaults, v, warnings);
  find_end_tokens(metadata, v, warnings);
  find_markup(v);
  read_trimming(metadata, v);
  v.special.add_bos = read_add_flag(metadata, "tokenizer.ggml.add_bos_token", "BOS", v.special.bos, defaults.add_bos);
  v.special.add_eos = read_add_flag(metadata, "tokenizer.ggml.add_eos_token", "EOS", v.special.eos, defaults.add_eos);
  v.add_space_prefix = metadata.get_or<bool>("tokenizer.ggml.add_space_prefix", defaults.add_space_prefix);
  v.remove_extra_whitespaces = metadata.get_or<bool>("tokenizer.ggml.remove_extra_whitespaces", false);
  return v;
}

}  // namespace llm
