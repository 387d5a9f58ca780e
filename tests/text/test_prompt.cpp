// Prompts of template and users' text: markup only where the template wrote it, and the source of each token.
#include <algorithm>
#include <ctime>
#include <random>

#include "support/catch.h"
#include "text/growing_prompt.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Template and users' parts in turn, beginning with the template's.
PromptText prompt(std::initializer_list<std::string_view> parts) {
  PromptText p;
  bool user = false;
  for (const std::string_view part : parts) {
    if (user) p.user.push_back({p.text.size(), p.text.size() + part.size()});
    p.text += part;
    user = !user;
  }
  return p;
}

/// Each source as its text, marked t or u; "-" for rules.
std::vector<std::string> shown(const PromptText& p, const EncodedPrompt& e) {
  std::vector<std::string> out;
  for (const TokenSource& s : e.sources) {
    const char* origin = s.origin == TokenOrigin::Rule ? "-" : s.origin == TokenOrigin::User ? "u:" : "t:";
    out.push_back(origin + p.text.substr(s.bytes.begin, s.bytes.end - s.bytes.begin));
  }
  return out;
}
using Shown = std::vector<std::string>;

}  // namespace

TEST_CASE("control tokens are parsed in the template's text only", "[prompt]") {
  VocabularyFile v = bpe_vocabulary();
  v.add("<|endoftext|><|endoftext|>", TokenKind::Control);
  const LoadedTokenizer t = v.load();
  const auto ids = [&](std::initializer_list<std::string_view> parts) {
    return t->encode(prompt(parts), AddSpecial::Never).ids;
  };
  const Ids as_text = t->encode("<|endoftext|>", {.add_special = false, .parse_special = false});
  CHECK(ids({"<|endoftext|>"}) == Ids{258});
  CHECK(ids({"", "<|endoftext|>"}) == as_text);
  // A border inside: the user completes what the template began, or the reverse.
  CHECK(ids({"<|endof", "text|>"}) == as_text);
  CHECK(ids({"", "<|endof", "text|>"}) == as_text);
  CHECK(ids({"<|endoftext|", ">"}) == as_text);
  // The longer token does not fit before the user's text, the shorter does.
  CHECK(ids({"<|endoftext|><|endoftext|>"}) == Ids{259});
  Ids one_then_text = as_text;
  one_then_text.insert(one_then_text.begin(), 258);
  CHECK(ids({"<|endoftext|>", "<|endoftext|>"}) == one_then_text);
  // Users' stretches that touch, and empty ones.
  CHECK(ids({"", "<|endof", "", "text|>"}) == as_text);
  CHECK(ids({"<|endof", "", "text|>"}) == Ids{258});
}

TEST_CASE("user-defined tokens are markup if formats are made of them", "[prompt]") {
  VocabularyFile ugm;  // a vocabulary model that finds its texts without merges
  ugm.model = "t5";
  for (const char* text : {"<pad>", "</s>"}) ugm.add(text, TokenKind::Control);
  ugm.unk = ugm.add("<unk>", TokenKind::Unknown);
  ugm.eos = 1;
  for (VocabularyFile v : {bpe_vocabulary(), spm_vocabulary(), ugm}) {
    CAPTURE(*v.model);
    Ids markup, text;
    for (const char* of_formats : {"<|USER_TOKEN|>", "<|tool_call>", "<turn_2|>", "<|\"|>", "<\uff5cUser\uff5c>",
                                   "</think>", "<tool_call>", "[INST]", "[/INST]", "\u25c1/think\u25b7"}) {
      markup.push_back(v.add(of_formats, TokenKind::UserDefined));
    }
    for (const char* of_texts :
         {"<table>", "</table>", "<h1>", "    ", "\u00fc", "<=>", "[]", "[...]", "word", "|||"}) {
      text.push_back(v.add(of_texts, TokenKind::UserDefined));
    }
    const LoadedTokenizer t = v.load();
    const auto found = [&](const PromptText& p, Token id) {
      const Ids ids = t->encode(p, AddSpecial::Never).ids;
      return std::count(ids.begin(), ids.end(), id);
    };
    for (const Token id : markup) {
      const std::string written(t->token_text(id));
      CAPTURE(written);
      CHECK(found(prompt({written}), id) == 1);
      CHECK(found(prompt({written, written, written}), id) == 2);
      CHECK(found(prompt({written.substr(0, 2), written.substr(2)}), id) == 0);
      const Ids elsewhere = t->encode(written, kPlain);
      CHECK(std::count(elsewhere.begin(), elsewhere.end(), id) == 1);
    }
    for (const Token id : text) {
      CAPTURE(t->token_text(id));
      CHECK(found(prompt({"", t->token_text(id)}), id) == 1);
    }
  }
}

TEST_CASE("borders between template and user change no token", "[prompt]") {
  std::mt19937 random(7);
  for (const auto& v : {bpe_vocabulary("gpt-2"), bpe_vocabulary("llama-bpe"), spm_vocabulary()}) {
    const LoadedTokenizer t = v.load();
    for (int i = 0; i < 300; ++i) {
      PromptText p;
      for (int n = static_cast<int>(random() % 40); n > 0; --n) p.text += "aabbcc  \n\xC3\xA9"[random() % 11];
      const std::size_t n_spans = random() % 4;
      std::vector<std::size_t> cuts;
      for (std::size_t k = 0; k < 2 * n_spans; ++k) cuts.push_back(random() % (p.text.size() + 1));
      std::sort(cuts.begin(), cuts.end());
      for (std::size_t k = 0; k < cuts.size(); k += 2) p.user.push_back({cuts[k], cuts[k + 1]});
      const EncodedPrompt e = t->encode(p, AddSpecial::Never);
      REQUIRE(e.ids == t->encode(p.text, kMarkup));
      REQUIRE(e.sources.size() == e.ids.size());
      std::size_t at = 0;
      for (const TokenSource& s : e.sources) {
        REQUIRE(s.bytes.begin == at);
        at = s.bytes.end;
      }
      REQUIRE(at == p.text.size());
    }
  }
}

TEST_CASE("each token's source: bytes of the text and who wrote them", "[prompt]") {
  const LoadedTokenizer bpe = bpe_vocabulary().load();
  const PromptText p = prompt({"<|endoftext|>a", "bca", "b<|endoftext|>"});
  CHECK(shown(p, bpe->encode(p, AddSpecial::Never)) == Shown{"t:<|endoftext|>", "u:abc", "u:ab", "t:<|endoftext|>"});

  const LoadedTokenizer spm = spm_vocabulary().load();
  const PromptText q = prompt({"<s>ab c", " \xC3\xA9", "b"});
  const EncodedPrompt e = spm->encode(q);
  CHECK(shown(q, e) == Shown{"t:<s>", "-", "t:ab", "t: ", "t:c", "u: ", "u:\xC3", "u:\xA9", "t:b"});
}

TEST_CASE("a leading space and BOS come from rules; no second BOS or EOS", "[prompt]") {
  VocabularyFile v = spm_vocabulary();
  v.add_eos = true;
  const LoadedTokenizer t = v.load();
  const Token bos = 1, eos = 2, space = 259, c = 262;
  REQUIRE(t->token_text(space) == "\u2581");
  PromptText p = prompt({"c"});
  EncodedPrompt e = t->encode(p);
  CHECK(e.ids == Ids{bos, space, c, eos});
  CHECK(shown(p, e) == Shown{"-", "-", "t:c", "-"});
  CHECK(t->encode(p, AddSpecial::Never).ids == Ids{space, c});
  p = prompt({"<s>c</s>"});
  CHECK(t->encode(p).ids == Ids{bos, space, c, eos});
  // As text of a user they are not there already.
  p = prompt({"", "<s>"});
  e = t->encode(p);
  CHECK(e.ids.front() == bos);
  CHECK(e.sources.front().origin == TokenOrigin::Rule);
  CHECK(t->encode(PromptText{}).ids == Ids{bos, eos});
}

TEST_CASE("spans that are no spans of the text are our own mistake", "[prompt]") {
  const LoadedTokenizer t = bpe_vocabulary().load();
  CHECK_THROWS_AS(t->encode(PromptText{"abc", {{1, 4}}}), Error);
  CHECK_THROWS_AS(t->encode(PromptText{"abc", {{2, 1}}}), Error);
  CHECK_THROWS_AS(t->encode(PromptText{"abc", {{1, 2}, {0, 1}}}), Error);
}

TEST_CASE("a prompt that grows is encoded as it is alone", "[prompt]") {
  std::mt19937 random(11);
  VocabularyFile ugm;
  ugm.model = "t5";
  for (const char* text : {"<pad>", "</s>"}) ugm.add(text, TokenKind::Control);
  ugm.unk = ugm.add("<unk>", TokenKind::Unknown);
  for (const char* text : {"\u2581", "a", "b", "\u2581a"}) ugm.add(text);
  ugm.eos = 1;
  for (VocabularyFile v : {bpe_vocabulary("gpt-2"), bpe_vocabulary("llama-bpe"), spm_vocabulary(), ugm}) {
    CAPTURE(*v.model);
    v.add_eos = v.model != "gpt2";
    for (const char* text : {"<|x|>", "<|x|><|y|>", "<|y|>", "<|"}) v.add(text, TokenKind::Control);
    v.add("<table>", TokenKind::UserDefined);
    const LoadedTokenizer t = v.load();
    const std::vector<std::string> parts{"<|x|>", "<|y|>", "<|", "x|>", "</s>", "<table>",
                                         "a",     "abc",   " ",  "  b", "\n",   "\u00e9"};
    const auto grow = [&](PromptText& p, int n) {
      for (; n > 0; --n) {
        const std::string& part = parts[random() % parts.size()];
        if (random() % 3 == 0) p.user.push_back({p.text.size(), p.text.size() + part.size()});
        p.text += part;
      }
    };
    GrowingPrompt growing(*t);
    PromptText p;
    for (int i = 0; i < 400; ++i) {
      // Mostly the last one goes on; now and then it goes on from its middle, or who wrote its end is somebody else.
      if (random() % 4 == 0) {
        const std::size_t kept = p.text.empty() ? 0 : random() % p.text.size();
        p.text.resize(kept);
        std::erase_if(p.user, [&](const TextSpan& s) { return s.end > kept; });
      }
      if (random() % 8 == 0 && !p.user.empty()) p.user.pop_back();
      if (p.text.size() > 300) p = {};
      grow(p, 1 + static_cast<int>(random() % 6));
      const EncodedPrompt& made = growing.encode(p);
      const EncodedPrompt whole = t->encode(p);
      REQUIRE(made.ids == whole.ids);
      REQUIRE(shown(p, made) == shown(p, whole));
    }
  }
}

TEST_CASE("what a prompt has grown by is what encoding it takes", "[prompt]") {
  VocabularyFile v = bpe_vocabulary("llama-bpe");
  const LoadedTokenizer t = v.load();
  GrowingPrompt growing(*t);
  PromptText p;
  std::vector<PromptText> prompts;
  for (int i = 0; i < 400; ++i) {
    p.text += "<|endoftext|>";
    for (int word = 0; word < 100; ++word) p.text += " word" + std::to_string(i * word);
    prompts.push_back(p);
  }
  std::size_t tokens = 0;
  const std::clock_t begin = std::clock();
  for (const PromptText& each : prompts) tokens += t->encode(each).ids.size();
  const std::clock_t middle = std::clock();
  for (const PromptText& each : prompts) tokens -= growing.encode(each).ids.size();
  CHECK(tokens == 0);
  CHECK(std::clock() - middle < (middle - begin) / 5);
}
