#include "chat_file.h"

#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "base/output_file.h"
#include "batch_state.h"
#include "common/input.h"
#include "common/messages.h"
#include "nesting.h"

namespace llm::app {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr std::string_view kChatFormat = "llm-run chat";
constexpr int kVersion = 1;

[[noreturn]] void refuse_file(const std::string& path, const std::string& problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = path, .problem = problem});
}

std::string json_text(const Ordered& json, int indent = -1) {
  return json.dump(indent, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

Ordered message_json(std::string_view role, const std::string& text, const std::string& thinking = {}) {
  Ordered json{{"role", std::string(role)}, {"content", text}};
  if (!thinking.empty()) json["reasoning_content"] = thinking;
  return json;
}

/// By these names in files; an answer without one can go on.
constexpr std::pair<std::string_view, ChatMessage::End> kEnds[] = {{"complete", ChatMessage::End::Complete},
                                                                   {"in form", ChatMessage::End::InForm}};

ChatMessage::End read_end(const Ordered& name) {
  for (const auto& [known, end] : kEnds) {
    if (name == known) return end;
  }
  return ChatMessage::End::Open;
}

/// To read, or to go on with: then an answer says how it ended.
enum class Purpose : std::uint8_t { Reading, GoingOn };

Ordered saved_json(const ChatMessage& m, Purpose purpose) {
  Ordered json = message_json(name(m.role), m.text, m.thinking);
  for (const auto& [known, end] : kEnds) {
    if (purpose == Purpose::GoingOn && m.end == end) json["end"] = known;
  }
  return json;
}

Ordered messages_json(const std::string& system, std::span<const ChatMessage> messages, Purpose purpose) {
  Ordered list = Ordered::array();
  if (!system.empty()) list.push_back(message_json("system", system));
  for (const ChatMessage& m : messages) list.push_back(saved_json(m, purpose));
  return list;
}

Ordered read_saved(const std::string& path) {
  Ordered json = Ordered::parse(read_input(path), RefuseNesting{path}, false);
  if (!json.is_object() || json.value("format", Ordered()) != kChatFormat) refuse_file(path, "is no saved chat");
  if (json.value("version", Ordered()) != kVersion) refuse_file(path, "is a saved chat of another version");
  return json;
}

/// User and assistant in turn, beginning with a user; the system text before them.
ChatBranch read_messages(const std::string& path, const Ordered& list) {
  ChatBranch read;
  if (!list.is_array()) refuse_file(path, "\"messages\" is no list");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Ordered& m = list[i];
    const Ordered role = m.is_object() ? m.value("role", Ordered()) : Ordered();
    const Ordered text = m.is_object() ? m.value("content", Ordered()) : Ordered();
    const std::string which = "message " + std::to_string(i + 1);
    if (!text.is_string()) refuse_file(path, which + " has no text as its content");
    if (role == "system" && i == 0) {
      read.system = text.get<std::string>();
      continue;
    }
    const bool users_turn = read.messages.empty() || read.messages.back().role == ChatMessage::Role::Assistant;
    if (role != (users_turn ? "user" : "assistant")) {
      refuse_file(path, which + " should be the " + (users_turn ? "user" : "assistant") + "'s");
    }
    const Ordered thinking = m.value("reasoning_content", Ordered());
    read.messages.push_back({.role = users_turn ? ChatMessage::Role::User : ChatMessage::Role::Assistant,
                             .text = text.get<std::string>(),
                             .thinking = thinking.is_string() ? thinking.get<std::string>() : "",
                             .end = read_end(m.value("end", Ordered()))});
  }
  return read;
}

/// "branch" names the one whose messages are the file's, "branches" has the others by their names.
std::optional<ChatBranches> read_branches(const std::string& path, const Ordered& json) {
  const Ordered current = json.value("branch", Ordered()), list = json.value("branches", Ordered());
  if (current.is_null() && list.is_null()) return std::nullopt;
  if (!current.is_string() || !list.is_object() || list.contains(current.get<std::string>()))
    refuse_file(path, "\"branches\" are not the branches beside \"branch\"");
  std::map<std::string, ChatBranch> others;
  for (const auto& [name, messages] : list.items()) others.emplace(name, read_messages(path, messages));
  return ChatBranches(current.get<std::string>(), std::move(others));
}

/// Beside the chat, wherever both were moved, and by the chat's name if both were renamed.
std::string cache_named_in(const Ordered& json, const std::string& path) {
  const Ordered cache = json.value("cache", Ordered());
  if (!cache.is_string()) return {};
  const auto file_name = std::filesystem::path(cache.get<std::string>()).filename();
  const std::string named = (std::filesystem::path(path).parent_path() / file_name).string();
  return !is_there(named) && is_there(cache_of(path)) ? cache_of(path) : named;
}

std::string markdown(const std::string& system, std::span<const ChatMessage> messages) {
  std::string text;
  const auto add = [&](const std::string& title, const std::string& body) {
    text += (text.empty() ? "## " : "\n## ") + title + "\n\n" + body + (body.ends_with('\n') ? "" : "\n");
  };
  if (!system.empty()) add("System", system);
  for (const ChatMessage& m : messages) add(m.role == ChatMessage::Role::User ? "User" : "Assistant", m.text);
  return text;
}

std::string json_lines(const std::string& system, std::span<const ChatMessage> messages) {
  std::string text;
  for (const Ordered& m : messages_json(system, messages, Purpose::Reading)) text += json_text(m);
  return text;
}

bool is_saved_chat(const std::string& path) {
  try {
    (void)read_saved(path);
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// What is no regular file may have no end.
bool is_file(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown);
}

/// What is there is lost unless the text goes on from it.
void require_beginning_or_nothing(const std::string& path, const std::string& text) {
  if (!is_there(path)) return;
  if (!is_file(path) || !text.starts_with(read_input(path)))
    refuse_file(path, "is there already, and holds something else than the beginning of this chat");
}

}  // namespace

void require_saved_chat_or_nothing(const std::string& path) {
  if (!is_there(path)) return;
  if (!is_file(path) || !is_saved_chat(path)) refuse_file(path, "is there already and is no saved chat");
}

std::string cache_of(const std::string& path) { return path + ".cache"; }

std::string cache_of_saved(const std::string& path) try {
  return is_file(path) ? cache_named_in(read_saved(path), path) : "";
} catch (const Error&) {
  return {};  // is told when the chat is loaded
}

void save_chat(const std::string& path, const SavedChat& chat, const Model& model) {
  require_saved_chat_or_nothing(path);
  Ordered json;
  json["format"] = kChatFormat;
  json["version"] = kVersion;
  json["model"] = describe_model(model);
  json["settings"] = settings_json(chat.settings, chat.thinking);
  if (!chat.cache.empty()) json["cache"] = std::filesystem::path(chat.cache).filename().string();
  json["messages"] = messages_json(chat.shown.system, chat.shown.messages, Purpose::GoingOn);
  if (chat.branches) {
    json["branch"] = chat.branches->current();
    Ordered& others = json["branches"] = Ordered::object();
    for (const auto& [name, branch] : chat.branches->others())
      others[name] = messages_json(branch.system, branch.messages, Purpose::GoingOn);
  }
  replace_file(path, json_text(json, 2));
}

SavedChat load_chat(const std::string& path, SavedChat now, std::span<const std::string> typed, const Model& model) {
  const Ordered json = read_saved(path);
  SavedChat chat{.shown = read_messages(path, json.value("messages", Ordered())),
                 .settings = std::move(now.settings),
                 .thinking = std::move(now.thinking),
                 .branches = read_branches(path, json)};
  const Ordered saved_model = json.value("model", Ordered());
  const bool same_model = is_same_model(Json(saved_model), describe_model(model));
  bool biased = false;
  if (Ordered saved = json.value("settings", Ordered()); saved.is_object()) {
    for (const std::string& name : typed) saved.erase(name);
    biased = saved.value("logit_bias", Ordered("")) != "";
    if (!same_model) saved.erase("logit_bias");  // of tokens that have other numbers here
    try {
      read_settings(saved, chat.settings, chat.thinking, model.tokenizer());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Usage) throw;
      refuse_file(path, std::string("has a setting that is none: ") + error.what());
    }
  }
  if (!same_model) {
    const Ordered name = saved_model.is_object() ? saved_model.value("name", Ordered()) : Ordered();
    note("the chat was saved with another model" + (name.is_string() ? ", " + escaped(name.get<std::string>()) : "") +
         ": it will be read again" + (biased ? ", its logit_bias is left out" : ""));
  } else {
    chat.cache = cache_named_in(json, path);
  }
  return chat;
}

void export_chat(const std::string& path, const std::string& system, std::span<const ChatMessage> messages) {
  if (!path.ends_with(".md") && !path.ends_with(".jsonl")) refuse_file(path, "ends neither in .md nor in .jsonl");
  const std::string text = path.ends_with(".md") ? markdown(system, messages) : json_lines(system, messages);
  require_beginning_or_nothing(path, text);
  replace_file(path, text);
}

}  // namespace llm::app
