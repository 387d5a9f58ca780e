#include "chat_answers.h"

#include <unistd.h>

#include <utility>

#include "answer_printer.h"
#include "base/utf8.h"
#include "chat_report.h"
#include "chat_room.h"
#include "common/help_page.h"
#include "common/messages.h"
#include "common/progress.h"
#include "common/signals.h"
#include "form_warning.h"
#include "quiet_terminal.h"

namespace llm::app {

AnswerOptions ChatAnswers::next_options(const Prompt& prompt) {
  using Seed = ChatSettings::Seed;
  ChatSettings& settings = chat_.settings;
  if (settings.seed == Seed::Used) ++settings.answer.sampling.seed;
  if (settings.seed == Seed::Drawn) settings.seed = Seed::Used;
  AnswerOptions options = settings.answer;
  options.reasoning = prompt.reasoning;
  // A place in the conversation has draws of its own, the first those of an answer without a chat; so has the rest of
  // an answer that goes on.
  const ChatMessage& last = chat_.talk.messages.back();
  const bool goes_on = last.role == ChatMessage::Role::Assistant;
  options.row = chat_.talk.turns() - 1 + (std::uint64_t{goes_on ? last.text.size() + last.thinking.size() : 0} << 16);
  return options;
}

/// An answer as it comes: what is shown of it, and the message that it becomes.
class ChatAnswers::Coming {
 public:
  explicit Coming(ShowThinking show) : printer_(thinking_style(show), AnswerPrinter::Start::WithoutLineFeeds) {}

  void read(std::int64_t done, std::int64_t total) {
    bar_->update(static_cast<double>(done) / static_cast<double>(total));
    if (done >= total) end_reading();
  }
  void end_reading() {
    bar_.reset();
    set_stop_words("");  // a token is no time to wait
  }
  void add(const AnswerText& piece) {
    printer_.write(piece);
    message.text += piece.text;
    message.thinking += piece.thinking;
  }
  void finish() { printer_.finish(); }
  bool is_empty() const { return message.text.empty() && message.thinking.empty(); }

  ChatMessage message{ChatMessage::Role::Assistant, {}};

 private:
  AnswerPrinter printer_;
  std::optional<Progress> bar_{std::in_place, "reading the prompt"};
};

bool ChatAnswers::answer() {
  const std::optional<Prompt> prompt =
      prompt_with_room(chat_.talk, {chat_.settings.answer.max_tokens, chat_.editor, chat_.begins_with_read()});
  if (prompt) return answer(*prompt);
  tell_nothing();
  last_stop_ = Clock::now();
  return false;
}

bool ChatAnswers::answer(const Prompt& prompt) {
  const bool typed = ::isatty(STDIN_FILENO) == 1;
  on_signal(typed ? OnSignal::AskAgain : OnSignal::AskToStop);
  std::optional<QuietTerminal> quiet;
  if (chat_.editor != nullptr) quiet.emplace(STDIN_FILENO);
  Coming coming(chat_.options.chat.reasoning.show);
  try {
    generate(prompt, coming);
  } catch (const Error& error) {
    coming.end_reading();
    if (!coming.is_empty()) coming.finish();
    if (coming.is_empty() || !ends_only_the_turn(error)) throw;
    chat_.tell_failure(error);
    keep(std::move(coming.message));
    return true;
  }
  const bool kept = take(coming);
  if (typed && forget_interrupt()) last_stop_ = Clock::now();
  return kept;
}

void ChatAnswers::generate(const Prompt& prompt, Coming& coming) {
  AnswerOptions options = next_options(prompt);
  std::string seed = chat_.settings.seed != ChatSettings::Seed::Given ? seed_text(options.sampling) : "";
  set_stop_words(note_line(kStopsBehindStep));
  GenerateOptions generation{.answer = std::move(options),
                             .cancel = &stop_requested(),
                             .speculation = chat_.speculation,
                             .step = [&](const Answer&, const AnswerText& piece) { coming.add(piece); }};
  Conversation::Answered answered = chat_.talk.answer(
      prompt, std::move(generation), [&](std::int64_t done, std::int64_t total) { coming.read(done, total); });
  coming.end_reading();
  add_figures(std::move(answered), std::move(seed));
}

/// What has come to its end becomes a message. False if nothing has come.
bool ChatAnswers::take(Coming& coming) {
  const GenerateResult& r = last_->result;
  if (r.reason == StopReason::Cancelled && coming.is_empty()) {
    chat_.tell("\n");
    tell_nothing();
    return false;
  }
  ChatMessage& made = coming.message;
  // Tokens of a stop string are not in the text.
  if (r.reason != StopReason::StopString) made.tokens = r.tokens;
  made.end = end_of(r.reason);
  ++count_;
  coming.finish();
  const bool said = !made.text.empty();
  keep(std::move(made));
  tell_end(r, said);
  tell_figures();
  return true;
}

/// That it was stopped before there was any of it.
void ChatAnswers::tell_nothing() const {
  if (chat_.talk.messages.back().role == ChatMessage::Role::Assistant)
    return chat_.tell("(stopped before the answer went on)\n");
  const std::string waiting =
      chat_.begins_with_read() ? "; what was read before it still waits for the next one, /undo drops it" : "";
  const std::string told = "(stopped before there was an answer: the message is not kept" + waiting + ")";
  chat_.tell(wrapped(told, chat_.width(), 0) + "\n");
}

ChatMessage::End ChatAnswers::end_of(StopReason reason) const {
  if (reason == StopReason::EndOfGeneration) return ChatMessage::End::Complete;
  return chat_.settings.answer.constraint ? ChatMessage::End::InForm : ChatMessage::End::Open;
}

void ChatAnswers::add_figures(Conversation::Answered answered, std::string seed) {
  evaluated_ += answered.result.prompt_tokens;
  cached_ += answered.cached;
  generated_ += answered.result.generated_tokens;
  last_ = std::move(answered);
  last_seed_ = std::move(seed);
}

/// Its tokens ended inside of a character, which the answer goes on with: until now U+FFFD stood for it.
void ChatAnswers::drop_unfinished_character(ChatMessage& begun) const {
  StreamDecoder decoder(chat_.model.tokenizer(), StreamStart::Continuation);
  for (const Token t : begun.tokens) (void)decoder.push(t);
  std::string& text = begun.text.empty() ? begun.thinking : begun.text;
  if (decoder.in_character() && text.ends_with(utf8::kReplacement))
    text.resize(text.size() - utf8::kReplacement.size());
}

/// As the answer to the last message, or behind the answer that it goes on with.
void ChatAnswers::keep(ChatMessage made) {
  std::vector<ChatMessage>& messages = chat_.talk.messages;
  if (messages.back().role == ChatMessage::Role::User) {
    messages.push_back(std::move(made));
    return;
  }
  ChatMessage& begun = messages.back();
  begun.end = made.end;
  if (made.text.empty() && made.thinking.empty() && made.tokens.empty()) return;
  drop_unfinished_character(begun);
  const bool known = !begun.tokens.empty() && !made.tokens.empty();
  begun.text += made.text;
  begun.thinking += made.thinking;
  begun.tokens.insert(begun.tokens.end(), made.tokens.begin(), made.tokens.end());
  if (!known) begun.tokens.clear();
}

void ChatAnswers::tell_end(const GenerateResult& r, bool said) const {
  const bool formed = chat_.settings.answer.constraint != nullptr;  // its form begins with it
  const bool last = chat_.options.chat.single_turn;
  if (r.reason == StopReason::Cancelled) {
    const bool goes_on = chat_.editor != nullptr && !last;
    chat_.tell(!goes_on ? "(stopped)\n"
               : formed ? "(stopped: /regen answers again)\n"
                        : "(stopped: /continue goes on)\n");
  }
  const std::string more = last ? "-n N gives more" : "/set predict N gives more, /regen answers again";
  const bool warned = warn_of_cut_form(r, more);
  if (r.reason == StopReason::Length && chat_.editor != nullptr && !warned)
    chat_.tell("(cut after " + number_text(r.generated_tokens) +
               " tokens: " + (formed || last ? more : "/continue goes on") + ")\n");
  if (!said && r.reason == StopReason::EndOfGeneration)
    chat_.tell(r.thinking_tokens > 0 ? "(the model ended without an answer to its thinking)\n"
                                     : "(the answer is empty: the model ended it at once)\n");
  if (r.reason == StopReason::ContextFull && !warned) {
    note("the answer is cut: the context of " + number_text(chat_.talk.context()) + " tokens is full");
  }
}

void ChatAnswers::tell_figures() {
  const auto tell = chat_.options.output.show_timings.value_or(false) ? show : verbose;
  tell(timing(*last_, last_seed_));
  const std::int64_t all_again = chat_.talk.read_again();
  if (const std::int64_t again = all_again - std::exchange(read_again_, all_again); again > 0)
    verbose(number_text(again) + (again == 1 ? " token" : " tokens") + " read again for recurrent layers");
  warn_of_drafts(chat_.speculation);
  if (chat_.speculation != nullptr) verbose(chat_.speculation->describe());
}

std::string ChatAnswers::stats(std::size_t width) const {
  if (!last_) return "there is no answer yet\n";
  const std::string title = "last: ";
  return title + wrapped(timing(*last_, last_seed_), width, title.size()) + "\nall:  " + number_text(count_) +
         (count_ == 1 ? " answer" : " answers") + ", prompts " + number_text(evaluated_) + " tok (cached " +
         number_text(cached_) + "), generated " + number_text(generated_) + " tok\n";
}

}  // namespace llm::app
