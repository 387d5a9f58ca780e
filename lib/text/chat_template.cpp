#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <set>

#include "text/jinja/json.h"
#include "text/known_templates.h"

namespace llm {
namespace {

using jinja::Kind;
using jinja::Origin;
using jinja::Value;

constexpr std::string_view kNamesKey = "tokenizer.chat_templates";
constexpr std::string_view kDefault = "default", kToolUse = "tool_use";

/// Roles are words that some templates put into markup ("<|" + role + "|>"). Those that formats define count as the
/// template's; any other stays the outside's.
constexpr std::string_view kRoles[] = {"system", "user",     "assistant",   "tool",   "developer",
                                       "model",  "function", "observation", "ipython"};

/// Names that a message's reasoning goes by. The first is filled from the others, as transformers does.
constexpr std::string_view kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

std::string named_key(std::string_view name) {
  return name == kDefault ? std::string(kTemplateKey) : std::string(kTemplateKey) + "." + std::string(name);
}

const Value* find(const jinja::DictObject& dict, std::string_view key) {
  const Value* v = dict.find(key);
  return v == nullptr || v->is_none() ? nullptr : v;
}

const Value* reasoning_of(const jinja::DictObject& message) {
  for (const std::string_view key : kReasoning) {
    if (const Value* v = find(message, key)) return v;
  }
  return nullptr;
}

Value prepared(const Value& message) {
  const auto& given = message.as<jinja::DictObject>();
  auto out = std::make_shared<jinja::DictObject>();
  const Value* reasoning = reasoning_of(given);
  if (reasoning != nullptr) out->set(Value::string("thinking", Origin::User), *reasoning);
  for (const auto& [key, value] : given.entries()) {
    const bool role = key.is_string() && key.as_string().view() == "role" && value.is_string() &&
                      std::find(std::begin(kRoles), std::end(kRoles), value.as_string().view()) != std::end(kRoles);
    out->set(key, role ? Value::string(value.as_string().view()) : value);
  }
  if (reasoning != nullptr) out->set(Value::string(kReasoning[0], Origin::User), *reasoning);
  return Value::object(Kind::Dict, std::move(out), message.origin());
}

Value prepared_messages(const Value& messages) {
  std::vector<Value> out;
  for (const Value& m : messages.items()) out.push_back(prepared(m));
  return chat_messages(std::move(out));
}

[[noreturn]] void fail_input(const std::string& name, std::string problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = name, .problem = std::move(problem)});
}

/// Why a part of a message's content cannot be had, or nothing.
std::string problem_of(const Value& part) {
  const Value* type = part.is_dict() ? part.as<jinja::DictObject>().find("type") : nullptr;
  if (type == nullptr || !type->is_string()) return "a part of its content is no object with a \"type\"";
  if (type->as_string().view() != "text") {
    return "a part of its content is of the type \"" + escaped(type->as_string().view()) +
           "\", and models read text only";
  }
  const Value* text = part.as<jinja::DictObject>().find("text");
  return text != nullptr && text->is_string() ? "" : "a part of its content has no \"text\"";
}

const Value* content_of(const Value& message) { return message.as<jinja::DictObject>().find("content"); }
bool has_parts(const Value& message) {
  const Value* content = content_of(message);
  return content != nullptr && content->is(Kind::List);
}
bool has_null(const Value& message) {
  const Value* content = content_of(message);
  return content != nullptr && content->is_none();
}

void check_messages(const Value& messages, const std::string& name) {
  if (!messages.is(Kind::List)) fail_input(name, "the messages must be an array of objects");
  for (std::size_t i = 0; i < messages.items().size(); ++i) {
    const Value& message = messages.items()[i];
    const auto fail = [&](const std::string& problem) {
      fail_input(name, "message " + std::to_string(i + 1) + problem);
    };
    if (!message.is_dict()) fail(" is no object but of type " + std::string(type_name(message)));
    if (!has_parts(message)) continue;
    for (const Value& part : content_of(message)->items()) {
      if (const std::string problem = problem_of(part); !problem.empty()) fail(": " + problem);
    }
  }
}

Value user_text(std::string_view text) { return Value::string(text, Origin::User); }

/// The dict with other values, or more.
Value with_values(const Value& dict, std::initializer_list<std::pair<std::string_view, Value>> others) {
  auto copy = std::make_shared<jinja::DictObject>();
  for (const auto& [key, value] : dict.as<jinja::DictObject>().entries()) copy->set(key, value);
  for (const auto& [key, value] : others) copy->set(user_text(key), value);
  return Value::object(Kind::Dict, std::move(copy), dict.origin());
}

/// The messages, those that `are` so with another content.
template <class Content>
Value with_content(const Value& messages, bool (*are)(const Value&), Content&& content) {
  std::vector<Value> out;
  for (const Value& m : messages.items())
    out.push_back(are(m) ? with_values(m, {{"content", content(*content_of(m))}}) : m);
  return chat_messages(std::move(out));
}
Value no_text(const Value&) { return user_text(""); }

/// The arguments of a call of a tool, where they are JSON in a text, as OpenAI's API has them: what the text says.
std::optional<Value> written_arguments(const Value& call) {
  const Value* function = call.is_dict() ? find(call.as<jinja::DictObject>(), "function") : nullptr;
  if (function == nullptr || !function->is_dict()) return std::nullopt;
  const Value* arguments = find(function->as<jinja::DictObject>(), "arguments");
  if (arguments == nullptr || !arguments->is_string()) return std::nullopt;
  try {
    Value object = jinja::from_json(arguments->as_string().view(), Origin::User, "arguments");
    return object.is_dict() ? std::optional(std::move(object)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // any text may stand there
  }
}
const Value* calls_of(const Value& message) {
  const Value* calls = find(message.as<jinja::DictObject>(), "tool_calls");
  return calls != nullptr && calls->is(Kind::List) ? calls : nullptr;
}
bool has_written_arguments(const Value& message) {
  const Value* calls = calls_of(message);
  return calls != nullptr && std::any_of(calls->items().begin(), calls->items().end(),
                                         [](const Value& call) { return written_arguments(call).has_value(); });
}
/// The messages with other arguments in place of those that are JSON in a text.
template <class Arguments>
Value with_arguments(const Value& messages, Arguments&& other) {
  std::vector<Value> out;
  for (const Value& m : messages.items()) {
    if (!has_written_arguments(m)) {
      out.push_back(m);
      continue;
    }
    std::vector<Value> calls;
    for (const Value& call : calls_of(m)->items()) {
      std::optional<Value> said = written_arguments(call);
      if (!said) {
        calls.push_back(call);
        continue;
      }
      const Value& function = *find(call.as<jinja::DictObject>(), "function");
      calls.push_back(
          with_values(call, {{"function", with_values(function, {{"arguments", other(*std::move(said))}})}}));
    }
    out.push_back(with_values(m, {{"tool_calls", chat_messages(std::move(calls))}}));
  }
  return chat_messages(std::move(out));
}

/// What stands for texts of parts in a trial. Neither what a template is given nor its own text has any of it.
class Marks {
 public:
  void keep_apart_from(std::string_view text) {
    for (std::size_t at = text.find(kBegin); at != std::string_view::npos; at = text.find(kBegin, at)) {
      at += kBegin.size();
      std::size_t number = 0;
      const auto read = std::from_chars(text.data() + at, text.data() + text.size(), number);
      if (read.ec == std::errc()) taken_.insert(number);
    }
    while (taken_.contains(free_)) ++free_;
  }
  void keep_apart_from(const Value& v) {
    if (v.is_string()) keep_apart_from(v.as_string().view());
    if (v.is_sequence()) {
      for (const Value& item : v.items()) keep_apart_from(item);
    }
    if (!v.is_dict()) return;
    for (const auto& [key, value] : v.as<jinja::DictObject>().entries()) {
      keep_apart_from(key);
      keep_apart_from(value);
    }
  }
  std::string text(std::size_t n) const { return begin() + "/" + std::to_string(n) + "]"; }
  /// The value of a key that no template knows.
  std::string unknown() const { return begin() + "]"; }

 private:
  static constexpr std::string_view kBegin = "[part ";
  std::string begin() const { return std::string(kBegin) + std::to_string(free_); }
  std::set<std::size_t> taken_;  ///< numbers behind kBegin
  std::size_t free_ = 0;
};

Marks marks_for(const ChatInput& input, const Value& messages, std::string_view source) {
  Marks marks;
  for (const Value& v : {messages, input.tools}) marks.keep_apart_from(v);
  for (const auto& [name, value] : input.variables) marks.keep_apart_from(value);
  for (const std::string_view text : {std::string_view(input.bos), std::string_view(input.eos), source})
    marks.keep_apart_from(text);
  return marks;
}

/// Parts with marks in place of their texts, counted from `n` on, and with a key that no template knows.
Value marked(const Value& parts, const Marks& marks, std::size_t& n) {
  std::vector<Value> out;
  for (const Value& part : parts.items())
    out.push_back(with_values(part, {{"text", user_text(marks.text(n++))}, {"trial", user_text(marks.unknown())}}));
  return chat_messages(std::move(out));
}

/// By line feeds, as llama.cpp and vLLM join them.
Value joined(const Value& parts) {
  std::string all;
  for (const Value& part : parts.items()) {
    if (&part != &parts.items().front()) all += '\n';
    all += part.as<jinja::DictObject>().find("text")->as_string().view();
  }
  return user_text(all);
}

bool any(const Value& messages, bool (*are)(const Value&)) {
  return std::any_of(messages.items().begin(), messages.items().end(), are);
}

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

PromptText prompt_of(const jinja::Rendered& rendered) {
  PromptText prompt;
  std::size_t begin = 0;
  for (const jinja::Run& run : rendered.runs) {
    if (run.origin == Origin::User) prompt.user.push_back({begin, run.end});
    begin = run.end;
  }
  prompt.text = rendered.text;
  return prompt;
}

std::size_t text_bytes(const Value& v) {
  std::size_t bytes = 0;
  if (v.is_string()) bytes = v.as_string().bytes().size();
  if (v.is_sequence()) {
    for (const Value& item : v.items()) bytes += text_bytes(item);
  }
  if (v.is_dict()) {
    for (const auto& [key, value] : v.as<jinja::DictObject>().entries()) bytes += text_bytes(value);
  }
  return bytes;
}

/// A long conversation is no template's fault: it may be written a few times, and read a few times more. At each of its
/// messages many templates look at those before it or behind it, for the last one of a user or the result of a call.
jinja::Limits limits_for(const ChatInput& input) {
  constexpr std::size_t kCopies = 4, kReadings = 32, kStepsPerPair = 4;
  const std::size_t bytes = text_bytes(input.messages) + text_bytes(input.tools);
  jinja::Limits limits;
  limits.output_bytes += kCopies * bytes;
  limits.string_bytes += kCopies * bytes;
  limits.steps += kReadings * bytes / jinja::kBytesPerStep;
  if (input.messages.is_sequence()) {
    const std::size_t n = input.messages.items().size();
    limits.steps += kStepsPerPair * n * n;
  }
  return limits;
}

/// Digits of a date at the front of the text, and what follows them.
int take_number(std::string_view& text, std::size_t digits, std::string_view after, std::string_view whole) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(digits, text.size()), n);
  const bool right = error == std::errc() && end == text.data() + digits && n >= 0;
  text.remove_prefix(std::min(digits, text.size()));
  if (!right || !text.starts_with(after)) {
    throw Error(ErrorKind::Usage, "\"" + escaped(whole) + "\" is no time such as 2025-07-10T12:00:00");
  }
  text.remove_prefix(after.size());
  return n;
}

}  // namespace

Value chat_message(std::string_view role, std::string_view content) {
  auto dict = std::make_shared<jinja::DictObject>();
  dict->set(Value::string("role", Origin::User), Value::string(role, Origin::User));
  dict->set(Value::string("content", Origin::User), Value::string(content, Origin::User));
  return Value::object(Kind::Dict, std::move(dict), Origin::User);
}

Value chat_message(std::string_view role, std::string_view content, std::string_view thinking) {
  auto dict = std::make_shared<jinja::DictObject>();
  const auto set = [&dict](std::string_view key, std::string_view text) {
    dict->set(Value::string(key, Origin::User), Value::string(text, Origin::User));
  };
  set("role", role);
  set("content", content);
  set("reasoning_content", thinking);
  set("reasoning", thinking);
  return Value::object(Kind::Dict, std::move(dict), Origin::User);
}

Value chat_messages(std::vector<Value> messages) {
  auto list = std::make_shared<jinja::ListObject>();
  for (const Value& m : messages) list->depth = std::max(list->depth, jinja::depth(m) + 1);
  list->items = std::move(messages);
  return Value::object(Kind::List, std::move(list), Origin::User);
}

void read_chat_variables(std::string_view json, const std::string& name, jinja::Context& into) {
  const Value object = jinja::from_json(json, Origin::User, name);
  if (!object.is_dict()) fail_input(name, "a JSON object with variables is needed");
  for (const auto& [key, value] : object.as<jinja::DictObject>().entries()) {
    into.insert_or_assign(key.as_string().bytes(), value);
  }
}

ChatInput read_chat_input(std::string_view json, const std::string& name) {
  ChatInput input;
  const Value document = jinja::from_json(json, Origin::User, name);
  if (document.is_dict()) {
    for (const auto& [key, value] : document.as<jinja::DictObject>().entries()) {
      const std::string& variable = key.as_string().bytes();
      if (variable == "messages") {
        input.messages = value;
      } else if (variable == "tools") {
        input.tools = value;
      } else if (value.is_string() && (variable == "bos_token" || variable == "eos_token")) {
        (variable == "bos_token" ? input.bos : input.eos) = value.as_string().bytes();
      } else {
        input.variables.insert_or_assign(variable, value);
      }
    }
    if (input.messages.is_none()) fail_input(name, "the object has no \"messages\"");
  } else {
    input.messages = document;
  }
  check_messages(input.messages, name);
  return input;
}

jinja::Now local_now() { return local_time(std::chrono::system_clock::now()); }

jinja::Now local_time(std::chrono::system_clock::time_point now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto rest = now - std::chrono::system_clock::from_time_t(seconds);
  jinja::Now out;
  ::localtime_r(&seconds, &out.calendar);
  out.microseconds = static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(rest).count());
  return out;
}

jinja::Now parse_now(std::string_view iso) {
  jinja::Now now;
  std::tm& t = now.calendar;
  std::string_view rest = iso;
  t.tm_year = take_number(rest, 4, "-", iso) - 1900;
  t.tm_mon = take_number(rest, 2, "-", iso) - 1;
  t.tm_mday = take_number(rest, 2, "", iso);
  if (rest.starts_with('T') || rest.starts_with(' ')) {
    rest.remove_prefix(1);
    t.tm_hour = take_number(rest, 2, ":", iso);
    t.tm_min = take_number(rest, 2, "", iso);
    if (rest.starts_with(':')) {
      rest.remove_prefix(1);
      t.tm_sec = take_number(rest, 2, "", iso);
    }
  }
  const std::tm given = t;
  ::timegm(&t);  // fills in the days of the week and of the year, and moves what is no date
  if ((!rest.empty() && rest != "Z") || given.tm_mon != t.tm_mon || given.tm_mday != t.tm_mday ||
      given.tm_hour != t.tm_hour || given.tm_min != t.tm_min || given.tm_sec != t.tm_sec) {
    throw Error(ErrorKind::Usage, "\"" + escaped(iso) + "\" is no time such as 2025-07-10T12:00:00");
  }
  return now;
}

std::optional<ChatTemplate> ChatTemplate::from_file(const Metadata& metadata, ToolsOffered tools) {
  const std::string key =
      named_key(tools == ToolsOffered::Yes && metadata.has(named_key(kToolUse)) ? kToolUse : kDefault);
  if (!metadata.has(key)) return std::nullopt;
  return ChatTemplate(metadata.get<std::string_view>(key), {metadata.file(), key_subject(key)});
}

std::vector<std::string> ChatTemplate::names_in(const Metadata& metadata) {
  std::vector<std::string> names;
  if (metadata.has(kTemplateKey)) names.emplace_back(kDefault);
  if (!metadata.has(kNamesKey)) return names;
  for (const std::string_view name : metadata.array<std::string_view>(kNamesKey)) {
    if (name != kDefault && metadata.has(named_key(name))) names.emplace_back(name);
  }
  return names;
}

ChatTemplate ChatTemplate::by_name(const Metadata* metadata, std::string_view name) {
  const std::vector<std::string> own = metadata == nullptr ? std::vector<std::string>() : names_in(*metadata);
  if (std::find(own.begin(), own.end(), name) != own.end()) {
    const std::string key = named_key(name);
    return ChatTemplate(metadata->get<std::string_view>(key), {metadata->file(), key_subject(key)});
  }
  std::string known;
  for (const KnownTemplate& t : known_templates()) {
    if (t.name == name) return ChatTemplate(t.source, {{}, "chat template " + std::string(name)});
    known += (known.empty() ? "" : ", ") + std::string(t.name);
  }
  std::string problem =
      is_foreign_template(name)
          ? "chat template " + std::string(name) +
                " of llama.cpp is recognised, not supported yet; a model's file has its own as a rule, and "
                "--chat-template-file takes any; known names: " +
                known
          : "there is no chat template named \"" + escaped(name) + "\"; known names: " + known;
  if (!own.empty()) {
    problem += "; in the file: ";
    for (std::size_t i = 0; i < own.size(); ++i) problem += (i > 0 ? ", " : "") + escaped(own[i]);
  }
  throw Error(ErrorKind::Usage, std::move(problem));
}

bool ChatTemplate::is_source(std::string_view text) {
  return text.find("{%") != std::string_view::npos || text.find("{{") != std::string_view::npos;
}

jinja::Rendered ChatTemplate::rendered(const ChatInput& input, const Value& messages) const {
  jinja::Context context;
  context.emplace("messages", messages);
  context.emplace("tools", input.tools);
  context.emplace("documents", Value());
  context.emplace("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  if (!input.bos.empty()) context.emplace("bos_token", Value::string(input.bos));
  if (!input.eos.empty()) context.emplace("eos_token", Value::string(input.eos));
  for (const auto& [name, value] : input.variables) context.insert_or_assign(name, value);
  return template_.render(context, input.now, limits_for(input));
}

/// Found out with a mark in JSON: a template that knows arguments in a text writes this as it is, or no arguments at
/// all; any other fails at it, or writes it as a text in quotes.
bool ChatTemplate::writes_arguments(const ChatInput& input, const Value& messages) const {
  const std::string mark = marks_for(input, messages, template_.source()).unknown(), written = "{\"" + mark + "\": 0}";
  const Value trial =
      with_arguments(with_content(messages, has_null, no_text), [&](const Value&) { return user_text(written); });
  try {
    const std::string text = rendered(input, trial).text;
    return count(text, written) > 0 || count(text, mark) == 0;
  } catch (const jinja::LimitError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

/// Found out with marks for texts: a template that knows parts writes all of them, and any other fails at them, leaves
/// some out (those of one role, or all but the first), or writes them with all their keys.
bool ChatTemplate::writes_parts(const ChatInput& input, const Value& messages) const {
  const Marks marks = marks_for(input, messages, template_.source());
  std::size_t n = 0;
  const Value trial = with_content(with_content(messages, has_null, no_text), has_parts,
                                   [&](const Value& parts) { return marked(parts, marks, n); });
  try {
    const std::string text = rendered(input, trial).text;
    for (std::size_t i = 0; i < n; ++i) {
      if (count(text, marks.text(i)) == 0) return false;
    }
    return n > 0 && count(text, marks.unknown()) == 0;
  } catch (const jinja::LimitError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

/// Beside calls of tools some templates ask whether the content is null; others fail at it, or write Python's name.
jinja::Rendered ChatTemplate::rendered_with_nulls(const ChatInput& input, const Value& messages) const {
  const Value texts = with_content(messages, has_null, no_text);
  std::optional<jinja::Rendered> given;
  try {
    given = rendered(input, messages);
  } catch (const jinja::LimitError&) {
    throw;
  } catch (const Error&) {
    return rendered(input, texts);
  }
  if (count(given->text, "None") == 0) return *std::move(given);
  jinja::Rendered without = rendered(input, texts);
  return count(given->text, "None") > count(without.text, "None") ? std::move(without) : *std::move(given);
}

PromptText ChatTemplate::render(const ChatInput& input) const {
  Value messages = prepared_messages(input.messages);
  if (any(messages, has_parts) && !writes_parts(input, messages)) messages = with_content(messages, has_parts, joined);
  if (any(messages, has_written_arguments) && !writes_arguments(input, messages))
    messages = with_arguments(messages, [](Value said) { return said; });
  return prompt_of(any(messages, has_null) ? rendered_with_nulls(input, messages) : rendered(input, messages));
}

}  // namespace llm
