#include "chat.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "answer_options.h"
#include "answer_printer.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "chat_branches.h"
#include "chat_commands.h"
#include "chat_file.h"
#include "chat_input.h"
#include "chat_report.h"
#include "chat_room.h"
#include "chat_settings.h"
#include "common/escapes.h"
#include "common/help_page.h"
#include "common/input.h"
#include "common/message_codes.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/signals.h"
#include "common/terminal.h"
#include "constrain/grammar.h"
#include "constrain/token_masks.h"
#include "conversation.h"
#include "prompt_cache.h"

namespace llm::app {
namespace {

using Outcome = LineEditor::Outcome;
using Role = ChatMessage::Role;

/// What one turn's failure leaves usable; anything else ends the program.
bool ends_only_the_turn(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::Io:
    case ErrorKind::Internal:
    case ErrorKind::Device:
      return false;
    default:
      return true;
  }
}

class Chat {
 public:
  struct Parts {
    const RunOptions& options;
    Model& model;
    Session& session;
    PromptMaker& prompts;
    LineEditor* editor;  ///< null: nobody types
    ChatSettings settings;
    Speculation* speculation;  ///< null: nothing is drafted
  };
  explicit Chat(Parts parts) : p_(std::move(parts)), talk_(p_.model, p_.session, p_.prompts), input_(p_.editor) {}

  int run(const std::optional<std::string>& first);

 private:
  int converse(const std::optional<std::string>& first);
  void greet() const;
  /// Nothing to go on with: the exit code.
  std::optional<int> interrupted();
  void take(const std::string& line);
  void command(const ChatLine&);
  void send(std::string text);
  /// Answers the last message, or goes on with the last answer. False if there is no answer to keep.
  bool answer();
  bool begins_with_read() const;
  AnswerOptions options_for_answer(const Prompt&);
  ChatMessage::End end_of(StopReason) const;
  void keep(ChatMessage);
  void tell_end(const GenerateResult&, bool said);

  void clear();
  void undo(const std::string& count);
  void regenerate();
  void edit();
  void go_on();
  void system(const std::string& text);
  void set(const std::string& text);
  void show(const std::string& what);
  void think(const std::string& what);
  void set_thinking(ThinkingWish, std::int64_t budget);
  void set_reasoning(const std::string& name, const std::string& value);
  void stop(const std::string& text);
  void read(const std::string& path);
  void glob(const std::string& pattern);
  void add_pending(const std::string& text);
  void save(const std::string& path);
  void load(const std::string& path);
  void restore_thinking();
  void fork(const std::string& name);
  void stats();
  void why(const std::string& number);
  void constrain(const ChatLine&);

  /// What is neither an answer nor an error.
  void tell(const std::string& text) const;
  std::size_t width() const { return text_width(p_.editor != nullptr ? STDIN_FILENO : STDERR_FILENO); }

  Parts p_;
  Conversation talk_;
  MessageReader input_;
  std::string pending_;                                          ///< of /read and /glob, for the next message
  std::optional<Clock::time_point> last_interrupt_, last_stop_;  ///< Ctrl-C at the prompt, and in an answer
  ChatBranches branches_;
  bool leave_ = false;
  std::optional<int> failure_;  ///< of the first message without an answer
  std::optional<Conversation::Answered> last_;
  std::string last_seed_;  ///< its seed_text(), if the seed was drawn
  std::int64_t answers_ = 0, evaluated_ = 0, cached_ = 0, generated_ = 0;
  std::int64_t read_again_ = 0;  ///< by the session, up to the last answer
};

void Chat::tell(const std::string& text) const {
  const std::string safe = terminal_safe(text);
  if (p_.editor != nullptr) {
    p_.editor->write(safe);
  } else {
    print_text(text);
  }
}

void Chat::greet() const {
  if (p_.editor == nullptr || verbosity() < Verbosity::Normal || p_.options.chat.single_turn) return;
  const std::string model = std::filesystem::path(p_.options.model.path).filename().string(),
                    line = model + ", context " + number_text(talk_.context()) +
                           " tokens. /help lists the commands, Ctrl-D leaves.";
  tell(wrapped(line, width(), 0) + "\n");
}

int Chat::run(const std::optional<std::string>& first) {
  const PromptCacheOptions& kept = p_.options.prompt_cache;
  if (has_cache_to_read(kept)) talk_.load_cache(kept.file);
  const int code = converse(first);
  if (!kept.file.empty() && !kept.read_only && talk_.cached_tokens() > 0) talk_.save_cache(kept.file);
  return code;
}

int Chat::converse(const std::optional<std::string>& first) {
  greet();
  if (!p_.options.chat.saved.empty()) load(p_.options.chat.saved);
  if (first) take(*first);
  while (!leave_) {
    if (p_.editor != nullptr && forget_interrupt()) {  // it came too late to stop the answer
      if (const auto code = interrupted()) return *code;
    }
    // With an editor, Ctrl-C is a key of its.
    if (const int code = signal_exit_code(); code != 0 && (p_.editor == nullptr || code != kInterrupted)) return code;
    if (p_.options.chat.single_turn && (answers_ > 0 || failure_)) break;
    on_signal(p_.editor != nullptr ? OnSignal::AskAgain : OnSignal::ExitAtOnce);
    const LineEditor::Input input = input_.next();
    switch (input.outcome) {
      case Outcome::Line:
        last_interrupt_.reset();
        take(input.text);
        break;
      case Outcome::CtrlC:
        if (const auto code = interrupted()) return *code;
        break;
      case Outcome::Cleared:
        break;
      case Outcome::EndOfFile:
        if (p_.editor != nullptr) p_.editor->write("\n");
        leave_ = true;
        break;
      case Outcome::Signalled:
        p_.editor->write("\n");
        return signal_exit_code();
    }
  }
  const bool told = p_.editor != nullptr && !p_.options.chat.single_turn;
  return told ? 0 : failure_.value_or(0);
}

std::optional<int> Chat::interrupted() {
  constexpr auto kTwice = std::chrono::seconds(2), kTapping = std::chrono::seconds(1);
  const auto now = Clock::now();
  if (last_stop_ && now - *last_stop_ < kTapping) {  // still meant for the answer
    p_.editor->write("\r");                          // the next prompt goes over this one
    return std::nullopt;
  }
  if (last_interrupt_ && now - *last_interrupt_ < kTwice) {
    p_.editor->write("\n");  // the shell's prompt goes on a line of its own
    return kInterrupted;
  }
  last_interrupt_ = now;
  tell("(Ctrl-C again within 2 seconds leaves, Ctrl-D as well)\n");
  return std::nullopt;
}

/// A message or a command. What goes wrong is told.
void Chat::take(const std::string& line) {
  if (line.find_first_not_of(" \t\n") == std::string::npos) return;
  if (p_.editor != nullptr) p_.editor->remember(line);
  bool on_files = false;
  try {
    const ChatLine read = read_chat_line(line);
    on_files = read.works_on_files;
    if (read.command) {
      if (p_.editor != nullptr) on_signal(OnSignal::AskToStop);  // what does not look whether it shall stop
      command(read);
    } else {
      send(read.text);
    }
  } catch (const Error& error) {
    const bool of_the_file = on_files && error.kind() == ErrorKind::Io;
    if (!of_the_file && !ends_only_the_turn(error)) throw;
    print_error(error);
    if (of_the_file) print_hint(error);
    if (!failure_) failure_ = static_cast<int>(error.kind());
  }
}

void Chat::command(const ChatLine& line) {
  switch (*line.command) {
    case ChatCommand::Help:
      return tell(chat_help(width()));
    case ChatCommand::Exit:
      leave_ = true;
      return;
    case ChatCommand::Clear:
      return clear();
    case ChatCommand::Regenerate:
      return regenerate();
    case ChatCommand::Undo:
      return undo(line.text);
    case ChatCommand::Edit:
      return edit();
    case ChatCommand::Continue:
      return go_on();
    case ChatCommand::System:
      return system(line.text);
    case ChatCommand::Set:
      return set(line.text);
    case ChatCommand::Show:
      return show(line.text);
    case ChatCommand::Think:
      return think(line.text);
    case ChatCommand::Stop:
      return stop(line.text);
    case ChatCommand::Read:
      return read(line.text);
    case ChatCommand::Glob:
      return glob(line.text);
    case ChatCommand::Save:
      return save(line.text);
    case ChatCommand::Load:
      return load(line.text);
    case ChatCommand::Fork:
      return fork(line.text);
    case ChatCommand::Export:
      export_chat(line.text, p_.prompts.system(), talk_.messages);
      return tell("written to " + line.text + "\n");
    case ChatCommand::Context:
      return tell(context_table(talk_, p_.session, {pending_, p_.model.tokenizer()}, width()));
    case ChatCommand::Stats:
      return stats();
    case ChatCommand::Why:
      return why(line.text);
    case ChatCommand::Grammar:
    case ChatCommand::Json:
      return constrain(line);
    case ChatCommand::Unsupported:
      return;
  }
}

void Chat::send(std::string text) {
  std::string whole = pending_.empty() ? std::move(text) : pending_ + "\n" + text;
  std::vector<ChatMessage> before = talk_.messages;
  talk_.messages.push_back({Role::User, std::move(whole)});
  try {
    if (answer()) {
      pending_.clear();
    } else {
      talk_.messages = std::move(before);
    }
  } catch (...) {
    talk_.messages = std::move(before);
    throw;
  }
}

/// The message that is to be answered begins with what /read and /glob have read.
bool Chat::begins_with_read() const { return !pending_.empty() && talk_.messages.back().text.starts_with(pending_); }

AnswerOptions Chat::options_for_answer(const Prompt& prompt) {
  using Seed = ChatSettings::Seed;
  if (p_.settings.seed == Seed::Used) ++p_.settings.answer.sampling.seed;
  if (p_.settings.seed == Seed::Drawn) p_.settings.seed = Seed::Used;
  AnswerOptions options = p_.settings.answer;
  options.reasoning = prompt.reasoning;
  // A place in the conversation has draws of its own; so has the rest of an answer that goes on.
  const ChatMessage& last = talk_.messages.back();
  options.row =
      talk_.turns() + (std::uint64_t{last.role == Role::Assistant ? last.text.size() + last.thinking.size() : 0} << 16);
  return options;
}

bool Chat::answer() {
  const Prompt prompt = prompt_with_room(talk_, {p_.settings.answer.max_tokens, p_.editor, begins_with_read()});
  AnswerPrinter printer(thinking_style(p_.options.chat.reasoning.show), AnswerPrinter::Start::WithoutLineFeeds);
  ChatMessage made{Role::Assistant, {}};
  on_signal(p_.editor != nullptr ? OnSignal::AskAgain : OnSignal::AskToStop);
  std::optional<Progress> bar(std::in_place, "reading the prompt");
  const auto progress = [&](std::int64_t done, std::int64_t total) {
    bar->update(static_cast<double>(done) / static_cast<double>(total));
    if (done == total) bar.reset();
  };
  const auto step = [&](const Answer&, const AnswerText& piece) {
    printer.write(piece);
    made.text += piece.text;
    made.thinking += piece.thinking;
  };
  const auto is_empty = [&] { return made.text.empty() && made.thinking.empty(); };
  Conversation::Answered answered;
  AnswerOptions options = options_for_answer(prompt);
  std::string seed = p_.settings.seed != ChatSettings::Seed::Given ? seed_text(options.sampling) : "";
  try {
    GenerateOptions generation{
        .answer = std::move(options), .cancel = &stop_requested(), .speculation = p_.speculation, .step = step};
    answered = talk_.answer(prompt, std::move(generation), progress);
  } catch (const Error& error) {
    bar.reset();
    if (!is_empty()) printer.finish();
    if (is_empty() || !ends_only_the_turn(error)) throw;
    print_error(error);
    if (!failure_) failure_ = static_cast<int>(error.kind());
    keep(std::move(made));
    return true;
  }
  bar.reset();
  const GenerateResult& r = answered.result;
  // Tokens of a stop string are not in the text.
  if (r.reason != StopReason::StopString) made.tokens = r.tokens;
  ++answers_;
  evaluated_ += r.prompt_tokens;
  cached_ += answered.cached;
  generated_ += r.generated_tokens;
  last_ = answered;
  last_seed_ = std::move(seed);
  const bool nothing = r.reason == StopReason::Cancelled && is_empty();
  const bool said = !made.text.empty();
  made.end = end_of(r.reason);
  if (nothing) {
    --answers_;
    const std::string waiting =
        begins_with_read() ? "; what was read before it still waits for the next one, /undo drops it" : "";
    tell("\n(stopped before there was an answer: the message is not kept" + waiting + ")\n");
  } else {
    printer.finish();
    keep(std::move(made));
    tell_end(r, said);
  }
  if (p_.editor != nullptr && forget_interrupt()) last_stop_ = Clock::now();
  return !nothing;
}

/// As the answer to the last message, or behind the answer that it goes on with.
void Chat::keep(ChatMessage made) {
  if (talk_.messages.back().role == Role::User) {
    talk_.messages.push_back(std::move(made));
    return;
  }
  ChatMessage& begun = talk_.messages.back();
  begun.end = made.end;
  if (made.text.empty() && made.thinking.empty() && made.tokens.empty()) return;
  const bool known = !begun.tokens.empty() && !made.tokens.empty();
  begun.text += made.text;
  begun.thinking += made.thinking;
  begun.tokens.insert(begun.tokens.end(), made.tokens.begin(), made.tokens.end());
  if (!known) begun.tokens.clear();
}

ChatMessage::End Chat::end_of(StopReason reason) const {
  if (reason == StopReason::EndOfGeneration) return ChatMessage::End::Complete;
  return p_.settings.answer.constraint ? ChatMessage::End::InForm : ChatMessage::End::Open;
}

void Chat::tell_end(const GenerateResult& r, bool said) {
  const bool formed = p_.settings.answer.constraint != nullptr;  // its form begins with it
  if (r.reason == StopReason::Cancelled)
    tell(formed ? "(stopped: /regen answers again)\n" : "(stopped: /continue goes on)\n");
  if (r.reason == StopReason::Length && p_.editor != nullptr)
    tell("(cut after " + number_text(r.generated_tokens) +
         " tokens: " + (formed ? "/set predict N gives more, /regen answers again" : "/continue goes on") + ")\n");
  if (!said && r.reason == StopReason::EndOfGeneration && r.thinking_tokens > 0) {
    tell("(the model ended inside its thinking: there is no answer)\n");
  }
  if (r.reason == StopReason::ContextFull) {
    note("the answer is cut: the context of " + number_text(talk_.context()) + " tokens is full");
  }
  verbose(timing(*last_, last_seed_));
  if (const std::int64_t again = talk_.read_again() - std::exchange(read_again_, talk_.read_again()); again > 0)
    verbose(number_text(again) + (again == 1 ? " token" : " tokens") + " read again for recurrent layers");
  if (p_.speculation != nullptr) verbose(p_.speculation->describe());
}

void Chat::clear() {
  talk_.messages.clear();
  pending_.clear();
  tell("all messages are forgotten" + std::string(p_.prompts.system().empty() ? "" : ", the system text stays") + "\n");
}

void Chat::undo(const std::string& count) {
  std::int64_t wanted = count.empty() ? 1 : parse_integer("/undo", count, 1, kMaxInt32);
  if (!pending_.empty()) {
    pending_.clear();
    tell("dropped what was read for the next message\n");
    if (--wanted == 0) return;
  }
  const std::size_t n = talk_.drop_newest(static_cast<std::size_t>(wanted));
  if (n == 0) return tell("there is nothing to undo\n");
  tell("removed " + turns_text(n) + ", " + std::to_string(talk_.turns()) + " left\n");
}

void Chat::regenerate() {
  if (talk_.messages.empty()) throw Error(ErrorKind::Usage, "there is no message to answer again");
  const std::vector<ChatMessage> before = talk_.messages;
  if (talk_.messages.back().role == Role::Assistant) talk_.messages.pop_back();
  bool kept = false;
  try {
    kept = answer();
  } catch (...) {
    talk_.messages = before;
    throw;
  }
  if (!kept) talk_.messages = before;
  const bool same = talk_.messages.back().text == before.back().text && talk_.messages.size() == before.size();
  if (kept && same && p_.settings.seed == ChatSettings::Seed::Given && p_.editor != nullptr) {
    tell("(the same answer: the seed was given; /set seed -1 draws one)\n");
  }
}

void Chat::edit() {
  if (p_.editor == nullptr) throw Error(ErrorKind::Usage, "/edit needs a terminal");
  if (talk_.messages.empty()) throw Error(ErrorKind::Usage, "there is no message to edit");
  const std::vector<ChatMessage> before = talk_.messages;
  std::size_t at = talk_.messages.size() - 1;
  if (talk_.messages[at].role == Role::Assistant) --at;
  std::string text = edit_with_program(talk_.messages[at].text);
  if (text.empty() || text == talk_.messages[at].text) return tell("nothing was changed\n");
  talk_.messages.resize(at);
  p_.editor->remember(text);
  tell("> " + text + "\n");
  try {
    send(std::move(text));
  } catch (...) {
    talk_.messages = before;
    throw;
  }
  if (talk_.messages.size() == at) talk_.messages = before;
}

void Chat::go_on() {
  if (talk_.messages.empty() || talk_.messages.back().role == Role::User) {
    throw Error(ErrorKind::Usage, "there is no answer to go on with");
  }
  const ChatMessage::End end = talk_.messages.back().end;
  if (end == ChatMessage::End::Complete) return tell("(the answer is complete: the model ended it there)\n");
  if (p_.settings.answer.constraint || end == ChatMessage::End::InForm) {
    throw Error(ErrorKind::Usage,
                "an answer that has a form cannot go on, the form begins with it; /regen answers again");
  }
  last_.reset();  // of an answer that ends in an error there is none
  const bool whole =
      answer() && last_ && last_->result.generated_tokens == 0 && last_->result.reason == StopReason::EndOfGeneration;
  if (whole) tell("(the answer is complete: the model ends it here)\n");
}

void Chat::system(const std::string& text) {
  if (text.empty()) {
    return tell(p_.prompts.system().empty() ? "there is no system text\n" : p_.prompts.system() + "\n");
  }
  const std::string before = p_.prompts.system();
  p_.prompts.set_system(text == "\"\"" ? "" : text);
  try {
    talk_.require_renders();
  } catch (const Error&) {
    p_.prompts.set_system(before);
    throw;
  }
  tell(p_.prompts.system().empty() ? "no system text any more\n" : "the system text is replaced\n");
}

void Chat::set(const std::string& text) {
  if (text.empty()) return tell(list_settings(p_.settings, width()));
  const std::size_t space = std::min(text.find_first_of(" \t="), text.size());
  const std::size_t value = std::min(text.find_first_not_of(" \t=", space), text.size());
  const std::string given = text.substr(0, space), name = setting_name(given);
  if (name == "stop" || name == "reverse_prompt" || name == "r") return stop(text.substr(value));
  if (value == text.size()) throw Error(ErrorKind::Usage, "/set needs a name and a value: /set temp 0.7");
  if (name.starts_with("reasoning")) return set_reasoning(name, text.substr(value));
  const Escapes escapes = p_.options.escape ? Escapes::Processed : Escapes::Kept;
  change_setting(p_.settings, name, text.substr(value), {escapes, p_.model.tokenizer(), given});
  tell(name + " is " + text.substr(value) + "\n");
}

void Chat::set_reasoning(const std::string& name, const std::string& value) {
  if (name == "reasoning_effort") {
    p_.prompts.set_reasoning_effort(reasoning_effort("/set " + name, value));
    return tell(p_.prompts.describe_thinking() + "\n");
  }
  if (name != "reasoning" && name != "reasoning_budget") {
    throw Error(ErrorKind::Usage, "no setting is called \"" + escaped(name) +
                                      "\"; there are reasoning, reasoning_budget and reasoning_effort");
  }
  think(value);
}

void Chat::stop(const std::string& text) {
  std::vector<std::string>& stops = p_.settings.answer.stop_strings;
  if (text == "off") {
    stops.clear();
  } else if (!text.empty()) {
    stops.push_back(p_.options.escape ? process_escapes(text) : text);
  }
  std::string list;
  for (const std::string& s : stops) list += " \"" + escaped(s) + "\"";
  tell(list.empty() ? "no text ends answers any more\n" : "answers end before" + list + "\n");
}

void Chat::think(const std::string& what) {
  if (what == "on" || what == "off" || what == "auto") {
    set_thinking(thinking_wish("/think", what), kNoBudget);
  } else if (!what.empty()) {
    if (what.find_first_not_of("-0123456789") != std::string::npos) {
      throw Error(ErrorKind::Usage, "/think takes on, off, auto or a number of tokens");
    }
    set_thinking(p_.settings.thinking == ThinkingWish::Off ? ThinkingWish::Auto : p_.settings.thinking,
                 parse_integer("/think", what, kNoBudget, kMaxInt32));
  }
  tell(p_.prompts.describe_thinking() + "\n");
}

void Chat::set_thinking(ThinkingWish wish, std::int64_t budget) {
  p_.prompts.set_thinking(wish, budget);
  p_.settings.thinking = wish;
  p_.settings.thinking_budget = budget;
}

void Chat::read(const std::string& path) { add_pending(read_text(path, kMostText)); }

void Chat::add_pending(const std::string& text) {
  pending_ += text;
  tell(number_text(text.size()) + " bytes go before the next message\n");
}

void Chat::glob(const std::string& pattern) { add_pending(read_matching(pattern)); }

void Chat::save(const std::string& path) {
  SavedChat chat{p_.prompts.system(), talk_.messages, p_.settings};
  require_saved_chat_or_nothing(path);
  if (talk_.cached_tokens() > 0) {
    chat.cache = cache_of(path);
    talk_.save_cache(chat.cache);
  }
  save_chat(path, chat, p_.model);
  tell("saved in " + path +
       (chat.cache.empty()
            ? ""
            : ", the cache (" + bytes_text(std::filesystem::file_size(chat.cache)) + ") in " + chat.cache) +
       "\n");
}

void Chat::load(const std::string& path) {
  SavedChat chat = load_chat(path, p_.settings, p_.model);
  p_.prompts.set_system(chat.system);
  talk_.messages = std::move(chat.messages);
  const bool changed = settings_json(chat.settings) != settings_json(p_.settings);
  p_.settings = std::move(chat.settings);
  restore_thinking();
  std::string cached;
  if (!chat.cache.empty()) {
    try {
      talk_.load_cache(chat.cache);
      cached = ", " + number_text(talk_.cached_tokens()) + " tokens are in the cache";
    } catch (const Error& error) {  // the text does not depend on it
      note(std::string(error.what()) + "; the conversation will be read again");
    }
  }
  tell("loaded " + turns_text(talk_.turns()) + (changed ? " and the settings of then (/set lists them)" : "") + cached +
       "\n");
}

/// As the chat had it, if this template can.
void Chat::restore_thinking() {
  try {
    p_.prompts.set_thinking(p_.settings.thinking, p_.settings.thinking_budget);
  } catch (const Error& error) {
    note(error.what());
    p_.settings.thinking = ThinkingWish::Auto;
  }
}

void Chat::fork(const std::string& name) {
  tell(name.empty() ? branches_.list(talk_) : branches_.enter(name, talk_, p_.prompts));
}

void Chat::why(const std::string& number) {
  const std::span<const Token> tokens = talk_.last_answer();
  if (tokens.empty()) throw Error(ErrorKind::Usage, "there is no answer yet");
  if (number.empty()) return tell(token_list(tokens, p_.model.tokenizer()));
  constexpr std::size_t kShown = 10;
  const auto n = parse_integer("/why", number, 1, static_cast<std::int64_t>(tokens.size()));
  tell(alternatives(talk_.explain(static_cast<std::size_t>(n) - 1, kShown), p_.model.tokenizer()));
}

void Chat::constrain(const ChatLine& line) {
  if (line.text == "off") {
    p_.settings.answer.constraint.reset();
    return tell("answers have no given form\n");
  }
  ConstraintChoice choice;
  (*line.command == ChatCommand::Json ? choice.schema_file : choice.grammar_file) = line.text;
  finish_constraint(choice, Escapes::Kept);
  p_.settings.answer.constraint = constraint_for(*compile_constraint(choice), p_.model);
  tell("answers have the form of " + line.text + "\n");
}

void Chat::show(const std::string& what) {
  if (what.empty() || what == "info") return tell(model_info(p_.options, p_.model, p_.session, p_.prompts));
  if (what == "params") return tell(list_settings(p_.settings, width()));
  if (what == "system") return system("");
  if (what == "template")
    return tell(p_.prompts.template_name() + ":\n" + template_source(p_.options.chat, p_.model) + "\n");
  if (what == "license") return tell(license_text(p_.model));
  throw Error(ErrorKind::Usage, "/show takes info, params, template, system or license");
}

void Chat::stats() {
  if (!last_) return tell("there is no answer yet\n");
  const std::string title = "last: ";
  tell(title + wrapped(timing(*last_, last_seed_), width(), title.size()) + "\nall:  " + number_text(answers_) +
       " answers, prompts " + number_text(evaluated_) + " tok (cached " + number_text(cached_) + "), generated " +
       number_text(generated_) + " tok\n");
}

std::optional<std::string> first_message(const RunOptions& options) {
  if (!options.prompt.given()) return std::nullopt;
  return read_prompt(options.prompt);
}

}  // namespace

int run_chat(const RunOptions& options) {
  const std::optional<std::string> first = first_message(options);
  std::optional<Grammar> grammar = compile_constraint(options.constraint);
  install_signal_handlers();
  const std::unique_ptr<Model> model = load_model(options.model);
  PromptMaker prompts(options.chat, model->file().metadata(), model->tokenizer());
  if (!prompts.has_template()) {
    throw Error(ErrorKind::Notation, ErrorParts{.file = options.model.path,
                                                .problem = "has no chat template; give one with --chat-template, e.g. "
                                                           "chatml, or a text to complete with -p"});
  }
  prompts.say_what_is_lost();
  std::shared_ptr<TokenMasks> constraint = grammar ? constraint_for(*std::move(grammar), *model) : nullptr;
  ChatSettings settings{.answer = answer_options(options, options.sampling, std::move(constraint), *model)};
  settings.thinking = options.chat.reasoning.wish;
  settings.thinking_budget = options.chat.reasoning.budget;
  if (!options.sampling.seed_drawn) settings.seed = ChatSettings::Seed::Given;
  if (!options.batch.output.empty() && options.batch.output != "-") redirect_stdout(options.batch.output);
  Drafting drafting(options.speculation, options.model, *model, options.context.cache);
  SessionOptions session_settings = session_options(options, *model);
  session_settings.beside = drafting.memory();
  Session session(*model, session_settings);
  std::unique_ptr<LineEditor> editor;
  if (!simple_io()) {
    editor = LineEditor::open({.history = options.chat.keep_history ? history_file() : std::filesystem::path(),
                               .complete = complete_chat_line});
  }
  return Chat({options, *model, session, prompts, editor.get(), std::move(settings), drafting.start(session.context())})
      .run(first);
}

}  // namespace llm::app
