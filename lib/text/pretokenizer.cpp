#include "text/pretokenizer.h"

#include <algorithm>

#include "base/nearest.h"

namespace llm {
namespace {

// The expressions are those published with each family's tokenizer (tokenizer.json or the tokenizer's program). Written
// otherwise, with the same matches: intersections of classes, which PCRE2 lacks; word boundaries, where engines
// disagree about words; and what would search a long run of characters over and over (see each).
#define LLM_GPT2 R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
#define LLM_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LLM_LETTERS R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define LLM_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LLM_REST R"( ?[^\s\p{L}\p{N}]+[\r\n]*|)" LLM_SPACES
#define LLM_CL100K LLM_CONTRACTIONS "|" LLM_LETTERS R"(|\p{N}{1,3}|)" LLM_REST
#define LLM_QWEN2 LLM_CONTRACTIONS "|" LLM_LETTERS R"(|\p{N}|)" LLM_REST
// Words by case: capitals, then small letters; `suffix` follows either kind.
#define LLM_CASED(suffix)                                                                  \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" suffix \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" suffix
#define LLM_CASED_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" LLM_SPACES
#define LLM_O200K LLM_CASED(LLM_CONTRACTIONS "?") R"(|\p{N}{1,3})" LLM_CASED_REST
#define LLM_KANA_AND_HAN R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"
#define LLM_DEEPSEEK_WORDS \
  R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)"
#define LLM_DEEPSEEK_EAST R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)"
#define LLM_BLOOM R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)"

// Groups of three counted from the right: the first group looks at the whole run of digits, the others follow where it
// ended (\G) without looking again. `digit` is the class, `end` what must follow the run.
#define LLM_THREES(digit, end) \
  "(?<!" digit ")" digit "{1,3}(?=(?:" digit "{3})*+" end R"()|\G(?<=)" digit ")" digit "{3}"

// Cased letters as Unicode had them in 2023 (published as a list).
#define LLM_DEEPSEEK_CASED                                                                                          \
  R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"        \
  R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"              \
  R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"               \
  R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"       \
  R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"        \
  R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"        \
  R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"        \
  R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139})" \
  R"(\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"                 \
  R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"        \
  R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"       \
  R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"              \
  R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)"

// Kimi-K2: the classes of LLM_CASED without Han; written by the categories that are left out.
#define LLM_NOT_SMALL R"([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
#define LLM_NOT_CAPITAL R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
#define LLM_KIMI                                                                             \
  R"(\p{sc:Han}+|[^\r\n\p{L}\p{N}]?)" LLM_NOT_SMALL "*" LLM_NOT_CAPITAL "+" LLM_CONTRACTIONS \
  R"(?|[^\r\n\p{L}\p{N}]?)" LLM_NOT_SMALL "+" LLM_NOT_CAPITAL "*" LLM_CONTRACTIONS R"(?|\p{N}{1,3}|)" LLM_REST

constexpr auto kWhole = WordRule::WholeIfToken;
constexpr auto kMerge = WordRule::Merge;
constexpr auto kAddBos = BosRule::Add;
constexpr auto kNoBos = BosRule::None;

constexpr PreTokenizerRule kRules[] = {
    {"default", {R"([\p{P}\$\+<=>\^~\|]+)", LLM_GPT2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    {"gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe gigachat a.x-4.0 mellum "
     "modern-bert exaone4 mpt olmo jais trillion granite-docling",
     {LLM_GPT2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", {R"(\p{N})", LLM_GPT2}},
    // Numbers are published as \p{N}+, but of bytes that became characters: the ASCII ones, and six bytes from 0xB2 to
    // 0xBE, which no merge of the vocabulary joins to other bytes.
    {"falcon", {R"([\p{P}\$\+<=>\^~\|`]+)", LLM_GPT2, "[0-9]+", "[0-9][0-9][0-9]"}},
    {"chameleon",
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"(([\t\n]|    |  ))", R"(\p{N})",
      R"([\p{P}!-/:-@\[-`{-~])", LLM_GPT2},
     kMerge,
     kAddBos},

    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", {LLM_CL100K}, kWhole, kAddBos},
    {"dbrx smaug-bpe chatglm-bpe", {LLM_CL100K}},
    {"glm4 glm5", {LLM_CL100K}, kWhole},
    {"minicpm5", {R"(\p{N}{1,3})", LLM_CONTRACTIONS "|" LLM_LETTERS R"(|\p{N}+|)" LLM_REST}, kWhole},
    // A run of white space is taken in pieces: what is left of it has no line end, else that would have come first.
    {"jais-2",
     {LLM_CONTRACTIONS "|" LLM_LETTERS R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|(?:(?<!\s)|(?<=[\r\n]))\s*[\r\n]+)"
                       R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S))"
                       R"(|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", {LLM_QWEN2}},
    {"laguna", {R"([^\n]+|[\n]+)", LLM_QWEN2}},
    {"ufakzeka", {LLM_LETTERS R"(|\p{N}|)" LLM_REST}},
    {"qwen35",
     {LLM_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" LLM_SPACES}},
    {"seed-coder", {LLM_CONTRACTIONS "|" LLM_LETTERS R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" LLM_SPACES}},
    {"bailingmoe bailingmoe2 llada-moe",
     {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
    // Published as [^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+: letters with their marks, at most one blank
    // between two. The same without nested repetitions, which remember every step back.
    {"exaone-moe",
     {LLM_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}\p{M}*+(?: ?\p{L}\p{M}*+)*+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
                       R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}},

    {"gpt-4o llama4 kanana2 talkie minimax-m2", {LLM_O200K}},
    {"granite-embed-multi-97m", {LLM_O200K}, kWhole},
    // Digits published as \d{1,3}(?=(?:\d{3})*\b).
    {"tiny_aya cohere2moe", {LLM_THREES(R"(\d)", R"((?![\p{L}\p{M}\p{N}\p{Pc}]))"), LLM_O200K}},
    {"tekken", {LLM_CASED("") R"(|\p{N})" LLM_CASED_REST}, kWhole, kAddBos},
    {"kimi-k2", {LLM_KIMI}},
    {"youtu",
     {R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
      R"(|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F})"
      R"(\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|)" LLM_KANA_AND_HAN,
      LLM_CASED(LLM_CONTRACTIONS "?") R"(|\p{N})" LLM_CASED_REST},
     kWhole},

    {"deepseek-llm",
     {R"([\r\n])", LLM_DEEPSEEK_CASED,
      R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)", R"((?<!\s)\s+$)",
      LLM_DEEPSEEK_EAST, R"(\p{N})"}},
    {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", LLM_DEEPSEEK_EAST, R"(\p{N})"}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     {R"(\p{N}{1,3})", LLM_KANA_AND_HAN, LLM_DEEPSEEK_WORDS R"([\r\n]*|)" LLM_SPACES}},
    {"spark2_5", {R"(\p{N}{1,3})", LLM_KANA_AND_HAN, LLM_DEEPSEEK_WORDS R"(|[\r\n]|\s+(?!\S)|\s+)", R"(\p{N})"}},
    {"afmoe",
     {LLM_THREES(R"(\p{N})", R"((?!\p{N}))"),
      R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F})"
      R"(\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F})"
      R"(\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)",
      LLM_DEEPSEEK_WORDS R"([\r\n]*|)" LLM_SPACES}},

    {"poro-chat bloom gpt3-finnish", {LLM_BLOOM}},
    {"viking", {LLM_BLOOM, R"(\p{N})"}},
    // Words may join; numbers are cut before each three digits from their end, published as (?=(\d{3})+(?!\d)). \K
    // makes the match empty; after a cut the next one is two digits further on than where the search goes on.
    {"superbpe", {R"(\p{N}+)", R"((?<!\d)\d{0,2}\K(?=(?:\d{3})++(?!\d))|\G(?<=\d)\d\d\K(?=\d))"}},

    {"gemma4 granite-embed-multi-311m", {}, kMerge, kAddBos, TextForm::CharactersAndEscapedSpaces},
    {"sarvam-moe", {}, kMerge, kNoBos, TextForm::CharactersAndEscapedSpaces},
    {"whitespace", {R"(\S+)"}, kMerge, kNoBos, TextForm::Characters},
};

/// Calls `use(name)` for the names of a rule.
template <class Use>
void each_name(std::string_view names, Use&& use) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    use(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

}  // namespace

const PreTokenizerRule* find_pretokenizer(std::string_view name) {
  const PreTokenizerRule* found = nullptr;
  for (const PreTokenizerRule& rule : kRules) {
    each_name(rule.names, [&](std::string_view known) { found = known == name ? &rule : found; });
  }
  return found;
}

std::vector<std::string_view> known_pretokenizers() {
  std::vector<std::string_view> names;
  for (const PreTokenizerRule& rule : kRules) {
    each_name(rule.names, [&](std::string_view name) { names.push_back(name); });
  }
  return names;
}

std::vector<std::string_view> nearest_pretokenizers(std::string_view name, std::size_t count) {
  const std::string_view looked_for = name.substr(0, 64);  // longer than any known name: a file may say anything
  std::vector<std::string_view> names = known_pretokenizers();
  std::stable_sort(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(looked_for, a) < edit_distance(looked_for, b);
  });
  names.resize(std::min(count, names.size()));
  return names;
}

PreTokenizer::PreTokenizer(const PreTokenizerRule& rule) {
  for (const std::string_view pattern : rule.patterns) {
    if (!pattern.empty()) patterns_.emplace_back(pattern);
  }
}

}  // namespace llm
