// llm-run --batch on a terminal: Ctrl-C, the line of progress, and results beside it.
#include <signal.h>

#include "batch_bench.h"
#include "support/terminal.h"

using namespace llm;
using namespace llm::test;

TEST_CASE("each interrupt of a batch says what it does and how to go on") {
  const Bench bench;
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += Json{{"id", i}, {"prompt", "ab"}, {"n_predict", 2000}}.dump() + "\n";
  const std::vector<std::string> options{
      "--batch", bench.file("in.jsonl", rows).string(), "-o", bench.path("out.jsonl").string(), "-np", "3"};
  {
    Terminal t(bench.command(with(options, {"--backend", "reference"})));
    t.until("0/200 rows");
    t.send(SIGINT);
    t.until("rows that run; Ctrl-C again ends at once, and --resume goes on in either case");  // those that have begun
    t.send(SIGINT);
    t.until("llm-run: note: stopped; --resume goes on after the rows that are done\r\n");
    CHECK(t.end() == 130);
  }
  {
    Terminal json(bench.command(with(options, {"--backend", "reference", "--force", "--log-jsonl"})));
    json.until("rows at once");
    json.send(SIGINT);
    json.until("--resume goes on in either case");  // of as many rows as have begun by then
    json.send(SIGINT);
    json.until("\"level\":\"note\",\"program\":\"llm-run\",\"message\":\"stopped; --resume goes on");
    CHECK(json.end() == 130);
  }
  Terminal none(bench.command({"--batch", bench.path("in.jsonl").string(), "-np", "3", "--backend", "reference"}));
  none.until("0/200 rows");
  none.send(SIGINT);
  none.until("Ctrl-C again ends at once\r\n");
  none.send(SIGINT);
  CHECK(none.end() == 130);
  CHECK_FALSE(contains(none.rest(), "--resume"));
}

TEST_CASE("results that go to a terminal begin their lines and command nothing") {
  const Bench bench;
  const Json row{{"prompt", "ab"},
                 {"n_predict", 30},
                 {"grammar",
                  "root ::= \"\xc2\x9b"
                  "31m\x7f\" [a-z]*"}};
  const auto input = bench.file("in.jsonl", row.dump() + "\n" + row.dump() + "\n" + row.dump() + "\n");
  Terminal t(bench.command({"--batch", input.string(), "-np", "1", "--backend", "reference"}));
  CHECK(t.end() == 0);
  const std::string shown = t.rest();
  CHECK(contains(shown, "\\xc2\\x9b31m\\x7f"));
  CHECK_FALSE(contains(shown, "\xc2\x9b"));
  CHECK_FALSE(contains(shown, "\x7f"));
  CHECK(contains(shown, "rows"));  // the line of progress was there
  for (std::size_t at = shown.find("{\"id\":\"batch_req_"); at != std::string::npos;
       at = shown.find("{\"id\":\"batch_req_", at + 1))
    CHECK((at == 0 || shown[at - 1] == '\n' || shown[at - 1] == 'K'));
}
