#include "chat.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <utility>

#include "answer_options.h"
#include "base/clock.h"
#include "chat_answers.h"
#include "chat_commands.h"
#include "chat_controls.h"
#include "chat_file.h"
#include "chat_input.h"
#include "chat_report.h"
#include "chat_state.h"
#include "chat_storage.h"
#include "chat_turns.h"
#include "common/help_page.h"
#include "common/input.h"
#include "common/message_codes.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/run_files.h"
#include "common/signals.h"
#include "common/terminal.h"
#include "constrain/grammar.h"
#include "constrain/token_masks.h"
#include "prompt_cache.h"

namespace llm::app {
namespace {

/// Takes lines, gives them to the part that they are for, and tells what goes wrong.
class Chat {
 public:
  explicit Chat(ChatState& state) : state_(state) {}

  int run(const std::optional<std::string>& first);

 private:
  int converse(const std::optional<std::string>& first);
  void greet() const;
  /// Nothing to go on with: the exit code.
  std::optional<int> interrupted();
  void take(const std::string& line);
  void send(const std::string& message);
  enum class Concerns : std::uint8_t { TheChat, NamedFiles };
  bool attempt(Concerns, const std::function<void()>&);
  void command(const ChatLine&);
  void show(const std::string& what);
  void wait_for_message(const std::string& text);
  void fork(const std::string& name);
  void why(const std::string& number);
  void tell(const std::string& text) const { state_.tell(text); }

  ChatState& state_;
  ChatAnswers answers_{state_};
  ChatTurns turns_{state_, answers_};
  ChatControls controls_{state_};
  MessageReader input_{state_.editor};
  std::optional<Clock::time_point> last_interrupt_;  ///< Ctrl-C at the prompt
  bool leave_ = false;
};

void Chat::greet() const {
  if (state_.editor == nullptr || verbosity() < Verbosity::Normal || state_.options.chat.single_turn) return;
  const std::string model = std::filesystem::path(state_.options.model.path).filename().string(),
                    line = model + ", context " + number_text(state_.talk.context()) +
                           " tokens. /help lists the commands, Ctrl-D leaves.";
  tell(wrapped(line, state_.width(), 0) + "\n");
}

int Chat::run(const std::optional<std::string>& first) {
  const PromptCacheOptions& kept = state_.options.prompt_cache;
  if (has_cache_to_read(kept)) state_.talk.load_cache(kept.file);
  const int code = converse(first);
  on_signal(OnSignal::AskToStop);  // a state that is half written is none
  if (!kept.file.empty() && !kept.read_only && state_.talk.cached_tokens() > 0) state_.talk.save_cache(kept.file);
  return code != 0 ? code : signal_exit_code();
}

int Chat::converse(const std::optional<std::string>& first) {
  greet();
  if (!state_.options.chat.saved.empty()) restore_chat(state_.options.chat.saved, state_, state_.options.chat.typed);
  redirect_stdout(state_.options.batch.output);  // from here on nothing is refused any more
  if (first && state_.editor != nullptr) tell("> " + *first + "\n");
  if (first) send(*first);
  while (!leave_) {
    if (state_.editor != nullptr && forget_interrupt()) {  // it came too late to stop the answer
      if (const auto code = interrupted()) return *code;
    }
    // With an editor, Ctrl-C is a key of its.
    if (const int code = signal_exit_code(); code != 0 && (state_.editor == nullptr || code != kInterrupted))
      return code;
    if (state_.options.chat.single_turn && (answers_.count() > 0 || state_.failure || answers_.last_stop())) break;
    on_signal(state_.editor != nullptr ? OnSignal::AskAgain : OnSignal::AskToStop);
    using Outcome = LineEditor::Outcome;
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
        if (state_.editor != nullptr) state_.editor->write("\n");
        leave_ = true;
        break;
      case Outcome::Signalled:
        if (state_.editor != nullptr) state_.editor->write("\n");
        return signal_exit_code();
    }
  }
  if (state_.options.chat.single_turn && answers_.last_stop()) return kInterrupted;
  const bool told = state_.editor != nullptr && !state_.options.chat.single_turn;
  return told ? 0 : state_.failure.value_or(0);
}

std::optional<int> Chat::interrupted() {
  constexpr auto kTwice = std::chrono::seconds(2), kTapping = std::chrono::seconds(1);
  const auto now = Clock::now();
  const auto stop = answers_.last_stop();
  if (stop && now - *stop < kTapping) {  // still meant for the answer
    state_.editor->write("\r");          // the next prompt goes over this one
    return std::nullopt;
  }
  if (last_interrupt_ && now - *last_interrupt_ < kTwice) {
    state_.editor->write("\n");  // the shell's prompt goes on a line of its own
    return kInterrupted;
  }
  last_interrupt_ = now;
  tell("(Ctrl-C again within 2 seconds leaves, Ctrl-D as well)\n");
  return std::nullopt;
}

/// A message or a command.
void Chat::take(const std::string& line) {
  if (line.find_first_not_of(" \t\n") == std::string::npos) return;
  if (state_.editor != nullptr) state_.editor->remember(line);
  ChatLine read;
  if (!attempt(Concerns::TheChat, [&] { read = read_chat_line(line); })) return;
  attempt(read.works_on_files ? Concerns::NamedFiles : Concerns::TheChat, [&] {
    if (!read.command) return turns_.send(read.text);
    on_signal(OnSignal::AskToStop);  // what does not look whether it shall stop
    command(read);
  });
}

/// A message as it is, whatever it begins with.
void Chat::send(const std::string& message) {
  if (state_.editor != nullptr) state_.editor->remember(message.starts_with('/') ? "/" + message : message);
  attempt(Concerns::TheChat, [&] { turns_.send(message); });
}

/// What goes wrong is told, unless nothing can go on; then it was for nothing.
bool Chat::attempt(Concerns what, const std::function<void()>& act) {
  try {
    act();
    return true;
  } catch (const Error& error) {
    const bool of_the_file = what == Concerns::NamedFiles && error.kind() == ErrorKind::Io;
    if (!of_the_file && !ends_only_the_turn(error)) throw;
    state_.tell_failure(error);
    if (of_the_file) print_hint(error);
    return false;
  }
}

void Chat::command(const ChatLine& line) {
  switch (*line.command) {
    case ChatCommand::Help:
      return tell(chat_help(line.text, state_.width()));
    case ChatCommand::Exit:
      leave_ = true;
      return;
    case ChatCommand::Clear:
      return turns_.clear();
    case ChatCommand::Regenerate:
      return turns_.regenerate();
    case ChatCommand::Undo:
      return turns_.undo(line.text);
    case ChatCommand::Edit:
      return turns_.edit();
    case ChatCommand::Continue:
      return turns_.go_on();
    case ChatCommand::System:
      return controls_.system(line.text);
    case ChatCommand::Set:
      return controls_.set(line.text);
    case ChatCommand::Show:
      return show(line.text);
    case ChatCommand::Think:
      return controls_.think(line.text);
    case ChatCommand::Stop:
      return controls_.stop(line.text);
    case ChatCommand::Read:
      return wait_for_message(read_text(regular_file(line.text), kMostText));
    case ChatCommand::Glob:
      return wait_for_message(read_matching(line.text));
    case ChatCommand::Save:
      return store_chat(line.text, state_);
    case ChatCommand::Load:
      return restore_chat(regular_file(line.text), state_, {});
    case ChatCommand::Fork:
      return fork(line.text);
    case ChatCommand::Export:
      will_write("/export", line.text);
      export_chat(line.text, state_.prompts.system(), state_.talk.messages);
      return tell("written to " + line.text + "\n");
    case ChatCommand::Context:
      return tell(
          context_table(state_.talk, state_.session, {state_.pending, state_.model.tokenizer()}, state_.width()));
    case ChatCommand::Stats:
      return tell(answers_.stats(state_.width()));
    case ChatCommand::Why:
      return why(line.text);
    case ChatCommand::Grammar:
    case ChatCommand::Json:
      return controls_.constrain(line);
    case ChatCommand::Unsupported:
      return;
  }
}

void Chat::show(const std::string& what) {
  const ChatState& s = state_;
  if (what.empty() || what == "info") return tell(model_info(s.options, s.model, s.session, s.prompts));
  if (what == "params") return tell(list_settings(s.settings, s.prompts.thinking(), s.width()));
  if (what == "system") return controls_.system("");
  if (what == "template")
    return tell(s.prompts.template_name() + ":\n" + std::string(s.prompts.template_source()) + "\n");
  if (what == "license") return tell(license_text(s.model));
  throw Error(ErrorKind::Usage, "/show takes info, params, template, system or license");
}

void Chat::wait_for_message(const std::string& text) {
  state_.pending += text;
  tell(number_text(text.size()) + " bytes go before the next message\n");
}

void Chat::fork(const std::string& name) {
  ChatBranches& branches = state_.branches;
  tell(name.empty() ? branches.list(state_.talk) : branches.enter(name, state_.talk, state_.prompts));
}

void Chat::why(const std::string& number) {
  const std::span<const Token> tokens = state_.talk.last_answer();
  const Tokenizer& tokenizer = state_.model.tokenizer();
  if (tokens.empty()) {
    const bool loaded = state_.talk.turns() > 0 && state_.talk.messages.back().role == ChatMessage::Role::Assistant;
    throw Error(ErrorKind::Usage, loaded
                                      ? "of what the last answer was made is not known any more; /regen answers again"
                                      : "there is no answer yet");
  }
  if (number.empty()) return tell(token_list(tokens, tokenizer, state_.width()));
  constexpr std::size_t kShown = 10;
  const auto n = parse_integer("/why", number, 1, static_cast<std::int64_t>(tokens.size()));
  tell(alternatives(state_.talk.explain(static_cast<std::size_t>(n) - 1, kShown), tokenizer));
}

std::optional<std::string> first_message(const RunOptions& options) {
  if (!options.prompt.given()) return std::nullopt;
  if (options.chat.single_turn) mention_unread_stdin(options.prompt);  // else it has the next messages
  return read_prompt(options.prompt);
}

}  // namespace

int run_chat(const RunOptions& options) {
  const std::optional<std::string> first = first_message(options);
  std::optional<Grammar> grammar = compile_constraint(options.constraint);
  install_signal_handlers();
  const std::unique_ptr<Model> model = load_model(options.model);
  PromptMaker prompts(options.chat, model->file().metadata(), model->tokenizer());
  prompts.require_template();
  prompts.say_what_is_lost();
  std::shared_ptr<TokenMasks> constraint = grammar ? constraint_for(*std::move(grammar), *model) : nullptr;
  ChatSettings settings{.answer = resolve_answer_options(options, options.sampling, std::move(constraint), *model)};
  if (!options.sampling.seed_drawn) settings.seed = ChatSettings::Seed::Given;
  Drafting drafting(options.speculation, options.model, *model, options.context.cache);
  note_long_context(options, *model);
  SessionOptions session_settings = session_options(options, *model);
  session_settings.beside = drafting.memory();
  Session session(*model, session_settings);
  const ChatState* shown = nullptr;  // once there is one
  std::unique_ptr<LineEditor> editor;
  if (!simple_io()) {
    editor = LineEditor::open({.history = options.chat.keep_history ? history_file() : std::filesystem::path(),
                               .complete = [&shown](std::string_view typed) {
                                 return complete_chat_line(
                                     typed, shown != nullptr ? shown->branches.names() : std::vector<std::string>{});
                               }});
  }
  ChatState state{.options = options,
                  .model = *model,
                  .prompts = prompts,
                  .session = session,
                  .editor = editor.get(),
                  .settings = std::move(settings),
                  .speculation = drafting.start(session)};
  shown = &state;
  prompts.require_system();
  return Chat(state).run(first);
}

}  // namespace llm::app
