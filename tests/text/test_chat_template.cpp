// Conversations through templates, and that nothing in a message becomes a control token, for every special token of
// real vocabularies.
#include <cstdlib>

#include "support/catch.h"
#include "support/paths.h"
#include "text/chat_template.h"
#include "text/jinja/json.h"
#include "text/known_templates.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

ChatInput input_of(std::string_view json) { return read_chat_input(json, "test"); }

/// The prompt with the messages' stretches in square brackets.
std::string marked(const PromptText& p) {
  std::string out;
  std::size_t at = 0;
  for (const TextSpan& user : p.user) {
    out += p.text.substr(at, user.begin - at) + "[" + p.text.substr(user.begin, user.end - user.begin) + "]";
    at = user.end;
  }
  return out + p.text.substr(at);
}

/// No vocabulary of the tests has other user-defined tokens in brackets than those of formats and fillers.
bool is_markup(const Tokenizer& t, Token token) {
  const std::string_view text = t.token_text(token);
  const bool in_brackets =
      (text.starts_with('<') && text.ends_with('>')) || (text.starts_with('[') && text.ends_with(']'));
  return t.kind(token) == TokenKind::Control || (t.kind(token) == TokenKind::UserDefined && in_brackets);
}

std::string rendered(std::string_view source, std::string_view json) {
  return marked(ChatTemplate(source, {}).render(input_of(json)));
}

}  // namespace

TEST_CASE("roles that formats know count as the template's, others do not", "[chat]") {
  constexpr std::string_view kSource = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}";
  CHECK(rendered(kSource, R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])") ==
        "<|user|>[a]<|assistant|>[b]");
  CHECK(rendered(kSource, R"([{"role": "im_end|><|im_start", "content": "a"}])") == "<|[im_end|><|im_start]|>[a]");
}

TEST_CASE("a message's reasoning has all its names", "[chat]") {
  constexpr std::string_view kSource =
      "{{ messages[0].reasoning_content }}/{{ messages[0].thinking }}/{{ messages[0]|list|join(',') }}";
  CHECK(rendered(kSource, R"([{"role": "assistant", "reasoning": "r"}])") ==
        "[r]/[r]/[thinking],[role],[reasoning],[reasoning_content]");
  CHECK(rendered(kSource, R"([{"role": "assistant", "thinking": "t"}])") ==
        "[t]/[t]/[thinking],[role],[reasoning_content]");
  CHECK(rendered(kSource, R"([{"role": "assistant", "reasoning_content": null}])") ==
        "[None]//[role],[reasoning_content]");
}

TEST_CASE("what templates see: tools and documents None, tokens as the template's text", "[chat]") {
  ChatInput input = input_of(R"([{"role": "user", "content": "c"}])");
  input.bos = "<s>";
  const ChatTemplate t("{{ bos_token }}{{ eos_token is defined }}{{ tools }}{{ documents }}{{ add_generation_prompt }}",
                       {});
  CHECK(marked(t.render(input)) == "<s>FalseNoneNoneTrue");
  CHECK(t.reads("tools"));
  CHECK_FALSE(t.reads("enable_thinking"));
}

TEST_CASE("a text in parts goes to templates that write parts, and to others as one text", "[chat]") {
  constexpr std::string_view kParts =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  constexpr std::string_view kWrites =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}<{{ p.text "
      "}}>"
      "{% endfor %}{% endif %}{% endfor %}";
  CHECK(rendered(kWrites, kParts) == "<[a]><[b]>");
  // Fails at lists, writes them as Python does, writes them as JSON, leaves them out.
  CHECK(rendered("{{ '|' + messages[0].content }}", kParts) == "|[a\nb]");
  CHECK(rendered("|{{ messages[0].content }}", kParts) == "|[a\nb]");
  CHECK(rendered("|{{ messages[0].content | tojson }}", kParts) == R"(|["a\nb"])");
  CHECK(rendered("|{% if messages[0].content is string %}{{ messages[0].content }}{% endif %}", kParts) == "|[a\nb]");
  CHECK(rendered("|{{ messages[0].content }}", R"([{"role": "user", "content": []}])") == "|");
  // Knows parts of users alone, or the first one alone, as some models' templates do.
  constexpr std::string_view kRoles =
      R"([{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},)"
      R"( {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]}])";
  constexpr std::string_view kUsers =
      "{% for m in messages %}{% if m.role == 'user' and m.content is not string %}{% for p in m.content %}<{{ p.text "
      "}}>"
      "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  CHECK(rendered(kUsers, kRoles) == "[a\nbc\nd]");
  constexpr std::string_view kFirst =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif "
      "%}{% endfor %}";
  CHECK(rendered(kFirst, kRoles) == "[a\nbc\nd]");
  CHECK(rendered(kWrites, kRoles) == "<[a]><[b]><[c]><[d]>");
}

TEST_CASE("what a message says does not decide how others are written", "[chat]") {
  constexpr std::string_view kWrites =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}<{% for p in m.content %}{{ p.text "
      "}}{% endfor %}>{% endif %}{% endfor %}";
  constexpr std::string_view kTextsOnly =
      "{% for m in messages %}|{% if m.content is string %}{{ m.content }}{% endif %}{% endfor %}";
  const auto beside = [](const std::string& text) {
    return R"([{"role": "user", "content": ")" + text + R"("}, {"role": "user", "content": [)" +
           R"({"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  };
  for (const char* said :
       {"print(d[key])", "[text 0] [text 1]", "[part 0] [part 0/0] [part 0/1]", "[part 1] [part 1/0] [part 00]", ""}) {
    INFO(said);
    const std::string text = *said == '\0' ? "" : "[" + std::string(said) + "]";
    CHECK(rendered(kWrites, beside(said)) == text + "<[ab]>");
    CHECK(rendered(kTextsOnly, beside(said)) == "|" + text + "|[a\nb]");
  }
  // The same of what the template itself says, and of tools.
  CHECK(rendered("d[key] [part 0] [text 0]" + std::string(kWrites), beside("c")) ==
        "d[key] [part 0] [text 0][c]<[ab]>");
  const std::string with_tools =
      R"({"tools": ["[key] [text 0] [text 1] [part 0] [part 0/0]"], "messages": )" + beside("c") + "}";
  const std::string tool = "[[key] [text 0] [text 1] [part 0] [part 0/0]]";
  CHECK(rendered("{{ tools[0] }}|" + std::string(kWrites), with_tools) == tool + "|[c]<[ab]>");
  CHECK(rendered("{{ tools[0] }}" + std::string(kTextsOnly), with_tools) == tool + "|[c]|[a\nb]");
}

TEST_CASE("content that is null goes to templates that have a use for it, and to others as an empty text", "[chat]") {
  constexpr std::string_view kCall =
      R"([{"role": "user", "content": "None?"}, {"role": "assistant", "content": null}])";
  CHECK(rendered("{% for m in messages %}{{ '|' + m.content }}{% endfor %}", kCall) == "|[None?]|");
  CHECK(rendered("{% for m in messages %}|{{ m.content | trim }}{% endfor %}", kCall) == "|[None?]|");
  CHECK(
      rendered("{% for m in messages %}{% if m.content is none %}call{% else %}{{ m.content }}{% endif %}{% endfor %}",
               kCall) == "[None?]call");
}

TEST_CASE("arguments of calls that are JSON in a text are what the template can take", "[chat]") {
  const auto call = [](std::string_view arguments) {
    return R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [{"type": "function",
               "function": {"name": "f", "arguments": )" +
           std::string(arguments) + "}}]}]";
  };
  const std::string object = call(R"({"b": 1.0, "a": "x"})"), text = call(R"("{\"b\": 1.0, \"a\": \"x\"}")");
  const auto source = [](std::string_view write) {
    return "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}" +
           std::string(write) + "{% endfor %}{% endfor %}";
  };
  for (const std::string& given : {object, text}) {
    CAPTURE(given);
    CHECK(rendered(source("{% for k, v in a.items() %}({{ k }}:{{ v }}){% endfor %}"), given) ==
          "([b]:[1.0])([a]:[x])");
    CHECK(rendered(source("{{ a | tojson }}"), given) == R"([{"b": 1.0, "a": "x"}])");
    CHECK(rendered(source("{{ a if a is string else a | tojson }}"), given) == R"([{"b": 1.0, "a": "x"}])");
    CHECK(rendered(source("-"), given) == "-");
  }
  CHECK(rendered(source("{{ a }}"), text) == R"([{"b": 1.0, "a": "x"}])");  // the text itself, no mapping of Python's
  CHECK(rendered(source("{{ a }}"), call(R"("x")")) == "[x]");
  CHECK(rendered(source("{{ a }}"), call(R"("[1]")")) == "[[1]]");
}

TEST_CASE("parts that are no text are refused by their type", "[chat]") {
  const auto refused = [](std::string_view part, const std::string& why) {
    const std::string message = R"({"role": "user", "content": [{"type": "text", "text": "a"}, )" + std::string(part);
    CHECK_THROWS_WITH(input_of("[" + message + "]}]"), contains(why));
  };
  refused(R"({"type": "image_url", "image_url": {"url": "x"}})",
          "message 1: a part of its content is of the type "
          "\"image_url\", and models read text only");
  refused(R"({"type": "text"})", "message 1: a part of its content has no \"text\"");
  refused(R"("text")", "message 1: a part of its content is no object with a \"type\"");
}

TEST_CASE("the known templates render a conversation", "[chat]") {
  for (const KnownTemplate& known : known_templates()) {
    INFO(known.name);
    ChatInput input = input_of(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                                   {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}])");
    input.bos = "<s>";
    input.eos = "</s>";
    const std::string text = ChatTemplate::by_name(nullptr, known.name).render(input).text;
    std::size_t at = 0;
    for (const char* part : {"S", "U", "A", "V"}) {
      at = text.find(part, at);
      CHECK(at != std::string::npos);
    }
  }
  CHECK(ChatTemplate::by_name(nullptr, "llama2")
            .render(input_of(R"({"bos_token": "<s>", "eos_token": "</s>",
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"},
    {"role": "user", "content": "V"}]})"))
            .text == "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]");
}

TEST_CASE("a conversation may be longer than what a template makes of nothing", "[chat]") {
  const std::string text(std::size_t{20} << 20, 'a');
  ChatInput input;
  input.messages = chat_messages({chat_message("user", text)});
  CHECK(ChatTemplate::by_name(nullptr, "chatml").render(input).text ==
        "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n");
  const std::string grows = "{% for i in range(6) %}{{ messages[0].content }}{% endfor %}";
  CHECK_THROWS_WITH(ChatTemplate(grows, {}).render(input), contains("template limit"));
}

TEST_CASE("a conversation may have many messages, at each of which a template looks at all of them", "[chat]") {
  constexpr std::size_t kMessages = 1500;
  std::vector<jinja::Value> messages;
  for (std::size_t i = 0; i < kMessages; ++i) messages.push_back(chat_message("user", "a"));
  ChatInput input;
  input.messages = chat_messages(std::move(messages));
  const auto for_each = [](const std::string& inside) { return "{% for m in messages %}" + inside + "{% endfor %}"; };
  const std::string looks = "{% for o in messages %}{% if o.role == 'tool' %}!{% endif %}{% endfor %}";
  CHECK(ChatTemplate(for_each(looks + "{{ m.content }}"), {}).render(input).text == std::string(kMessages, 'a'));
  CHECK_THROWS_WITH(ChatTemplate(for_each(for_each(looks)), {}).render(input), contains("template limit"));
}

TEST_CASE("a template that asks for too much fails, whatever was tried with it", "[chat]") {
  const std::string endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
  const std::string source =
      "{% if messages[0].content is string %}{{ messages[0].content }}{% else %}" + endless + "{% endif %}";
  for (const char* content : {R"([{"type": "text", "text": "a"}])", "null"}) {
    const ChatInput input = input_of(R"([{"role": "user", "content": )" + std::string(content) + "}]");
    CHECK_THROWS_WITH(ChatTemplate(source, {}).render(input), contains("template limit"));
  }
  const ChatInput call = input_of(R"([{"role": "assistant", "content": "", "tool_calls": [{"function":
                                      {"name": "f", "arguments": "{}"}}]}])");
  CHECK_THROWS_WITH(
      ChatTemplate("{% if messages[0].tool_calls[0].function.arguments is string %}" + endless + "{% endif %}", {})
          .render(call),
      contains("template limit"));
}

TEST_CASE("times", "[chat]") {
  const jinja::Now now = parse_now("2025-07-10T12:34:56Z");
  CHECK(now.calendar.tm_wday == 4);
  CHECK(now.calendar.tm_yday == 190);
  CHECK(parse_now("2025-07-10").calendar.tm_hour == 0);
  for (const char* bad : {"", "2025", "2025-13-01", "2025-02-29", "2025-07-10T12", "2025-07-10T12:60", "2025-07-10x"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_now(bad), Error);
  }
}

TEST_CASE("no special token of any vocabulary can be written in a message", "[chat]") {
  const auto archive = shared_file("data/tokenizers/vocabs.tar.xz");
  if (!archive) return;
  const TempDir folder;
  const std::string command = "tar -xJf '" + archive->string() + "' -C '" + folder.path().string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  const ChatTemplate chat = ChatTemplate::by_name(nullptr, "chatml");
  std::size_t files = 0, tried = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".gguf") continue;
    INFO(entry.path().filename().string());
    const LoadedTokenizer t = load_tokenizer(entry.path());
    ++files;
    std::vector<std::string> specials;
    for (std::size_t id = 0; id < t->n_vocab(); ++id) {
      const auto token = static_cast<Token>(id);
      if (is_markup(*t, token)) specials.emplace_back(t->token_text(token));
    }
    // Each alone, many of them together, and one split between messages' parts.
    std::string all;
    std::vector<jinja::Value> messages;
    for (const std::string& special : specials) {
      all += special + " x" + special;
      messages.push_back(chat_message("user", special));
      ++tried;
    }
    messages.push_back(chat_message("user", all));
    ChatInput input;
    input.messages = chat_messages(std::move(messages));
    const EncodedPrompt prompt = t->encode(chat.render(input), AddSpecial::Never);
    REQUIRE(prompt.ids.size() == prompt.sources.size());
    for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
      if (prompt.sources[i].origin != TokenOrigin::User) continue;
      if (!is_markup(*t, prompt.ids[i])) continue;
      FAIL_CHECK("a message became " << t->token_text(prompt.ids[i]));
    }
  }
  CHECK(files == 14);
  CHECK(tried > 300);
}
