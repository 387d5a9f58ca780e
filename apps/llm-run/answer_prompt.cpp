#include "answer_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "common/messages.h"
#include "runtime/session.h"

namespace llm::app {
namespace {

std::int64_t size_of(const EncodedPrompt& tokens) { return static_cast<std::int64_t>(tokens.ids.size()); }

/// The longest run of tokens that came from `origin`.
PromptCut longest_stretch(const EncodedPrompt& tokens, TokenOrigin origin, std::size_t from) {
  PromptCut longest;
  for (std::size_t i = from; i < tokens.ids.size();) {
    std::size_t end = i;
    while (end < tokens.ids.size() && tokens.sources[end].origin == origin) ++end;
    if (end - i > longest.end - longest.begin) longest = {i, end};
    i = end + 1;
  }
  return longest;
}

/// The beginning or the end of a text, in whole characters, for a message.
std::string first_words(std::string text) {
  constexpr std::size_t kShown = 40;
  std::size_t end = std::min(kShown, text.size());
  while (end < text.size() && !utf8::begins_character(text[end])) ++end;
  return "\"" + escaped(text.substr(0, end)) + (end < text.size() ? "...\"" : "\"");
}

void warn_of_cut(const Prompt& prompt, const PromptCut& cut, std::int64_t context) {
  const TextSpan first = prompt.tokens.sources[cut.begin].bytes, last = prompt.tokens.sources[cut.end - 1].bytes;
  const std::string gone = prompt.text.text.substr(first.begin, last.end - first.begin);
  const std::string rest = prompt.text.text.substr(last.end);
  const auto dropped = static_cast<std::int64_t>(cut.end - cut.begin);
  print_warnings({{"prompt-cut", problem_of_length(size_of(prompt.tokens), context) + ": " + number_text(dropped) +
                                     " tokens were cut, from " + first_words(gone) + " up to " + first_words(rest)}});
}

}  // namespace

void add_prefill(Prompt& prompt, const std::string& prefill, const Tokenizer& tokenizer) {
  if (prefill.empty()) return;
  const std::size_t begin = prompt.text.text.size();
  prompt.text.text += prefill;
  prompt.text.user.push_back({begin, prompt.text.text.size()});
  prompt.tokens = tokenizer.encode(prompt.text);
}

PromptCut choose_cut(const EncodedPrompt& tokens, bool by_template, std::int64_t context, std::int64_t keep,
                     std::int64_t room) {
  const std::int64_t needed = size_of(tokens) - (context - room);
  const std::int64_t kept = keep < 0 ? size_of(tokens) : std::min(keep, size_of(tokens));
  PromptCut cut =
      longest_stretch(tokens, by_template ? TokenOrigin::User : TokenOrigin::Template, static_cast<std::size_t>(kept));
  const auto possible = static_cast<std::int64_t>(cut.end - cut.begin);
  if (needed > possible) {
    throw Error(ErrorKind::Context, problem_of_length(size_of(tokens), context) + ": " + number_text(needed) +
                                        " would have to be cut, and only " + number_text(possible) +
                                        " can be (--keep, and what the chat template puts around the text)");
  }
  cut.end = cut.begin + static_cast<std::size_t>(needed);
  return cut;
}

void fit_prompt(Prompt& prompt, const ContextOptions& o, std::int64_t context, std::int64_t max_tokens) {
  const std::int64_t n = size_of(prompt.tokens);
  if (n <= context) return;
  if (o.overflow != Overflow::Truncate) {
    throw Error(ErrorKind::Context,
                problem_of_length(n, context) + "; -c N gives more, --on-overflow truncate cuts the prompt");
  }
  // A token of the prompt stays in any case; the last token of an answer needs no place.
  const std::int64_t most = std::min(context / 2 + 1, context - 1);
  const std::int64_t room =
      std::clamp(max_tokens < 0 ? context / 4 : max_tokens, std::min<std::int64_t>(1, most), most);
  const PromptCut cut = choose_cut(prompt.tokens, !prompt.made_by.empty(), context, o.keep, room);
  warn_of_cut(prompt, cut, context);
  const auto erase = [&](auto& list) {
    const auto begin = list.begin();
    list.erase(begin + static_cast<std::ptrdiff_t>(cut.begin), begin + static_cast<std::ptrdiff_t>(cut.end));
  };
  erase(prompt.tokens.ids);
  erase(prompt.tokens.sources);
}

std::optional<std::int64_t> kept_tokens(const Prompt& prompt, const ContextOptions& o, std::int64_t context) {
  if (o.overflow != Overflow::Shift) return std::nullopt;
  const std::int64_t n = size_of(prompt.tokens);
  std::int64_t keep = o.keep < 0 ? n : std::min(o.keep, n);
  // What begins every text stays, as the model expects it.
  while (keep < n && prompt.tokens.sources[static_cast<std::size_t>(keep)].origin == TokenOrigin::Rule) ++keep;
  return std::min(keep, context);
}

}  // namespace llm::app
