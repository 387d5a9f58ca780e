// Chats with the real program, through a pipe.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "conversation_bench.h"
#include "support/catch.h"
#include "support/tiny_model.h"

using namespace llm::test;
using Json = nlohmann::json;

TEST_CASE("a chat in a pipe: an answer per line, and the end of the file ends it") {
  const ConversationBench bench;
  const Outcome one = bench.pipe("Tell me a story.", kShort);
  CHECK(one.code == 0);
  CHECK(one.err.empty());
  CHECK(std::count(one.out.begin(), one.out.end(), '\n') >= 1);
  const Outcome two = bench.pipe("Tell me a story.\n\nAnd another\\\none.\n", kShort);
  CHECK(two.code == 0);
  CHECK(two.out.starts_with(one.out));
  CHECK(two.out.size() > one.out.size());
  CHECK(bench.pipe("", kShort).code == 0);
  // The first message may come from the command line, and one turn may be all.
  CHECK(bench.pipe("", {"-n", "12", "--temp", "0", "-q", "-p", "Tell me a story."}).out == one.out);
  CHECK(bench.pipe("Tell me a story.\nMore.\n", {"-n", "12", "--temp", "0", "-q", "-st"}).out == one.out);
}

TEST_CASE("a chat whose stdin is closed has nobody to talk to and ends well") {
  const ConversationBench bench;
  Command c = bench.command(kShort);
  c.arguments.insert(c.arguments.begin(), {"-c", "\"$0\" \"$@\" <&-", c.program.string()});
  c.program = "/bin/sh";
  const Outcome o = run(c);
  CHECK(o.code == 0);
  CHECK(o.out.empty());
  CHECK(o.err.empty());
}

TEST_CASE("going back costs no evaluation") {
  const ConversationBench bench;
  const std::vector<std::string> options{"-n", "12", "-s", "5", "-v"};
  const Outcome o = bench.pipe("Tell me a story.\n/regen\n/undo\nTell me a story.\nWhy?\n/undo\nWhy?\n", options);
  REQUIRE(o.code == 0);
  const auto p = prompts(o.err);
  REQUIRE(p.size() == 5);
  const int all = p[0].first;
  CHECK(p[0].second == 0);
  CHECK(p[1] == std::pair(1, all - 1));  // only the last token, for its logits
  CHECK(p[2] == std::pair(1, all - 1));
  CHECK(p[3].second >= all);  // the first turn stays
  CHECK(p[4] == std::pair(1, p[3].first + p[3].second - 1));
  // The same seed at the same place of the same conversation: the same answer.
  const Outcome quiet =
      bench.pipe("Tell me a story.\n/regen\n/undo\nTell me a story.\n", {"-n", "12", "-s", "5", "-q"});
  const std::string one = bench.pipe("Tell me a story.\n", {"-n", "12", "-s", "5", "-q"}).out;
  const std::string told = quiet.out;
  CHECK(told == one + one + one);
}

TEST_CASE("what recurrent layers see again is told of the answer that took it") {
  const TempDir folder;
  TinyFile file = tiny_model({.arch = "qwen35", .layers = 2, .context = 512, .tokenizer = TinyTokenizer::Bpe});
  file.set("tokenizer.chat_template", "{% for m in messages %}{{ m.content }};{% endfor %}>");
  file.write(folder / "tiny.gguf");
  const Outcome o = run({.program = program("llm-run"),
                         .arguments = {"-m", (folder / "tiny.gguf").string(), "-i", "-t", "1", "-n", "2", "--temp", "0",
                                       "--ignore-eos", "-v"},
                         .environment = {{"XDG_STATE_HOME", (folder / "state").string()}},
                         .input_file = folder.write("input", "abcdefgh\n/regen\nijkl\n/regen\n").string()});
  INFO(o.err);
  REQUIRE(o.code == 0);
  static const std::regex line(R"((\d+) tokens? read again for recurrent layers\n)");
  std::vector<int> counts;
  for (std::sregex_iterator i(o.err.begin(), o.err.end(), line), end; i != end; ++i)
    counts.push_back(std::stoi((*i)[1]));
  // Nothing is as long as a block, so that no state stays behind but those at the ends, which are taken back.
  std::vector<int> cached;
  for (const auto& [evaluated, reused] : prompts(o.err)) cached.push_back(reused);
  REQUIRE(cached.size() == 4);
  CHECK(cached[0] == 0);
  CHECK(counts == std::vector<int>(cached.begin() + 1, cached.end()));
}

TEST_CASE("an answer that was cut goes on as if it had not been") {
  const ConversationBench bench;
  const std::string whole = bench.pipe("Tell me a story.\n", {"-n", "24", "--temp", "0", "-q"}).out;
  const Outcome o = bench.pipe("Tell me a story.\n/continue\n", {"-n", "12", "--temp", "0", "-v"});
  REQUIRE(o.code == 0);
  std::string joined = o.out;
  const std::string first = bench.pipe("Tell me a story.\n", {"-n", "12", "--temp", "0", "-q"}).out;
  joined.erase(first.size() - 1, 1);  // the line feed between the parts
  CHECK(joined == whole);
  CHECK(prompts(o.err).at(1).first == 1);  // the last token sampled was not in the cache
}

TEST_CASE("an answer that the model ended has nothing to go on with, and the chat says so") {
  const ConversationBench bench;
  const Outcome o = bench.pipe("Tell me a story.\n/continue\n", {"-n", "2000", "--temp", "0"});
  REQUIRE(o.code == 0);
  CHECK(contains(o.err, "the answer is complete"));
  CHECK_FALSE(contains(bench.pipe("Tell me a story.\n/continue\n", kShort).err, "complete"));
}

TEST_CASE("an answer that the model ended stays complete whatever is set, also behind /load") {
  const ConversationBench bench;
  const std::string saved = bench.path("chat.json").string(), ask = "Tell me a story.\n";
  const std::vector<std::string> options{"-n", "2000", "--temp", "0"};
  const std::string answer = bench.pipe(ask, options).out;
  const Outcome hot = bench.pipe(ask + "/save " + saved + "\n/set temp 3\n/set top-k 0\n/continue\n", options);
  CHECK(hot.out == answer);
  CHECK(contains(hot.err, "the answer is complete"));
  const Outcome loaded = bench.pipe("/load " + saved + "\n/set temp 3\n/set top-k 0\n/continue\n", options);
  CHECK(loaded.out.empty());
  CHECK(contains(loaded.err, "the answer is complete"));
}

TEST_CASE("an answer of a form does not go on, neither under it nor without it, and nothing advises that") {
  const ConversationBench bench;
  const std::string grammar = bench.write("g.gbnf", "root ::= \"a\"+").string();
  const Outcome o =
      bench.pipe("/grammar " + grammar + "\nTell me a story.\n/continue\n/grammar off\n/continue\n", kShort);
  CHECK(o.code == 2);
  CHECK(std::count(o.out.begin(), o.out.end(), '\n') == 1);
  const std::string refusal = "an answer that has a form cannot go on";
  CHECK(o.err.find(refusal) != o.err.rfind(refusal));
  Terminal t(bench.command({"-n", "12", "--temp", "0", "--grammar", "root ::= \"a\"+"}));
  to_prompt(t);
  t.type("Tell me a story.\r");
  CHECK_FALSE(contains(t.until("(cut after 12 tokens: "), "/continue"));
  CHECK(contains(to_prompt(t), "/set predict N gives more, /regen answers again)"));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a saved chat keeps a seed that was drawn as one, and that of its last answer") {
  const ConversationBench bench;
  const std::string saved = bench.path("chat.json").string();
  const std::vector<std::string> options{"-n", "12", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "-v"};
  const Outcome o = bench.pipe("Tell me a story.\n/regen\n/save " + saved + "\n/set\n", options);
  REQUIRE(o.code == 0);
  static const std::regex line(R"(· seed (\d+)\b)");
  const std::sregex_iterator first(o.err.begin(), o.err.end(), line), second = std::next(first);
  CHECK(contains(o.err, "seed: " + (*first)[1].str() + "\n"));  // that of the model's first answer, told before it
  const std::string last_seed = (*second)[1];
  CHECK(Json::parse(read_file(saved))["settings"]["seed"].dump() == last_seed);
  CHECK(contains(o.err, "\nseed                  " + last_seed + "\n"));
  const Outcome loaded = bench.pipe("/load " + saved + "\n/regen\n/regen\n/set\n", options);
  CHECK(contains(loaded.err, "The seed was drawn"));
  // Neither that answer nor the one before it comes again.
  std::set<std::string> seeds;
  const std::string err = o.err + loaded.err;
  for (std::sregex_iterator i(err.begin(), err.end(), line), end; i != end; ++i) seeds.insert((*i)[1]);
  CHECK(seeds.size() == 4);
}

TEST_CASE("commands are never sent, and a wrong one is told with the nearest") {
  const ConversationBench bench;
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"/undoo", "did you mean /undo?"},
           {"/image x", "recognised, not supported yet"},
           {"/fork main", "main already"},
           {"/why", "no answer yet"},
           {"/glob /nowhere/*", "no file matches"},
           {"/glob", "/glob needs PATTERN"},
           {"/save", "/save needs FILE"},
           {"/load", "/load needs FILE"},
           {"/export", "/export needs FILE.md|FILE.jsonl"},
           {"/UNDO", "did you mean /undo?"},
           {"/clear all of it", "/clear takes nothing behind it, \"all of it\" is given"},
           {"/save /dev/full", "is there already and is no saved chat"},
           {"/set temprature 1", "did you mean temperature?"},
           {"/set top_p 3", "top_p"},
           {"/set temo 1", "did you mean temp?"},
           {"/set logit_bais 1+1", "did you mean logit_bias?"},
           {"/set sampler top_k", "did you mean samplers?"},
           {"/set reverse-promt x", "did you mean reverse_prompt?"},
           {"/set reasoning-effrt low", "did you mean reasoning_effort?"},
           {"/set samplers top_j", "top_j"},
           {"/set logit-bias 99999999-inf", "option logit-bias: token 99999999 is not in the vocabulary"},
           {"/set --logit-bias x", "option --logit-bias: \"x\" is not TOKEN_ID+BIAS"},
           {"/set logit_bias \"a+1", "option logit_bias: \"\\\"a+1\" lacks the closing quote"},
           {"/set greedy 0", "greedy off takes back"},
           {"/set greedy x", "greedy takes on or off"},
           {"/set seed x", "seed"},
           {"/read /nowhere/file", "/nowhere/file"},
           {"/load /nowhere/file", "/nowhere/file"},
           {"/continue", "no answer"},
           {"/regen", "no message"},
           {"/think on", "enable_thinking"},
       }) {
    INFO(line);
    const Outcome o = bench.pipe(line + "\n", kShort);
    CHECK(o.out.empty());
    CHECK(contains(o.err, part));
    CHECK(o.code == 2);
  }
  const Outcome literal = bench.pipe("//undo\n/context\n", kShort);
  CHECK(literal.code == 0);
  CHECK_FALSE(literal.out.empty());
  CHECK(contains(literal.err, "user       /undo"));
  for (const std::string line :
       {"/help", "/show", "/show params", "/show template", "/show system", "/show license", "/set", "/stats",
        "/context", "/clear", "/undo", "/stop x", "/system", "/set temp 0.5"}) {
    INFO(line);
    const Outcome o = bench.pipe(line + "\n", kShort);
    CHECK(o.code == 0);
    CHECK(o.out.empty());
    CHECK_FALSE(o.err.empty());
  }
  CHECK(bench.pipe("/exit\nTell me a story.\n", kShort).out.empty());
}

TEST_CASE("a turn that fails is told, and the chat goes on without it") {
  const ConversationBench bench;
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out;
  // The sample's template refuses system messages: the text is not taken, whether or not there are messages.
  for (const std::string before : {"", "Tell me a story.\n"}) {
    const Outcome o = bench.pipe(before + "/system Be kind.\n/system\n/clear\nTell me a story.\n", kShort);
    INFO(o.err);
    CHECK(contains(o.err, "knows the roles user and assistant only"));
    CHECK(contains(o.err, "there is no system text"));
    CHECK(o.out == (before.empty() ? answer : answer + answer));
    CHECK(o.code == 6);
  }
  std::string many;
  for (int i = 0; i < 200; ++i) many += "word ";
  const Outcome full = bench.pipe(many + "\nTell me a story.\n", {"-n", "12", "--temp", "0", "-q", "-c", "64"});
  CHECK(contains(full.err, "the context holds 64"));
  CHECK(full.out == answer);
  CHECK(full.code == 5);
}

TEST_CASE("chats are saved, loaded and exported") {
  const ConversationBench bench;
  const auto saved = bench.path("chat.json"), text = bench.path("chat.md"), lines = bench.path("chat.jsonl");
  const Outcome o = bench.pipe("Tell me a story.\n/set top_k 7\n/stop XYZ\n/save " + saved.string() + "\n/export " +
                                   text.string() + "\n/export " + lines.string() + "\nWhy?\n",
                               kShort);
  REQUIRE(o.code == 0);
  const Json json = Json::parse(read_file(saved));
  CHECK(json["messages"].size() == 2);
  CHECK(json["messages"][0] == Json{{"role", "user"}, {"content", "Tell me a story."}});
  CHECK(json["settings"]["top_k"] == 7);
  CHECK(json["settings"]["stop"] == Json{"XYZ"});
  CHECK(json["model"]["name"] == "fable-dense.gguf");
  CHECK(contains(read_file(text), "## User\n\nTell me a story.\n\n## Assistant\n\n"));
  CHECK(Json::parse(read_file(lines).substr(0, read_file(lines).find('\n')))["role"] == "user");
  const Outcome again = bench.pipe("/load " + saved.string() + "\nWhy?\n", kShort);
  CHECK(again.code == 0);
  CHECK(o.out.ends_with(again.out));
  CHECK(contains(again.err, "loaded 1 turn and the settings of then (/set lists them)"));
  Command alone = bench.command(with(kShort, {"--load", saved.string()}));
  std::erase(alone.arguments, "-i");  // it begins a chat by itself
  alone.input_file = bench.write("why", "Why?\n").string();
  CHECK(run(alone).out == again.out);
  CHECK(bench.pipe("", with(kShort, {"--load", bench.path("none").string()})).code == 2);
  CHECK(bench.pipe("", with(kShort, {"--load", saved.string(), "--dry-run"})).code == 2);
  const auto other = bench.write("notes.md", "mine");
  CHECK(bench.pipe("/save " + other.string() + "\n/export " + other.string() + "\n", kShort).code == 2);
  CHECK(read_file(other) == "mine");
  for (const char* broken :
       {"", "[]", "{\"format\": \"llm-run chat\"}",
        R"({"format": "llm-run chat", "version": 1, "messages": [{"role": "assistant", "content": ""}]})",
        R"({"format": "llm-run chat", "version": 1, "messages": [{"role": "user", "content": 1}]})",
        R"({"format": "llm-run chat", "version": 1, "messages": [], "settings": {"top_k": "x"}})"}) {
    INFO(broken);
    CHECK(bench.pipe("/load " + bench.write("broken.json", broken).string() + "\n", kShort).code == 2);
  }
}

TEST_CASE("an export replaces what it goes on from and nothing else") {
  const ConversationBench bench;
  for (const std::string name : {"chat.md", "chat.jsonl"}) {
    INFO(name);
    const std::string file = bench.path(name).string(), write = "/export " + file + "\n";
    REQUIRE(bench.pipe(write + "Tell me a story.\n" + write, kShort).code == 0);  // the first has no messages
    const std::string one = read_file(file);
    REQUIRE(bench.pipe("Tell me a story.\nWhy?\n" + write, kShort).code == 0);
    const std::string two = read_file(file);
    CHECK(two.size() > one.size());
    CHECK(two.starts_with(one));
    for (const std::string other : {"", "Why?\n"}) {  // nothing, and another chat
      const Outcome o = bench.pipe(other + write, kShort);
      CHECK(o.code == 2);
      CHECK(contains(o.err, "is there already, and holds something else than the beginning of this chat"));
      CHECK(read_file(file) == two);
    }
  }
  for (const std::string name : {"own.md", "own.jsonl"}) {
    const auto file = bench.write(name, "## User\n\n# guide\n");
    CHECK(bench.pipe("Tell me a story.\n/export " + file.string() + "\n", kShort).code == 2);
    CHECK(read_file(file) == "## User\n\n# guide\n");
  }
}

TEST_CASE("a saved chat goes on from its cache, and from its text where that is of no use") {
  const ConversationBench bench;
  const auto saved = bench.path("chat.json"), cache = bench.path("chat.json.cache");
  const std::vector<std::string> options{"-n", "12", "--temp", "0", "-v"};
  const Outcome o = bench.pipe("Tell me a story.\n/save " + saved.string() + "\nWhy?\n", options);
  REQUIRE(o.code == 0);
  const std::string second = o.out.substr(o.out.find('\n') + 1);
  const auto went_on = [&](std::pair<int, int>& prompt) {
    const Outcome again = bench.pipe("/load " + saved.string() + "\nWhy?\n", options);
    CHECK(again.code == 0);
    CHECK(o.out.ends_with(again.out));
    prompt = prompts(again.err).at(0);
    return again.err;
  };
  std::pair<int, int> prompt;
  went_on(prompt);
  CHECK(prompt == prompts(o.err).at(1));  // as much cached as where nothing was saved
  const std::string whole = read_file(cache);
  const auto renamed = bench.path("other.json");
  std::filesystem::rename(saved, renamed);
  const auto cached_of_renamed = [&] {
    return prompts(bench.pipe("/load " + renamed.string() + "\nWhy?\n", options).err).at(0).second;
  };
  CHECK(cached_of_renamed() == prompt.second);
  std::filesystem::rename(cache, bench.path("other.json.cache"));
  CHECK(cached_of_renamed() == prompt.second);
  std::filesystem::rename(renamed, saved);
  std::filesystem::rename(bench.path("other.json.cache"), cache);
  bench.write("chat.json.cache", whole.substr(0, whole.size() / 2));
  CHECK(contains(went_on(prompt), "checksum"));
  CHECK(prompt.second == 0);
  std::filesystem::remove(cache);
  CHECK(contains(went_on(prompt), "read again"));
  bench.write("chat.json.cache", "mine");
  const Outcome refused = bench.pipe("Tell me a story.\n/save " + saved.string() + "\n", options);
  CHECK(refused.code == 2);
  CHECK(read_file(cache) == "mine");
}

TEST_CASE("a file that cannot be written ends no chat") {
  const ConversationBench bench;
  const std::string long_name = bench.path(std::string(300, 'a')).string();
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out;
  for (const std::string& command :
       {"/save " + bench.path("none/chat").string(), "/export " + bench.path("none/x.md").string(),
        "/save " + long_name, "/export " + long_name + ".md"}) {
    INFO(command);
    const Outcome o = bench.pipe(command + "\nTell me a story.\n", kShort);
    CHECK(o.code == 8);
    CHECK(o.out == answer);
    CHECK(contains(o.err, "llm-run: error[E-IO]: "));
  }
}

#ifndef LLM_TEST_LIMITS_FILES_OF_THE_SANITIZER
TEST_CASE("a chat is saved where its cache finds no room") {
  const ConversationBench bench;
  const std::vector<std::string> loud{"-n", "12", "--temp", "0"};
  const std::string file = bench.path("chat.json").string();
  const std::string ask = "Tell me a story.\n";
  const Command chat = bench.command(loud);
  std::string call = chat.program.string();
  for (const std::string& argument : chat.arguments) call += " " + argument;
  // The messages are some 1,500 bytes, the cache is 256 KiB.
  Command limited{.program = "/bin/bash", .arguments = {"-c", "ulimit -f 4; exec " + call}};
  limited.environment = chat.environment;
  limited.input_file = bench.write("input", ask + "/save " + file + "\n" + ask).string();
  const Outcome o = run(limited);
  INFO(o.err);
  CHECK(o.code == 0);
  CHECK(contains(o.err, "warning[no-cache]: "));
  CHECK(contains(o.err, "saved in " + file + "\n"));
  CHECK_FALSE(std::filesystem::exists(file + ".cache"));
  CHECK(Json::parse(read_file(file))["messages"].size() == 2);
  CHECK(o.out == bench.pipe(ask + ask, loud).out);
  const Outcome loaded = bench.pipe("/load " + file + "\n" + ask, loud);
  CHECK(loaded.code == 0);
  CHECK(contains(loaded.err, "the conversation will be read again"));
  CHECK(o.out.ends_with(loaded.out));
}
#endif

TEST_CASE("paths of commands may begin in the home folder, settings are shown as they were given") {
  const ConversationBench bench;
  Command c = bench.command(kShort);
  c.environment.emplace_back("HOME", bench.path("").string());
  c.input_file = bench.write("input", "/save ~/kept.json\n/set top_p 0.35\n/set\n").string();
  const Outcome o = run(c);
  CHECK(o.code == 0);
  CHECK(contains(read_file(bench.path("kept.json")), "\"temperature\": 0.0,"));
  CHECK(contains(o.err, "\ntop_p                 0.35\n"));
}

TEST_CASE("settings that are no numbers do in a chat what their options do") {
  const ConversationBench bench;
  const std::vector<std::string> options{"-n", "12", "-s", "5", "-q"};
  const std::string ask = "Tell me a story.\n";
  for (const auto& [lines, given] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"/set greedy 1\n", {"--greedy"}},
           {"/set samplers top_k\n/set greedy on\n", {"--samplers", "top_k", "--greedy"}},
           {"/set mirostat 2\n/set greedy on\n", {"--greedy"}},
           {"/set samplers temperature\n/set temp 3\n", {"--samplers", "temperature", "--temp", "3"}},
           {"/set sampling-seq t\n/set temp 3\n", {"--samplers", "temperature", "--temp", "3"}},
           {"/set logit-bias 300+30,301+29\n", {"-l", "300+30", "-l", "301+29"}},
           {"/set --logit-bias \"Once\"-inf\n", {"-l", "\"Once\"-inf"}},
           {"/set logit-bias 300+30\n/set logit-bias off\n", {}},
           {"/set reverse-prompt a\n", {"-r", "a"}},
       }) {
    INFO(lines);
    const std::string expected = bench.pipe(ask, with(options, given)).out;
    const Outcome o = bench.pipe(lines + ask + "/save " + bench.path("s.json").string() + "\n", options);
    CHECK(o.code == 0);
    CHECK(o.out == expected);
    CHECK(given.empty() == (expected == bench.pipe(ask, options).out));
    const Outcome again = bench.pipe("/load " + bench.path("s.json").string() + "\n/undo\n" + ask, options);
    CHECK(again.out == expected);
  }
  bench.pipe("/set dry-sequence-breaker \\x61\n/set samplers top_k;temperature\n/set l 300-inf,7+0.1\n/save " +
                 bench.path("s.json").string() + "\n",
             options);
  const Json settings = Json::parse(read_file(bench.path("s.json")))["settings"];
  CHECK(settings["dry_sequence_breaker"] == Json{"a"});
  CHECK(settings["samplers"] == "top_k;temperature");
  CHECK(settings["logit_bias"] == "300-inf,7+0.1");
}

TEST_CASE("greedy off gives back what greedy on took") {
  const ConversationBench bench;
  const auto chain = [&](const std::string& lines) {
    const std::string err = bench.pipe(lines + "/set\n", {"-s", "3", "--temp", "0.7", "--mirostat", "2"}).err;
    return err.substr(err.find("predict   "));
  };
  CHECK(chain("/set greedy on\n/set greedy off\n") == chain(""));
  CHECK(chain("/set greedy on\n/set greedy 1\n/set top_k 5\n/set greedy 0\n") == chain("/set top_k 5\n"));
  CHECK(chain("/set greedy on\n") != chain(""));
  const std::string saved = bench.path("s.json").string();
  CHECK(contains(bench.pipe("/set greedy on\n/save " + saved + "\n/load " + saved + "\n/set greedy off\n", {}).err,
                 "greedy off takes back"));
}

TEST_CASE("a fork leaves the other conversation as it was") {
  const ConversationBench bench;
  const Outcome o = bench.pipe(
      "Tell me a story.\n/fork other\nWhy?\n/fork\n/fork main\n/context\n/fork other\n/undo\n/fork main\nWhy?\n",
      kShort);
  REQUIRE(o.code == 0);
  CHECK(contains(o.err, "* other, 2 turns\n  main, 1 turn\n"));
  CHECK(contains(o.err, "back in other, 2 turns"));
  const Outcome plain = bench.pipe("Tell me a story.\nWhy?\n", kShort);
  const std::string why = plain.out.substr(bench.pipe("Tell me a story.\n", kShort).out.size());
  CHECK(o.out == plain.out + why);
}

TEST_CASE("the branches of a chat are saved and loaded with it") {
  const ConversationBench bench;
  const std::vector<std::string> options = with(kShort, {"--chat-template", "chatml"});
  const std::string saved = bench.path("s.json").string();
  const Outcome o = bench.pipe("/system Be brief.\nTell me a story.\n/fork other\n/system \"\"\nWhy?\n/save " + saved +
                                   "\n/fork third\n/load " + saved + "\n/fork\n",
                               options);
  REQUIRE(o.code == 0);
  CHECK(contains(o.err, "loaded 2 turns and 1 other branch (/fork lists them)"));
  CHECK(o.err.ends_with("* other, 2 turns\n  main, 1 turn\n"));  // those of then, without the third
  const Outcome later =
      bench.pipe("/fork\n/fork main\n/system\n/fork other\n/system\n", with(options, {"--load", saved}));
  CHECK(later.code == 0);
  CHECK(contains(later.err, "* other, 2 turns\n  main, 1 turn\n"));
  const std::size_t back = later.err.find("back in main, 1 turn"), system = later.err.find("Be brief.");
  CHECK(back < system);
  CHECK(system < later.err.find("back in other, 2 turns"));
  // One without others leaves those that there are.
  const std::string plain = bench.path("p.json").string();
  const Outcome kept = bench.pipe("Why?\n/save " + plain + "\n/fork other\n/load " + plain + "\n/fork\n", options);
  CHECK(kept.err.ends_with("* other, 1 turn\n  main, 1 turn\n"));
  CHECK_FALSE(Json::parse(read_file(plain)).contains("branches"));
  const std::string broken = bench.write("b.json", read_file(saved)).string();
  Json json = Json::parse(read_file(saved));
  json["branches"] = Json::array({"main"});
  bench.write("b.json", json.dump());
  CHECK(contains(bench.pipe("/load " + broken + "\n", options).err, "are not the branches beside"));
}

TEST_CASE("what the model gave a token is what --logprobs says of it") {
  const ConversationBench bench;
  const Outcome o = bench.pipe("Tell me a story.\n/why\n/why 1\n/why 5\n/why 13\nWhy?\n", kShort);
  CHECK(o.code == 2);  // there are 12 tokens
  Command one = bench.command(
      {"-n", "12", "--temp", "0", "-q", "-p", "Tell me a story.", "--output-format", "json", "--logprobs", "10"});
  std::erase(one.arguments, "-i");
  const Json content = Json::parse(run(one).out)["logprobs"]["content"];
  for (const std::size_t n : {0u, 4u}) {
    for (const Json& t : content[n]["top_logprobs"]) {
      char line[64];
      std::snprintf(line, sizeof line, "%6.2f %%  \"", 100 * std::exp(t["logprob"].get<double>()));
      CHECK(contains(o.err, line));
    }
  }
  CHECK(o.out == bench.pipe("Tell me a story.\nWhy?\n", kShort).out);  // nothing is changed by looking
}

TEST_CASE("a chat through a pipe drops a byte order mark, and all that it tells is JSON where that is asked for") {
  const ConversationBench bench;
  const Outcome o = bench.pipe("\xEF\xBB\xBF/set temp 0\nTell me a story.\n/context\n", {"-n", "4", "--log-jsonl"});
  CHECK(o.code == 0);
  CHECK(o.out == bench.pipe("Tell me a story.\n", {"-n", "4", "--temp", "0"}).out);
  std::istringstream lines(o.err);
  std::string line;
  int n = 0;
  for (; std::getline(lines, line); ++n) CHECK_NOTHROW(Json::parse(line));
  CHECK(n >= 2);
  CHECK(contains(o.err, "temp is 0"));
}

TEST_CASE("the tokens of an answer that went on are numbered from its beginning") {
  const ConversationBench bench;
  const auto list = [&](const std::string& lines, const std::string& n) {
    const Outcome o = bench.pipe(lines + "/why\n", {"-n", n, "--temp", "0", "-q"});
    CHECK(o.code == 0);
    return o.err;
  };
  const std::string whole = list("Tell me a story.\n", "24");
  CHECK(whole.starts_with("1:"));
  CHECK((contains(whole, " 24:") || contains(whole, "\n24:")));
  CHECK(list("Tell me a story.\n/continue\n", "12") == whole);
  CHECK(list("Tell me a story.\n/continue\n/continue\n", "8") == whole);
  const std::string saved = bench.path("chat.json").string();  // the tokens of an answer are not in it
  list("Tell me a story.\n/save " + saved + "\n", "12");
  CHECK(list("/load " + saved + "\n/continue\n", "12").ends_with(whole));
  const auto explained = [&](const std::string& lines, const std::string& n) {
    return bench.pipe(lines + "/why 3\n/why 20\n", {"-n", n, "--temp", "0", "-q"}).err;
  };
  CHECK(explained("Tell me a story.\n/continue\n", "12") == explained("Tell me a story.\n", "24"));
}

TEST_CASE("files that match a pattern go before the next message") {
  const ConversationBench bench;
  bench.write("a.txt", "first");
  bench.write("b.txt", "second\n");
  const Outcome o = bench.pipe("/glob " + bench.path("*.txt").string() + "\nWhat?\n/context\n", kShort);
  CHECK(o.code == 0);
  const std::string a = bench.path("a.txt").string(), b = bench.path("b.txt").string();
  const std::size_t bytes = a.size() + b.size() + std::string(":\nfirst\n\n:\nsecond\n\n").size();
  CHECK(contains(o.err, std::to_string(bytes) + " bytes"));
}

TEST_CASE("half a character as a stop string is shown among the settings") {
  const Outcome o = ConversationBench().pipe("/stop \\xff\n/set\n", kShort);
  CHECK(o.code == 0);
  CHECK(contains(o.err, "\nstop                  [\"\xef\xbf\xbd\"]\n"));
}

TEST_CASE("with the seed that a chat tells, an answer comes again") {
  const ConversationBench bench;
  const std::vector<std::string> options{"-n", "24", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "-v"};
  const Outcome drawn = bench.pipe("Tell me a story.\n/regen\n/stats\n", options);
  static const std::regex line(R"(·\s+seed\s+(\d+)\b)");
  std::vector<std::string> seeds;
  for (std::sregex_iterator i(drawn.err.begin(), drawn.err.end(), line), end; i != end; ++i) seeds.push_back((*i)[1]);
  REQUIRE(seeds.size() == 3);
  CHECK(seeds[0] != seeds[1]);
  CHECK(seeds[1] == seeds[2]);
  std::string both;
  for (const std::size_t i : {0u, 1u}) {
    std::vector<std::string> given = options;
    given.insert(given.end(), {"-s", seeds[i]});
    const Outcome again = bench.pipe("Tell me a story.\n", given);
    CHECK_FALSE(contains(again.err, "seed " + seeds[i] + " \u00b7"));
    both += again.out;
  }
  CHECK(both == drawn.out);
  CHECK_FALSE(contains(bench.pipe("Tell me a story.\n/stats\n", {"-n", "4", "--greedy", "-v"}).err, "\u00b7 seed"));
}

TEST_CASE("what is typed beside --load counts more than what was saved, and what is set elsewhere does not") {
  const ConversationBench bench;
  const std::string file = bench.path("chat.json").string();
  const std::vector<std::string> then{"-n", "30", "--temp", "0.9", "-s", "5", "-q", "-r", "then"};
  REQUIRE(bench.pipe("Tell me a story.\n/set logit-bias 300-inf\n/save " + file + "\n", then).code == 0);
  const auto settings = [&](const std::vector<std::string>& options) {
    const std::string now = bench.path("now.json").string();
    const Outcome o = bench.pipe("/save " + now + "\n", with({"--load", file, "-q"}, options));
    INFO(o.err);
    REQUIRE(o.code == 0);
    return Json::parse(read_file(now))["settings"];
  };
  const Json saved = settings({}), typed = settings({"--temp", "0", "-s", "7", "-n", "6", "--top-k", "3", "-r", "you",
                                                     "-l", "301-inf", "--samplers", "top_k"});
  CHECK(saved["temperature"] == 0.9);
  CHECK(saved["predict"] == 30);
  CHECK(saved["stop"] == Json{"then"});
  CHECK(saved["logit_bias"] == "300-inf");
  CHECK(typed["temperature"] == 0.0);
  CHECK(typed["seed"] == 7);
  CHECK(typed["predict"] == 6);
  CHECK(typed["top_k"] == 3);
  CHECK(typed["stop"] == Json{"you"});
  CHECK(typed["logit_bias"] == "301-inf");
  CHECK(typed["samplers"] == "top_k");
  CHECK(typed["min_p"] == saved["min_p"]);
  CHECK(settings({"--greedy"})["temperature"] == 0.0);
  CHECK(settings({"-s", "-1"})["seed_drawn"] == true);
  const Json configured = settings({"--config", bench.write("c.toml", "temp = 0.1\npredict = 3\n").string()});
  CHECK(configured["temperature"] == 0.9);
  CHECK(configured["predict"] == 30);

  const std::string shows = "{% for m in messages %}{{ m.content }};{% endfor %}>";
  const std::vector<std::string> shown = with(kShort, {"--chat-template", shows});
  REQUIRE(bench.pipe("/system Be kind.\n/save " + file + "\n", shown).code == 0);
  const std::vector<std::string> loads = with(shown, {"--load", file});
  CHECK(bench.pipe("/system\n", loads).err.ends_with("Be kind.\n"));
  CHECK(bench.pipe("/system\n", with(loads, {"-sys", "Be brief."})).err.ends_with("Be brief.\n"));
}

TEST_CASE("an answer of a chat that is cut before its form is complete is warned about") {
  const ConversationBench bench;
  const std::vector<std::string> form{"--temp", "0", "-j", R"({"type":"object","properties":{"a":{"type":"string"}},
                                                               "required":["a"]})"};
  const Outcome cut = bench.pipe("Tell me a story.\n", with(form, {"-n", "3", "--strict"}));
  CHECK(cut.code == 10);
  CHECK(contains(cut.err,
                 "warning[form-cut]: the answer ends before its form is complete, after 3 tokens; /set predict"));
  const Outcome whole = bench.pipe("Tell me a story.\n", {"-n", "3", "--temp", "0", "--strict", "--regex", "[a-z]+"});
  CHECK(whole.code == 0);
  CHECK_FALSE(contains(whole.err, "form-cut"));
  Terminal t(bench.command(with(form, {"-n", "3"})));
  to_prompt(t);
  t.type("Tell me a story.\r");
  CHECK_FALSE(contains(t.until("/regen answers again"), "(cut after"));
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("the first answer of a chat is the one that llm-run gives without a chat, for the same seed") {
  const ConversationBench bench;
  const std::vector<std::string> options{"-n", "24", "--temp", "1.5", "--top-k", "0", "-s", "3", "-q"};
  Command alone = bench.command(with(options, {"-p", "Tell me a story."}));
  std::erase(alone.arguments, "-i");
  const std::string expected = run(alone).out;
  CHECK(bench.pipe("Tell me a story.\n", options).out == expected);
  // A later turn has draws of its own.
  CHECK(bench.pipe("Tell me a story.\nTell me a story.\n", options).out != expected + expected);
}

TEST_CASE("--show-timings shows the figures of each answer of a chat, quiet or not") {
  const ConversationBench bench;
  const std::string ask = "Tell me a story.\nWhy?\n";
  const std::vector<std::string> asked = with(kShort, {"--show-timings"});
  CHECK(prompts(bench.pipe(ask, asked).err).size() == 2);
  CHECK(bench.pipe(ask, asked).out == bench.pipe(ask, kShort).out);
  CHECK(prompts(bench.pipe(ask, {"-n", "12", "--temp", "0"}).err).empty());
}

TEST_CASE("what other programs set in a chat is answered with what does it here") {
  const ConversationBench bench;
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {"/set parameter temperature 0.5", "/set takes the name itself: /set temperature 0.5"},
           {"/set system Be kind.", "no setting is called \"system\"; /system TEXT"},
           {"/set nothink", "no setting is called \"nothink\"; /think on and /think off"},
           {"/set verbose", "no setting is called \"verbose\"; /stats"},
           {"/set history", "no setting is called \"history\"; --no-history"},
           {"/set num_ctx 4096", "no setting is called \"num_ctx\"; -c before the start"},
           {"/set ctx-size 4096", "no setting is called \"ctx_size\"; -c before the start"},
           {"/set num_predict 4", "no setting is called \"num_predict\"; predict"},
           {"/set temprature", "did you mean temperature?"},
           {"/set greedy", "/set greedy on"},
           {"/? unod", "no command is called /unod; did you mean /undo?"},
           {"/undo x", "E-USAGE]: /undo: \"x\" is not a whole number"},
           {"Hello\n/why 9999", "E-USAGE]: /why: \"9999\" is not a whole number from 1 to"},
       }) {
    INFO(line);
    const Outcome o = bench.pipe(line + "\n", kShort);
    CHECK(contains(o.err, part));
    CHECK(o.code == 2);
  }
  const auto err = [&](const std::string& line) {
    const Outcome o = bench.pipe(line + "\n", kShort);
    CHECK(o.code == 0);
    return o.err;
  };
  CHECK(err("/set temp") == "temperature           0.0\n");
  CHECK(err("/set n") == "predict               12\n");
  CHECK(err("/set sampling-seq").starts_with("samplers              \"penalties;"));
  CHECK(err("/set reasoning-budget") == "thinking as the chat template has it\n");
  CHECK(err("/? set").starts_with("  /set [NAME VALUE]"));
  CHECK(err("/help /undo").starts_with("  /undo [N]"));
}

TEST_CASE("the system text has its own row among the tokens, where it is no part of the first message") {
  const ConversationBench bench;
  const auto rows = [&](const std::string& t) {
    const Outcome o = bench.pipe("Tell me a story.\n/context\n/stats\n",
                                 with(kShort, {"--chat-template", t, "-sys", "Be kind and brief."}));
    INFO(o.err);
    REQUIRE(o.code == 0);
    CHECK(contains(o.err, "all:  1 answer, prompts "));
    static const std::regex row(R"( +(\d+)  (system|user|assistant|of) )");
    std::vector<std::pair<std::string, int>> found;
    for (std::sregex_iterator i(o.err.begin(), o.err.end(), row), end; i != end; ++i)
      found.emplace_back((*i)[2], std::stoi((*i)[1]));
    return found;
  };
  const auto apart = rows("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  REQUIRE(apart.size() == 4);
  CHECK(apart[0].first == "system");
  CHECK(apart[0].second > 4);
  CHECK(apart[1].first == "user");
  CHECK(apart[0].second + apart[1].second + apart[2].second == apart[3].second);
  const auto joined = rows("[{{ messages[0].content }}{% for m in messages[1:] %};{{ m.content }}{% endfor %}]");
  REQUIRE(joined.size() == 3);
  CHECK(joined[0].first == "user");
}

TEST_CASE("a line that is not UTF-8 is warned about in a chat as in a file") {
  const ConversationBench bench;
  const Outcome o = bench.pipe("Hello\nH\xe9llo\n", kShort);
  CHECK(o.code == 0);
  CHECK(o.err.empty());
  const Outcome told = bench.pipe("Hello\n/stop a\\\nb\nH\xe9llo\n", {"-n", "3", "--temp", "0", "--strict"});
  CHECK(told.code == 10);
  CHECK(contains(told.err, "warning[not-utf8]: stdin, line 4: is not UTF-8"));
}

TEST_CASE("quotes around a system text are no part of it") {
  const ConversationBench bench;
  const auto text = [&](const std::string& given) {
    return bench.pipe("/system " + given + "\n/system\n", {"-q", "--chat-template", "chatml"}).err;
  };
  CHECK(contains(text("\"Talk like a pirate\""), "\nTalk like a pirate\n"));
  CHECK(contains(text("Say \"Ahoy\""), "\nSay \"Ahoy\"\n"));
  CHECK(contains(text("\"Ahoy\" or \"Arr\""), "\n\"Ahoy\" or \"Arr\"\n"));
}

TEST_CASE("a block that is never closed is told") {
  const ConversationBench bench;
  const Outcome o = bench.pipe("\"\"\"\nTell me\na story.\n", {"-n", "12", "--temp", "0"});
  CHECK(o.code == 0);
  CHECK(contains(o.err, "note: the \"\"\" that begins the last message is never closed"));
  const Outcome closed = bench.pipe("\"\"\"\nTell me\na story.\n\"\"\"\n", {"-n", "12", "--temp", "0"});
  CHECK_FALSE(contains(closed.err, "never closed"));
  CHECK(o.out == closed.out);
}

TEST_CASE("a first message of the command line is sent as it is, whatever it begins with") {
  const ConversationBench bench;
  for (const char* text : {"// main.c\nint main;", "/* no command */", "/clear", "two\\"}) {
    const std::filesystem::path file = bench.write("first", text);
    const Outcome o = bench.pipe("/context\n", with(kShort, {"-f", file.string()}));
    INFO(o.err);
    CHECK(o.code == 0);
    std::string shown(text);
    for (std::size_t at = 0; (at = shown.find('\n', at)) != std::string::npos;) shown.replace(at, 1, "\\x0a");
    CHECK(contains(o.err, "user       " + shown));
  }
  CHECK_FALSE(contains(bench.pipe("Why?\n", with(kShort, {"-p", "Hello"})).err, "left unread"));
}

TEST_CASE("a chat goes on with the same model by another name") {
  const ConversationBench bench;
  const std::string saved = bench.path("chat.json").string(), link = bench.path("link.gguf").string();
  std::filesystem::create_symlink(source_dir() / "models" / "samples" / "fable-dense.gguf", link);
  REQUIRE(bench.pipe("Hello\n/save " + saved + "\n", with(kShort, {"-l", "75-inf"})).code == 0);
  Command c = bench.command(with({"-n", "12", "--temp", "0"}, {"--load", saved}));
  *(std::find(c.arguments.begin(), c.arguments.end(), "-m") + 1) = link;
  c.input_file = bench.write("more", "/set logit-bias\n/set\n").string();
  const Outcome o = run(c);
  CHECK_FALSE(contains(o.err, "another model"));
  CHECK(contains(o.err, "75-inf"));
}

TEST_CASE("a saved chat that nests deeper than any stack is refused") {
  const ConversationBench bench;
  const std::string deep(300'000, '[');
  const std::filesystem::path file = bench.write(
      "deep.json", R"({"format":"llm-run chat","version":1,"messages":)" + deep + std::string(300'000, ']') + "}");
  const Outcome o = bench.pipe("Hello\n", with(kShort, {"--load", file.string()}));
  CHECK(o.code == 2);
  CHECK(contains(o.err, "values are nested more than 200 deep"));
}

TEST_CASE("what an answer was made of is forgotten with it") {
  const ConversationBench bench;
  for (const char* away : {"/undo\n", "/clear\n", "/fork other\nWhy?\n/fork main\n"}) {
    const Outcome o = bench.pipe("Tell me a story.\n" + std::string(away) + "/why\n", kShort);
    INFO(away << o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, std::string_view(away) == "/fork other\nWhy?\n/fork main\n"
                              ? "of what the last answer was made is not known any more"
                              : "there is no answer yet"));
  }
}

TEST_CASE("an answer that was cut inside of a character goes on with the character") {
  const ConversationBench bench;
  const std::string saved = bench.path("chat.json").string();
  // The sample's vocabulary has the bytes of such a character apart.
  const std::vector<std::string> options = {"-l", "\"\xF0\x9F\xA6\x8A\"+100", "--temp", "0", "-q"};
  const Outcome o = bench.pipe("Hello\n/continue\n/save " + saved + "\n", with(options, {"-n", "2"}));
  REQUIRE(o.code == 0);
  const std::string text = nlohmann::json::parse(read_file(saved))["messages"][1]["content"];
  const Outcome whole = bench.pipe("Hello\n", with(options, {"-n", "4"}));
  CHECK(text + "\n" == whole.out);
}
