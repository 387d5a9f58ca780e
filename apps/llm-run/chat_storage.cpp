#include "chat_storage.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "chat_branches.h"
#include "chat_file.h"
#include "common/messages.h"
#include "common/run_files.h"

namespace llm::app {
namespace {

/// As the chat had it, as far as this template can.
void restore_thinking(PromptMaker& prompts, const ThinkingSettings& then) {
  const auto attempt = [](const auto& change) {
    try {
      change();
    } catch (const Error& error) {
      note(error.what());
    }
  };
  prompts.set_thinking_budget(then.budget);
  if (then.wish != prompts.thinking().wish) attempt([&] { prompts.set_thinking(then.wish); });
  if (then.effort != prompts.thinking().effort) attempt([&] { prompts.set_reasoning_effort(then.effort); });
}

/// Unless this template takes none: the conversation can go on without it.
void restore_system(ChatState& chat, const std::string& system) {
  const std::string before = chat.prompts.system();
  chat.prompts.set_system(system);
  if (system.empty()) return;
  try {
    chat.talk.require_renders();
  } catch (const Error& error) {
    chat.prompts.set_system(before);
    chat.talk.require_renders();
    note(std::string(error.what()) + ": the chat's system text is left out");
  }
}

/// What there is to tell of it.
std::string restore_cache(const std::string& path, Conversation& talk) {
  if (path.empty()) return "";
  try {
    talk.load_cache(path);
    return ", " + number_text(talk.cached_tokens()) + " tokens are in the cache";
  } catch (const Error& error) {  // the text does not depend on it
    note(std::string(error.what()) + "; the conversation will be read again");
    return "";
  }
}

std::string others_text(std::size_t others) {
  return " and " + number_text(others) + (others == 1 ? " other branch" : " other branches") + " (/fork lists them)";
}

/// The messages stay without it: what it holds can be computed again.
bool store_cache(const std::string& path, const Conversation& talk) {
  if (talk.cached_tokens() == 0) return false;
  try {
    talk.save_cache(path);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Io) throw;
    print_warnings({{"no-cache", std::string(error.what()) +
                                     ": the chat is saved without its cache, and after /load is read again"}});
    return false;
  }
}

}  // namespace

void store_chat(const std::string& path, const ChatState& chat) {
  SavedChat saved{.shown = {chat.talk.messages, chat.prompts.system()},
                  .settings = chat.settings,
                  .thinking = chat.prompts.thinking()};
  if (!chat.branches.others().empty()) saved.branches = chat.branches;
  require_saved_chat_or_nothing(path);
  will_write("/save", path);
  will_write("/save", cache_of(path));
  // First what nothing gives back. It names the cache also where that then does not come: /load says what is missing.
  if (chat.talk.cached_tokens() > 0) saved.cache = cache_of(path);
  save_chat(path, saved, chat.model);
  const bool has_cache = store_cache(saved.cache, chat.talk);
  chat.tell(
      "saved in " + path +
      (has_cache ? ", the cache (" + bytes_text(std::filesystem::file_size(saved.cache)) + ") in " + saved.cache : "") +
      "\n");
  if (chat.settings.answer.constraint != nullptr)
    chat.tell("(the form of the answers is not saved with them: /grammar or /json gives it again)\n");
}

void restore_chat(const std::string& path, ChatState& chat, const TypedSettings& typed) {
  SavedChat saved = load_chat(path, {.shown = {}, .settings = chat.settings, .thinking = chat.prompts.thinking()},
                              typed.names, chat.model);
  was_read(path);
  was_read(saved.cache);
  chat.talk.messages = std::move(saved.shown.messages);
  if (!typed.system) restore_system(chat, saved.shown.system);
  std::string others;
  if (saved.branches) {
    chat.branches = *std::move(saved.branches);
    others = others_text(chat.branches.others().size());
  }
  chat.talk.forget_answer();
  const bool changed =
      settings_json(saved.settings, saved.thinking) != settings_json(chat.settings, chat.prompts.thinking());
  chat.settings = std::move(saved.settings);
  restore_thinking(chat.prompts, saved.thinking);
  const std::string cached = restore_cache(saved.cache, chat.talk);
  chat.tell("loaded " + turns_text(chat.talk.turns()) + others +
            (changed ? " and the settings of then (/set lists them)" : "") + cached + "\n");
}

}  // namespace llm::app
