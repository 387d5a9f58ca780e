#include "batch_request.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "common/numbers.h"
#include "nesting.h"
#include "output_options.h"

namespace llm::app {
namespace {

/// Ends the reading of a row.
struct BadRow {
  RowFailure failure;
};

[[noreturn]] void invalid(std::string message) { throw BadRow{{RowFailure::Code::InvalidRequest, std::move(message)}}; }

std::string in_key(std::string_view key) { return "\"" + escaped(key) + "\""; }

bool is_shallow(int depth, Json::parse_event_t, const Json&) {
  if (depth > kMostNesting) throw BadRow{{RowFailure::Code::InvalidJson, nesting_problem()}};
  return true;
}

/// Beside that: of a key that is there twice, whoever wrote the row may have meant either.
class RowReader {
 public:
  explicit RowReader(std::string& twice) : twice_(twice) {}
  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::key && !keys_.back().insert(value.get<std::string>()).second) {
      if (twice_.empty()) twice_ = in_key(value.get<std::string>());
    }
    return is_shallow(depth, event, value);
  }

 private:
  std::string& twice_;                       ///< the first such key, as in a message
  std::vector<std::set<std::string>> keys_;  ///< of the objects that are open
};

void refuse_twice(const std::string& key) {
  if (!key.empty()) invalid("the key " + key + " is there twice");
}

/// A token that has no end would be quoted whole.
std::string shortened(std::string_view message) {
  constexpr std::size_t kMost = 300;
  if (message.size() <= kMost) return std::string(message);
  std::size_t end = kMost;
  while (utf8::is_inside(message, end)) --end;
  return std::string(message.substr(0, end)) + "...";
}

Json parse_json(std::string_view text, std::string& twice) {
  try {
    return Json::parse(text, RowReader(twice));
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ...": the part for people; a row is one line
    std::string what = error.what();
    what.erase(0, std::min(what.find("] ") + 2, what.size()));
    constexpr std::string_view kPlace = "parse error at line 1, ";
    if (what.starts_with(kPlace)) what.replace(0, kPlace.size(), "parse error at ");
    throw BadRow{{RowFailure::Code::InvalidJson, shortened(what)}};
  }
}

double number(const Json& value, std::string_view key, int min, int max) {
  if (!value.is_number()) invalid(in_key(key) + " is not a number");
  const double x = value.get<double>();
  if (!(x >= min && x <= max)) {
    invalid(in_key(key) + ": " + value.dump() + " is not from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return x;
}

std::int64_t integer(const Json& value, std::string_view key, std::int64_t min, std::int64_t max) {
  // Some writers give every number a fraction.
  const bool whole = value.is_number_float() && std::floor(value.get<double>()) == value.get<double>();
  if (!value.is_number_integer() && !whole) invalid(in_key(key) + " is not a whole number");
  const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(max);
  const double wide = value.get<double>();
  // As doubles the largest numbers are rounded up: what reaches 2^63 does not fit.
  const bool fits = wide >= static_cast<double>(min) && (value.is_number_integer() || wide < 0x1p63);
  if (too_large || !fits || wide > static_cast<double>(max)) {
    invalid(in_key(key) + ": " + value.dump() + " is not from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return value.get<std::int64_t>();
}

bool has_value(const Json& object, const char* key) { return object.contains(key) && !object[key].is_null(); }

bool boolean(const Json& value, std::string_view key) {
  if (!value.is_boolean()) invalid(in_key(key) + " is neither true nor false");
  return value.get<bool>();
}

std::string string(const Json& value, std::string_view key) {
  if (!value.is_string()) invalid(in_key(key) + " is not a string");
  return value.get<std::string>();
}

TokenPrompt token_ids(const Json& array) {
  TokenPrompt tokens;
  const bool ids = std::all_of(array.begin(), array.end(), [](const Json& id) { return id.is_number(); });
  if (!ids) invalid("\"prompt\" has an array in which not all are token ids");
  for (const Json& id : array) tokens.push_back(static_cast<Token>(integer(id, "prompt", 0, kMaxInt32)));
  return tokens;
}

RowPrompt one_prompt(const Json& value) {
  if (value.is_string()) return PromptText{value.get<std::string>(), {}};
  if (!value.is_array() || value.empty())
    invalid("\"prompt\" is neither a text nor an array of token ids or of prompts");
  return token_ids(value);
}

/// A text, an array of token ids, or an array of such prompts.
std::vector<RowPrompt> read_prompts(const Json& value) {
  const bool several = value.is_array() && !value.empty() && !value[0].is_number();
  if (!several) return {one_prompt(value)};
  std::vector<RowPrompt> prompts;
  for (const Json& prompt : value) prompts.push_back(one_prompt(prompt));
  return prompts;
}

ChatPrompt& chat(BatchRequest& r, std::string_view key) {
  auto* prompt = std::get_if<ChatPrompt>(&r.prompts.front());
  if (prompt == nullptr) invalid(in_key(key) + " goes with \"messages\"");
  return *prompt;
}

/// Calls of tools take its place in an assistant's; what else a template knows, it knows by other roles.
bool lacks_content(const Json& message) {
  if (message.contains("content")) return false;
  const std::string role = message["role"].get<std::string>();
  constexpr std::array<std::string_view, 4> kAlways{"system", "user", "tool", "developer"};
  return std::find(kAlways.begin(), kAlways.end(), role) != kAlways.end() ||
         (role == "assistant" && message.size() == 1);
}

void read_messages(BatchRequest& r, const Json& value, const std::string& written) {
  if (!value.is_array() || value.empty()) invalid("\"messages\" is not an array with a message in it");
  ChatPrompt prompt{.roles = {}, .messages_text = written};
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Json& message = value[i];
    const std::string which = "message " + std::to_string(i + 1);
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      invalid(which + " is not an object with a \"role\"");
    }
    if (lacks_content(message)) invalid(which + " has no \"content\"");
    prompt.roles.push_back(message["role"].get<std::string>());
  }
  r.prompts = {std::move(prompt)};
}

/// Keys that ask for something; the table is the format.
struct Key {
  std::string_view name;
  void (*read)(BatchRequest&, const Json&, std::string_view key);
};

void read_max_tokens(BatchRequest& r, const Json& v, std::string_view key) {
  const std::int64_t n = integer(v, key, -1, kMaxInt32);
  if (r.changes.max_tokens.value_or(n) != n)
    invalid(in_key(key) + " is " + std::to_string(n) + ", another key of the same meaning " +
            std::to_string(*r.changes.max_tokens));
  r.changes.max_tokens = n;
}
void read_seed(BatchRequest& r, const Json& v, std::string_view key) {
  const std::int64_t seed = integer(v, key, -1, std::numeric_limits<std::int64_t>::max());
  if (seed >= 0) r.changes.seed = static_cast<std::uint64_t>(seed);
}
void read_choices(BatchRequest& r, const Json& v, std::string_view key) {
  constexpr std::int64_t kMostChoices = 128;
  r.choices = static_cast<int>(integer(v, key, 1, kMostChoices));
}
void read_ignore_eos(BatchRequest& r, const Json& v, std::string_view key) {
  r.changes.end_token = boolean(v, key) ? AnswerOptions::EndToken::Ignored : AnswerOptions::EndToken::Stops;
}
void read_stop(BatchRequest& r, const Json& v, std::string_view key) {
  const Json list = v.is_array() ? v : Json::array({v});
  std::vector<std::string>& texts = r.changes.stop_strings.emplace();
  for (const Json& text : list) {
    texts.push_back(string(text, key));
    if (texts.back().empty()) invalid(in_key(key) + ": an empty text would end every answer at once");
  }
}
/// {"15043": -100}, or [[15043, -100], ...] where false forbids the token.
void read_logit_bias(BatchRequest& r, const Json& v, std::string_view key) {
  constexpr int kMost = 1'000'000;
  const auto add = [&](const Json& id, const Json& bias) {
    if (!id.is_number()) invalid(in_key(key) + " has an entry for what is no token id; llm-inspect tokenize tells ids");
    const bool forbidden = bias.is_boolean() && !bias.get<bool>();
    r.changes.logit_bias.push_back(
        {static_cast<Token>(integer(id, key, 0, kMaxInt32)),
         forbidden ? -std::numeric_limits<float>::infinity() : static_cast<float>(number(bias, key, -kMost, kMost))});
  };
  if (v.is_object()) {
    for (const auto& [id, bias] : v.items()) add(Json::parse(id, nullptr, false), bias);
  } else if (v.is_array()) {
    for (const Json& pair : v) {
      if (!pair.is_array() || pair.size() != 2) invalid(in_key(key) + " has an entry that is not [token id, bias]");
      add(pair[0], pair[1]);
    }
  } else {
    invalid(in_key(key) + " is neither an object nor an array");
  }
}
constexpr const char* kTopNeedsAny = "\"top_logprobs\" goes with \"logprobs\": true";
/// A number for completions; true for chats, where top_logprobs has the number.
void read_logprobs(BatchRequest& r, const Json& v, std::string_view key) {
  if (v.is_boolean()) {
    if (!v.get<bool>() && r.changes.logprobs) invalid(kTopNeedsAny);
    r.changes.logprobs = v.get<bool>() ? r.changes.logprobs.value_or(0) : kNoLogprobs;
  } else {
    r.changes.logprobs = static_cast<int>(integer(v, key, 0, kMostLogprobs));
  }
}
void read_top_logprobs(BatchRequest& r, const Json& v, std::string_view key) {
  if (r.changes.logprobs == kNoLogprobs) invalid(kTopNeedsAny);
  r.changes.logprobs = static_cast<int>(integer(v, key, 0, kMostLogprobs));
}
void read_template_variables(BatchRequest& r, const Json& v, std::string_view written, std::string_view key) {
  if (!v.is_object()) invalid(in_key(key) + " is not an object");
  if (v.contains("messages")) invalid(in_key(key) + " has \"messages\", which are the row's");
  ChatPrompt& prompt = chat(r, key);
  prompt.variables.update(v);
  const std::size_t first = written.find('{') + 1;
  if (!v.empty()) prompt.variables_text.append(",").append(written.substr(first, written.rfind('}') - first));
}
void read_template_variable(BatchRequest& r, const Json& v, std::string_view written, std::string_view key) {
  ChatPrompt& prompt = chat(r, key);
  prompt.variables[std::string(key)] = v;
  prompt.variables_text.append(",\"").append(key).append("\":").append(written);
}

/// One form for an answer; the text of it is what rows with the same form share its automaton by.
void set_form(BatchRequest& r, std::string_view key, const std::string& text,
              const std::function<Grammar(Warnings&)>& compile) {
  if (r.changes.grammar) invalid(in_key(key) + ": the row has asked for another form already");
  Warnings warnings;
  try {
    r.changes.grammar = std::make_shared<const Grammar>(compile(warnings));
  } catch (const Error& error) {
    throw BadRow{{RowFailure::Code::SchemaInvalid, error.what()}};
  }
  r.changes.form = std::string(key) + ":" + text;
  for (Warning& w : warnings) r.warnings.push_back(std::move(w));
}
void read_schema(BatchRequest& r, const Json& v, std::string_view written, std::string_view key) {
  if (!v.is_object() && !v.is_boolean())
    throw BadRow{{RowFailure::Code::SchemaInvalid, in_key(key) + " is not an object"}};
  set_form(r, key, std::string(written), [&](Warnings& warnings) {
    return v.is_object() && v.empty() ? grammar_of_json_objects() : grammar_from_json_schema(written, warnings);
  });
}
void read_grammar(BatchRequest& r, const Json& v, std::string_view key) {
  const std::string text = string(v, key);
  if (text.empty()) {  // as clients of llama.cpp's server say that there is none
    r.changes.free_of_form = true;
    return;
  }
  set_form(r, key, text, [&](Warnings&) { return grammar_from_gbnf(text); });
}
void read_response_format(BatchRequest& r, const Json& v, std::string_view written, std::string_view key) {
  const Json type = v.is_object() ? v.value("type", Json()) : Json();
  if (type == "text") {
    r.changes.free_of_form = true;
    return;
  }
  if (type == "json_object") {
    if (!v.contains("schema")) return read_schema(r, Json::object(), "{}", key);
    return read_schema(r, v["schema"], written_members(written).at("schema"), key);
  }
  if (type != "json_schema") invalid(in_key(key) + " has no \"type\" text, json_object or json_schema");
  const Json given = v.value("json_schema", Json());
  if (!given.is_object() || !given.contains("schema"))
    invalid(in_key(key) + " has no \"json_schema\" with a \"schema\"");
  read_schema(r, given["schema"], written_members(written_members(written).at("json_schema")).at("schema"), key);
}

constexpr std::array kKeys{
    Key{"max_tokens", read_max_tokens},
    Key{"max_completion_tokens", read_max_tokens},
    Key{"n_predict", read_max_tokens},
    Key{"seed", read_seed},
    Key{"n", read_choices},
    Key{"ignore_eos", read_ignore_eos},
    Key{"stop", read_stop},
    Key{"logit_bias", read_logit_bias},
    Key{"logprobs", read_logprobs},
    Key{"top_logprobs", read_top_logprobs},
    Key{"grammar", read_grammar},
};

/// Keys whose values go on as they are written.
struct WrittenKey {
  std::string_view name;
  void (*read)(BatchRequest&, const Json&, std::string_view written, std::string_view key);
};
constexpr std::array kWrittenKeys{
    WrittenKey{"json_schema", read_schema},
    WrittenKey{"response_format", read_response_format},
    WrittenKey{"chat_template_kwargs", read_template_variables},
    WrittenKey{"tools", read_template_variable},
    WrittenKey{"reasoning_effort", read_template_variable},
};

/// Settings of sampling by the names of their table.
bool read_sampling(BatchRequest& r, const std::string& name, const Json& v) {
  const SamplingParameter* p = find_sampling_parameter(name);
  if (p == nullptr) return false;
  if (!v.is_number()) invalid(in_key(name) + " is not a number");
  SamplerOptions scratch;
  try {
    set_value(scratch, *p, v.get<double>());
  } catch (const Error& error) {
    invalid(error.what());
  }
  r.changes.sampling.emplace_back(p, v.get<double>());
  return true;
}

/// Read by other means, or without a meaning here and harmless.
constexpr std::array<std::string_view, 12> kOtherKeys{"id",     "custom_id", "method", "url",  "body",  "prompt",
                                                      "system", "messages",  "model",  "user", "store", "metadata"};

void read_keys(BatchRequest& r, const Json& object, const WrittenMembers& written) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    bool known = std::find(kOtherKeys.begin(), kOtherKeys.end(), name) != kOtherKeys.end();
    known = known || read_sampling(r, name, value);
    for (const Key& key : kKeys) {
      if (key.name != name) continue;
      key.read(r, value, key.name);
      known = true;
    }
    for (const WrittenKey& key : kWrittenKeys) {
      if (key.name != name) continue;
      key.read(r, value, written.at(name), key.name);
      known = true;
    }
    const bool asks_for_nothing = name == "stream" && value == false;
    if (!known && !asks_for_nothing) r.ignored_keys.push_back(name);
  }
}

void read_content(BatchRequest& r, const Json& object, const WrittenMembers& written) {
  const bool messages = has_value(object, "messages"), prompt = has_value(object, "prompt");
  if (messages && prompt) invalid("both \"messages\" and \"prompt\"");
  if (messages) {
    read_messages(r, object["messages"], written.at("messages"));
  } else if (prompt) {
    r.prompts = read_prompts(object["prompt"]);
  } else {
    invalid("neither \"messages\" nor \"prompt\"");
  }
  if (has_value(object, "system")) {
    const std::string text = string(object["system"], "system");
    if (!messages) invalid("\"system\" goes with \"messages\"");
    auto& conversation = std::get<ChatPrompt>(r.prompts.front());
    conversation.roles.insert(conversation.roles.begin(), "system");
    std::string& all = conversation.messages_text;
    all.insert(all.find('[') + 1, Json{{"role", "system"}, {"content", text}}.dump() + ",");
  }
}

void read_flat(BatchRequest& r, const Json& object, const WrittenMembers& written) {
  read_content(r, object, written);
  if (has_value(object, "model")) r.model = string(object["model"], "model");
  read_keys(r, object, written);
}

void read_openai(BatchRequest& r, const Json& line, const WrittenMembers& written) {
  constexpr std::array<std::string_view, 2> kEndpoints{"/v1/chat/completions", "/v1/completions"};
  if (has_value(line, "method") && line["method"] != "POST") invalid("\"method\" is not POST");
  if (has_value(line, "url")) {
    const std::string url = string(line["url"], "url");
    if (std::find(kEndpoints.begin(), kEndpoints.end(), url) == kEndpoints.end()) {
      invalid("\"url\" is " + in_key(url) + "; served are /v1/chat/completions and /v1/completions");
    }
  }
  if (!line["body"].is_object()) invalid("\"body\" is not an object");
  constexpr std::array<std::string_view, 5> kAround{"custom_id", "id", "method", "url", "body"};
  for (const auto& [name, value] : line.items()) {
    if (std::find(kAround.begin(), kAround.end(), name) == kAround.end()) r.ignored_keys.push_back(name);
  }
  read_flat(r, line["body"], written_members(written.at("body")));
}

/// Texts that may stand in one cell as a list: what else reads as JSON is such a text itself.
bool is_list_of_texts(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& text) { return text.is_string(); });
}

/// As tables of other programs spell it; discarded if it is none.
Json truth(std::string cell) {
  std::transform(cell.begin(), cell.end(), cell.begin(), [](unsigned char c) { return std::tolower(c); });
  return cell == "true" ? Json(true) : cell == "false" ? Json(false) : Json(Json::value_t::discarded);
}

/// Cells have no types: an empty one is not given, one that reads as JSON is that, unless it is text by its name.
Json typed(const Json& columns, WrittenMembers& written) {
  constexpr std::array<std::string_view, 8> kTexts{"prompt", "system",  "custom_id",        "id",
                                                   "stop",   "grammar", "reasoning_effort", "model"};
  Json out = Json::object();
  for (const auto& [name, value] : columns.items()) {
    const std::string& cell = value.get_ref<const std::string&>();
    if (cell.empty()) continue;
    if (name != "prompt" && !utf8::valid(cell)) invalid("column " + in_key(name) + " is not UTF-8");
    const bool text = std::find(kTexts.begin(), kTexts.end(), name) != kTexts.end();
    std::string twice;
    Json parsed = text ? Json() : Json::parse(cell, RowReader(twice), false);
    if (!parsed.is_discarded()) refuse_twice(twice);
    if (name == "stop") parsed = Json::parse(cell, nullptr, false);
    if (!text && parsed.is_discarded()) parsed = truth(cell);
    const bool stays = name == "stop" ? !is_list_of_texts(parsed) : text || parsed.is_discarded() || parsed.is_string();
    written[name] = !stays ? cell : utf8::valid(cell) ? value.dump() : "";
    out[name] = stays ? value : std::move(parsed);
  }
  return out;
}

void fill_prompt(BatchRequest& r, const RowTemplate& row_template, const Json& columns, const WrittenMembers& written) {
  const std::vector<std::string>& wanted = row_template.columns();
  const auto is_there = [&](const std::string& n) { return columns.contains(n) && !columns[n].is_null(); };
  if (!std::all_of(wanted.begin(), wanted.end(), is_there)) {
    r.columns.emplace();
    for (const auto& [known, any] : columns.items()) r.columns->push_back(known);
  }
  for (const std::string& name : wanted) {
    if (!columns.contains(name)) invalid(no_column(name, *r.columns));
    if (columns[name].is_null()) invalid(in_key(name) + " is null, and the prompt needs it");
  }
  r.is_filled = true;
  r.prompts = {PlainPrompt{row_template.fill(columns, written)}};
}

template <std::size_t N, class K>
bool names(const std::array<K, N>& keys, std::string_view name) {
  return std::any_of(keys.begin(), keys.end(), [&](const K& key) { return key.name == name; });
}

/// Of a row whose prompt a template makes: the keys of options that the template does not insert. What else there is
/// are columns that nobody asked for.
Json options_beside(const RowTemplate& row_template, const Json& columns) {
  Json options = Json::object();
  for (const auto& [name, value] : columns.items()) {
    const bool known = names(kKeys, name) || names(kWrittenKeys, name) || find_sampling_parameter(name) != nullptr;
    if (known && !row_template.inserts(name)) options[name] = value;
  }
  return options;
}

/// Variables of a chat template are those of a row's own messages.
void drop_variables(BatchRequest& r, Json& options) {
  for (const char* name : {"chat_template_kwargs", "tools", "reasoning_effort"}) {
    if (has_value(options, name)) r.ignored_keys.emplace_back(name);
    options.erase(name);
  }
}

void read_options_beside(BatchRequest& r, Json options, const WrittenMembers& written) {
  drop_variables(r, options);
  for (const auto& [name, value] : options.items()) {
    if (!value.is_null()) r.options_beside.push_back(name);
  }
  read_keys(r, options, written);
}

/// A parser makes such a number a double.
bool is_beyond_integers(const Json& value) {
  return value.is_number_float() && std::fabs(value.get<double>()) >= 0x1p63;
}

/// Ids are what results are found by again.
void read_id(BatchRequest& r, const Json& object) {
  for (const char* key : {"custom_id", "id"}) {
    if (!has_value(object, key)) continue;
    const Json& value = object[key];
    if (is_beyond_integers(value))
      invalid(in_key(key) + " is a number beyond 64 bits; in quotes it is a text, which may be any");
    if (!value.is_string() && !value.is_number_integer())
      invalid(in_key(key) + " is neither a text nor a whole number");
    std::string id = value.is_string() ? value.get<std::string>() : value.dump();
    if (!utf8::valid(id)) invalid(in_key(key) + " is not UTF-8: " + in_key(id));
    if (id.empty()) continue;
    r.id = std::move(id);
    return;
  }
}

std::uint64_t row_of(std::string_view id) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// A row that has no id of its own says where it stands.
BatchRequest guarded(std::size_t line, const std::function<void(BatchRequest&)>& read) {
  BatchRequest r;
  r.line = line;
  r.id = "line-" + std::to_string(line);
  try {
    read(r);
  } catch (BadRow& bad) {
    r.failure = std::move(bad.failure);
  }
  return r;
}

std::string list_of(std::span<const std::string> columns) {
  constexpr std::size_t kNamed = 12;
  std::string list;
  for (std::size_t i = 0; i < std::min(kNamed, columns.size()); ++i) list += (i == 0 ? "" : ", ") + in_key(columns[i]);
  return list + (columns.size() > kNamed ? ", ..." : "");
}

}  // namespace

std::vector<std::string> row_keys() {
  std::vector<std::string> names(kOtherKeys.begin(), kOtherKeys.end());
  for (const Key& key : kKeys) names.emplace_back(key.name);
  for (const WrittenKey& key : kWrittenKeys) names.emplace_back(key.name);
  for (const SamplingParameter& p : sampling_parameters()) names.emplace_back(p.name);
  return names;
}

BatchRequest request_from_json(std::string_view text, std::size_t line, const RowRules& rules) {
  return guarded(line, [&](BatchRequest& r) {
    std::string twice;
    const Json object = parse_json(text, twice);
    if (!object.is_object()) invalid("the line is not a JSON object");
    if (twice != in_key("id") && twice != in_key("custom_id")) read_id(r, object);
    refuse_twice(twice);
    const WrittenMembers written = written_members(text);
    if (rules.template_row) {
      fill_prompt(r, *rules.template_row, object, written);
      read_options_beside(r, options_beside(*rules.template_row, object), written);
    } else if (object.contains("body")) {
      read_openai(r, object, written);
    } else {
      read_flat(r, object, written);
    }
  });
}

BatchRequest request_from_columns(const Json& columns, std::size_t line, const RowRules& rules) {
  return guarded(line, [&](BatchRequest& r) {
    read_id(r, columns);
    WrittenMembers written;
    if (!rules.template_row) {
      const Json object = typed(columns, written);
      return read_flat(r, object, written);
    }
    fill_prompt(r, *rules.template_row, columns, written);
    const Json options = typed(options_beside(*rules.template_row, columns), written);
    read_options_beside(r, options, written);
  });
}

BatchRequest request_refused(const std::string& problem, std::size_t line) {
  return guarded(line, [&](BatchRequest&) { invalid(problem); });
}

BatchRequest request_from_text(std::string text, std::size_t line) {
  return guarded(line, [&](BatchRequest& r) { r.prompts = {PlainPrompt{{std::move(text), {}}}}; });
}

AnswerOptions row_options(const BatchRequest& r, const AnswerOptions& common) {
  AnswerOptions a = common;
  for (const auto& [parameter, value] : r.changes.sampling) set_value(a.sampling, *parameter, value);
  a.sampling.logit_bias.insert(a.sampling.logit_bias.end(), r.changes.logit_bias.begin(), r.changes.logit_bias.end());
  a.row = r.changes.seed ? 0 : row_of(r.id);
  if (r.changes.seed) a.sampling.seed = *r.changes.seed;
  if (r.changes.max_tokens) a.max_tokens = *r.changes.max_tokens;
  if (r.changes.end_token) a.end_token = *r.changes.end_token;
  if (r.changes.logprobs == kNoLogprobs) {
    a.logprobs.reset();
  } else if (r.changes.logprobs) {
    a.logprobs = r.changes.logprobs;
  }
  if (r.changes.stop_strings) a.stop_strings = *r.changes.stop_strings;
  return a;
}

std::string_view name(RowFailure::Code code) {
  using Code = RowFailure::Code;
  switch (code) {
    case Code::InvalidJson:
      return "invalid_json";
    case Code::InvalidRequest:
      return "invalid_request";
    case Code::SchemaInvalid:
      return "schema_invalid";
    case Code::TemplateError:
      return "template_error";
    case Code::ContextLengthExceeded:
      return "context_length_exceeded";
    case Code::Timeout:
      return "timeout";
    case Code::Internal:
      return "internal";
  }
  return "";
}

std::string no_column(const std::string& name, std::span<const std::string> columns) {
  const std::string list = list_of(columns);
  const std::string nearest = nearest_name(name, columns);
  return "no column is called " + in_key(name) + ", which --template-row names; " +
         (nearest.empty()
              ? "there " + std::string(columns.size() == 1 ? "is " : "are ") + (list.empty() ? "none" : list)
              : "did you mean " + in_key(nearest) + "? There are " + list);
}

std::string no_content_column(std::span<const std::string> columns) {
  const std::string there = "no column is called \"prompt\" or \"messages\"";
  if (columns.size() == 1 && columns[0].find_first_of(";\t") != std::string::npos) {
    return there + ": the header is the one column " + in_key(columns[0]) +
           "; columns are separated by commas, not by semicolons or tabs";
  }
  return there + ", there " + (columns.size() == 1 ? "is " : "are ") + list_of(columns) +
         "; --template-row 'TEXT {COLUMN}' makes prompts of such columns";
}

}  // namespace llm::app
