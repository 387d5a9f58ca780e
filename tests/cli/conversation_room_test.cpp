// Chats that come to the end of their context, and texts that wait for the next message.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "conversation_bench.h"

using namespace llm::test;

TEST_CASE("a full context is asked about") {
  const ConversationBench bench;
  Terminal t(bench.command({"-n", "12", "--temp", "0", "-q", "-c", "48"}));
  to_prompt(t);
  t.type("Tell me a story about a dog and a cat.\r");
  to_prompt(t);
  t.type("Now tell me one about a big bird and a small fish, please.\r");
  CHECK(contains(t.until("the context holds 48"), "the conversation takes "));
  t.until("Drop the oldest 1 of 2 turns? [y/n] ");
  t.type("/clear\r");  // neither a no nor done
  t.until("y or n first; what you typed was not sent");
  t.until("Drop the oldest 1 of 2 turns? [y/n] ");
  t.type("n\r");
  to_prompt(t);
  t.type("Now tell me one about a big bird and a small fish, please.\r");
  t.until("[y/n] ");
  t.type("y\r");
  to_prompt(t);
  t.type("/context\r");
  const std::string table = t.until("in the cache");
  CHECK_FALSE(contains(table, "a dog"));
  CHECK(contains(table, "big bird"));
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("who gives up the question about a full context sends nothing") {
  const ConversationBench bench;
  Terminal t(bench.command({"-n", "12", "--temp", "0", "-q", "-c", "48"}));
  to_prompt(t);
  t.type("Tell me a story about a dog and a cat.\r");
  to_prompt(t);
  for (const std::string_view key : {kInterrupt, kEnd}) {
    t.type("Now tell me one about a big bird and a small fish, please.\r");
    t.until("[y/n] ");
    t.type(key);
    t.until("(stopped before there was an answer: the message is not kept)");
    to_prompt(t);
  }
  t.type("Now tell me one about a big bird and a small fish, please.\r");
  t.until("[y/n] ");
  t.type("Yes\r");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("so many turns are to go that the rest just fits") {
  const ConversationBench bench;
  constexpr int kTurns = 9;
  const std::vector<std::string> options{"-n", "12", "--temp", "0"};
  const std::string saved = bench.path("chat.json").string(), cut = bench.path("cut.json").string();
  REQUIRE(bench.pipe("Hello\n/save " + saved + "\n", with(options, {"-q"})).code == 0);
  auto chat = nlohmann::json::parse(read_file(saved));
  chat.erase("cache");
  chat["messages"] = nlohmann::json::array();
  for (int i = 0; i < kTurns - 1; ++i) {
    chat["messages"].push_back(
        {{"role", "user"}, {"content", "And" + std::string(static_cast<std::size_t>(3 * i % 10), 'x') + "?"}});
    chat["messages"].push_back({{"role", "assistant"}, {"content", "Yes."}});
  }
  bench.write("chat.json", chat.dump());
  std::vector<int> sizes;  // without the oldest 0, 1, 2 ... turns
  for (; !chat["messages"].empty(); chat["messages"].erase(0), chat["messages"].erase(0)) {
    bench.write("cut.json", chat.dump());
    const auto [read, cached] = prompts(bench.pipe("Why?\n", with(options, {"-v", "--load", cut})).err).at(0);
    sizes.push_back(read + cached);
  }
  for (int n = 1; n < kTurns - 1; ++n) {
    INFO(n);
    Terminal t(bench.command(
        with(options, {"-q", "--load", saved, "-c", std::to_string(sizes.at(static_cast<std::size_t>(n)) + 12)})));
    to_prompt(t);
    t.type("Why?\r");
    t.until("Drop the oldest " + std::to_string(n) + " of " + std::to_string(kTurns) + " turns? [y/n] ");
  }
}

TEST_CASE("a context that is nearly full says how little it leaves for an answer") {
  const ConversationBench bench;
  std::vector<std::string> options{"-n", "12", "--temp", "0", "--ignore-eos"};
  const auto [read, cached] = prompts(bench.pipe("Tell me a story.\nWhy?\n", with(options, {"-v"})).err).at(1);
  const int size = read + cached;
  Terminal t(bench.command(with(options, {"-q", "-c", std::to_string(size + 5)})));
  to_prompt(t);
  t.type("Tell me a story.\r");
  to_prompt(t);
  t.type("Why?\r");
  t.until("takes " + std::to_string(size) + " tokens, the context holds " + std::to_string(size + 5) +
          ", which leaves 5 for the answer.");
  t.until("[y/n] ");
  t.type("n\r");
  to_prompt(t);
  t.type("/context\r");
  t.until("The context is full");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("the tokens of an answer can be explained where going on with it was stopped while its prompt was read") {
  const ConversationBench bench;
  std::string many;
  for (int i = 0; i < 150; ++i) many += "word ";
  const std::string file = bench.write("long.txt", many).string();
  Terminal t(bench.command({"-n", "8", "--temp", "0", "-q", "-c", "8192", "--backend", "reference", "-b", "16",
                            "--chat-template", "{% for m in messages %}{{ m.content }}\n{% endfor %}"}));
  to_prompt(t);
  t.type("/read " + file + "\r");
  t.until("bytes go before the next message");
  to_prompt(t);
  t.type("What is it?\r");
  t.until("(cut after 8 tokens");
  to_prompt(t);
  t.type("/system Be brief.\r");  // all that follows is read anew
  t.until("the system text is replaced");
  to_prompt(t);
  t.type("/continue\r");
  t.until("\x1b[?2004l");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until the terminal sends signals again
  t.type(kInterrupt);
  t.until("(stopped before the answer went on)");
  to_prompt(t);
  t.type("/why 8\r");
  CHECK(contains(to_prompt(t), " %  \""));
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a text of /read waits on where its message was stopped, and /context shows it") {
  const ConversationBench bench;
  std::string many;
  for (int i = 0; i < 800; ++i) many += "word ";
  const std::string file = bench.write("long.txt", many).string();
  Terminal t(bench.command({"-n", "8", "--temp", "0", "-q", "-c", "8192", "--backend", "reference", "-b", "16"}));
  to_prompt(t);
  t.type("/read " + file + "\r");
  to_prompt(t);
  t.type("What is it?\r");
  t.until("\x1b[?2004l");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until the terminal sends signals again
  t.type(kInterrupt);
  t.until("the message is not kept; what was read before it still waits for the");
  t.until("drops it)");
  to_prompt(t);
  t.type("/context\r");
  t.until("wait before the next message (/read, /glob); /undo drops them");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}

TEST_CASE("a text of /read that fits no context is told, not asked about, and /undo drops it alone") {
  const ConversationBench bench;
  std::string many;
  for (int i = 0; i < 200; ++i) many += "word ";
  const std::string file = bench.write("long.txt", many).string();
  Terminal t(bench.command({"-n", "8", "--temp", "0", "-q", "-c", "64"}));
  to_prompt(t);
  t.type("Tell me a story.\r");
  to_prompt(t);
  for (int i = 0; i < 2; ++i) {
    t.type((i == 0 ? "/read " + file : "") + "\r");
    to_prompt(t);
    t.type("What is it?\r");
    const std::string told = to_prompt(t);
    CHECK(contains(told, "the last turn alone, with the system text, takes "));
    CHECK(contains(told, "/undo drops it"));
    CHECK_FALSE(contains(told, "[y/n]"));
  }
  t.type("/undo\r");
  t.until("dropped what was read");
  to_prompt(t);
  t.type("/context\r");
  t.until("user       Tell me a story.");
  to_prompt(t);
  t.type("/undo\r");
  t.until("removed 1 turn, 0 left");
  to_prompt(t);
  t.type("/read " + file + "\r");
  t.until("1,000 bytes");
  to_prompt(t);
  t.type("/undo 2\r");
  t.until("dropped what was read");
  t.until("nothing to undo");
  to_prompt(t);
  t.type(kEnd);
  CHECK(t.end() == 0);
}
