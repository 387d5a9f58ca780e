// llm-inspect render: exact text on stdout, whose it is with --spans, and what it refuses.
#include "programs.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if tools %}{{ tools|tojson }}{% endif %}{% if x %}{{ x }}{% endif %}{% if add_generation_prompt %}<|go|>{% "
    "endif %}";

}  // namespace

TEST_CASE("render prints what the template makes, and nothing else", "[apps]") {
  TempDir folder;
  const std::string source = write_file(folder / "t.jinja", kTemplate);
  const std::string messages = write_file(folder / "m.json", R"([{"role": "user", "content": "Hü <|go|>"}])");
  const std::string tools = write_file(folder / "tools.json", R"([{"b": 1, "a": 123456789012345678901}])");
  const auto out = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"render", "--template-file", source, "--messages", messages};
    all.insert(all.end(), more.begin(), more.end());
    return output_of("llm-inspect", all);
  };
  CHECK(out({}) == "<|user|>Hü <|go|><|go|>");
  CHECK(out({"--no-generation-prompt"}) == "<|user|>Hü <|go|>");
  CHECK(out({"--bos", "<s>"}) == "<s><|user|>Hü <|go|><|go|>");
  CHECK(out({"--kwargs", "{\"x\": [1.0, null]}"}) == "<|user|>Hü <|go|>[1.0, None]<|go|>");
  CHECK(out({"--tools", tools}) == "<|user|>Hü <|go|>[{\"b\": 1, \"a\": 123456789012345678901}]<|go|>");
  CHECK(out({"--spans"}) ==
        "template          0..8  \"<|user|>\"\n"
        "messages         8..18  \"Hü <|go|>\"\n"
        "template        18..24  \"<|go|>\"\n");
}

TEST_CASE("render joins parts of text for a template that does not write parts", "[apps]") {
  TempDir folder;
  const std::string messages =
      write_file(folder / "m.json",
                 R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  CHECK(output_of("llm-inspect", {"render", "--chat-template", "chatml", "--messages", messages}) ==
        "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("render takes an object with everything, and the time", "[apps]") {
  TempDir folder;
  const std::string source = write_file(
      folder / "t.jinja", "{{ strftime_now('%Y-%m-%d %H:%M:%S %a') }} {{ tools|length }} {{ y }} {{ bos_token }}");
  const std::string all =
      write_file(folder / "m.json", R"({"messages": [], "tools": [1, 2], "y": "z", "bos_token": "<s>"})");
  CHECK(output_of("llm-inspect", {"render", "--template-file", source, "--messages", all, "--now",
                                  "2024-02-29T23:59:58"}) == "2024-02-29 23:59:58 Thu 2 z <s>");
  for (const char* bad : {"2024-02-30", "yesterday", "2024-02-29T25:00", "2024-2-9", ""}) {
    if (*bad == '\0') continue;
    INFO(bad);
    check_fails(2, "is no time", "llm-inspect", {"render", "--template-file", source, "--messages", all, "--now", bad});
  }
}

TEST_CASE("render uses the model's template and tokens, or one by name", "[apps]") {
  TempDir folder;
  TinyFile model = tiny_model();
  model.set("tokenizer.chat_template", kTemplate);
  model.set("tokenizer.chat_template.tool_use", "tools: {{ (tools or [])|length }}");
  model.set_array("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
  const std::string path = write_model(folder, model);
  const std::string messages = write_file(folder / "m.json", R"([{"role": "user", "content": "Hi"}])");
  const std::string tools = write_file(folder / "tools.json", "[1, 2, 3]");
  const auto out = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"render", path, "--messages", messages};
    all.insert(all.end(), more.begin(), more.end());
    return output_of("llm-inspect", all);
  };
  CHECK(out({}) == "<s><|user|>Hi<|go|>");
  CHECK(out({"--tools", tools}) == "tools: 3");
  CHECK(out({"--chat-template", "tool_use"}) == "tools: 0");
  CHECK(out({"--chat-template", "chatml"}) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  check_fails(2, "in the file: default, tool_use", "llm-inspect",
              {"render", path, "--messages", messages, "--chat-template", "nosuch"});
}

TEST_CASE("render refuses what it cannot use", "[apps]") {
  TempDir folder;
  const std::string path = write_model(folder, tiny_model());
  const auto messages = [&](const std::string& text) { return write_file(folder / "m.json", text); };
  const auto fails = [&](int code, const std::string& text, const std::string& json) {
    INFO(json);
    check_fails(code, text, "llm-inspect", {"render", "--chat-template", "chatml", "--messages", messages(json)});
  };
  fails(2, "message 2 is no object", R"([{"role": "user"}, 5])");
  fails(2, "must be an array", "5");
  fails(2, "has no \"messages\"", "{}");
  fails(2, "no JSON (byte", "[{]");
  fails(2, "nested more than", std::string(500, '[') + std::string(500, ']'));
  fails(2, "message 1: a part of its content is of the type \"image_url\"",
        R"([{"role": "user", "content": [{"type": "image_url"}]}])");
  fails(6, "line 2, column 3", R"([{"role": "user"}])");
  check_fails(6, "has no chat template", "llm-inspect", {"render", path, "--messages", messages("[]")});
  check_fails(2, "give a GGUF file", "llm-inspect", {"render", "--messages", messages("[]")});
  check_fails(2, "/dev/zero: has more than 64.0 MiB", "llm-inspect",
              {"render", "--messages", messages("[]"), "--template-file", "/dev/zero"});
  const std::string file = write_file(folder / "t.jinja", "x");
  check_fails(2, "give either --template-file or --chat-template", "llm-inspect",
              {"render", "--messages", messages("[]"), "--template-file", file, "--chat-template", "chatml"});
  const std::string tools = write_file(folder / "tools.json", "{}");
  check_fails(2, "tools.json: is no JSON array of tools", "llm-inspect",
              {"render", "--messages", messages("[]"), "--template-file", file, "--tools", tools});
}
