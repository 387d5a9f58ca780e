// Thinking through the real program. The sample model does not think: templates open the thinking for it, a budget or a
// prefill ends it, and what it writes there is what it writes without any of that.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/terminal.h"
#include "support/text.h"

using namespace llm::test;
using Json = nlohmann::json;

namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \n"), text.size());
  return text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

/// Its answers begin inside of the thinking, and it shows the thinking of those before.
const std::string kOpens =
    "{% for m in messages %}[{{ m.role }}:{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content }}]{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}";
/// It knows thinking, and leaves it to the model.
const std::string kAllows = "{{ messages[0].content }}:{% if false %}<think></think>{% endif %}";

class ReasoningBench {
 public:
  Command command(std::vector<std::string> arguments) const {
    const std::string model = (source_dir() / "models" / "samples" / "fable-dense.gguf").string();
    arguments.insert(arguments.begin(), {"-m", model, "-t", "1", "--temp", "0", "--no-show-timings"});
    return {.program = program("llm-run"),
            .arguments = std::move(arguments),
            .environment = {{"XDG_STATE_HOME", (folder / "state").string()}}};
  }
  Outcome operator()(std::vector<std::string> arguments) const { return run(command(std::move(arguments))); }
  Outcome ask(const std::string& chat_template, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--chat-template", chat_template, "-p", "Tell me a story."});
    return (*this)(std::move(arguments));
  }
  Json json(const std::string& chat_template, std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--output-format", "json"});
    const Outcome o = ask(chat_template, std::move(arguments));
    INFO(o.err);
    REQUIRE(o.code == 0);
    return Json::parse(o.out);
  }
  /// What the model writes behind a text.
  std::string behind(const std::string& text, int tokens) const {
    const Outcome o = (*this)({"-no-cnv", "--no-newline", "-p", text, "--no-escape", "-n", std::to_string(tokens)});
    REQUIRE(o.code == 0);
    return o.out;
  }
  Outcome pipe(std::string_view lines, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-i", "-q"});
    Command c = command(std::move(arguments));
    c.input_file = folder.write("input", lines).string();
    return run(c);
  }
  TempDir folder;
};

const std::string kPrompt = "[user:Tell me a story.]<think>\n";

}  // namespace

TEST_CASE("a budget ends the thinking that the template began, and the answer follows") {
  const ReasoningBench bench;
  const std::string thought = bench.behind(kPrompt, 6);
  const Json j = bench.json(kOpens, {"--reasoning-budget", "6", "-n", "30"});
  CHECK(j["reasoning_content"] == trimmed(thought));
  CHECK_FALSE(j["text"].get<std::string>().empty());
  CHECK(j["finish_reason"] == "length");
  CHECK(j["usage"]["completion_tokens"] == 30);
  const int marks = j["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int>() - 6;
  CHECK(marks >= 1);  // "\n</think>" in the sample's vocabulary
  CHECK(marks <= 9);
  // The answer is what the model writes behind the mark.
  const std::string rest = bench.behind(kPrompt + thought + "\n</think>", 30 - 6 - marks);
  CHECK(trimmed(j["text"].get<std::string>()) == trimmed(rest));
  // None at all: the mark is all there is before the answer.
  const Json none = bench.json(kOpens, {"--reasoning-budget", "0", "-n", "20"});
  CHECK_FALSE(none.contains("reasoning_content"));
  CHECK_FALSE(none["text"].get<std::string>().empty());
  const Json told =
      bench.json(kOpens, {"--reasoning-budget", "6", "-n", "40", "--reasoning-budget-message", "\\nNow I answer.\\n"});
  CHECK(told["reasoning_content"] == trimmed(thought + "\nNow I answer."));
}

TEST_CASE("thinking is where the format puts it") {
  const ReasoningBench bench;
  const std::vector<std::string> options{"--reasoning-budget", "6", "-n", "30"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), options.begin(), options.end());
    return more;
  };
  const Json apart = bench.json(kOpens, options), none = bench.json(kOpens, with({"--reasoning-format", "none"})),
             both = bench.json(kOpens, with({"--reasoning-format", "deepseek-legacy"}));
  CHECK(bench.json(kOpens, with({"--reasoning-format", "deepseek"}))["text"] == apart["text"]);
  const std::string whole = none["text"].get<std::string>();
  CHECK_FALSE(none.contains("reasoning_content"));
  CHECK(contains(whole, "</think>"));
  CHECK(whole.ends_with(apart["text"].get<std::string>()));
  CHECK(contains(whole, apart["reasoning_content"].get<std::string>()));
  CHECK(both["text"] == whole);
  CHECK(both["reasoning_content"] == apart["reasoning_content"]);

  const std::string text = apart["text"].get<std::string>(), thought = apart["reasoning_content"].get<std::string>();
  const auto ask = [&](std::vector<std::string> more) { return bench.ask(kOpens, with(std::move(more))); };
  CHECK(trimmed(ask({}).out) == trimmed(text));
  CHECK(trimmed(ask({"--show-thinking", "hide"}).out) == trimmed(text));
  CHECK(trimmed(ask({"--show-thinking", "stdout"}).out) == "<think>\n" + thought + "\n</think>\n\n" + trimmed(text));
  const Outcome on_stderr = ask({"--show-thinking", "stderr"});
  CHECK(trimmed(on_stderr.out) == trimmed(text));
  CHECK(on_stderr.err == thought + "\n");
  CHECK(trimmed(ask({"--reasoning-format", "none"}).out) == trimmed(whole));
  // Tokens as they come: their texts are the text, and their thinking the thinking.
  const Outcome lines = ask({"--output-format", "jsonl"});
  std::istringstream in(lines.out);
  std::string joined, joined_thought;
  for (std::string line; std::getline(in, line);) {
    const Json j = Json::parse(line);
    if (j.contains("finish_reason")) continue;
    joined += j["text"].get<std::string>();
    joined_thought += j.value("reasoning_content", "");
  }
  CHECK(joined == text);
  CHECK(joined_thought == thought);
  CHECK(ask({"--reasoning-format", "none", "--show-thinking", "hide"}).code == 2);
  CHECK(ask({"--output-format", "json", "--show-thinking", "stdout"}).code == 2);
}

TEST_CASE("a prefill is thinking as far as its marks say so") {
  const ReasoningBench bench;
  const auto ask = [&](const std::string& prefill) { return bench.json(kAllows, {"--prefill", prefill, "-n", "4"}); };
  const Json closed = ask("<think>\\nhm\\n</think>\\n\\nOnce");
  CHECK(closed["reasoning_content"] == "hm");
  CHECK(closed["text"].get<std::string>().starts_with("Once"));
  CHECK(closed["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0);
  const Json open = ask("<think>\\nhm,");
  CHECK(open["reasoning_content"].get<std::string>().starts_with("hm,"));
  CHECK(open["text"] == "");
  CHECK(open["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4);
  const Json plain = ask("Once <think>");
  CHECK_FALSE(plain.contains("reasoning_content"));
  CHECK(plain["text"].get<std::string>().starts_with("Once <think>"));
  const Outcome cut = bench.ask(kAllows, {"--prefill", "<think>", "-n", "4"});
  CHECK(cut.out == "\n");
  CHECK(contains(cut.err, "note: the answer ended inside its thinking, after 4 tokens"));
}

TEST_CASE("log probabilities of an answer that thought end before a stop string, as those of any other") {
  const ReasoningBench bench;
  // The tokens of a greedy answer are the same with a stop string, up to there.
  const auto ask = [&](const std::string& chat_template, std::vector<std::string> more) {
    more.insert(more.end(), {"--logprobs", "0", "-n", "40"});
    return bench.json(chat_template, std::move(more));
  };
  const auto texts = [](const Json& answer) {
    std::string text;
    for (const Json& t : answer["logprobs"]["content"]) {
      for (const Json& byte : t["bytes"]) text += static_cast<char>(byte.get<int>());
    }
    return text;
  };
  for (const auto& [chat_template, thinking] : {std::pair{kAllows, 0}, {kOpens, 6}}) {
    const std::vector<std::string> budget{"--reasoning-budget", std::to_string(thinking == 0 ? -1 : thinking)};
    const Json whole = ask(chat_template, budget);
    const std::string text = whole["text"], all = texts(whole);
    const std::size_t answer = all.find(text);
    REQUIRE(answer != std::string::npos);
    CHECK((answer > 1) == (thinking > 0));
    for (const std::size_t length : {std::size_t{0}, text.find(' ', 20)}) {
      const std::string stop = text.substr(length, 8);
      REQUIRE(text.find(stop) == length);
      std::vector<std::string> line = budget;
      line.insert(line.end(), {"-r", stop, "--no-escape"});
      const Json cut = ask(chat_template, line);
      INFO(chat_template << " " << stop);
      CHECK(cut["text"] == text.substr(0, length));
      // The stop string begins with a token's first byte.
      CHECK(texts(cut) == all.substr(0, length == 0 && thinking == 0 ? 0 : answer + length));
    }
  }
  // Without the mark that ends the thinking, where that is the stop string.
  const std::string all = texts(ask(kOpens, {"--reasoning-budget", "6"}));
  const Json thought = ask(kOpens, {"--reasoning-budget", "6", "-r", "</think>"});
  REQUIRE(all.find("</think>") != std::string::npos);
  CHECK(texts(thought) == all.substr(0, all.find("</think>")));
  CHECK(thought["text"] == "");
}

TEST_CASE("an answer that must have a form may think before it") {
  const ReasoningBench bench;
  const std::string schema =
      R"({"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"]})";
  for (const std::string& t : {kOpens, kAllows}) {
    const Json j = bench.json(t, {"-j", schema, "--reasoning-budget", "5", "-n", "60"});
    CHECK(j.contains("reasoning_content") == (t == kOpens));
    const Json answer = Json::parse(j["text"].get<std::string>());
    CHECK(answer.at("n").is_number_integer());
    CHECK(j["finish_reason"] == "stop");
  }
}

TEST_CASE("the wish to think goes to the variable that the template reads") {
  const ReasoningBench bench;
  const auto prompt = [&](const std::string& t, std::vector<std::string> options) {
    options.insert(options.begin(), "--explain-prompt");
    const Outcome o = bench.ask(t, std::move(options));
    const std::size_t begin = o.out.find(":\n\n") + 3, end = o.out.find("\n\nIts ");
    return o.code == 0 ? o.out.substr(begin, end - begin) : o.err;
  };
  for (const auto& [variable, on, off] :
       std::vector<std::tuple<std::string, std::string, std::string>>{{"enable_thinking", "True", "False"},
                                                                      {"thinking", "True", "False"},
                                                                      {"thinking_mode", "enabled", "disabled"},
                                                                      {"thinking_option", "on", "off"}}) {
    const std::string t = "{{ messages|length }}{{ " + variable + " }}";
    CHECK(prompt(t, {}) == "1");
    CHECK(prompt(t, {"-rea", "auto"}) == "1");
    CHECK(prompt(t, {"-rea", "on"}) == "1" + on);
    CHECK(prompt(t, {"--reasoning", "off"}) == "1" + off);
    CHECK(prompt(t, {"-rea", "off", "--chat-template-kwargs", "{\"" + variable + "\": 5}"}) == "15");
  }
  for (const auto& [variable, kept, dropped] :
       std::vector<std::tuple<std::string, std::string, std::string>>{{"preserve_thinking", "True", "False"},
                                                                      {"clear_thinking", "False", "True"},
                                                                      {"truncate_history_thinking", "False", "True"}}) {
    const std::string t = "{{ messages|length }}{{ " + variable + " }}";
    CHECK(prompt(t, {"-rea", "auto"}) == "1");
    CHECK(prompt(t, {"--reasoning-preserve"}) == "1" + kept);
    CHECK(prompt(t, {"--reasoning-preserve", "--no-reasoning-preserve"}) == "1" + dropped);
    CHECK(prompt(t, {"--reasoning-preserve", "--chat-template-kwargs", "{\"" + variable + "\": 5}"}) == "15");
  }
  const std::string effort = "{{ messages|length }}{{ reasoning_effort }}{{ thinking_budget }}";
  CHECK(prompt(effort, {"--reasoning-effort", "high", "--reasoning-budget", "7"}) == "1high7");
  CHECK(prompt(effort, {"--reasoning-effort", "default", "-rea", "off"}) == "10");

  const Outcome off = bench.ask(kAllows, {"-rea", "off", "-n", "1"});
  CHECK(contains(off.err, "note: the chat template has no variable that turns thinking off"));
  const Outcome on = bench.ask(kAllows, {"-rea", "on", "-n", "1", "--strict"});
  CHECK(contains(on.err, "warning[no-thinking-switch]: "));
  CHECK(on.code == 10);
  const Outcome kept = bench.ask(kAllows, {"--reasoning-preserve", "-n", "1", "--strict"});
  CHECK(contains(kept.err, "warning[no-thinking-switch]: the chat template has no variable that keeps or drops"));
  CHECK(kept.code == 10);
  const Outcome unread = bench.ask(kAllows, {"--reasoning-effort", "low", "-n", "1"});
  CHECK(contains(unread.err, "does not read the variable \"reasoning_effort\""));
  const auto notes = [&](const std::string& t, std::vector<std::string> options) {
    options.insert(options.end(), {"-n", "1"});
    const Outcome o = bench.ask(t, std::move(options));
    CHECK(o.code == 0);
    return o.err;
  };
  const std::string plain = "{{ messages[0].content }}:", unless = " does nothing unless the model writes <think>";
  CHECK(contains(notes(plain, {"--reasoning-budget", "10"}), "note: --reasoning-budget" + unless));
  CHECK(contains(notes(plain, {"--show-thinking", "hide"}), "note: --show-thinking" + unless));
  CHECK(contains(notes(kAllows, {"--reasoning-budget-message", "x"}),
                 "note: --reasoning-budget-message does nothing without --reasoning-budget"));
  CHECK(contains(notes(plain, {"-no-cnv", "--show-thinking", "hide"}), "note: --show-thinking does nothing: raw"));
  CHECK(contains(notes(plain, {"-no-cnv"}), "note: --chat-template does nothing beside -no-cnv"));
  CHECK(contains(notes(plain, {"-st", "-no-cnv"}), "note: -st does nothing beside -no-cnv"));
  CHECK_FALSE(contains(notes(kAllows, {"--reasoning-budget", "10", "--show-thinking", "hide"}), "does nothing"));
  // Off without a variable ends what the template has begun.
  CHECK_FALSE(bench.json(kOpens, {"-rea", "off", "-n", "12"}).contains("reasoning_content"));
  for (const auto& [options, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"-rea", "maybe"}, "\"maybe\" is not on, off or auto"},
           {{"--reasoning-effort", "much"}, "is no level"},
           {{"--reasoning-format", "x"}, "is not none, deepseek"},
           {{"--show-thinking", "x"}, "is not auto, stderr"},
           {{"--reasoning-budget", "-2"}, "--reasoning-budget"},
           {{"-no-cnv", "-rea", "on"}, "option -rea needs a chat template, and -no-cnv asks for none"},
           {{"-no-cnv", "--reasoning-budget", "5"}, "option --reasoning-budget needs a chat template"},
           {{"-no-cnv", "-sys", "Be kind."}, "option -sys needs a chat template"},
           {{"-no-cnv", "--reasoning-preserve"}, "option --reasoning-preserve needs a chat template"}}) {
    const Outcome o = bench.ask(kAllows, options);
    CHECK(o.code == 2);
    CHECK(contains(o.err, part));
  }
}

TEST_CASE("rows of a batch have their thinking apart") {
  const ReasoningBench bench;
  const auto in = bench.folder.write("in.jsonl",
                                     R"({"id":"a","messages":[{"role":"user","content":"Hi"}]}
{"id":"b","messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false}}
{"id":"c","prompt":"<think>raw"}
)");
  const std::string t =
      "{{ reasoning_effort }}{{ messages[-1].content }}{% if enable_thinking is not defined or enable_thinking "
      "%}<think>\n"
      "{% else %}<think>\n\n</think>\n\n{% endif %}";
  const Outcome o = bench({"--batch", in.string(), "--chat-template", t, "--reasoning-budget", "4", "-n", "20",
                           "--batch-order", "input", "-q"});
  INFO(o.err);
  REQUIRE(o.code == 0);
  std::istringstream lines(o.out);
  std::vector<Json> body;
  for (std::string line; std::getline(lines, line);) body.push_back(Json::parse(line)["response"]["body"]);
  REQUIRE(body.size() == 3);
  const Json a = body[0]["choices"][0]["message"], b = body[1]["choices"][0]["message"];
  CHECK(a["reasoning_content"] == trimmed(bench.behind("Hi<think>\n", 4)));
  CHECK_FALSE(a["content"].get<std::string>().empty());
  CHECK(body[0]["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int>() > 4);
  CHECK_FALSE(b.contains("reasoning_content"));
  CHECK(trimmed(b["content"].get<std::string>()) == trimmed(bench.behind("highHi<think>\n\n</think>\n\n", 20)));
  CHECK(body[1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0);
  CHECK(body[2]["choices"][0]["text"] == bench.behind("<think>raw", 20));
}

TEST_CASE("a chat keeps the thinking as the template wants it, and goes on inside of it") {
  const ReasoningBench bench;
  const auto saved = bench.folder / "chat.json", lines = bench.folder / "chat.jsonl";
  const std::vector<std::string> options{"--chat-template", kOpens, "--reasoning-budget", "6", "-n", "20"};
  const Outcome o =
      bench.pipe("Tell me a story.\n/save " + saved.string() + "\n/export " + lines.string() + "\nWhy?\n", options);
  INFO(o.err);
  REQUIRE(o.code == 0);
  const Json answer = Json::parse(read_file(saved))["messages"][1];
  const std::string thought = answer["reasoning_content"].get<std::string>();
  CHECK(thought == trimmed(bench.behind(kPrompt, 6)));
  CHECK(Json::parse(read_file(lines).substr(read_file(lines).find('\n') + 1))["reasoning_content"] == thought);
  CHECK_FALSE(contains(o.out, "</think>"));
  // The second prompt has it in brackets.
  const std::string prompt = "[user:Tell me a story.][assistant:(" + thought + ")" +
                             answer["content"].get<std::string>() + "][user:Why?]<think>\n";
  const Outcome again = bench.pipe("/load " + saved.string() + "\nWhy?\n/save " + saved.string() + "\n", options);
  CHECK(Json::parse(read_file(saved))["messages"][3]["reasoning_content"] == trimmed(bench.behind(prompt, 6)));
  CHECK(o.out.ends_with(again.out));
  // Cut inside of the thinking, an answer goes on there.
  const std::vector<std::string> few{"--chat-template", kOpens, "-n", "3"};
  const Outcome cut = bench.pipe("Tell me a story.\n/continue\n/save " + saved.string() + "2\n", few);
  REQUIRE(cut.code == 0);
  CHECK(Json::parse(read_file(saved.string() + "2"))["messages"][1]["reasoning_content"] ==
        trimmed(bench.behind(kPrompt, 6)));
}

TEST_CASE("/think says how much to think") {
  const ReasoningBench bench;
  const std::string t =
      "{{ messages[-1].content }}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}<think>\n";
  const auto saved = bench.folder / "chat.json";
  const Outcome o = bench.pipe("/think\n/think on\n/think 4\nHi\n/save " + saved.string() + "\n/think off\n/think\n",
                               {"--chat-template", t, "-n", "20"});
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK(contains(o.err, "thinking as the chat template has it\nthinking on\nthinking on, at most 4 tokens\n"));
  CHECK(o.err.ends_with("thinking off\nthinking off\n"));
  const std::vector<std::string> limited{"--chat-template", t, "--reasoning-budget", "30"};
  CHECK(bench.pipe("/think off\n/think on\n/think auto\n/think -1\n", limited).err ==
        "thinking off\nthinking on, at most 30 tokens\nthinking as the chat template has it, at most 30 tokens\n"
        "thinking as the chat template has it\n");
  const Json json = Json::parse(read_file(saved));
  CHECK(json["messages"][1]["reasoning_content"] ==
        trimmed(bench.behind("HiTrue<think>", 4) /* Jinja drops the last line feed */));
  CHECK(json["settings"]["reasoning"] == "on");
  CHECK(json["settings"]["reasoning_budget"] == 4);
  CHECK(contains(bench.pipe("/load " + saved.string() + "\n/think\n", {"--chat-template", t}).err,
                 "thinking on, at most 4 tokens\n"));
  const std::string effort = "{{ messages|length }}{{ reasoning_effort }}";
  CHECK(contains(bench.pipe("/set reasoning-effort high\n", {"--chat-template", effort}).err,
                 "thinking as the chat template has it, effort high\n"));
  CHECK(bench.pipe("/set reasoning-effort high\n", {"--chat-template", t}).code == 2);
  const auto eager = bench.folder / "eager.json";
  const Outcome set =
      bench.pipe("/set reasoning-effort high\n/set\n/save " + eager.string() + "\n", {"--chat-template", effort});
  CHECK(contains(set.err, "\nreasoning_effort      \"high\"\n"));
  CHECK(Json::parse(read_file(eager))["settings"]["reasoning_effort"] == "high");
  const std::string load = "/load " + eager.string() + "\n/think\n";
  CHECK(contains(bench.pipe(load, {"--chat-template", effort}).err, ", effort high\n"));
  CHECK(contains(bench.pipe("/think\n", {"--chat-template", effort, "--load", eager.string()}).err, ", effort high\n"));
  CHECK(contains(
      bench.pipe("/think\n", {"--chat-template", effort, "--load", eager.string(), "--reasoning-effort", "low"}).err,
      ", effort low\n"));
  const Outcome unread = bench.pipe(load, {"--chat-template", t, "-lv", "3"});
  CHECK(unread.code == 0);
  CHECK(contains(unread.err, "note: this chat template does not read reasoning_effort\n"));
  // What a template cannot have stays as it was; the budget it can have.
  const std::string shown = "/load " + saved.string() + "\n/think\n/set reasoning\n/set\n";
  const Outcome without = bench.pipe(shown, {"--chat-template", kOpens});
  CHECK(contains(without.err, "\nthinking as the chat template has it, at most 4 tokens\n"));
  CHECK(contains(without.err, "\nreasoning             \"auto\"\n"));
  CHECK(contains(without.err, "\nreasoning_budget      4\n"));
  const Outcome off = bench.pipe(shown, {"--chat-template", kOpens, "--reasoning", "off"});
  CHECK(contains(off.err, "\nthinking off, by ending it at once\n"));
  CHECK(contains(off.err, "\nreasoning             \"off\"\n"));
  CHECK(contains(bench.pipe("/set reasoning_budget 3\n", {"--chat-template", t}).err, "at most 3 tokens"));
  CHECK(contains(bench.pipe("/set reasonings 3\n", {"--chat-template", t}).err, "no setting is called"));
  CHECK(bench.pipe("/think much\n", {"--chat-template", t}).code == 2);
  CHECK(bench.pipe("/think on\n", {"--chat-template", kOpens}).code == 2);
  CHECK(contains(bench.pipe("/think off\n", {"--chat-template", kOpens}).err, "thinking off, by ending it at once"));
}

TEST_CASE("on a terminal thinking is dimmed, in one answer as in a chat") {
  const ReasoningBench bench;
  const std::string thought = trimmed(bench.behind(kPrompt, 6));
  const std::vector<std::string> options{"--chat-template",    kOpens, "-p", "Tell me a story.",
                                         "--reasoning-budget", "6",    "-n", "20"};
  Terminal t(bench.command(options));
  CHECK(t.end() == 0);
  CHECK(contains(t.rest(), "\x1b[2m" + thought + "\x1b[0m\r\n\r\n"));
  Command plain = bench.command(options);
  plain.environment.emplace_back("NO_COLOR", "1");
  Terminal no_colour(plain);
  CHECK(no_colour.end() == 0);
  CHECK(contains(no_colour.rest(), "<think>\r\n" + thought + "\r\n</think>\r\n\r\n"));
}

TEST_CASE("colours and simple lines are as asked for") {
  const ReasoningBench bench;
  const auto shown = [&](std::vector<std::string> more, const char* no_color) {
    more.insert(more.begin(),
                {"--chat-template", kOpens, "-p", "Tell me a story.", "--reasoning-budget", "6", "-n", "9"});
    Command c = bench.command(std::move(more));
    c.environment.emplace_back("NO_COLOR", no_color);
    Terminal t(c);
    CHECK(t.end() == 0);
    const std::string text = t.rest();
    return text.starts_with("\x1b[2m") ? "dimmed" : text.starts_with("<think>") ? "tagged" : text;
  };
  CHECK(shown({}, "") == "dimmed");
  CHECK(shown({"--color", "auto"}, "1") == "tagged");
  CHECK(shown({"--color", "on"}, "1") == "dimmed");
  CHECK(shown({"-co", "on", "--color", "off"}, "") == "tagged");
  CHECK(shown({"--simple-io"}, "") == "tagged");
  CHECK(shown({"--simple-io", "-co", "on"}, "") == "dimmed");
  const Outcome piped = bench.ask(kOpens, {"--show-thinking", "stdout", "-co", "on", "-n", "2"});
  CHECK(piped.out.starts_with("\x1b[2m"));
  CHECK(bench.ask(kOpens, {"--color", "red"}).code == 2);
  // A chat of plain lines: no editor, which would switch pasting on, and the prompt is on stderr.
  const std::vector<std::string> few{"--chat-template", kOpens, "-n", "1"};
  CHECK(bench.pipe("/think\n", few).err == "thinking as the chat template has it\n");
  std::vector<std::string> simple = few;
  simple.emplace_back("--simple-io");
  CHECK(bench.pipe("/think\n", simple).err == "> thinking as the chat template has it\n> ");
  simple.emplace_back("-i");
  const auto typed = [&](const std::vector<std::string>& arguments, const char* term) {
    Command c = bench.command(arguments);
    c.environment.emplace_back("TERM", term);
    Terminal t(c);
    const std::string begun = t.until("> ");
    t.type("/exit\n");
    CHECK(t.end() == 0);
    return begun + t.rest();
  };
  CHECK_FALSE(contains(typed(simple, "xterm"), "\x1b["));
  simple.erase(std::find(simple.begin(), simple.end(), "--simple-io"));
  CHECK(contains(typed(simple, "xterm"), "\x1b["));
  CHECK_FALSE(contains(typed(simple, "dumb"), "\x1b["));
}

TEST_CASE("a signal that ends a program at once gives the terminal its letters back") {
  const ReasoningBench bench;
  Terminal t(bench.command({"--chat-template", kOpens, "-p", "Tell me a story.", "--ignore-eos"}));
  t.until("\x1b[2m");
  t.send(SIGINT);  // the first asks, the second does not
  t.send(SIGINT);
  CHECK(t.end() == 130);
  CHECK(contains(t.rest(), "\x1b[0m"));
}
