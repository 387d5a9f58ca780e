// llm-run with chat templates: what the prompt becomes, and which template makes it.
#include <algorithm>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

/// A tiny model with its own way to show a conversation. Its tokens: bytes, "ab", "abc" and the control token <|end|>.
class ChatBench {
 public:
  explicit ChatBench(
      const std::string& source = "{% for m in messages %}({{ m.role[0] }}:{{ m.content }}<|end|>){% endfor %}>") {
    TinyFile file = tiny_model({.context = 4096, .tokenizer = TinyTokenizer::Bpe});
    if (!source.empty()) file.set("tokenizer.chat_template", source);
    file.write(folder_ / "tiny.gguf");
  }

  Outcome operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-m", (folder_ / "tiny.gguf").string(), "-n", "1"});
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }
  /// The prompt's text as --explain-prompt shows it.
  std::string prompt(std::vector<std::string> arguments) const {
    arguments.push_back("--explain-prompt");
    const Outcome o = (*this)(std::move(arguments));
    INFO(o.err);
    REQUIRE(o.code == 0);
    const std::size_t begin = o.out.find(":\n\n") + 3, end = o.out.find("\n\nIts ");
    REQUIRE(end != std::string::npos);
    return o.out.substr(begin, end - begin);
  }
  std::string write(const std::string& name, const std::string& content) const {
    return folder_.write(name, content).string();
  }

 private:
  TempDir folder_;
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a file's chat template formats the prompt unless raw completion is asked for", "[chat]") {
  const ChatBench bench;
  CHECK(bench.prompt({"-p", "abc"}) == "(u:abc<|end|>)>");
  CHECK(bench.prompt({"-p", "abc", "-cnv"}) == "(u:abc<|end|>)>");
  CHECK(bench.prompt({"-p", "abc", "-st", "--jinja"}) == "(u:abc<|end|>)>");
  CHECK(bench.prompt({"-p", "abc", "-no-cnv"}) == "abc");
  CHECK(bench.prompt({"-p", "abc", "-no-cnv", "-cnv"}) == "(u:abc<|end|>)>");  // the last one counts
  CHECK(bench.prompt({"-p", "b", "-sys", "a"}) == "(s:a<|end|>)(u:b<|end|>)>");
  CHECK(bench.prompt({"-p", "a\\nb", "-sys", "c\\td"}) == "(s:c\td<|end|>)(u:a\nb<|end|>)>");
  const std::string file = bench.write("system.txt", "from a file\n");
  CHECK(bench.prompt({"-p", "b", "-sysf", file}) == "(s:from a file<|end|>)(u:b<|end|>)>");
  // How an editor marks a file is none of its text.
  const std::string marked = bench.write("marked.txt",
                                         "\xEF\xBB\xBF"
                                         "abc\n");
  CHECK(bench.prompt({"-f", marked, "-sysf", marked}) == "(s:abc<|end|>)(u:abc<|end|>)>");
  const Outcome o = bench({"-p", "a"});
  CHECK(o.code == 0);
  CHECK_FALSE(has(o.err, "template"));
}

TEST_CASE("without a template the prompt is raw, which is said once", "[chat]") {
  const ChatBench bench("");
  const Outcome o = bench({"-p", "a"});
  CHECK(o.code == 0);
  CHECK(has(o.err, "llm-run: note: the file has no chat template: raw completion"));
  CHECK(std::count(o.err.begin(), o.err.end(), '\n') == 2);
  for (const char* option : {"-no-cnv", "--no-cnv", "--no-conversation", "-q"}) {
    INFO(option);
    CHECK_FALSE(has(bench({"-p", "a", option}).err, "template"));
  }
  for (const std::vector<std::string>& needs : {std::vector<std::string>{"-cnv"}, {"-st"}, {"-sys", "a"}}) {
    std::vector<std::string> arguments{"-p", "a"};
    arguments.insert(arguments.end(), needs.begin(), needs.end());
    const Outcome refused = bench(arguments);
    CHECK(refused.code == 6);
    CHECK(has(refused.err, "has no chat template"));
  }
  const Outcome contradiction = bench({"-p", "a", "-sys", "b", "-no-cnv"});
  CHECK(contradiction.code == 2);
}

TEST_CASE("templates by name, by text, from a file, with variables", "[chat]") {
  const ChatBench bench;
  CHECK(bench.prompt({"-p", "a", "--chat-template", "chatml"}) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  CHECK(bench.prompt({"-p", "a", "--chat-template", "default"}) == "(u:a<|end|>)>");
  CHECK(bench.prompt({"-p", "a", "--chat-template", "[{{ messages[0].content }}]"}) == "[a]");
  const std::string file = bench.write("x.jinja", "{{ messages|length }}{{ x }}{{ y }}\n");
  CHECK(bench.prompt({"-p", "a", "--chat-template-file", file}) == "1");
  CHECK(bench.prompt({"-p", "a", "--chat-template-file", file, "--chat-template-kwargs", "{\"x\": 5}",
                      "--chat-template-kwargs", "{\"y\": true}"}) == "15True");
  const Outcome unread = bench({"-p", "a", "--chat-template-kwargs", "{\"nobody\": 1}"});
  CHECK(unread.code == 0);
  CHECK(has(unread.err, "note: the chat template does not read the variable \"nobody\""));

  const Outcome unknown = bench({"-p", "a", "--chat-template", "nosuch"});
  CHECK(unknown.code == 2);
  CHECK(has(unknown.err, "no chat template named \"nosuch\"; known names: chatml"));
  const Outcome foreign = bench({"-p", "a", "--chat-template", "mistral-v7-tekken"});
  CHECK(foreign.code == 2);
  CHECK(has(foreign.err, "mistral-v7-tekken of llama.cpp is recognised, not supported yet"));
  CHECK(bench({"-p", "a", "--chat-template-kwargs", "[1]"}).code == 2);
  CHECK(bench({"-p", "a", "--chat-template-kwargs", "{"}).code == 2);
  CHECK(bench({"-p", "a", "--chat-template-file", "/no/such/file"}).code == 2);
  CHECK_THAT(bench({"-p", "a", "--chat-template", "chatml", "--chat-template-file", file}).err,
             contains("--chat-template does nothing beside --chat-template-file"));
  const Outcome broken = bench({"-p", "a", "--chat-template", "{{ messages"});
  CHECK(broken.code == 6);
  CHECK(has(broken.err, "--chat-template, line 1, column 12"));
}

TEST_CASE("--explain-prompt says what made each token", "[chat]") {
  const ChatBench bench("<|end|>{{ messages[0].content }}|");
  const Outcome o = bench({"-p", "abc<|end|>", "--explain-prompt"});
  REQUIRE(o.code == 0);
  CHECK(o.err.empty());
  CHECK(has(o.out, "template  control  \"<|end|>\"\n"));
  CHECK(has(o.out, "user               \"abc\"\n"));
  CHECK(has(o.out, "user               \"<\"\n"));
  CHECK(has(o.out, "template           \"|\"\n"));
  CHECK_FALSE(has(o.out, "user      control"));
  CHECK(has(bench({"-p", "<|end|>", "-no-cnv", "--explain-prompt"}).out, "prompt    control  \"<|end|>\"\n"));
  // The model reads the answer's beginning, too.
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"-no-cnv"}}) {
    const std::string begun = bench(with({"-p", "abc", "--prefill", "xyz<|end|>", "--explain-prompt"}, more)).out;
    INFO(begun);
    CHECK(has(begun, "xyz<|end|>\n\nIts "));
    CHECK(has(begun, "user               \"x\"\n"));
    CHECK_FALSE(has(begun, "user      control"));
  }
  const auto inside = [&](const std::string& prefill) {
    return has(bench({"-p", "abc", "--chat-template", "{{ messages[0].content }}<think>", "--explain-prompt",
                      "--prefill", prefill})
                   .out,
               "begins inside its thinking");
  };
  CHECK(inside("hm"));
  CHECK_FALSE(inside("hm</think>So"));
}
