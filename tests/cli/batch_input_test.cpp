// What the rows of a batch are read from, with all that files in the wild have: one bad row never ends the others.
#include "batch_bench.h"
#include "support/sanitized.h"

using namespace llm;
using namespace llm::test;

namespace {

std::map<std::string, Json> lines_by_id(const Outcome& o) {
  std::map<std::string, Json> lines;
  for (const Json& line : parse_lines(o.out)) lines[line["custom_id"]] = line;
  return lines;
}

std::string message(const Json& line) { return line["error"].is_null() ? "" : line["error"]["message"]; }

}  // namespace

TEST_CASE("a line of carriage returns alone is no row that can be run") {
  const Bench bench;
  CHECK(bench({"--batch", bench.file("in.jsonl", "{\"prompt\":\"ab\"}\n\r\r\n{\"prompt\":\"ab\"}\n").string()}).code ==
        7);
}

TEST_CASE("a row that nests deeper than any stack fails alone") {
  const Bench bench;
  constexpr std::size_t kDeep = 300'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  std::string rows = R"({"id":"ok","prompt":"ab"})";
  for (const char* key : {"json_schema", "messages", "tools", "stop", "user", "id"})
    rows += "\n{\"prompt\":\"ab\",\"" + std::string(key) + "\":" + deep + "}";
  const Outcome o = bench({"--batch", bench.file("in.jsonl", rows).string()});
  CHECK(o.code == 7);
  const auto lines = lines_by_id(o);
  REQUIRE(lines.size() == 7);
  CHECK(lines.at("ok")["error"].is_null());
  for (std::size_t i = 2; i <= 7; ++i)
    CHECK(contains(message(lines.at("line-" + std::to_string(i))), "nested more than"));

  const auto csv = bench.file("in.csv", "id,prompt,json_schema\na,ab,\nb,ab," + deep + "\n");
  CHECK(contains(message(lines_by_id(bench({"--batch", csv.string()})).at("b")), "nested more than"));
}

TEST_CASE("a message about a bad line is of a size to be read") {
  const Bench bench;
  const auto input =
      bench.file("in.jsonl", "{\"prompt\":\"" + std::string(200'000, 'x') + "\n{\"id\":\"b\",\"prompt\":\"ab\"}\n");
  const auto lines = lines_by_id(bench({"--batch", input.string()}));
  REQUIRE(lines.size() == 2);
  CHECK(message(lines.at("line-1")).size() < 500);
  CHECK(contains(message(lines.at("line-1")), "parse error at column"));
}

TEST_CASE("what a row says and what it does not mean") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"null","prompt":"ab","messages":null,"system":null,"seed":null}
{"id":1.5,"prompt":"ab"}
{"id":true,"prompt":"ab"}
{"id":"seed","prompt":"ab","seed":9223372036854775808.0}
{"id":"bias","prompt":"ab","logit_bias":{"267":1}}
{"id":"last","prompt":"ab","logit_bias":{"266":1}}
{"custom_id":"around","temperature":0,"body":{"prompt":"ab"}}
{"id":"schema","prompt":"ab","json_schema":{"type":"boolean","minimun":3}}
{"id":"template","messages":[{"role":"user","content":"ab"}],"chat_template_kwargs":{"messages":[]}}
)");
  const Outcome o = bench({"--batch", input.string()});
  CHECK(o.code == 7);
  const auto lines = lines_by_id(o);
  REQUIRE(lines.size() == 9);
  CHECK(message(lines.at("null")).empty());
  CHECK(message(lines.at("line-2")) == "\"id\" is neither a text nor a whole number");
  CHECK(message(lines.at("line-3")) == "\"id\" is neither a text nor a whole number");
  CHECK(contains(message(lines.at("seed")), "is not from -1 to 9223372036854775807"));
  CHECK(contains(message(lines.at("bias")), "token id 267 is not in the vocabulary of 267 tokens"));
  CHECK(message(lines.at("last")).empty());
  CHECK(message(lines.at("around")).empty());
  CHECK(contains(o.err, "key \"temperature\" of 1 row has no meaning here"));
  CHECK(message(lines.at("schema")).empty());
  CHECK(contains(o.err, "line 8: JSON schema, #: \"minimun\" is no keyword"));
  CHECK(contains(message(lines.at("template")), "\"chat_template_kwargs\" has \"messages\""));
}

TEST_CASE("messages in OpenAI's forms are what they say") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"text","messages":[{"role":"user","content":"ab"}],"seed":1}
{"id":"part","messages":[{"role":"user","content":[{"type":"text","text":"ab"}]}],"seed":1}
{"id":"empty","messages":[{"role":"user","content":"ab"},{"role":"assistant","content":""}],"seed":1}
{"id":"null","messages":[{"role":"user","content":"ab"},{"role":"assistant","content":null}],"seed":1}
{"id":"image","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}
)");
  for (const char* name : {"chatml", "llama3"}) {
    INFO(name);
    const Outcome o = bench({"--batch", input.string(), "--chat-template", name});
    CHECK(o.code == 7);
    const auto lines = lines_by_id(o);
    REQUIRE(lines.size() == 5);
    const auto said = [&](const std::string& id) { return lines.at(id)["response"]["body"]["choices"].dump(); };
    CHECK(said("part") == said("text"));
    CHECK(said("null") == said("empty"));
    CHECK(said("null") != said("text"));
    CHECK(lines.at("image")["error"]["code"] == "invalid_request");
    CHECK(lines.at("image")["error"]["line"] == 5);
    CHECK(message(lines.at("image")) ==
          "message 1: a part of its content is of the type \"image_url\", and models read text only");
  }
}

TEST_CASE("numbers of a row reach templates and schemas as they are written") {
  const Bench bench;
  const auto answers_of = [&](const std::string& name, const std::string& rows, std::vector<std::string> arguments) {
    const auto path = bench.file(name, rows);
    arguments.insert(arguments.begin(), {"--batch", path.string(), "--temp", "0"});
    return lines_by_id(bench(arguments));
  };
  const auto said = [](const std::map<std::string, Json>& lines, const std::string& id) {
    INFO(message(lines.at(id)));
    CHECK(lines.at(id)["error"].is_null());
    const Json& body = lines.at(id)["response"]["body"];
    return body["usage"]["prompt_tokens"].dump() + body["choices"].dump();
  };
  const std::string big = "123456789012345678901234567890";
  // A template writes a number of a message, of tools, of its variables as it writes the same digits in a string.
  const std::string source =
      "{{ messages[-1].n }}|{{ tools[0].n }}|{{ k }}|{{ messages[-1].content }}|{{ messages[0].content }}";
  const auto row = [](const std::string& id, const std::string& n) {
    return R"({"id":")" + id + R"(","system":"s\"é","messages" : [{"role":"user","content":"ab","n":)" + n +
           R"(}],"tools":[{"n":)" + n + R"(}],"chat_template_kwargs":{"k":)" + n + "}}\n";
  };
  const auto chats =
      answers_of("in.jsonl", row("number", big) + row("text", '"' + big + '"') + row("other", "\"1e29\""),
                 {"--chat-template", source});
  CHECK(said(chats, "number") == said(chats, "text"));
  CHECK(said(chats, "number") != said(chats, "other"));

  const auto cell = [](const std::string& n) {
    return R"("[{""role"":""user"",""content"":""ab"",""n"":)" + n + R"(}]")";
  };
  const auto table = answers_of(
      "in.csv", "id,messages,tools\nnumber," + cell(big) + ",[1]\ntext," + cell("\"\"" + big + "\"\"") + ",[1]\n",
      {"--chat-template", "{{ messages[0].n }}{{ tools }}"});
  CHECK(said(table, "number") == said(table, "text"));

  const auto filled = answers_of(
      "in.jsonl",
      R"({"id":"number","n":)" + big + R"(,"m" : 0.10})" + "\n" + R"({"id":"text","n":")" + big + R"(","m":"0.10"})",
      {"--template-row", "{n} {m}"});
  CHECK(said(filled, "number") == said(filled, "text"));

  const auto formed = answers_of(
      "in.jsonl",
      R"({"id":"schema","prompt":"ab","json_schema":{"const":)" + big + "}}\n" +
          R"({"id":"format","prompt":"ab","response_format":{"type":"json_schema","json_schema":{"schema":{"const":)" +
          big + "}}}}\n" +
          R"({"id":"object","prompt":"ab","response_format":{"type":"json_object","schema":{"enum":[)" + big + "]}}}\n",
      {});
  for (const char* id : {"schema", "format", "object"}) {
    INFO(id);
    CHECK(formed.at(id)["error"]["code"] == "schema_invalid");
    CHECK(contains(message(formed.at(id)), big + " would become 1.2345678901234568e+29"));
  }
}

TEST_CASE("a row of several prompts has the answers of each") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"a","prompt":"ab","temperature":0}
{"id":"b","prompt":"bcd","temperature":0}
{"id":"texts","prompt":["ab","bcd"],"temperature":0}
{"id":"ids","prompt":[[97,98],[98,99,100]],"n":2,"temperature":0}
{"id":"mixed","prompt":[97,"b"]}
{"id":"object","prompt":["ab",{}]}
{"id":"none","prompt":[[]]}
)");
  const Outcome o = bench({"--batch", input.string()});
  CHECK(o.code == 7);
  const auto lines = lines_by_id(o);
  REQUIRE(lines.size() == 7);
  const auto body = [&](const std::string& id) { return lines.at(id)["response"]["body"]; };
  const auto text = [&](const std::string& id, std::size_t i) { return body(id)["choices"].at(i)["text"]; };
  REQUIRE(body("texts")["choices"].size() == 2);
  CHECK(text("texts", 0) == text("a", 0));
  CHECK(text("texts", 1) == text("b", 0));
  CHECK(body("texts")["choices"][1]["index"] == 1);
  CHECK(body("texts")["usage"]["prompt_tokens"] ==
        body("a")["usage"]["prompt_tokens"].get<int>() + body("b")["usage"]["prompt_tokens"].get<int>());
  CHECK(body("texts")["usage"]["completion_tokens"] == 40);
  REQUIRE(body("ids")["choices"].size() == 4);
  CHECK(text("ids", 0) == text("ids", 1));
  CHECK(text("ids", 2) == text("ids", 3));
  CHECK(text("ids", 0) != text("ids", 2));
  CHECK(body("ids")["usage"]["prompt_tokens"] == 5);
  CHECK(message(lines.at("mixed")) == "\"prompt\" has an array in which not all are token ids");
  for (const char* id : {"object", "none"})
    CHECK(message(lines.at(id)) == "\"prompt\" is neither a text nor an array of token ids or of prompts");
}

TEST_CASE("what a row asks for and does not get is told of once") {
  const Bench bench;
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string ask = R"("messages":[{"role":"user","content":"ab"}],"max_tokens":1,)";
  const auto input = bench.file("in.jsonl", R"({"prompt":"ab","max_tokens":1,"stream":true}
{"prompt":"ab","max_tokens":1,"stream":false}
{)" + ask + tools + "}\n{" + ask + tools + "}\n{" +
                                                ask + R"("tools":[]})");
  const Outcome o = bench({"--batch", input.string(), "--chat-template", "chatml"});
  CHECK(o.code == 0);
  CHECK(contains(o.err, "warning[ignored-key]: key \"stream\" of 1 row has no meaning here"));
  CHECK(contains(o.err,
                 "warning[unread-variable]: line 3: the chat template does not read \"tools\", and 1 more like it"));
  CHECK(bench({"--batch", input.string(), "--chat-template", "chatml", "--strict"}).code == 10);
  const std::string reads = "{{ messages[0].content }}{% if tools %}{{ tools }}{% endif %}";
  CHECK_FALSE(contains(bench({"--batch", input.string(), "--chat-template", reads}).err, "unread-variable"));
}

TEST_CASE("a key that is there twice is refused, wherever it is") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"a","prompt":"ab","prompt":"cd"}
{"id":"b","prompt":"ab","logit_bias":{"97":1,"98":2,"97":3}}
{"id":"c","id":"d","prompt":"ab"}
{"id":"e","prompt":"ab","user":[{"x":1},{"x":2}]}
)");
  const auto lines = lines_by_id(bench({"--batch", input.string()}));
  REQUIRE(lines.size() == 4);
  CHECK(lines.at("a")["error"]["code"] == "invalid_request");
  CHECK(message(lines.at("a")) == "the key \"prompt\" is there twice");
  CHECK(message(lines.at("b")) == "the key \"97\" is there twice");
  CHECK(message(lines.at("line-3")) == "the key \"id\" is there twice");
  CHECK(message(lines.at("e")).empty());
  const auto csv = bench.file("in.csv", "id,prompt,logit_bias\na,ab,\"{\"\"97\"\":1,\"\"97\"\":2}\"\n");
  CHECK(message(lines_by_id(bench({"--batch", csv.string()})).at("a")) == "the key \"97\" is there twice");
}

TEST_CASE("tables as spreadsheets write them") {
  const Bench bench;
  const auto run = [&](std::string_view text) { return bench({"--batch", bench.file("in.csv", text).string()}); };
  const Outcome marked = run(
      "\xEF\xBB\xBF\"id\",prompt,seed,stop,json_schema\r\n7,ab,,,\r\n\r\n,ab,5,1,\"{\"\"type\"\":\"\"null\"\"}\"\r\n");
  CHECK(marked.code == 0);
  const auto lines = lines_by_id(marked);
  REQUIRE(lines.size() == 2);
  CHECK(lines.count("7") == 1);
  CHECK(lines.at("line-4")["response"]["body"]["choices"][0]["text"] == "null");

  // A text that ends the answer, or several: the first character of what is answered without that is one byte.
  const auto answer = [](const Outcome& o) {
    INFO(o.err);
    return lines_by_id(o).at("line-2")["response"]["body"]["choices"][0];
  };
  const std::string whole = answer(run("prompt,temperature\nab,0\n"))["text"];
  const auto ascii = std::find_if(whole.begin() + 1, whole.end(), [](char c) { return c > ' ' && c != '"'; });
  REQUIRE(ascii != whole.end());
  const std::string end(1, *ascii);
  const Json cell = Json::array({"\x01", end});
  std::string quoted_cell = cell.dump();
  for (std::size_t at = 0; (at = quoted_cell.find('"', at)) != std::string::npos; at += 2) quoted_cell.insert(at, "\"");
  const Json stopped = answer(run("prompt,temperature,stop\nab,0,\"" + quoted_cell + "\"\n"));
  CHECK(stopped["finish_reason"] == "stop");
  CHECK(stopped["text"] == whole.substr(0, whole.find(end)));
  CHECK(answer(run("prompt,temperature,stop\nab,0,[1]\n"))["text"] == whole);  // a text

  const Outcome lengths =
      bench({"--batch", bench
                            .file("in.jsonl",
                                  "{\"id\":\"a\",\"prompt\":\"ab\",\"max_tokens\":2,\"n_predict\":5}\n"
                                  "{\"id\":\"b\",\"prompt\":\"ab\",\"max_tokens\":2,\"n_predict\":2}\n")
                            .string()});
  CHECK(message(lines_by_id(lengths).at("a")) == "\"n_predict\" is 5, another key of the same meaning 2");
  CHECK(message(lines_by_id(lengths).at("b")).empty());

  const Outcome twice = run("id,prompt,id\n1,ab,2\n");
  CHECK(twice.code == 2);
  CHECK(contains(twice.err, "line 1: two columns are called \"id\""));
  const Outcome quoted = run("id,prompt\n\n\n1,a\"b\n");
  CHECK(quoted.code == 2);
  CHECK(contains(quoted.err, "line 4: a field with quotes in it must be quoted"));
  const Outcome other_kind = run("prompt\n1;ab, cd\n2;a, b\n");
  CHECK(other_kind.code == 2);
  CHECK(other_kind.err.find("line 2: 2 fields, the header has 1, and so it is of all rows") != std::string::npos);
  const Outcome misfits = run("id,prompt\n1,ab\n\n\n2,a,b\n3\n4,ab\n");
  CHECK(misfits.code == 7);
  const auto some = lines_by_id(misfits);
  REQUIRE(some.size() == 4);
  CHECK(message(some.at("1")).empty());
  CHECK(message(some.at("line-5")) == "3 fields, the header has 2");
  CHECK(some.at("line-5")["error"]["code"] == "invalid_request");
  CHECK(some.at("line-5")["error"]["line"] == 5);
  CHECK(message(some.at("line-6")) == "1 field, the header has 2");
  CHECK(message(some.at("4")).empty());

  const Outcome latin = run("id,prompt,user\ncaf\xe9,ab,\nb,a\xe9,\nc,ab,\xe9\n");
  CHECK(latin.code == 7);
  const auto rows = lines_by_id(latin);
  REQUIRE(rows.size() == 3);
  CHECK(contains(message(rows.at("line-2")), "\"id\" is not UTF-8"));
  CHECK(message(rows.at("b")).empty());  // the model gets the bytes
  CHECK(message(rows.at("c")) == "column \"user\" is not UTF-8");
}

TEST_CASE("a table without prompts is refused as a whole, and says what would make some") {
  const Bench bench;
  const auto refusal = [&](std::string_view text) {
    const Outcome o = bench({"--batch", bench.file("in.csv", text).string()});
    CHECK(o.code == 2);
    CHECK(o.out.empty());
    return o.err;
  };
  const std::string columns = refusal("text,label\na,b\nc,d\n");
  CHECK(contains(columns, "no column is called \"prompt\" or \"messages\""));
  CHECK(contains(columns, "\"text\", \"label\""));
  CHECK(contains(columns, "--template-row"));
  CHECK(contains(refusal("text;label\na;b\n"), "columns are separated by commas, not by semicolons"));
}

TEST_CASE("a message without content is the row's fault, and a role that nobody knows is told of once") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"none","messages":[{"role":"user","content":"a"},{"role":"user"}]}
{"id":"typo","messages":[{"role":"usr","content":"ab"}]}
{"id":"again","messages":[{"role":"usr","content":"ab"}]}
{"id":"tools","messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[]},{"role":"tool","content":"b"}]}
)");
  const Outcome o = bench({"--batch", input.string(), "--chat-template", "chatml"});
  CHECK(o.code == 7);
  const auto lines = lines_by_id(o);
  REQUIRE(lines.size() == 4);
  CHECK(lines.at("none")["error"]["code"] == "invalid_request");
  CHECK(message(lines.at("none")) == "message 2 has no \"content\"");
  CHECK(message(lines.at("typo")).empty());
  CHECK(contains(o.err, "warning[unknown-role]: line 2: a message has the role \"usr\", and 1 more like it"));
  CHECK(contains(o.err, "did you mean \"user\"?"));
  CHECK(o.err.find("unknown-role") == o.err.rfind("unknown-role"));
  const char* named = "{% for m in messages %}{% if m.role == 'usr' %}{{ m.content }}{% endif %}{% endfor %}>";
  CHECK_FALSE(contains(bench({"--batch", input.string(), "--chat-template", named}).err, "unknown-role"));
  // A template can be read once only.
  Command piped = bench.command({"--batch", input.string(), "--chat-template-file", "-"});
  piped.input_file = bench.file("named.jinja", named).string();
  const Outcome from_stdin = run(piped);
  CHECK(from_stdin.code == 7);
  CHECK_FALSE(contains(from_stdin.err, "unknown-role"));
}

TEST_CASE("the roles of a row with tools are those of the template for tools") {
  TinyFile model = tiny_model({.layers = 2, .context = 4096});
  model.set("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
  model.set("tokenizer.chat_template.tool_use",
            "{% for m in messages %}{% if m.role == 'observer' %}{{ m.content }}{% endif %}{% endfor %}{{ tools }}");
  const Bench bench(model);
  const std::string messages = R"("messages":[{"role":"user","content":"a"},{"role":"observer","content":"b"}])";
  const auto with_tools = bench.file("tools.jsonl", "{" + messages + R"(,"tools":[{"type":"function"}]})" + "\n");
  const auto without = bench.file("plain.jsonl", "{" + messages + "}\n");
  CHECK_FALSE(contains(bench({"--batch", with_tools.string()}).err, "unknown-role"));
  CHECK(contains(bench({"--batch", without.string()}).err, "has the role \"observer\", which the chat template"));
}

TEST_CASE("rows under DRY say what they say alone, and a note tells of variables that no template reads") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"a","prompt":"abcabcabcabc","seed":3,"dry_multiplier":5}
{"id":"b","prompt":"abcabcabcabc","seed":3}
{"id":"c","prompt":"abcabcabcabc","seed":3,"dry_multiplier":5,"temperature":0.9}
)");
  const Outcome o = bench({"--batch", input.string(), "--dry-sequence-breaker", "b"});
  const auto lines = lines_by_id(o);
  REQUIRE(lines.size() == 3);
  const auto alone = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"-p", "abcabcabcabc", "-s", "3", "--dry-sequence-breaker", "b"});
    return bench(more).out;
  };
  const auto text = [&](const std::string& id) {
    return lines.at(id)["response"]["body"]["choices"][0]["text"].get<std::string>() + "\n";
  };
  CHECK(text("a") == alone({"--dry-multiplier", "5"}));
  CHECK(text("b") == alone({}));
  CHECK(text("c") == alone({"--dry-multiplier", "5", "--temp", "0.9"}));

  const std::string unread = "does not read the variable \"tone\"";
  const std::vector<std::string> options{"--chat-template", "chatml", "--chat-template-kwargs", R"({"tone":1})"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), options.begin(), options.end());
    return bench(more).err;
  };
  CHECK(contains(with({"--batch", bench.file("in.txt", "ab\n").string()}), unread));
  CHECK_FALSE(contains(with({"--batch", input.string()}), unread));  // texts as they are
}

TEST_CASE("options that a batch has no use for are refused") {
  const Bench bench;
  const std::string input = bench.file("in.jsonl", R"({"prompt":"ab"})").string();
  const auto refused = [&](std::vector<std::string> more, std::string_view why) {
    more.insert(more.begin(), {"--batch", input});
    const Outcome o = bench(more);
    CHECK(o.code == 2);
    CHECK(contains(o.err, why));
  };
  refused({"--profile"}, "--profile (--perf) is for one answer");
  refused({"--explain-prompt"}, "--explain-prompt is for one answer");
  refused({"--dump-graph", bench.path("g.txt").string()}, "--dump-graph is for one answer");
  refused({"--limit", "0"}, "--limit");
  const std::string system = bench.file("system.txt", "Be brief.").string();
  refused({"-sysf", system, "-o", system, "--force"}, "would be overwritten");
  CHECK(read_file(system) == "Be brief.");
}

TEST_CASE("a file that memory does not hold is refused before it is read") {
  const Bench bench;
  const auto endless = bench.file("in.jsonl", "");
  std::filesystem::resize_file(endless, std::uintmax_t{1} << 42);  // of holes
  const Outcome o = bench({"--batch", endless.string()});
  CHECK(o.code == 4);
  CHECK(contains(o.err, "in.jsonl: has more than "));
  CHECK(contains(o.err, "as much as is read with the memory that is free"));
}

TEST_CASE("a document of JSON is no file of rows") {
  const Bench bench;
  for (const char* text : {"[{\"prompt\":\"ab\"}]", "[\n{\"prompt\":\"ab\"},\n{\"prompt\":\"cd\"}\n]\n",
                           "{\n  \"id\": 1,\n  \"prompt\": \"ab\"\n}\n"}) {
    INFO(text);
    const Outcome o = bench({"--batch", bench.file("in.jsonl", text).string()});
    CHECK(o.code == 2);
    CHECK(o.out.empty());
    CHECK(contains(o.err, "in.jsonl: is one JSON document"));
  }
  CHECK(bench({"--batch", bench.file("in.jsonl", "{\"promt\":\"ab\"}").string()}).code == 7);
}

TEST_CASE("a file without a line of JSON is refused, with what it may be") {
  const Bench bench;
  const std::string lines = "--batch-format lines takes each line as a prompt";
  const auto refusal = [&](const char* text) {
    const Outcome o = bench({"--batch", bench.file("plain", text).string()});
    CHECK(o.code == 2);
    CHECK(o.out.empty());
    CHECK(contains(o.err, "plain: no line of it is JSON (line 1: "));
    return o.err;
  };
  CHECK(contains(refusal("Once upon\na time\n"), "; " + lines));
  CHECK(contains(refusal("id,text\n1,Once upon\n"), "; --batch-format csv reads a table, " + lines));
  CHECK(contains(refusal("prompt\nOnce upon\n"), "; --batch-format csv reads a table, "));
  CHECK(contains(refusal("{'prompt':'ab'}\n{'prompt':'cd'}\n"), "; each line is an object, keys and texts in double"));
  CHECK(contains(refusal("{\"prompt\":\"ab\n"), "; each line is an object"));
  CHECK(bench({"--batch", bench.file("plain", "Once upon\na time\n").string(), "--batch-format", "lines"}).code == 0);
  CHECK(bench({"--batch", bench.file("some", "Once upon\n{\"prompt\":\"ab\"}\n").string()}).code == 7);
  CHECK(contains(bench({"--batch", "-"}).err, "stdin: there are no rows in it"));
}

TEST_CASE("a name's ending counts in capitals, too") {
  const Bench bench;
  const Outcome table = bench({"--batch", bench.file("T1.CSV", "id,prompt\na,ab\n").string()});
  CHECK(table.code == 0);
  CHECK(parse_lines(table.out).at(0)["custom_id"] == "a");
  const Outcome text = bench({"--batch", bench.file("T1.Txt", "ab\ncd\n").string()});
  CHECK(text.code == 0);
  CHECK(parse_lines(text.out).size() == 2);
}

TEST_CASE("a key that means nothing is told with its line and the one that is meant") {
  const Bench bench;
  const auto rows = bench.file("in.jsonl", R"({"prompt":"ab","max_tokens":1}
{"prompt":"ab","max_tokens":1,"temprature":0}
{"prompt":"ab","max_tokens":1,"temprature":0,"whatever":1}
)");
  const Outcome o = bench({"--batch", rows.string()});
  CHECK(contains(o.err,
                 "key \"temprature\" of 2 rows has no meaning here (first line 2); did you mean \"temperature\"?\n"));
  CHECK(contains(o.err, "key \"whatever\" of 1 row has no meaning here (line 3)\n"));
}

TEST_CASE("an empty cell is a prompt that is not there") {
  const Bench bench;
  const auto input = bench.file("in.csv", "id,prompt,notes\n1,ab,z\n2,,c\n").string();
  const Outcome o = bench({"--batch", input});
  CHECK(o.code == 7);
  const auto lines = lines_by_id(o);
  CHECK(message(lines.at("1")).empty());
  CHECK(lines.at("2")["error"]["code"] == "invalid_request");
  CHECK(message(lines.at("2")) == "neither \"messages\" nor \"prompt\"");
  CHECK(contains(bench({"--batch", input, "--dry-run"}).out, "2, of which 1 cannot be run"));
}

TEST_CASE("a row that asks for plain text has no form") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", R"({"id":"form","prompt":"ab"}
{"id":"text","prompt":"ab","response_format":{"type":"text"}}
{"id":"own","prompt":"ab","response_format":{"type":"text"},"json_schema":{"type":"null"}}
)");
  const auto said = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--batch", input.string(), "--temp", "0"});
    std::map<std::string, std::string> texts;
    for (const auto& [id, line] : lines_by_id(bench(more)))
      texts[id] = line["response"]["body"]["choices"][0]["text"].get<std::string>();
    return texts;
  };
  const auto formed = said({"-j", R"({"const":1})"}), free = said({});
  CHECK(formed.at("form") == "1");
  CHECK(formed.at("text") == free.at("text"));
  CHECK(free.at("text").size() > 1);
  CHECK(formed.at("own") == "null");
}

TEST_CASE("a row's stop texts take the place of the command line's") {
  const Bench bench;
  const std::string whole =
      lines_by_id(bench({"--batch", bench.file("one.jsonl", R"({"id":"a","prompt":"ab"})").string(), "--temp", "0"}))
          .at("a")["response"]["body"]["choices"][0]["text"];
  const auto ascii = std::find_if(whole.begin() + 1, whole.end(), [](char c) { return c > ' ' && c != '"'; });
  REQUIRE(ascii != whole.end());
  const std::string end(1, *ascii), cut = whole.substr(0, whole.find(end));
  const auto input = bench.file("in.jsonl", R"({"id":"common","prompt":"ab"}
{"id":"null","prompt":"ab","stop":null}
{"id":"own","prompt":"ab","stop":"\u0001"}
{"id":"none","prompt":"ab","stop":[]}
)");
  const auto lines = lines_by_id(bench({"--batch", input.string(), "--temp", "0", "-r", end}));
  const auto text = [&](const std::string& id) { return lines.at(id)["response"]["body"]["choices"][0]["text"]; };
  CHECK(text("common") == cut);
  CHECK(text("null") == cut);
  CHECK(text("own") == whole);
  CHECK(text("none") == whole);
}

TEST_CASE("options of a row count beside a template, and its columns are text alone") {
  const Bench bench;
  const std::string rows = R"({"id":"a","word":"b","max_tokens":3,"tools":[1],"prompt":5,"color":"red"}
{"id":"b","word":"b","n":"x"}
{"id":"c","word":"b","max_tokens":"five"}
{"id":"d","word":"b","json_schema":{"type":"null"},"temperature":0}
)";
  const auto run = [&](const char* name, const std::string& text, const char* row_template) {
    return bench({"--batch", bench.file(name, text).string(), "--template-row", row_template});
  };
  const Outcome o = run("in.jsonl", rows, "a{word}");
  const auto lines = lines_by_id(o);
  REQUIRE(lines.size() == 4);
  CHECK(lines.at("a")["response"]["body"]["usage"]["completion_tokens"] == 3);
  CHECK(message(lines.at("b")) == "\"n\" is not a whole number");
  CHECK(message(lines.at("c")) == "\"max_tokens\" is not a whole number");
  CHECK(lines.at("d")["response"]["body"]["choices"][0]["text"] == "null");
  CHECK(contains(o.err, "key \"tools\" of 1 row has no meaning here"));
  CHECK_FALSE(contains(o.err, "color"));
  CHECK(contains(o.err,
                 "note: rows have options of their own beside --template-row: \"json_schema\", \"max_tokens\", "
                 "\"n\", \"temperature\"\n"));
  const Outcome column = run("in.jsonl", R"({"id":"a","n":"x"})", "a{n}");
  CHECK(column.code == 0);
  CHECK_FALSE(contains(column.err, "options of their own"));
  CHECK(lines_by_id(run("in.csv", "id,word,max_tokens\na,b,3\nb,b,\n", "a{word}"))
            .at("a")["response"]["body"]["usage"]["completion_tokens"] == 3);
}

TEST_CASE("bytes that are no text are told of as what they become, each kind, as far as rows are read") {
  const Bench bench;
  const auto said = [&](const char* name, std::string_view text, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--batch", bench.file(name, text).string(), "-n", "1"});
    return bench(more).err;
  };
  const std::string jsonl = said("in.jsonl", "{\"prompt\":\"\xff\"}\n{\"prompt\":\"ab\"}\n");
  CHECK_FALSE(contains(jsonl, "not-utf8"));
  CHECK(contains(jsonl, "ill-formed UTF-8"));
  using namespace std::string_view_literals;
  const std::string_view both = "ab\nc\xff\nd\0\n"sv;
  const std::string lines = said("in.txt", both);
  CHECK(contains(lines, "in.txt, line 2: is not UTF-8"));
  CHECK(contains(lines, "in.txt, line 3: has NUL bytes"));
  const std::string two = said("in.txt", both, {"--limit", "2"});
  CHECK(contains(two, "not-utf8"));
  CHECK_FALSE(contains(two, "nul-bytes"));
  CHECK_FALSE(contains(said("in.txt", both, {"--limit", "1"}), "warning"));
  CHECK_FALSE(contains(said("in.csv", "prompt\nab\n\xff\n", {"--limit", "1"}), "warning"));
  CHECK(contains(said("in.csv", "prompt\nab\n\xff\n", {"--limit", "2"}), "line 3: is not UTF-8"));
  CHECK(contains(said("in.csv", "t\0e\0x\0t\0\n\0"sv), "nul-bytes"));  // of a table that is refused, too
}

TEST_CASE("a seed of -1 is none of the row's own") {
  const Bench bench;
  const auto answer = [&](const std::string& row) {
    const Outcome o = bench({"--batch", bench.file("in.jsonl", row).string(), "-s", "6"});
    INFO(o.out);
    return lines_by_id(o).at("a");
  };
  const Json own = answer(R"({"id":"a","prompt":"ab","seed":-1})"), none = answer(R"({"id":"a","prompt":"ab"})");
  CHECK(own["error"].is_null());
  CHECK(own["seed"] == 6);
  CHECK(own["response"]["body"]["choices"] == none["response"]["body"]["choices"]);
  CHECK(message(answer(R"({"id":"a","prompt":"ab","seed":-2})")) ==
        "\"seed\": -2 is not from -1 to 9223372036854775807");
}

TEST_CASE("a number that no id can be is said to be too large") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", "{\"id\":12345678901234567890123,\"prompt\":\"ab\"}\n");
  CHECK(message(lines_by_id(bench({"--batch", input.string()})).at("line-1")) ==
        "\"id\" is a number beyond 64 bits; in quotes it is a text, which may be any");
}

TEST_CASE("a row of many answers takes the memory of one") {
  if (kSanitized) return;
  const Bench bench;
  std::string token, bias;
  for (int i = 0; i < 1'000'000; ++i) token += i == 0 ? "5" : ",5";
  for (int i = 0; i < 200'000; ++i) bias += i == 0 ? "[5,1]" : ",[5,1]";
  const auto peak = [&](const std::string& row, int n, const std::string& more) {
    const auto input = bench.file("in.jsonl", "{\"n\": " + std::to_string(n) + ", " + row + "}\n");
    const Outcome r = bench({"--batch", input.string(), "-np", "1", "-n", "1", "-o", bench.path("out").string(), more});
    INFO(r.err);
    CHECK((r.code == 0 || contains(r.err, "context_length_exceeded") || contains(r.out, "of which 1 cannot be run")));
    return r.peak_bytes;
  };
  const std::string prompt = R"("prompt": [)" + token + "]";  // 4 MB as tokens, more than any context here
  const std::string biased = R"("prompt": "a", "logit_bias": [)" + bias + "]";  // 1.6 MB
  constexpr std::uint64_t kMore = 64u << 20;
  CHECK(peak(prompt, 128, "--force") < peak(prompt, 1, "--force") + kMore);
  std::filesystem::remove(bench.path("out"));
  CHECK(peak(prompt, 128, "--dry-run") < peak(prompt, 1, "--dry-run") + kMore);
  CHECK(peak(biased, 128, "--force") < peak(biased, 1, "--force") + kMore);
}

TEST_CASE("a template has a line of text as {text}") {
  const Bench bench;
  const auto text = bench.file("in.txt", "fox\ndog\n"), table = bench.file("in.csv", "text\nfox\ndog\n");
  const Outcome of_text = bench({"--batch", text.string(), "--template-row", "ab {text} c", "-s", "1"});
  const auto tokens = [](const Outcome& o) {
    std::vector<std::int64_t> n;
    for (const Json& line : parse_lines(o.out)) n.push_back(line["response"]["body"]["usage"]["prompt_tokens"]);
    return n;
  };
  CHECK(of_text.code == 0);
  CHECK(tokens(of_text) == tokens(bench({"--batch", table.string(), "--template-row", "ab {text} c", "-s", "1"})));
  CHECK(bench({"--batch", text.string(), "--template-row", "ab {word}", "-s", "1"}).code == 2);
}

TEST_CASE("an empty row of one column is a row, and lines of carriage returns alone are counted") {
  const Bench bench;
  const auto rows = [&](std::string_view table) {
    std::vector<std::string> ids;
    for (const auto& [id, line] :
         lines_by_id(bench({"--batch", bench.file("in.csv", table).string(), "--template-row", "X {text}"})))
      ids.push_back(id);
    return ids;
  };
  CHECK(rows("text\n\"a\"\n\"\"\n\nb\n") == std::vector<std::string>{"line-2", "line-3", "line-5"});
  CHECK(rows("text\ra\rb\r") == std::vector<std::string>{"line-2", "line-3"});
}

TEST_CASE("tables spell truth as their programs do, and an empty grammar is none") {
  const Bench bench;
  const Outcome o =
      bench({"--batch", bench.file("in.csv", "prompt,ignore_eos\nab,TRUE\nab,False\nab,maybe\n").string()});
  const auto lines = lines_by_id(o);
  CHECK(lines.at("line-2")["error"].is_null());
  CHECK(lines.at("line-3")["error"].is_null());
  CHECK(lines.at("line-4")["error"]["code"] == "invalid_request");
  const Outcome none = bench({"--batch", bench.file("in.jsonl", R"({"prompt":"ab","grammar":""})").string()});
  CHECK(none.code == 0);
  const Outcome bias =
      bench({"--batch", bench.file("in.jsonl", R"({"prompt":"ab","logit_bias":{"Hello":-1}})").string()});
  CHECK(contains(bias.out, "no token id"));
}
