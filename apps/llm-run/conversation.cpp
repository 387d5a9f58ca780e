#include "conversation.h"

#include <algorithm>
#include <utility>

#include "runtime/state_file.h"
#include "text/growing_prompt.h"

namespace llm::app {
namespace {

std::vector<jinja::Value> values_of(std::span<const ChatMessage> messages) {
  std::vector<jinja::Value> values;
  for (const ChatMessage& m : messages) {
    values.push_back(m.thinking.empty() ? chat_message(name(m.role), m.text)
                                        : chat_message(name(m.role), m.text, m.thinking));
  }
  return values;
}

bool is_users(const ChatMessage& m) { return m.role == ChatMessage::Role::User; }

}  // namespace

std::string_view name(ChatMessage::Role role) { return role == ChatMessage::Role::User ? "user" : "assistant"; }

Conversation::Conversation(Model& model, Session& session, PromptMaker& prompts)
    : model_(model), session_(session), prompts_(prompts), sequence_(session.create()) {}

Prompt Conversation::render(std::span<const ChatMessage> shown, Ending ending) const {
  ChatInput input;
  input.messages = chat_messages(values_of(shown));
  input.add_generation_prompt = ending == Ending::AnswerBegins;
  return prompts_.from_chat(std::move(input));
}

Prompt Conversation::prompt() const {
  const bool goes_on = !messages.empty() && messages.back().role == ChatMessage::Role::Assistant;
  if (!goes_on) return render(messages, Ending::AnswerBegins);
  Prompt prompt = render(std::span(messages).first(messages.size() - 1), Ending::AnswerBegins);
  const ChatMessage& begun = messages.back();
  const std::vector<Token>& tokens = begun.tokens;
  const std::size_t begin = prompt.text.text.size();
  append_begun(prompt, begun);
  if (tokens.empty()) {
    prompt.tokens = model_.tokenizer().encode(prompt.text);
  } else {  // as sampled: a tokenizer might cut the same text otherwise, and the cache would be lost
    prompt.tokens.ids.insert(prompt.tokens.ids.end(), tokens.begin(), tokens.end());
    prompt.tokens.sources.resize(prompt.tokens.ids.size(),
                                 {.origin = TokenOrigin::User, .bytes = {begin, prompt.text.text.size()}});
  }
  return prompt;
}

void Conversation::require_renders() const {
  const ChatMessage any{ChatMessage::Role::User, "a"};
  (void)(messages.empty() ? render({&any, 1}, Ending::AnswerBegins) : prompt());
}

/// The text of an answer as the model writes it: its thinking between the marks, which are the format's, not a
/// message's.
void Conversation::append_begun(Prompt& prompt, const ChatMessage& begun) const {
  std::string& text = prompt.text.text;
  const std::size_t begin = text.size();
  const auto add = [&](const std::string& own) {
    if (own.empty()) return;
    prompt.text.user.push_back({text.size(), text.size() + own.size()});
    text += own;
  };
  if (prompt.reasoning && !begun.thinking.empty()) {
    const ReasoningMarkers& m = prompt.reasoning->markers;
    if (prompt.reasoning->begins == ReasoningPhase::Before) text += m.open + m.before_close;
    add(begun.thinking);
    if (!begun.text.empty()) text += m.before_close + m.close + m.to_answer();
  }
  add(begun.text);
  if (prompt.reasoning) prompt.reasoning->begun = text.substr(begin);
}

/// The prompt's token that the answer begins with: one behind its last unless it goes on with an answer.
std::size_t Conversation::answer_begin(const Prompt& prompt) {
  const std::vector<TokenSource>& sources = prompt.tokens.sources;
  if (!prompt.reasoning || prompt.reasoning->begun.empty()) return sources.size();
  const std::size_t byte = prompt.text.text.size() - prompt.reasoning->begun.size();
  const auto first =
      std::find_if(sources.begin(), sources.end(), [&](const TokenSource& s) { return s.bytes.begin >= byte; });
  return static_cast<std::size_t>(first - sources.begin());
}

std::int64_t Conversation::keep_common_prefix(std::span<const Token> prompt) {
  const auto n = static_cast<std::int64_t>(
      std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), prompt.end()).first - tokens_.begin());
  // The last token is evaluated in any case: its logits are not kept.
  const std::int64_t kept = std::min(n, static_cast<std::int64_t>(prompt.size()) - 1);
  session_.rewind(sequence_, kept);
  tokens_.resize(static_cast<std::size_t>(kept));
  return kept;
}

Conversation::Answered Conversation::answer(const Prompt& prompt, GenerateOptions options,
                                            const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::vector<Token>& ids = prompt.tokens.ids;
  session_.require_context(static_cast<std::int64_t>(ids.size()));
  Answered answered;
  answered.cached = options.cached = keep_common_prefix(ids);
  options.progress = progress;
  tokens_ = ids;
  forget_answer();
  try {
    answered.result = generate(session_, model_, sequence_, ids, options);
  } catch (...) {
    settle();
    throw;
  }
  const std::vector<Token>& more = answered.result.tokens;
  tokens_.insert(tokens_.end(), more.begin(), more.end());
  text_ = tokens_;
  answer_begin_ = answer_begin(prompt);
  settle();
  return answered;
}

void Conversation::forget_answer() {
  text_.clear();
  answer_begin_ = 0;
}

void Conversation::settle() {
  tokens_.resize(std::min(tokens_.size(), static_cast<std::size_t>(session_.length(sequence_))));
  session_.rewind(sequence_, static_cast<std::int64_t>(tokens_.size()));
}

Logprobs Conversation::explain(std::size_t n, std::size_t count) {
  const std::size_t at = answer_begin_ + n, held = tokens_.size();  // the logits are those after the token before
  check(at >= 1 && at < text_.size(), "a token of the last answer");
  const std::span<const Token> text(text_);
  const std::size_t kept = std::min(held, at - 1);
  session_.rewind(sequence_, static_cast<std::int64_t>(kept));
  try {
    const Append before{sequence_, text.subspan(kept, at - kept), Logits::Last};
    const Logprobs found = logprobs(session_.eval({&before, 1}), text_[at], count);
    if (held > at) {
      const Append rest{sequence_, text.subspan(at, held - at), Logits::None};
      (void)session_.eval({&rest, 1});
    }
    tokens_.assign(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::max(held, at)));
    return found;
  } catch (...) {
    settle();
    throw;
  }
}

void Conversation::save_cache(const std::string& path) const { save_state(path, model_, session_, sequence_, tokens_); }

void Conversation::load_cache(const std::string& path) {
  const StateFile file = StateFile::open(path, model_, session_.cache_format());
  const std::int64_t n = std::min<std::int64_t>(static_cast<std::int64_t>(file.tokens().size()), context());
  session_.rewind(sequence_, 0);
  tokens_.clear();
  forget_answer();
  file.restore(session_, sequence_, n);
  tokens_.assign(file.tokens().begin(), file.tokens().begin() + n);
}

std::size_t Conversation::turns() const {
  return static_cast<std::size_t>(std::count_if(messages.begin(), messages.end(), is_users));
}

std::size_t Conversation::turns_too_many(std::int64_t answer) const {
  std::vector<std::size_t> begins;  // of the turns
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (is_users(messages[i])) begins.push_back(i);
  }
  const auto fits = [&](std::size_t dropped) {
    const Prompt p = render(std::span(messages).subspan(begins[dropped]), Ending::AnswerBegins);
    return static_cast<std::int64_t>(p.tokens.ids.size()) + answer <= context();
  };
  // Where it fits, it does without one turn more: a search in halves, for rendering takes as long as the text is.
  std::size_t least = 0, most = std::max<std::size_t>(begins.size(), 1) - 1;
  while (least < most) {
    const std::size_t middle = (least + most) / 2;
    if (fits(middle)) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return most;
}

std::int64_t Conversation::last_turn_size() const {
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is_users);
  const auto begin = last == messages.rend() ? messages.begin() : std::prev(last.base());
  return static_cast<std::int64_t>(render({begin, messages.end()}, Ending::AnswerBegins).tokens.ids.size());
}

std::size_t Conversation::drop_oldest(std::size_t wanted) {
  std::size_t dropped = 0;
  for (; dropped < wanted && !messages.empty(); ++dropped) {
    const auto next = std::find_if(messages.begin() + 1, messages.end(), is_users);
    messages.erase(messages.begin(), next);
  }
  return dropped;
}

std::size_t Conversation::drop_newest(std::size_t wanted) {
  std::size_t dropped = 0;
  for (; dropped < wanted && !messages.empty(); ++dropped) {
    const auto last = std::find_if(messages.rbegin(), messages.rend(), is_users);
    messages.erase(last == messages.rend() ? messages.begin() : std::prev(last.base()), messages.end());
  }
  return dropped;
}

/// Nothing if the template makes it a part of the first message, or takes it with messages only.
std::optional<MessageSize> Conversation::system_size() const {
  const std::string& system = prompts_.system();
  if (system.empty()) return std::nullopt;
  try {
    const Prompt alone = render({}, Ending::AsItIs);
    const std::string& text = alone.text.text;
    const bool goes_on =
        messages.empty() || render(std::span(messages).first(1), Ending::AsItIs).text.text.starts_with(text);
    if (!goes_on || text.find(system) == std::string::npos) return std::nullopt;
    return MessageSize{"system", system, static_cast<std::int64_t>(alone.tokens.ids.size())};
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<MessageSize> Conversation::sizes() const {
  std::vector<MessageSize> sizes;
  std::int64_t before = 0;
  if (std::optional<MessageSize> system = system_size()) {
    before = system->tokens;
    sizes.push_back(*std::move(system));
  }
  const std::vector<jinja::Value> values = values_of(messages);
  GrowingPrompt shown(model_.tokenizer());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    // What a template makes of a beginning it alone can say; most of that are the tokens of the one before.
    ChatInput input;
    input.messages = chat_messages({values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i) + 1});
    input.add_generation_prompt = false;
    const std::int64_t all = std::ssize(shown.encode(prompts_.text_from_chat(std::move(input))).ids);
    // A template may shorten earlier answers (their reasoning) once others follow.
    sizes.push_back({name(messages[i].role), messages[i].text, std::max<std::int64_t>(0, all - before)});
    before = all;
  }
  return sizes;
}

}  // namespace llm::app
