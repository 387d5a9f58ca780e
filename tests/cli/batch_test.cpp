// llm-run --batch as a real process: rows in, rows out, and what is left when something goes wrong.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>

#include "base/utf8.h"
#include "batch_bench.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Rows with a common beginning, some with their own options, one that is not JSON, one without a prompt.
std::string many_rows(std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) {
    Json row{{"id", "row " + std::to_string(i)}, {"prompt", "abababababababababababab " + std::to_string(i * i)}};
    if (i % 3 == 1) row["n_predict"] = i % 17;
    if (i % 5 == 2) row["temperature"] = 0;
    if (i % 7 == 3) row["seed"] = i;
    if (i % 7 == 4) row["n"] = 2;
    text += i % 11 == 6   ? "{\"prompt\": \n"
            : i % 11 == 7 ? Json{{"id", "none " + std::to_string(i)}}.dump() + "\n"
                          : row.dump() + "\n";
  }
  return text;
}

/// How OpenAI's API spells a token of an answer.
std::string name_by_bytes(const Json& token) {
  std::string bytes, spelled = "bytes:";
  for (const Json& b : token["bytes"]) {
    constexpr const char* kDigits = "0123456789abcdef";
    const unsigned byte = b;
    bytes += static_cast<char>(byte);
    spelled += std::string("\\x") + kDigits[byte / 16] + kDigits[byte % 16];
  }
  return utf8::valid(bytes) ? bytes : spelled;
}

}  // namespace

TEST_CASE("each row of a batch is answered as it is alone") {
  const Bench bench;
  const auto input = bench.file(
      "in.jsonl", R"({"id":"a","prompt":"abc","seed":5,"n_predict":30})"
                  "\n"
                  R"({"custom_id":"b","method":"POST","url":"/v1/completions","body":{"prompt":"ab","temperature":0}})"
                  "\r\n\n"
                  R"({"id":"c","prompt":[97,98,99],"temperature":0,"max_tokens":5})"
                  "\n"
                  R"({"id":7,"prompt":"abc","temperature":0,"max_tokens":0})");
  const Outcome o = bench({"--batch", input.string()});
  CHECK(o.code == 0);
  std::map<std::string, Json> by_id;
  for (const Json& line : parse_lines(o.out)) by_id[line["custom_id"]] = line;
  REQUIRE(by_id.size() == 4);
  const auto text = [&](const std::string& id) {
    return by_id[id]["response"]["body"]["choices"][0]["text"].get<std::string>() + "\n";
  };
  CHECK(text("a") == bench({"-p", "abc", "-s", "5", "-n", "30"}).out);
  CHECK(text("b") == bench({"-p", "ab", "--temp", "0"}).out);
  CHECK(text("7") == "\n");
  const Json& a = by_id["a"];
  CHECK(a["response"]["status_code"] == 200);
  CHECK(a["response"]["body"]["object"] == "text_completion");
  CHECK(a["response"]["body"]["model"] == "tiny.gguf");
  CHECK(a["response"]["body"]["choices"][0]["finish_reason"] == "length");
  CHECK(a["response"]["body"]["usage"]["completion_tokens"] == 30);
  CHECK(a["error"].is_null());
  CHECK(a["timings"]["predicted_n"] == 30);
  CHECK(a["seed"] == 5);
  CHECK(by_id["c"]["response"]["body"]["usage"]["prompt_tokens"] == 3);
  CHECK(by_id["c"]["response"]["body"]["usage"]["completion_tokens"] == 5);
}

TEST_CASE("a seed that was drawn is told, and gives the same again") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"a","prompt":"abc"})");
  const std::string drawn = bench({"--batch", input.string()}).out;
  const std::string seed = parse_lines(drawn).at(0)["seed"].dump();
  CHECK(answers(bench({"--batch", input.string(), "-s", seed}).out) == answers(drawn));
  CHECK(parse_lines(bench({"--batch", input.string(), "-s", "7"}).out).at(0)["seed"] == 7);

  const Outcome one = bench({"-p", "abc"});
  const std::size_t at = one.err.find(" · seed ");
  REQUIRE(at != std::string::npos);
  const std::string of_one = one.err.substr(at + std::string(" · seed ").size());
  const Outcome again = bench({"-p", "abc", "-s", of_one.substr(0, of_one.find(' '))});
  CHECK(again.out == one.out);
  CHECK_FALSE(contains(again.err, "seed"));
  // A chain without the temperature draws, whatever that is.
  CHECK(contains(bench({"-p", "abc", "--samplers", "top_k", "--temp", "0"}).err, " · seed "));
  CHECK_FALSE(contains(bench({"-p", "abc", "--temp", "0"}).err, "seed"));
}

TEST_CASE("what a batch says of itself: no speed of prompts, and the cache that its rows may take") {
  const Bench bench;
  const std::string row = Json{{"prompt", "ab"}, {"max_tokens", 4}}.dump() + "\n";
  const auto input = bench.file("in.jsonl", row + row + row);
  const Outcome o = bench({"--batch", input.string(), "-no-cnv"});
  // 3 rows, each in a block of 64 positions of 2 layers, which keep 2 x 2 x 8 numbers of 16 bits: 24 KiB.
  CHECK(contains(o.err, "rows at once: up to 3, whose cache takes up to 24.0 KiB\n"));
  CHECK(contains(o.err, " tok (shared 0) · gen 12 tok "));
  CHECK(contains(bench({"--batch", input.string(), "-no-cnv", "--dry-run"}).out, "cache when full       24.0 KiB\n"));
}

TEST_CASE("neither the number of rows at once nor their order shows in the answers") {
  const Bench bench;
  const std::string rows = many_rows(24);
  const auto input = bench.file("in.jsonl", rows);
  const Outcome one = bench({"--batch", input.string(), "-s", "9", "-np", "1"});
  CHECK(one.code == 7);
  const auto expected = answers(one.out);
  CHECK(expected.size() == 24);
  CHECK(expected.at("row 0") != expected.at("row 1"));
  CHECK(answers(bench({"--batch", input.string(), "-s", "9", "-np", "5"}).out) == expected);
  CHECK(answers(bench({"--batch", input.string(), "-s", "9", "-t", "2"}).out) == expected);

  std::vector<std::string> lines;
  std::istringstream in(rows);
  for (std::string line; std::getline(in, line);) {
    if (contains(line, "row ")) lines.push_back(line);  // the ids of the others are their lines
  }
  std::shuffle(lines.begin(), lines.end(), std::mt19937(1));
  std::string shuffled;
  for (const std::string& line : lines) shuffled += line + "\n";
  for (const auto& [id, answer] :
       answers(bench({"--batch", bench.file("s.jsonl", shuffled).string(), "-s", "9"}).out)) {
    CHECK(expected.at(id) == answer);
  }
}

TEST_CASE("results in the order of the input, where that is asked for") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(24));
  const Outcome o = bench({"--batch", input.string(), "--batch-order", "input", "-np", "6"});
  std::vector<std::string> ids, expected;
  for (const Json& line : parse_lines(o.out)) ids.push_back(line["custom_id"]);
  std::istringstream rows(many_rows(24));
  for (std::string row; std::getline(rows, row);) {
    const Json json = Json::parse(row, nullptr, false);
    expected.push_back(json.is_discarded() ? "line-" + std::to_string(expected.size() + 1)
                                           : json["id"].get<std::string>());
  }
  REQUIRE(ids.size() == 24);
  CHECK(ids == expected);
}

TEST_CASE("rows that wait for their turn when a batch is stopped are not said to be answered") {
  const Bench bench;
  // The first row goes on for long; the second is done soon; the third fails and stops the batch.
  const std::string rows = Json{{"id", 1}, {"prompt", "ab"}, {"max_tokens", 4000}}.dump() + "\n" +
                           Json{{"id", 2}, {"prompt", "b"}, {"max_tokens", 2}}.dump() + "\n" +
                           Json{{"id", 3}, {"prompt", std::string(5000, 'z')}}.dump() + "\n";
  const auto input = bench.file("in.jsonl", rows);
  const auto out = bench.path("out.jsonl");
  const Outcome o = bench(
      {"--batch", input.string(), "-o", out.string(), "-np", "2", "--batch-order", "input", "--max-failures", "0"});
  CHECK(o.code == 7);
  CHECK(read_file(out).empty());
  CHECK(contains(o.err, "0 rows answered, 0 failed"));
  CHECK(contains(o.err, "2 rows were done before their turn came"));
  const Json state = Json::parse(read_file(bench.path("out.jsonl.state")));
  CHECK(state["answered"] == 0);
  CHECK(state["failed"] == 0);
  CHECK(state["status"] == "interrupted");
}

TEST_CASE("rows that are wanted in their order are run in it") {
  const Bench bench;
  // By their beginnings the third would be run behind the first; it fails, which stops the batch.
  const std::string alike(40, 'a'), rows = Json{{"id", 1}, {"prompt", alike}}.dump() + "\n" +
                                           Json{{"id", 2}, {"prompt", "b"}}.dump() + "\n" +
                                           Json{{"id", 3}, {"prompt", alike + std::string(5000, 'z')}}.dump() + "\n";
  const auto input = bench.file("in.jsonl", rows), out = bench.path("out.jsonl");
  const Outcome o = bench(
      {"--batch", input.string(), "-o", out.string(), "-np", "1", "--batch-order", "input", "--max-failures", "0"});
  INFO(o.err);
  CHECK(o.code == 7);
  CHECK(contains(o.err, "2 rows answered, 1 failed"));
  CHECK(parse_lines(read_file(out)).size() == 3);
}

TEST_CASE("a batch that is refused leaves no file of results") {
  const Bench bench;
  const auto input = bench.file("in.txt", "ab\n"), out = bench.path("out.jsonl");
  const auto refused = [&](int code, std::vector<std::string> more) {
    more.insert(more.begin(), {"--batch", input.string(), "-o", out.string()});
    CHECK(bench(more).code == code);
    CHECK_FALSE(std::filesystem::exists(out));
  };
  refused(3, {"-m", bench.path("none.gguf").string()});
  refused(2, {"-dev", "none-such"});
  bench.file("out.jsonl", "");  // one that was there stays
  CHECK(bench({"--batch", input.string(), "-o", out.string(), "-m", bench.path("none.gguf").string()}).code == 3);
  CHECK(std::filesystem::exists(out));
}

TEST_CASE("a batch goes on however large its state is") {
  const Bench bench;
  const auto input = bench.file("in.txt", "ab\nb\n"), out = bench.path("out.jsonl");
  CHECK(bench({"--batch", input.string(), "-o", out.string()}).code == 0);
  const auto state = bench.path("out.jsonl.state");
  auto json = nlohmann::ordered_json::parse(read_file(state));
  json["digests"].push_back("0 " + std::string(std::size_t{65} << 20, 'r'));
  bench.file("out.jsonl.state", json.dump());
  const Outcome o = bench({"--batch", input.string(), "-o", out.string(), "--resume"});
  INFO(o.err.substr(0, 1000));
  CHECK(o.code == 0);
  CHECK(contains(o.err, "2 of 2 rows are done"));
  CHECK(bench({"--batch", input.string(), "-o", out.string(), "--retry-failed", "--dry-run"}).code == 0);
}

TEST_CASE("a bad line is a failed row, and so many of them end the batch") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(24));
  const Outcome o = bench({"--batch", input.string()});
  CHECK(o.code == 7);
  std::map<std::string, int> codes;
  for (const Json& line : parse_lines(o.out)) {
    if (!line["error"].is_null()) {
      ++codes[line["error"]["code"]];
      CHECK(line["response"]["status_code"] == 400);
    }
  }
  CHECK(codes == std::map<std::string, int>{{"invalid_json", 2}, {"invalid_request", 2}});
  CHECK(contains(o.err, "4 failed"));

  const auto too_long = bench.file("long.jsonl", Json{{"id", "l"}, {"prompt", std::string(5000, 'z')}}.dump());
  const auto line = parse_lines(bench({"--batch", too_long.string(), "-c", "100"}).out).at(0);
  CHECK(line["error"]["code"] == "context_length_exceeded");

  std::string bad;
  for (int i = 0; i < 5; ++i) bad += "{]\n";
  const auto all_bad = bench.file("bad.jsonl", bad + R"({"id":"x","prompt":"a"})");
  const Outcome stopped = bench({"--batch", all_bad.string(), "--max-failures", "50%"});
  CHECK(stopped.code == 7);
  CHECK(parse_lines(stopped.out).size() == 4);  // the first that is more than half of six
  CHECK(contains(stopped.err, "--max-failures"));
}

TEST_CASE("rows that fail say which was the first, and why a batch that goes on has failed rows") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", "{\"id\":\"ok\",\"prompt\":\"a\"}\n{\"id\":\"bad\",\"prompt\":3}\n{]\n");
  const std::vector<std::string> command{"--batch", input.string(), "-o", bench.path("out.jsonl").string()};
  const Outcome first = bench(command);
  CHECK(first.code == 7);
  CHECK(contains(first.err, "1 row answered, 2 failed"));
  CHECK(contains(first.err, "the first failure: line 2, invalid_request: \"prompt\" is neither"));
  CHECK(contains(first.err, "; --retry-failed runs rows again that were corrected\n"));
  const Outcome resumed = bench(with(command, {"--resume"}));
  CHECK(resumed.code == 7);
  CHECK(contains(resumed.err, "3 of 3 rows are done, 2 of them failed; --retry-failed runs those again\n"));
  CHECK_FALSE(contains(bench({"--batch", input.string()}).err, "--retry-failed"));  // there is no file to go on with
}

TEST_CASE("a row with a choice that was stopped is no answer") {
  const Bench bench;
  // Two choices are done when the third and the row that is too long begin; that one stops the batch.
  const std::string rows = Json{{"id", "a"}, {"prompt", "ab"}, {"n", 3}}.dump() + "\n" +
                           Json{{"id", "z"}, {"prompt", std::string(500, 'z')}}.dump() + "\n";
  const auto input = bench.file("in.jsonl", rows);
  const auto out = bench.path("out.jsonl");
  const std::vector<std::string> command{"--batch", input.string(), "-c", "100", "-np", "2", "-s", "3"};
  auto stopped = command;
  stopped.insert(stopped.end(), {"-o", out.string(), "--max-failures", "0"});
  CHECK(bench(stopped).code == 7);
  auto lines = answers(read_file(out));
  CHECK(lines.size() == 1);
  CHECK(lines.count("z") == 1);
  stopped.resize(stopped.size() - 2);
  stopped.emplace_back("--resume");
  CHECK(bench(stopped).code == 7);
  CHECK(answers(read_file(out)) == answers(bench(command).out));
}

TEST_CASE("rows that end at once keep no other from its turn") {
  const Bench bench;
  std::string rows;
  for (int i = 0; i < 6; ++i)
    rows += Json{{"id", i}, {"prompt", "ab"}, {"max_tokens", i % 3 == 2 ? 3 : 0}}.dump() + "\n";
  for (const char* parallel : {"1", "auto"}) {
    const Outcome o = bench({"--batch", bench.file("in.jsonl", rows).string(), "-np", parallel});
    CHECK(o.code == 0);
    CHECK(parse_lines(o.out).size() == 6);
  }
}

TEST_CASE("what cannot be right ends a batch before the model is opened") {
  const TempDir folder;
  const auto say = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-m", "/nonexistent.gguf"});
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  };
  const auto twice =
      folder.write("twice.jsonl", "{\"id\":\"a\",\"prompt\":\"x\"}\n\n{\"id\":\"a\",\"prompt\":\"y\"}\n");
  const Outcome o = say({"--batch", twice.string()});
  CHECK(o.code == 2);
  CHECK(contains(o.err, "id \"a\" is on line 1 and on line 3"));
  CHECK(say({"--batch", "/nonexistent.jsonl"}).code == 2);
  CHECK(say({"--batch", folder.write("empty.jsonl", "\n\n").string()}).code == 2);
  CHECK(say({"--batch", twice.string(), "-p", "x"}).code == 2);
  CHECK(say({"--batch", twice.string(), "--resume"}).code == 2);
  CHECK(say({"-p", "x", "--resume"}).code == 2);
  CHECK(contains(say({"--batch", folder.write("q.csv", "id,prompt\na,b\nb,\"c\nd,e\nf,g\n").string()}).err,
                 "line 3: the quote that opens here is never closed"));
  CHECK(contains(say({"--batch", folder.write("r.csv", "id,prompt\na,\"b\nc,d\ne,\"f\"\n").string()}).err,
                 "line 4: a quote inside of the quoted field that begins on line 2"));
}

TEST_CASE("a row that takes too long fails with what it has, and can be tried again") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"a","prompt":"abc"}
{"id":"b","prompt":"abd","n":2}
{"id":"one","prompt":"ab","max_tokens":1}
)");
  const auto out = bench.path("out.jsonl");
  const std::vector<std::string> command{"--batch", input.string(), "-o", out.string(), "-s", "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return bench(more);
  };
  // Every row has its first step; what that leaves to be done is late.
  REQUIRE(with({"--max-time", "0.000001"}).code == 7);
  std::map<std::string, Json> lines;
  for (const Json& line : parse_lines(read_file(out))) lines[line["custom_id"]] = line;
  REQUIRE(lines.size() == 3);
  CHECK(lines["one"]["error"].is_null());
  for (const char* id : {"a", "b"}) {
    const Json& line = lines[id];
    CHECK(line["error"]["code"] == "timeout");
    CHECK(contains(line["error"]["message"].get<std::string>(), "--max-time"));
    CHECK(line["response"]["status_code"] == 408);
    for (const Json& choice : line["response"]["body"]["choices"]) CHECK(choice["finish_reason"] == "timeout");
    CHECK(line["response"]["body"]["usage"]["completion_tokens"] == (id == std::string("a") ? 1 : 2));
  }
  CHECK(with({"--max-time", "0.000001", "--resume"}).code == 7);  // failed rows are done, too
  CHECK(read_file(out).find("timeout") != std::string::npos);
  CHECK(with({"--max-time", "1000000", "--retry-failed"}).code == 0);
  CHECK(answers(read_file(out)) == answers(bench({"--batch", input.string(), "-s", "4"}).out));
}

TEST_CASE("columns fill the prompt of a row") {
  const Bench bench;
  const auto csv = bench.file("in.csv", "id,word,other\r\n1,\"a \"\"b\"\", c\",x\r\n2,\"two\nlines\",y\r\n");
  const Outcome o = bench({"--batch", csv.string(), "--template-row", "{{{word}}} {other}", "--temp", "0"});
  CHECK(o.code == 0);
  const auto texts = answers(o.out);
  REQUIRE(texts.size() == 2);
  const auto alone = [&](const std::string& prompt) {
    const Outcome a = bench({"-p", prompt, "--no-escape", "--temp", "0"});
    return a.out.substr(0, a.out.size() - 1);
  };
  const auto text = [&](const std::string& id) { return Json::parse(texts.at(id))[0]["text"].get<std::string>(); };
  CHECK(text("1") == alone("{a \"b\", c} x"));
  CHECK(text("2") == alone("{two\nlines} y"));

  const Outcome open = bench({"--batch", csv.string(), "--template-row", "{word"});
  CHECK(open.code == 2);
  CHECK(open.out.empty());
  CHECK(contains(open.err, "option --template-row: an open { without }"));
  const Outcome missing = bench({"--batch", csv.string(), "--template-row", "{word} {othr}"});
  CHECK(missing.code == 2);
  CHECK(missing.out.empty());
  CHECK(contains(missing.err,
                 "no column is called \"othr\", which --template-row names; did you mean \"other\"? There "
                 "are \"id\", \"word\", \"other\""));
  const auto objects = [&](const std::string& text, const std::string& row_template) {
    return bench({"--batch", bench.file("in.jsonl", text).string(), "--template-row", row_template, "--temp", "0"});
  };
  const Outcome none = objects("{\"id\":\"a\",\"word\":\"x\"}\n{\"id\":\"b\",\"word\":\"y\"}\n", "{wrd}");
  CHECK(none.code == 2);
  CHECK(contains(none.err, "did you mean \"word\"?"));
  const Outcome broken = objects("{]\n{\"id\":\"a\",\"word\":\"x\"}\n", "{foo}");  // a line that is no row says nothing
  CHECK(broken.code == 2);
  CHECK(contains(broken.err, "no column is called \"foo\""));
  const Outcome some = objects("{\"id\":\"a\",\"word\":\"x\"}\n{\"id\":\"b\",\"other\":\"y\"}\n", "{word}");
  CHECK(some.code == 7);
  CHECK(contains(some.out, "no column is called \\\"word\\\""));

  // A null is a column all the same; the list has the names of all rows.
  const Outcome a_null = objects("{\"id\":1,\"t\":null,\"text\":\"q\"}\n{\"id\":2,\"text\":\"q\"}\n", "{text} {t}");
  CHECK(a_null.code == 7);
  CHECK(contains(a_null.out, "\\\"t\\\" is null, and the prompt needs it"));
  CHECK(contains(a_null.out, "no column is called \\\"t\\\""));
  const Outcome all = objects("{\"id\":1,\"t\":null}\n{\"id\":2,\"text\":\"q\"}\n", "{nothing}");
  CHECK(all.code == 2);
  CHECK(contains(all.err, "there are \"id\", \"t\", \"text\""));
  const Outcome same = objects("{\"id\":\"a\",\"word\":\"x\"}\n", "word {{word}}");
  CHECK(same.code == 2);
  CHECK(contains(same.err, "option --template-row: no {COLUMN} in it: every row would have the same prompt"));
  const Outcome null = objects("{\"id\":\"a\",\"word\":\"x\"}\n{\"id\":\"b\",\"word\":null}\n", "{word}\\nB:");
  CHECK(null.code == 7);
  CHECK(contains(null.out, "\\\"word\\\" is null, and the prompt needs it"));
  CHECK(Json::parse(answers(null.out).at("a"))[0]["text"] == alone("x\nB:"));  // escapes are processed

  const auto lines = bench.file("in.txt", "ab\n\nabc\n");
  const auto by_line = answers(bench({"--batch", lines.string(), "--temp", "0"}).out);
  CHECK(Json::parse(by_line.at("line-3"))[0]["text"].get<std::string>() == alone("abc"));
}

TEST_CASE("log probabilities are told with their alternatives") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"a","prompt":"abc","temperature":0,"logprobs":3,"max_tokens":4})");
  const auto line = parse_lines(bench({"--batch", input.string()}).out).at(0);
  const Json choice = line["response"]["body"]["choices"][0], logprobs = choice["logprobs"];
  const std::string chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
  const auto chat = bench.file("chat.jsonl", R"({"messages":[{"role":"user","content":"abc"}],"temperature":0,)"
                                             R"("logprobs":3,"max_tokens":4})");
  const auto chat_line = parse_lines(bench({"--batch", chat.string(), "--chat-template", chat_template}).out).at(0);
  const Json chat_choice = chat_line["response"]["body"]["choices"][0], content = chat_choice["logprobs"]["content"];
  CHECK(chat_choice["message"]["content"] == choice["text"]);
  REQUIRE(content.size() == 4);
  for (const Json& token : content) {
    REQUIRE(token["top_logprobs"].size() == 3);
    CHECK(token["logprob"] == token["top_logprobs"][0]["logprob"]);  // greedy
    CHECK(token["logprob"] < 0);
    CHECK(token["top_logprobs"][0]["logprob"] >= token["top_logprobs"][1]["logprob"]);
  }
  // The form of completions says the same, in lists.
  CHECK_FALSE(logprobs.contains("content"));
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    INFO(list);
    REQUIRE(logprobs[list].size() == 4);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(logprobs["tokens"][i] == name_by_bytes(content[i]));
    CHECK(logprobs["token_logprobs"][i] == content[i]["logprob"]);
    for (const Json& best : content[i]["top_logprobs"])
      CHECK(logprobs["top_logprobs"][i][name_by_bytes(best)] == best["logprob"]);
    CHECK(logprobs["top_logprobs"][i].size() == 3);
  }
}

TEST_CASE("completions say where in the text each token begins") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"prompt":"abc","seed":3,"logprobs":1,"max_tokens":6})");
  const auto line = parse_lines(bench({"--batch", input.string(), "--regex", "(\u00e4|[a-c]){30}"}).out).at(0);
  const Json choice = line["response"]["body"]["choices"][0], logprobs = choice["logprobs"];
  const std::string text = choice["text"];
  std::string before;
  REQUIRE(logprobs["tokens"].size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    INFO(text << ", token " << i);
    const auto whole = std::count_if(before.begin(), before.end(), [](char c) { return (c & 0xc0) != 0x80; });
    const std::string token = logprobs["tokens"][i];
    const bool half = token.starts_with("bytes:");
    if (!half) CHECK(logprobs["text_offset"][i] == whole);
    before += half ? std::string(1, static_cast<char>(std::stoi(token.substr(8), nullptr, 16))) : token;
  }
  CHECK(before.starts_with(text));
}

TEST_CASE("where a prompt ends inside a character, its text and offsets begin with that") {
  const Bench bench(tiny_model({.context = 400, .tokenizer = TinyTokenizer::Bpe}));  // a byte's id is its value
  const auto choice_of = [&](const std::string& ids, const std::string& next) {
    const auto input = bench.file("in.jsonl", R"({"temperature":0,"logprobs":0,"max_tokens":4,"prompt":)" + ids +
                                                  R"(,"logit_bias":{")" + next + R"(":100}})");
    return Json(parse_lines(bench({"--batch", input.string()}).out).at(0)["response"]["body"]["choices"][0]);
  };
  // F0 9F 98 98 is U+1F618; no character begins with 98.
  const Json whole = choice_of("[97,240,159]", "152");
  CHECK(whole["text"] == "\U0001F618\uFFFD\uFFFD");
  CHECK(whole["logprobs"]["tokens"] == Json::parse(R"(["bytes:\\x98","bytes:\\x98","bytes:\\x98","bytes:\\x98"])"));
  CHECK(whole["logprobs"]["text_offset"] == Json::parse("[0,0,1,2]"));
  const Json broken = choice_of("[97,240,159]", "97");
  CHECK(broken["text"] == "\uFFFDaaaa");
  CHECK(broken["logprobs"]["text_offset"] == Json::parse("[1,2,3,4]"));
}

TEST_CASE("templates read the time at which a batch began, also when it goes on") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"a","messages":[{"role":"user","content":"abc"}]})"
                                            "\n"
                                            R"({"id":"b","messages":[{"role":"user","content":"abc"}]})"
                                            "\n");
  const std::string out = bench.file("out.jsonl", "").string();
  const std::string clock = "{% for i in range(strftime_now('%S')|int) %}x {% endfor %}{{ messages[0]['content'] }}";
  const std::vector<std::string> words{"--batch", input.string(), "-o", out, "--chat-template", clock, "-n", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return bench(more).code;
  };
  REQUIRE(with({"--limit", "1", "--force"}) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  REQUIRE(with({"--resume"}) == 0);
  const auto lines = parse_lines(read_file(out));
  REQUIRE(lines.size() == 2);
  const auto tokens = [&](std::size_t i) { return lines[i]["response"]["body"]["usage"]["prompt_tokens"].get<int>(); };
  CHECK(tokens(0) == tokens(1));
  const auto created = [&](std::size_t i) { return lines[i]["response"]["body"]["created"]; };
  CHECK(created(0) == Json::parse(read_file(out + ".state"))["time"]);
  CHECK(created(1) == created(0));
  CHECK(created(0).get<std::int64_t>() <= std::time(nullptr));
  CHECK(created(0).get<std::int64_t>() > std::time(nullptr) - 600);
}

TEST_CASE("a row says that it wants no log probabilities") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"prompt":"abc","max_tokens":2,"logprobs":false})"
                                            "\n"
                                            R"({"prompt":"abc","max_tokens":2})"
                                            "\n"
                                            R"({"prompt":"abc","max_tokens":2,"logprobs":false,"top_logprobs":2})"
                                            "\n"
                                            R"({"prompt":"abc","max_tokens":2,"top_logprobs":2,"logprobs":false})"
                                            "\n");
  const auto lines = parse_lines(bench({"--batch", input.string(), "--logprobs", "1", "--batch-order", "input"}).out);
  REQUIRE(lines.size() == 4);
  const auto choice = [&](std::size_t i) { return lines[i]["response"]["body"]["choices"][0]; };
  CHECK(choice(0)["logprobs"].is_null());
  CHECK_FALSE(choice(1)["logprobs"].is_null());
  CHECK(contains(lines[2].dump(), "goes with"));
  CHECK(contains(lines[3].dump(), "goes with"));
}

TEST_CASE("UTF-16 is no text of prompts") {
  const Bench bench;
  const auto file = bench.file("in.txt", std::string("\xff\xfeH\0i\0\n\0", 8));
  const Outcome batch = bench({"--batch", file.string()});
  CHECK(batch.code == 2);
  CHECK(contains(batch.err, "is UTF-16"));
  CHECK(batch.out.empty());
  CHECK(bench({"-f", file.string()}).code == 2);
  CHECK(bench({"-bf", file.string(), "-n", "1"}).code == 0);
}

TEST_CASE("a text that is not UTF-8 is taken as it is, with a warning") {
  const Bench bench;
  const auto file = bench.file("in.txt", "one\ncaf\xe9\n");
  const std::string warning = "warning[not-utf8]: " + file.string() + ", line 2: is not UTF-8";
  const Outcome batch = bench({"--batch", file.string(), "-n", "1"});
  CHECK(batch.code == 0);
  CHECK(contains(batch.err, warning));
  const Outcome answer = bench({"-f", file.string(), "-n", "1"});
  CHECK(answer.code == 0);
  CHECK(contains(answer.err, warning));
  CHECK_FALSE(contains(bench({"-bf", file.string(), "-n", "1"}).err, "not-utf8"));
}

TEST_CASE("a batch goes on from whatever was left of it") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(12));
  const auto out = bench.path("out.jsonl");
  const std::vector<std::string> command{"--batch", input.string(), "-o", out.string(), "-s", "4"};
  CHECK(bench(command).code == 7);
  const std::string whole = read_file(out);
  const auto expected = answers(whole);
  const std::string state = read_file(bench.path("out.jsonl.state"));
  CHECK(Json::parse(state)["status"] == "finished");

  auto resumed = command;
  resumed.push_back("--resume");
  // Cut anywhere: between lines, inside one, before the last line feed.
  const std::size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole.find('\n'), whole.find('\n') + 1,
                                 whole.size() / 2, last_line + 5, whole.size() - 2, whole.size() - 1, whole.size()}) {
    CAPTURE(size);
    std::ofstream(out, std::ios::binary) << whole.substr(0, size);
    const Outcome o = bench(resumed);
    CHECK(o.code == 7);
    CHECK(answers(read_file(out)) == expected);
  }
  CHECK(bench(command).code == 2);  // there are results, and nobody says what to do with them

  auto retried = command;
  retried.push_back("--retry-failed");
  const auto own = bench.file("out.jsonl.tmp", "somebody's");
  const Outcome o = bench(retried);
  CHECK(read_file(own) == "somebody's");
  CHECK(contains(o.err, "10 of 12 rows are done"));
  CHECK(answers(read_file(out)) == expected);

  auto other = resumed;
  other.insert(other.end(), {"--temp", "0.1"});
  CHECK(bench(other).code == 2);
  other = resumed;
  other[5] = "5";
  const Outcome seed = bench(other);
  CHECK(seed.code == 2);
  CHECK(contains(seed.err, "seed 4, not 5"));
  other = {"--batch", input.string(), "-o", out.string(), "--resume"};  // the seed is the one of the run
  CHECK(bench(other).code == 7);

  // A result belongs to what its row said, wherever the row is now.
  std::ofstream(out, std::ios::binary) << whole;
  const std::string rows = read_file(input);
  const std::size_t one = rows.find('\n') + 1, two = rows.find('\n', one) + 1;
  const std::string first = rows.substr(0, one), second = rows.substr(one, two - one), rest = rows.substr(two);
  const auto input_is = [&](const std::string& text) { std::ofstream(input, std::ios::binary) << text; };
  input_is(second + first + rest);
  CHECK(contains(bench(resumed).err, "12 of 12 rows are done"));
  input_is(rows + R"({"id": "more", "prompt": "x", "max_tokens": 1})" + "\n");
  CHECK(contains(bench(resumed).err, "12 of 13 rows are done"));
  input_is(std::string(first).insert(first.rfind('}'), R"(, "min_p": 0.5)") + second + rest);
  const Outcome changed = bench(resumed);
  CHECK(changed.code == 2);
  CHECK(contains(changed.err, "was written for another text than line 1 of the input has now"));
  auto plan = resumed;
  plan.emplace_back("--dry-run");
  CHECK(bench(plan).code == 2);
  input_is(rows);

  std::ofstream(out, std::ios::binary) << "something else\n" + whole;
  const Outcome strange = bench(resumed);
  CHECK(strange.code == 2);
  CHECK(contains(strange.err, "line 1 is no result of a batch"));
  CHECK(read_file(out).starts_with("something else"));

  auto forced = command;
  forced.push_back("--force");
  CHECK(bench(forced).code == 7);
  CHECK(answers(read_file(out)) == expected);
}

TEST_CASE("a batch goes on with the options that it had, whatever they are") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(5));
  const auto out = bench.path("out.jsonl");
  // Infinity is no JSON, the byte no UTF-8.
  const std::vector<std::string> plain{"--batch", input.string(), "-o", out.string(), "-s", "4"};
  auto command = plain;
  command.insert(command.end(), {"-l", "100-inf", "-r", "\xff"});
  CHECK(bench(command).code == 0);
  const auto expected = answers(read_file(out));
  CHECK(expected.size() == 5);
  command.emplace_back("--resume");
  CHECK(bench(command).code == 0);
  CHECK(answers(read_file(out)) == expected);
  auto other = plain;
  other.insert(other.end(), {"-r", "\xff", "--resume"});
  const Outcome without = bench(other);
  CHECK(without.code == 2);
  CHECK(contains(without.err, "--logit-bias"));

  Json state = Json::parse(read_file(bench.path("out.jsonl.state")));
  state["options"] = 5;
  bench.file("out.jsonl.state", state.dump());
  const Outcome strange = bench(command);
  CHECK(strange.code == 2);
  CHECK(contains(strange.err, "out.jsonl.state"));
}

TEST_CASE("a batch goes on with what its files said, whatever they are called") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(5));
  const auto out = bench.path("out.jsonl");
  const std::string rule = "root ::= [ab]{3,9}\n", longer = rule + "# " + std::string(300, '-') + "\n";
  for (const std::string& grammar : {rule, longer}) {
    const auto run = [&](const std::string& name, const std::string& text, const std::string& start) {
      return bench(
          {"--batch", input.string(), "-o", out.string(), start, "--grammar-file", bench.file(name, text).string()});
    };
    REQUIRE(run("a.gbnf", grammar, "--force").code == 0);
    CHECK(run("b.gbnf", grammar, "--resume").code == 0);
    const Outcome other = run("a.gbnf", grammar + "# other", "--resume");
    CHECK(other.code == 2);
    CHECK(contains(other.err, "--grammar"));
  }
}

TEST_CASE("a run that is refused leaves the results as they are") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(12));
  const auto out = bench.path("out.jsonl");
  const std::vector<std::string> command{"--batch", input.string(), "-o", out.string(), "-s", "4"};
  CHECK(bench(command).code == 7);
  const std::string whole = read_file(out);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return bench(more);
  };
  CHECK(with({"--retry-failed", "--temp", "0.1"}).code == 2);
  CHECK(read_file(out) == whole);
  CHECK(with({"--force", "-m", "/nonexistent.gguf"}).code == 3);
  CHECK(read_file(out) == whole);

  for (const char* more : {"--special", "--ctx-size=300"}) {
    const Outcome o = with({"--resume", more});
    INFO(more);
    CHECK(o.code == 2);
    CHECK(contains(o.err, std::string(more).substr(0, 9)));
  }
  CHECK(read_file(out) == whole);

  std::filesystem::remove(bench.path("out.jsonl.state"));
  const Outcome unknown = with({"--resume"});
  CHECK(unknown.code == 7);
  CHECK(contains(unknown.err, "warning[no-state]: " + out.string() + ".state is missing"));
}

TEST_CASE("a device gets rows and no state beside it") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(3));
  const auto device = bench.path("out");
  REQUIRE(::mkfifo(device.c_str(), 0600) == 0);
  const int reader = ::open(device.c_str(), O_RDONLY | O_NONBLOCK);
  CHECK(bench({"--batch", input.string(), "-o", device.string()}).code == 0);
  ::close(reader);
  CHECK_FALSE(std::filesystem::exists(device.string() + ".state"));
}

#ifndef LLM_TEST_LIMITS_FILES_OF_THE_SANITIZER
TEST_CASE("a full disk leaves whole lines and a batch that can go on") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(24));
  const auto out = bench.path("out.jsonl");
  const std::string call = program("llm-run").string() + " -m " + bench.model().string() +
                           " -n 20 --ignore-eos -s 4 --batch " + input.string() + " -o " + out.string();
  const Outcome full = run({.program = "/bin/bash", .arguments = {"-c", "ulimit -f 4; exec " + call}});
  CHECK(full.code == 8);
  CHECK(contains(full.err, "--resume"));
  const std::string kept = read_file(out);
  CHECK(kept.ends_with('\n'));
  const std::size_t rows = parse_lines(kept).size();
  CHECK(rows > 0);
  CHECK(rows < 24);
  CHECK(run({.program = "/bin/bash", .arguments = {"-c", call + " --resume"}}).code == 7);
  CHECK(answers(read_file(out)) == answers(bench({"--batch", input.string(), "-s", "4"}).out));
}
#endif

TEST_CASE("one batch writes to a file at a time") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(3));
  const auto out = bench.file("out.jsonl", "");
  const int fd = ::open(out.c_str(), O_RDWR);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  const Outcome o = bench({"--batch", input.string(), "-o", out.string()});
  CHECK(o.code == 8);
  CHECK(contains(o.err, "another batch is writing to it\n"));
  const std::string self = std::to_string(::getpid());
  bench.file("out.jsonl.state", R"({"status": "running", "pid": )" + self + "}");
  CHECK(contains(bench({"--batch", input.string(), "-o", out.string()}).err,
                 "another batch is writing to it: process " + self + "\n"));
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  bench.file("out.jsonl.state", R"({"status": "running", "pid": )" + std::to_string(gone) + "}");
  CHECK(contains(bench({"--batch", input.string(), "-o", out.string()}).err, "another batch is writing to it\n"));
  // Of a run that has ended: its number may be anybody's by now.
  bench.file("out.jsonl.state", R"({"status": "finished", "pid": )" + self + "}");
  CHECK(contains(bench({"--batch", input.string(), "-o", out.string()}).err, "another batch is writing to it\n"));
  ::close(fd);
  CHECK(bench({"--batch", input.string(), "-o", out.string()}).code == 0);
}

TEST_CASE("the state of a batch is read by the one that writes it") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(3));
  const auto out = bench.path("out.jsonl");
  REQUIRE(bench({"--batch", input.string(), "-o", out.string(), "-s", "5"}).code == 0);
  const auto resume = [&] { return bench({"--batch", input.string(), "-o", out.string(), "-s", "6", "--resume"}); };
  CHECK(contains(resume().err, "written with the seed 5"));
  const int fd = ::open(out.c_str(), O_RDWR);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  CHECK(contains(resume().err, "another batch is writing to it"));  // which may have a seed of its own
  ::close(fd);
}

#ifdef LLM_TEST_PRELOAD
TEST_CASE("a batch whose file is replaced before it is locked writes to the one that has the name") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", many_rows(3));
  const auto out = bench.file("out.jsonl", ""), other = bench.file("other.jsonl", "");
  Command c = bench.command({"--batch", input.string(), "-o", out.string()});
  c.environment = {
      {"LD_PRELOAD", LLM_TEST_PRELOAD}, {"LATE_LOCK_FROM", other.string()}, {"LATE_LOCK_TO", out.string()}};
  CHECK(run(c).code == 0);
  CHECK_FALSE(std::filesystem::exists(other));
  CHECK(parse_lines(read_file(out)).size() == 3);
}
#endif

TEST_CASE("an interrupt finishes the rows that run") {
  const Bench bench;
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += Json{{"id", i}, {"prompt", "ab"}, {"n_predict", 200}}.dump() + "\n";
  const auto input = bench.file("in.jsonl", rows);
  Command c = bench.command({"--batch", input.string(), "-np", "4"});
  c.signal = SIGINT;
  const Outcome o = run(c);
  CHECK(o.code == 130);
  const auto lines = parse_lines(o.out);
  CHECK(lines.size() >= 4);
  CHECK(lines.size() < 200);
  for (const Json& line : lines) CHECK(line["response"]["body"]["usage"]["completion_tokens"] == 200);
}

TEST_CASE("a damaged state can be removed, the results stay") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n{\"prompt\":\"cd\"}\n");
  const auto out = bench.path("out.jsonl");
  const std::vector<std::string> command{"--batch", input.string(), "-o", out.string(), "-s", "4", "--resume"};
  REQUIRE(bench(command).code == 0);
  const std::string whole = read_file(out);
  const Json kept = Json::parse(read_file(bench.path("out.jsonl.state")));
  bench.file("out.jsonl.state", "{\"format\":");
  const Outcome damaged = bench(command);
  CHECK(damaged.code == 2);
  CHECK(contains(damaged.err, "out.jsonl.state: is damaged; without this file --resume goes on"));
  bench.file("out.jsonl.state", "{\"format\": 1}");
  CHECK(contains(bench(command).err, "is not the state of a batch of this version; without this file"));
  for (const char* part :
       {R"({"model":[]})", R"({"model":true})", R"({"model":{"name":3}})", R"({"model":{"bytes":"x"}})",
        R"({"model":{"adapters":3}})", R"({"model":{"overrides":[1]}})", R"({"seed":-1})", R"({"rows":1.5})"}) {
    Json state = kept;
    state.update(Json::parse(part));
    bench.file("out.jsonl.state", state.dump());
    const Outcome o = bench(command);
    INFO(part << o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, "is not the state of a batch of this version"));
  }
  std::filesystem::remove(bench.path("out.jsonl.state"));
  CHECK(bench(command).code == 0);
  CHECK(read_file(out) == whole);
}

TEST_CASE("a file that holds no results is not said to hold some") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n");
  const auto refusal = [&](const std::string& text) {
    const auto out = bench.file("out", text);
    const Outcome o = bench({"--batch", input.string(), "-o", out.string()});
    CHECK(o.code == 2);
    CHECK(read_file(out) == text);
    return o.err;
  };
  CHECK(contains(refusal("my notes\nof today\n"), "out: is there already, and what it begins with is no result"));
  CHECK(contains(refusal("my notes"), "-o names another file, --force writes over it"));
  const std::string result = R"({"id":"batch_req_000001","custom_id":"line-1","error":null})";
  CHECK(contains(refusal(result + "\n"), "there are results in it"));
  CHECK(contains(refusal(result.substr(0, 30)), "there are results in it"));  // that was cut
}

TEST_CASE("the state stands beside the file that a link leads to") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n");
  std::filesystem::create_directory(bench.path("far"));
  std::filesystem::create_symlink("far/out.jsonl", bench.path("link"));
  CHECK(bench({"--batch", input.string(), "-o", bench.path("link").string()}).code == 0);
  CHECK(std::filesystem::exists(bench.path("far/out.jsonl.state")));
  CHECK_FALSE(std::filesystem::exists(bench.path("link.state")));
  CHECK_FALSE(contains(bench({"--batch", input.string(), "-o", bench.path("far/out.jsonl").string(), "--resume"}).err,
                       "no-state"));
}

TEST_CASE("rows that are wrong are to be corrected before they are tried again") {
  const Bench bench;
  const auto out = bench.path("out.jsonl");
  const Outcome wrong =
      bench({"--batch", bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n{\"promt\":1}\n").string(), "-o", out.string()});
  CHECK(wrong.code == 7);
  CHECK(contains(wrong.err, "; --retry-failed runs rows again that were corrected\n"));
  const auto corrected = bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n{\"prompt\":\"cd\"}\n");
  CHECK(bench({"--batch", corrected.string(), "-o", out.string(), "--retry-failed"}).code == 0);
  const Outcome late = bench({"--batch", corrected.string(), "-o", out.string(), "--force", "--max-time", "0.000001"});
  CHECK(contains(late.err, "; --retry-failed runs what failed again\n"));
}

TEST_CASE("a result has the same names whenever its row is run") {
  const Bench bench;
  const auto out = bench.path("out.jsonl");
  const auto first = bench.file("in.jsonl", "{\"id\":\"a\",\"prompt\":\"ab\"}\n");
  REQUIRE(bench({"--batch", first.string(), "-o", out.string()}).code == 0);
  const auto more = bench.file("in.jsonl", "{\"id\":\"b\",\"prompt\":\"ab\"}\n{\"id\":\"a\",\"prompt\":\"ab\"}\n");
  REQUIRE(bench({"--batch", more.string(), "-o", out.string(), "--resume"}).code == 0);
  const auto lines = parse_lines(read_file(out));
  REQUIRE(lines.size() == 2);
  for (const char* name : {"a", "b"}) {
    const Json& line = *std::find_if(lines.begin(), lines.end(), [&](const Json& l) { return l["custom_id"] == name; });
    // The first 16 digits of SHA-256 of the id.
    const std::string digest = *name == 'a' ? "ca978112ca1bbdca" : "3e23e8160039594a";
    CHECK(line["id"] == "batch_req_" + digest);
    CHECK(line["response"]["request_id"] == "req_" + digest);
    CHECK(line["response"]["body"]["id"] == "cmpl-" + digest);
  }
}

TEST_CASE("log probabilities end where the answer's text does") {
  const Bench bench;
  const std::string row = R"({"id":"r","prompt":"abc","seed":3,"logprobs":0,"temperature":0)";
  const auto choice_of = [&](const std::string& more) {
    const auto input = bench.file("in.jsonl", row + more + "}\n");
    return Json(parse_lines(bench({"--batch", input.string(), "--regex", "[a-c]{30}"}).out)
                    .at(0)["response"]["body"]["choices"][0]);
  };
  const Json whole = choice_of("");
  const std::string text = whole["text"], stop = text.substr(5, 2);
  const std::size_t length = text.find(stop);
  const Json cut = choice_of(R"(,"stop":[")" + stop + R"("])");
  CHECK(cut["text"] == text.substr(0, length));
  std::size_t tokens = 0;
  for (const Json& offset : whole["logprobs"]["text_offset"]) tokens += offset < length ? 1 : 0;
  CHECK(cut["logprobs"]["tokens"].size() == tokens);
  CHECK(cut["logprobs"]["text_offset"].size() == tokens);
}

TEST_CASE("a pipe of results whose reader leaves ends the batch") {
  const Bench bench;
  const auto pipe = bench.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::string rows;
  for (int i = 0; i < 2000; ++i) rows += "{\"prompt\":\"ab\",\"max_tokens\":1}\n";
  const auto input = bench.file("in.jsonl", rows);
  Command c = bench.command({"--batch", input.string(), "-o", pipe.string()});
  c.arguments.insert(c.arguments.begin(),
                     {"-c", "head -n 1 '" + pipe.string() + "' >/dev/null & exec \"$0\" \"$@\"", c.program.string()});
  c.program = "/bin/sh";
  const Outcome o = run(c);
  CHECK(o.code == 8);
  CHECK(contains(o.err, "Broken pipe"));
}

TEST_CASE("options of chats are told to do nothing where no row is one, and --limit where it leaves out results") {
  const Bench bench;
  const auto rows = bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n{\"prompt\":\"cd\"}\n").string();
  CHECK(contains(bench({"--batch", rows, "--chat-template", "chatml", "-sys", "x"}).err, "no row is a chat"));
  const auto out = bench.path("out.jsonl").string();
  const Outcome whole = bench({"--batch", rows, "-o", out});
  CHECK(whole.code == 0);
  CHECK_FALSE(contains(whole.err, "no row is a chat"));
  CHECK(contains(bench({"--batch", rows, "-o", out, "--resume", "--limit", "1"}).err,
                 "1 results are of rows that --limit leaves out"));
}

TEST_CASE("a dry run refuses what the run would refuse of its output") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n"), out = bench.path("out.jsonl");
  REQUIRE(bench({"--batch", input.string(), "-o", out.string()}).code == 0);
  CHECK(bench({"--batch", input.string(), "-o", out.string(), "--dry-run"}).code == 2);
  CHECK(bench({"--batch", input.string(), "-o", bench.path("no/out.jsonl").string(), "--dry-run"}).code == 8);
  CHECK(bench({"--batch", input.string(), "-o", bench.path("new.jsonl").string(), "--dry-run"}).code == 0);
  // Results cannot go on later without a state.
  std::filesystem::create_directory(bench.path("other.jsonl.state"));
  for (const std::vector<std::string>& dry : {std::vector<std::string>{}, {"--dry-run"}}) {
    const Outcome o = bench(with({"--batch", input.string(), "-o", bench.path("other.jsonl").string()}, dry));
    CHECK(o.code == 8);
    CHECK(contains(o.err, "other.jsonl.state: cannot be created: Is a directory"));
    CHECK(o.out.empty());
  }
  CHECK_FALSE(std::filesystem::exists(bench.path("new.jsonl")));
}

TEST_CASE("a failed row that was corrected is for --retry-failed") {
  const Bench bench;
  const auto out = bench.path("out.jsonl").string();
  CHECK(bench({"--batch", bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n{\"promt\":1}\n").string(), "-o", out}).code ==
        7);
  const auto corrected = bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n{\"prompt\":\"cd\"}\n").string();
  const Outcome o = bench({"--batch", corrected, "-o", out, "--resume"});
  CHECK(o.code == 2);
  CHECK(contains(o.err, "which failed, has another text now; --retry-failed runs rows again that were corrected"));
  CHECK_FALSE(contains(o.err, "--force"));
}
