// Chats with the real program, on a pseudo-terminal: keys, signals, and what fits the window.
#include <algorithm>
#include <chrono>
#include <regex>
#include <sstream>
#include <thread>

#include "common/columns.h"
#include "conversation_bench.h"
#include "support/catch.h"

using namespace llm::test;
using llm::app::columns_of;

TEST_CASE("reasoning is dimmed on a terminal and left out of a pipe") {
  const ConversationBench bench;
  const std::vector<std::string> options{"--regex", "<think>hm\n\n</think>\n\nyes", "-q"};
  CHECK(bench.pipe("Tell me a story.\n", options).out == "yes\n");
  Terminal t(bench.command(options));
  to_prompt(t);
  t.type("Tell me a story.\r");
  CHECK(contains(t.until("yes"), "\x1b[2mhm\x1b[0m\r\n"));
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a chat on a terminal") {
  const ConversationBench bench;
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out;
  Terminal t(bench.command({"-n", "12", "--temp", "0"}));
  CHECK(contains(to_prompt(t), "fable-dense.gguf"));
  t.type("Tell me a story.\r");
  t.until(answer.substr(0, answer.size() - 1));
  to_prompt(t);
  t.type("/undoo\r");
  t.until("did you mean /undo?");
  to_prompt(t);
  t.type("/un\t\r");  // completed
  t.until("removed 1 turn, 0 left");
  to_prompt(t);
  t.type("\"\"\"\rone\r");
  t.until("\u2026 ");
  t.type("two\"\"\"\r");
  to_prompt(t);
  t.type("/context\r");
  t.until("one\\x0atwo");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
  CHECK(t.is_cooked());
  const std::string history = read_file(bench.path("state") / "llm-run" / "history");
  CHECK(contains(history, "/undoo"));
  std::istringstream lines(history);
  std::vector<std::string> typed;
  for (std::string line; std::getline(lines, line);) typed.push_back(line);
  CHECK(std::ranges::count(typed, "/undoo") == 1);
  CHECK(std::ranges::adjacent_find(typed) == typed.end());
}

TEST_CASE("a text to complete is not asked for on a terminal") {
  const ConversationBench bench;
  Command c = bench.command({"-no-cnv"});
  std::erase(c.arguments, "-i");
  Terminal t(c);
  t.until("-no-cnv completes a text: give it with -p or -f");
  CHECK(t.end() == 2);
}

TEST_CASE("what is pasted is one message") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.type("\x1b[200~one\rtwo\x1b[201~");
  t.until("two");
  t.type("\r");
  to_prompt(t);
  t.type("/context\r");
  t.until("one\\x0atwo");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("bytes that are no character take nothing with them") {
  const ConversationBench bench;
  Command c = bench.command(kShort);
  c.environment.emplace_back("VISUAL", "f() { printf 'caf\\351 \\000ol\\303' >\"$1\"; }; f");
  Terminal t(c);
  const auto expect_user = [&](std::string_view text) {
    to_prompt(t);
    t.type("/context\r");
    t.until("user       " + std::string(text) + "\r\n");
  };
  to_prompt(t);
  t.type("\x1b[200~caf\xe9\x1b[201~");  // the byte behind it belongs to the end of what is pasted
  t.until("caf\uFFFD");
  t.type("\r");
  expect_user("caf\uFFFD");
  to_prompt(t);
  t.type("caf\xe9 \xc3\xa9t\xe9\r");
  expect_user("caf\uFFFD \u00e9t\uFFFD");
  to_prompt(t);
  t.type("ol\x07");  // Ctrl-G
  t.until("caf\uFFFD");
  t.type("\r");
  expect_user("caf\uFFFD ol\uFFFD");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("Ctrl-C ends a paste whose end does not come") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.type("\x1b[200~half of it");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  t.type(kInterrupt);
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a slash that several pasted lines begin with is none of a command") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  for (const char* text : {"// adds", "/* a */", "/undo"}) {
    to_prompt(t);
    t.type("\x1b[200~" + std::string(text) + "\rint add();\r\x1b[201~");
    t.until("int add();");
    t.type("\r");
    to_prompt(t);
    t.type("/context\r");
    t.until("user       " + std::string(text) + "\\x0aint add();\r\n");
  }
  to_prompt(t);
  t.type("/system \x1b[200~one\rtwo\x1b[201~\r");
  t.until("knows the roles user and assistant only");
  to_prompt(t);
  t.type("\x1b[200~/undoo\r\x1b[201~\r");
  t.until("did you mean /undo?");
  to_prompt(t);
  t.type("\x1b[200~one\rtwo\x1b[201~");
  t.until("two");
  t.type("\x01\x0b/undoo\r");  // Ctrl-A, Ctrl-K: in place of what was pasted
  t.until("did you mean /undo?");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("Ctrl-C clears a line, hints at an empty one, and leaves the second time") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.type("abc");
  t.until("abc");
  t.type(kInterrupt);
  CHECK(contains(to_prompt(t), "\n"));  // the next prompt does not stand behind it
  t.type(kInterrupt);
  t.until("Ctrl-C again");
  to_prompt(t);
  t.type(kInterrupt);
  t.until("\n");  // the shell's prompt goes on a line of its own
  CHECK(t.end() == 130);
  CHECK(t.is_cooked());
}

TEST_CASE("Ctrl-C stops an answer and keeps its text") {
  const ConversationBench bench;
  Terminal t(bench.command({"--ignore-eos", "--temp", "0", "-q"}));
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out;
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until(answer.substr(0, 10));
  t.type(kInterrupt);
  t.until("(stopped");
  to_prompt(t);
  t.type("/context\r");
  t.until("assistant  " + answer.substr(0, 10));
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("Ctrl-C pressed on and on behind an answer does not leave the chat") {
  const ConversationBench bench;
  Terminal t(bench.command({"-q", "--ignore-eos", "--temp", "0"}));
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out;
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until(answer.substr(0, 10));
  for (int i = 0; i < 3; ++i) {
    t.type(kInterrupt);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  t.until("(stopped");
  CHECK_FALSE(contains(to_prompt(t), "Ctrl-C again"));
  t.type("/context\r");
  const std::string seen = t.until("user       Tell me a story.");
  CHECK_FALSE(contains(seen, "\x1b[?2004l\x1b[?2004h> "));  // a prompt right behind another
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  t.type(kInterrupt);
  t.until("Ctrl-C again");  // a while later it means the chat
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("who taps Ctrl-C twice while an answer comes is still in the chat") {
  const ConversationBench bench;
  Terminal t(bench.command({"-q", "--ignore-eos"}));
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");  // the line is read
  t.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  t.send(SIGINT);
  t.until("(stopped");
  std::this_thread::sleep_for(
      std::chrono::milliseconds(500));  // the second may end a prompt, before the next one comes
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a line goes on being edited behind Ctrl-Z and fg") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.type("abc");
  t.until("abc");
  t.suspend();
  REQUIRE(t.is_cooked());
  t.resume();
  t.until("\x1b[?2004h");  // pasting is the shell's no longer
  t.until("> abc");
  CHECK_FALSE(t.is_cooked());
  t.type("d\x1b[D\x1b[DX\r");
  t.until("\x1b[?2004l");  // the line is read
  to_prompt(t);
  t.type("/context\r");
  t.until("user       abXcd\r\n");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("behind Ctrl-Z and fg in an answer there is one prompt") {
  const ConversationBench bench;
  Terminal t(bench.command({"-n", "200", "--ignore-eos", "--temp", "0"}));
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");  // the line is read
  t.suspend();
  t.resume();
  t.until("(cut");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
  CHECK_FALSE(contains(t.rest(), "> "));
}

TEST_CASE("a window that becomes narrow while a line is typed shows it again") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  std::string text = "Tell me a story ";
  while (text.size() < 97) text += "and another ";
  for (const int columns : {60, 30, 20, 100, 25}) {
    CAPTURE(columns);
    t.type(text);
    t.until("another ");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the rest is there, too: lines wrap anywhere
    t.resize(columns);
    t.until("> Tell me a story ");
    t.type("x\r");
    to_prompt(t);
    t.type("/context\r");
    t.until("user ");
    t.until("Tell me a story and another");
    to_prompt(t);
  }
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a line that is shown again goes over its rows and over no others") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.resize(60);
  to_prompt(t);
  t.type(std::string(97, 'a') + "b");  // 100 columns with the prompt
  t.until("b");
  t.resize(30);  // the cursor was in row 1, and is in row 3 where lines are wrapped anew
  t.until("\r\x1b[1A\x1b[J> a");
  t.until("b");
  t.resize(45);  // 3 and 2
  t.until("\r\x1b[2A\x1b[J> a");
  t.until("b");
  t.resize(120);  // 2 and 0
  t.until("\r\x1b[J> a");
  t.until("b");
  t.type(kInterrupt);
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("what commands show fits the window and breaks no word") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.type("Tell me a story " + std::string(100, 'a') + "\r");
  t.until("\x1b[?2004l");  // the line is read
  to_prompt(t);
  t.resize(64);
  to_prompt(t);
  std::string words;
  std::size_t widest = 0;
  for (const std::string_view command : {"/help", "/context"}) {
    t.type(std::string(command) + "\r");
    t.until("\x1b[?2004l");
    std::istringstream lines(std::regex_replace(to_prompt(t), std::regex("\x1b\\[[0-9;?]*[A-Za-z]|\r"), ""));
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(line.size() <= 64);
      widest = std::max(widest, line.size());
      words += line + "\n";
    }
  }
  CHECK(widest == 64);
  CHECK(contains(words, "  /show [info|params|template|system|license]\n"));
  CHECK(contains(words, "  user       Tell me a story aaaaaaaaaaaaaaaaaaaaaaa...\n"));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("settings fit the window, broken behind spaces, commas and semicolons") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.resize(64);
  to_prompt(t);
  t.type("/stop one, two;three \xe4\xb8\xad\xe6\x96\x87 and a long text at which an answer ends\r");
  to_prompt(t);
  t.type("/set\r");
  t.until("\x1b[?2004l");
  const std::string shown = std::regex_replace(t.until("-> draw"), std::regex("\x1b\\[[0-9;?]*[A-Za-z]|\r"), "");
  to_prompt(t);
  const std::string column(22, ' ');
  INFO(shown);
  // 42 columns are left for the values.
  CHECK(contains(shown, "\nsamplers              \"penalties;dry;top_n_sigma;top_k;typ_p;\n" + column +
                            "top_p;min_p;xtc;temperature\"\n"));
  CHECK(contains(shown, "\nstop                  [\"one, two;three \xe4\xb8\xad\xe6\x96\x87 and a long text at \n" +
                            column + "which an answer ends\"]\n"));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("messages of wide characters fill the window as others do") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  std::string text, shown;
  for (int i = 0; i < 60; ++i) text += "\xe4\xb8\xad";   // two columns
  for (int i = 0; i < 19; ++i) shown += "\xe4\xb8\xad";  // 64 - 22 - 3 for the dots: 19.5 of them
  t.type("\"\"\"\r");
  t.until("\u2026 ");
  t.type(text + "\"\"\"\r");
  t.until("\x1b[?2004l");
  to_prompt(t);
  t.resize(64);
  to_prompt(t);
  t.type("/context\r");
  t.until("user       " + shown + "...\r\n");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("times fit the window, too") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.resize(64);
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");
  to_prompt(t);
  t.type("/stats\r");
  t.until("\x1b[?2004l");
  std::istringstream lines(std::regex_replace(to_prompt(t), std::regex("\x1b\\[[0-9;?]*[A-Za-z]|\r"), ""));
  std::string last, more;
  std::getline(lines, last);
  std::getline(lines, more);
  CHECK(last.starts_with("last: prompt "));
  CHECK(columns_of(last) <= 64);
  CHECK(more.starts_with("      "));
  CHECK(contains(more, "stop: length"));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("an answer that comes again is told, one of another seed is not") {
  const ConversationBench bench;
  Terminal t(bench.command({"-n", "12", "--temp", "1.5", "--top-k", "0", "-s", "5"}));
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");
  to_prompt(t);
  t.type("/regen\r");
  t.until("(the same answer: the seed was given; /set seed -1 draws one)");
  to_prompt(t);
  t.type("/set seed 6\r");
  t.until("seed is 6");
  to_prompt(t);
  t.type("/regen\r");
  t.until("\x1b[?2004l");
  CHECK_FALSE(contains(to_prompt(t), "the same answer"));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("Ctrl-D inside a message of several lines drops it") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.type("\"\"\"\r");
  t.until("\u2026 ");
  t.type("half a message\r");
  t.until("\u2026 ");
  t.type(kEnd);
  to_prompt(t);
  t.type("/context\r");
  CHECK_FALSE(contains(to_prompt(t), "half a message"));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("without an editor, too, Ctrl-C stops an answer and not the chat") {
  const ConversationBench bench;
  Terminal t(bench.command({"--ignore-eos", "--temp", "0", "-q", "--simple-io"}));
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out;
  t.until("> ");
  t.type("Tell me a story.\r");
  t.until(answer.substr(0, 10));
  t.type(kInterrupt);
  t.until("(stopped");
  t.until("> ");
  t.type("/context\r");
  t.until("assistant  " + answer.substr(0, 10));
  t.until("> ");
  t.type(kInterrupt);
  CHECK(t.end() == 130);
}

TEST_CASE("a line that the terminal would cut is not sent") {
  const ConversationBench bench;
  std::vector<std::string> options = kShort;
  options.emplace_back("--simple-io");
  Terminal t(bench.command(options));
  t.until("> ");
  t.type(std::string(5000, 'a') + "\r");
  t.until("not sent");
  t.until("> ");
  t.type("Tell me a story.\r");
  t.until("> ");
  t.type("/context\r");
  CHECK_FALSE(contains(t.until("of 1,024 tokens"), "aaaa"));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

#ifndef __clang__  // whose OpenMP library maps a file of its own, which this limit cuts
TEST_CASE("what was typed stays where there is no room for the editor's file") {
  const ConversationBench bench;
  Command c = bench.command(with(kShort, {"--no-history"}));
  c.arguments.insert(c.arguments.begin(), {"-c", "ulimit -f 0; exec \"$0\" \"$@\"", c.program.string()});
  c.program = "/bin/sh";
  c.environment.emplace_back("VISUAL", "touch '" + bench.path("opened").string() + "'");
  Terminal t(c);
  to_prompt(t);
  t.type("/fork\x07");
  t.until("cannot be written");
  t.type("\r");
  t.until("* main, 0 turns");
  to_prompt(t);
  t.type("Why?\r");
  to_prompt(t);
  t.type("/edit\r");
  t.until("cannot be written");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
  CHECK_FALSE(std::filesystem::exists(bench.path("opened")));
}
#endif

TEST_CASE("SIGTERM at the prompt gives the terminal back") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.send(SIGTERM);
  CHECK(t.end() == 143);
  CHECK(t.is_cooked());
}

TEST_CASE("a first message of the command line is shown as if it had been typed") {
  const ConversationBench bench;
  Terminal t(bench.command(with(kShort, {"-p", "Tell me\na story."})));
  t.until("> Tell me\r\na story.\r\n");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("Tab completes what commands take") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  const auto completed = [&](std::string_view typed, std::string_view rest) {
    INFO(typed);
    to_prompt(t);
    t.type(typed);
    t.until(typed.substr(0, typed.find('\t')));
    t.type("\t");
    t.until(rest);
  };
  completed("/set rep", "eat_");
  t.type("p\t");
  t.until("enalty");
  t.type(" 1.1\r");
  t.until("repeat_penalty is 1.1");
  completed("/set --top-n", "-sigma");
  t.type(" 2\r");
  t.until("top_n_sigma is 2");
  completed("/set samplers top_k;tem", "perature");
  t.type("\r");
  t.until("samplers is top_k;temperature");
  completed("/set reasoning_effort lo", "w");
  t.type(kInterrupt);
  completed("/show par", "ams");
  t.type("\r");
  t.until("Samplers: ");
  t.until("\n");  // arrows stand in that line, which are no prompt
  completed("/help se", "t");
  t.type("\r");
  t.until("/set [NAME VALUE]");
  completed("/think au", "to");
  t.type(kInterrupt);
  to_prompt(t);
  t.type("/fork other\r");
  completed("/fork ma", "in");
  t.type("\r");
  to_prompt(t);
  // What there is stands in columns, without what is typed already.
  t.type("/set mi\t");
  CHECK_FALSE(contains(t.until("min_p"), "/set min_p"));
  CHECK(contains(t.until("\n"), "  mirostat_eta"));
  t.type(kInterrupt);
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("what is typed during an answer is not shown in it, and stands at the next prompt") {
  const ConversationBench bench;
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out.substr(0, 10);
  Terminal t(bench.command({"-n", "300", "--ignore-eos", "--temp", "0"}));
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");  // the line is read
  t.until(answer);
  CHECK_FALSE(t.is_cooked());
  t.type("/context\rab");
  CHECK_FALSE(contains(t.until("(cut"), "context"));
  t.until("> ");  // whose line is there already: it may be over by now
  t.until("/context");
  t.until("user       Tell me a story.");
  to_prompt(t);
  t.until("ab");
  t.type(kInterrupt);
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (int i = 0; i < 2; ++i) t.send(SIGTERM);
  CHECK(t.end() == 143);
  CHECK(t.is_cooked());
}

TEST_CASE("while an answer is stopped by Ctrl-Z the terminal is the shell's") {
  const ConversationBench bench;
  Command c = bench.command({"-n", "300", "--ignore-eos", "--temp", "0", "-q"});
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out.substr(0, 10);
  c.arguments.insert(c.arguments.begin(),
                     {"-c", "set -m; \"$0\" \"$@\"; echo stopped; stty -a; fg; echo over", c.program.string()});
  c.program = "/bin/sh";
  Terminal t(c);
  t.until("> ");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");  // the line is read
  t.until(answer);
  t.type("\x1a");
  t.until("stopped\r\n");
  const std::string modes = t.until("echoke");
  CHECK(contains(modes, " icanon "));
  CHECK(contains(modes, " echo "));
  for (int i = 0; i < 500 && t.is_cooked(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  t.type("unseen");
  CHECK_FALSE(contains(t.until("(cut"), "unseen"));
  t.until("> ");
  t.until("unseen");
  t.type(kInterrupt);
  t.until("> ");
  t.type(kEnd);
  t.until("over");
  CHECK(t.end() == 0);
}

TEST_CASE("Ctrl-C inside a message of several lines drops it, and the next prompt stands below") {
  const ConversationBench bench;
  for (const std::string_view key : {kInterrupt, kEnd}) {
    Terminal t(bench.command(kShort));
    to_prompt(t);
    t.type("abc \\\r");
    t.until("\u2026 ");
    t.type(key);
    CHECK(contains(to_prompt(t), "\n"));
    t.type("/context\r");
    CHECK_FALSE(contains(to_prompt(t), "abc"));
    t.type(kEnd);
    CHECK(t.end() == 0);
  }
}

TEST_CASE("several pasted lines are sent as they are, whatever they begin and end with") {
  const ConversationBench bench;
  Terminal t(bench.command(kShort));
  to_prompt(t);
  t.type("\x1b[200~\"\"\"Text.\"\"\"\r\nimport os \\\x1b[201~");
  t.until("import os");
  t.type("\r");
  to_prompt(t);
  t.type("/context\r");
  t.until(R"(user       \"\"\"Text.\"\"\"\x0aimport os \\)");
  to_prompt(t);
  t.type("/clear\r");
  to_prompt(t);
  t.type("\x1b[A\x1b[A\x1b[A\r");  // the message again, from the history
  to_prompt(t);
  t.type("/context\r");
  t.until(R"(user       \"\"\"Text.\"\"\"\x0aimport os \\)");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("Ctrl-C in the only turn of a chat ends it as interrupted, and advises nothing") {
  const ConversationBench bench;
  Terminal t(bench.command({"--ignore-eos", "--temp", "0", "-st"}));
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out.substr(0, 10);
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until(answer);
  t.type(kInterrupt);
  t.until("(stopped)");
  CHECK(t.end() == 130);
}

TEST_CASE("what is typed during an answer is there behind Ctrl-C") {
  const ConversationBench bench;
  Terminal t(bench.command({"--ignore-eos", "--temp", "0"}));
  const std::string answer = bench.pipe("Tell me a story.\n", kShort).out.substr(0, 10);
  to_prompt(t);
  t.type("Tell me a story.\r");
  t.until("\x1b[?2004l");
  t.until(answer);
  t.type("/context");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  t.type(kInterrupt);
  t.until("(stopped");
  to_prompt(t);
  t.until("/context");
  t.type("\r");
  t.until("user       Tell me a story.");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a folder for the editor's file that is not there ends no chat") {
  const ConversationBench bench;
  Command c = bench.command(with(kShort, {"--no-history"}));
  c.environment.emplace_back("TMPDIR", "/nonexistent");
  Terminal t(c);
  to_prompt(t);
  t.type("Why?\r");
  to_prompt(t);
  t.type("/edit\r");
  t.until("$TMPDIR names no folder that is there");
  to_prompt(t);
  t.type("/fork\x07");
  t.until("$TMPDIR names no folder that is there");
  t.type("\r");
  t.until("* main, 1 turn");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}
