// llm-run as a real process: streams, exit codes, options.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "gguf/file.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

/// A tiny model with room for long answers, and runs of the program on it.
class RunBench {
 public:
  explicit RunBench(TinyFile file = tiny_model({.layers = 2, .context = 100000})) { file.write(model()); }

  std::filesystem::path model() const { return folder_ / "tiny.gguf"; }
  std::filesystem::path file(std::string_view name, std::string_view content) const {
    return folder_.write(name, content);
  }
  std::filesystem::path path(std::string_view name) const { return folder_ / name; }

  Command command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-m", model().string()});
    return {.program = program("llm-run"), .arguments = std::move(arguments)};
  }
  Outcome operator()(std::vector<std::string> arguments) const { return run(command(std::move(arguments))); }

 private:
  TempDir folder_;
};

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// The value after `name` in the output of -v.
std::string value_of(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  REQUIRE(at != std::string::npos);
  return text.substr(at + name.size(), text.find('\n', at) - at - name.size());
}

}  // namespace

TEST_CASE("the greedy text of a trained model is the one that llama.cpp gives") {
  const auto model = shared_file("data/models/stories260K-f32.gguf");
  if (!model) return;
  // llama.cpp (llama-cpp-python 0.3.36), F32 cache, greedy, the pieces of 160 tokens.
  const std::string expected =
      ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. "
      "She "
      "wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to the park.\" Lily was sad and "
      "didn't "
      "know what to do. She said, \"I want to play with your ball, but I can't find it.\"\nLily was sad and didn't "
      "know what to "
      "do. She said, \"I'm sorry,\n";
  for (const char* backend : {"cpu", "reference"}) {
    const Outcome o = run({.program = program("llm-run"),
                           .arguments = {"-m", model->string(), "-p", "Once upon a time", "--temp", "0", "-n", "160",
                                         "--backend", backend}});
    CHECK(o.code == 0);
    CHECK(o.out == expected);
  }
}

TEST_CASE("only the answer goes to stdout, only the rest to stderr") {
  const RunBench bench;
  const Outcome o = bench({"-p", "ab", "-n", "20", "-s", "1", "--ignore-eos", "-no-cnv"});
  CHECK(o.code == 0);
  CHECK(o.out.ends_with('\n'));
  CHECK_FALSE(o.out.ends_with("\n\n"));
  CHECK(lines(o.err) == 1);
  for (const char* part :
       {"load ", " · prompt ", " tok", " · gen 20 tok", " t/s", " · TTFT ", " · peak ", " · stop: length\n"}) {
    INFO(part);
    CHECK(contains(o.err, part));
  }
  const Outcome quiet = bench({"-p", "ab", "-n", "20", "-s", "1", "--ignore-eos", "-q"});
  CHECK(quiet.out == o.out);
  CHECK(quiet.err.empty());
  CHECK(bench({"-p", "ab", "-n", "0"}).out == "\n");
}

TEST_CASE("the line of times groups digits, of one answer as of a chat") {
  const RunBench bench;
  const auto prompt = bench.file("long.txt", std::string(3000, 'x')).string();
  const std::regex figures("prompt \\d,\\d{3} tok .* gen 1,100 tok ");
  for (const std::vector<std::string>& mode :
       {std::vector<std::string>{"-no-cnv"}, {"-i", "-st", "--chat-template", "chatml"}}) {
    const Outcome o = bench(with({"-f", prompt, "-n", "1100", "--ignore-eos", "--show-timings"}, mode));
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(std::regex_search(o.err, figures));
  }
}

TEST_CASE("answers are the same for a seed, whatever the threads") {
  const RunBench bench;
  const auto text = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"-p", "abc", "-n", "60", "--ignore-eos", "--temp", "1.5", "-q"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = bench(all);
    REQUIRE(o.code == 0);
    return o.out;
  };
  const std::string one = text({"-s", "7", "-t", "1"});
  CHECK(text({"-s", "7", "-t", "2"}) == one);
  CHECK(text({"-s", "7"}) == one);
  CHECK(text({"-s", "8"}) != one);
  CHECK(text({"--temp", "0", "-s", "7"}) == text({"--temp", "0", "-s", "8"}));  // the last --temp counts

  const Outcome drawn = bench({"-p", "abc", "-n", "60", "--ignore-eos", "--temp", "1.5", "-v"});
  CHECK(text({"-s", value_of(drawn.err, "seed: ")}) == drawn.out);
}

TEST_CASE("prompts come from the command line, a file or stdin") {
  const RunBench bench;
  const std::string prompt = "ab c\nabc", expected = bench({"-p", prompt, "-n", "9", "--temp", "0", "-q"}).out;
  const auto plain = bench.file("p.txt", prompt), ended = bench.file("q.txt", prompt + "\n");
  CHECK(bench({"-f", plain.string(), "-n", "9", "--temp", "0", "-q"}).out == expected);
  CHECK(bench({"-f", ended.string(), "-n", "9", "--temp", "0", "-q"}).out == expected);
  Command piped = bench.command({"-f", "-", "-n", "9", "--temp", "0", "-q"});
  piped.input_file = plain.string();
  CHECK(run(piped).out == expected);
  Command by_default = bench.command({"-n", "9", "--temp", "0", "-q"});
  by_default.input_file = ended.string();
  CHECK(run(by_default).out == expected);

  const auto answer = [&](std::vector<std::string> words, const std::string& input = "/dev/null") {
    words.insert(words.end(), {"-n", "9", "--temp", "0", "-q"});
    Command c = bench.command(words);
    c.input_file = input;
    return run(c).out;
  };
  const std::string tail = bench.file("tail.txt", "c\n").string(), more = bench.file("more.txt", "b\n").string();
  CHECK(answer({"-p", "ab", "-f", tail}) == answer({"-p", "ab\n\nc"}));
  CHECK(answer({"-f", tail, "-p", "ab", "-f", more}) == answer({"-p", "ab\n\nc\n\nb"}));
  CHECK(answer({"-f", more, "-f", tail}) != answer({"-f", tail, "-f", more}));
  CHECK(answer({"-bf", tail}) == answer({"-p", "c\n"}));
  CHECK(answer({"-bf", tail, "-f", more, "-f", "-"}, plain.string()) == answer({"-p", "c\n\n\nb\n\nab c\nabc"}));
  CHECK(contains(bench({"-f", "-", "-bf", "-"}).err, "only once"));

  const Outcome missing = bench({"-f", bench.path("none.txt").string()});
  CHECK(missing.code == 2);
  CHECK(contains(missing.err, "none.txt"));
  CHECK(bench({"-f", bench.model().parent_path().string()}).code == 2);
}

TEST_CASE("a line end at a text's end is dropped whole, and others with a carriage return are noted") {
  const RunBench bench;
  const std::vector<std::string> options{"-no-cnv", "-n", "9", "--temp", "0", "--no-show-timings"};
  const auto answer = [&](const std::string& text) {
    return bench(with({"-f", bench.file("p.txt", text).string()}, options));
  };
  const auto raw = [&](const std::string& text) { return bench(with({"-p", text}, options)).out; };
  CHECK(answer("ab\r\n").out == raw("ab"));
  CHECK(answer("ab\r\n").err.empty());
  CHECK(answer("ab\r").out == raw("ab\\r"));
  CHECK(answer("ab\n\r\n").out == raw("ab\n"));
  const Outcome inside = answer("ab\r\nc\r\n");
  CHECK(inside.out == raw("ab\\r\nc"));
  CHECK(contains(inside.err, "p.txt: its lines end in a carriage return and a line feed, and the text keeps both"));
}

TEST_CASE("bytes that no text means are warned about wherever they come from") {
  const RunBench bench;
  const std::vector<std::string> options{"-no-cnv", "-n", "1", "--strict"};
  const Outcome typed = bench(with({"-p", "Caf\xe9"}, options));
  CHECK(typed.code == 10);
  CHECK(contains(typed.err, "warning[not-utf8]: -p, line 1: is not UTF-8"));
  CHECK(bench(with({"-p", "Caf\\xe9"}, options)).code == 0);  // written so, it is meant
  const std::string wide("O\0n\0c\0e\0\n\0", 10);
  const Outcome nul = bench(with({"-f", bench.file("wide.txt", wide).string()}, options));
  CHECK(nul.code == 10);
  CHECK(contains(nul.err, "wide.txt, line 1: has NUL bytes, as UTF-16 without a byte order mark has"));
  CHECK(contains(nul.err, "warning[nul-bytes]"));
  CHECK(bench(with({"-bf", bench.file("wide.txt", wide).string()}, options)).code == 0);
}

TEST_CASE("a closed stdin is an empty one") {
  const RunBench bench;
  Command c = bench.command({"-n", "4"});
  c.arguments.insert(c.arguments.begin(), {"-c", "\"$0\" \"$@\" <&-", c.program.string()});
  c.program = "/bin/sh";
  const Outcome o = run(c);
  CHECK(o.code == 2);
  CHECK(contains(o.err, "no prompt: stdin is empty"));
}

TEST_CASE("with -p stdin is left alone") {
  const RunBench bench;
  const std::string script = "printf 'one\\ntwo\\n' | { \"$0\" -m \"$1\" -p ab -n 1 -q >/dev/null; cat; }";
  const Outcome o =
      run({.program = "/bin/sh", .arguments = {"-c", script, program("llm-run").string(), bench.model().string()}});
  CHECK(o.out == "one\ntwo\n");
}

TEST_CASE("text on stdin that nobody reads is mentioned") {
  const RunBench bench;
  const auto err_of = [&](const std::string& before) {
    const std::string script = before + " | { sleep 0.2; \"$0\" -m \"$1\" -p ab -n 1 -no-cnv; }";
    return run({.program = "/bin/sh", .arguments = {"-c", script, program("llm-run").string(), bench.model().string()}})
        .err;
  };
  CHECK(contains(err_of("printf 'one'"),
                 "stdin holds text that is left unread, since the prompt is given; -f - adds it"));
  CHECK_FALSE(contains(err_of("true"), "stdin"));
}

TEST_CASE("an output that is an input is refused") {
  const RunBench bench;
  const auto size = std::filesystem::file_size(bench.model());
  const Outcome o = bench({"-p", "ab", "-n", "1", "--dump-graph", bench.model().string()});
  CHECK(o.code == 2);
  CHECK(contains(o.err, "would be overwritten by --dump-graph while it is read"));
  const auto out = std::filesystem::path(bench.model()).replace_extension("out").string();
  const Outcome twice = bench({"-p", "ab", "-n", "1", "-o", out, "--events", out});
  CHECK(twice.code == 2);
  CHECK(contains(twice.err, "would be overwritten by -o and by --events"));
  CHECK(std::filesystem::file_size(bench.model()) == size);
}

TEST_CASE("special tokens are recognised in prompts") {
  const RunBench bench;
  CHECK(contains(bench({"-p", "</s></s></s>", "-n", "0"}).err, "prompt 4 tok"));  // <s> before them
}

TEST_CASE("no prompt is a usage error, an empty one is fine where a token begins every text") {
  const RunBench bench;
  const Outcome none = bench({});
  CHECK(none.code == 2);
  CHECK(contains(none.err, "no prompt: stdin is empty"));
  CHECK(bench({"-p", "", "-n", "2"}).code == 0);
  TinyFile file = tiny_model();
  file.set("tokenizer.ggml.add_bos_token", false);
  const RunBench without(std::move(file));
  const Outcome empty = without({"-p", ""});
  CHECK(empty.code == 2);
  CHECK(contains(empty.err, "empty"));
}

TEST_CASE("a file without a text, a message without words, and a text without an end are no prompts") {
  const RunBench bench;
  const std::string nothing = bench.file("nothing.txt", "\n").string();
  for (const char* option : {"-f", "-bf"}) {
    const std::string file = option == std::string("-f") ? nothing : bench.file("zero.txt", "").string();
    const Outcome o = bench({option, file, "-n", "2"});
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(o.out.empty());
    CHECK(contains(o.err, file + ": is empty"));
  }
  CHECK(bench({"-p", "ab", "-f", nothing, "-n", "2"}).code == 0);
  TinyFile file = tiny_model({.layers = 2, .context = 100000});
  file.set("tokenizer.chat_template", "<{{ messages[0].content }}>");
  const RunBench chats(std::move(file));
  CHECK(contains(chats({"-p", "", "-n", "2"}).err, "there is no message to answer"));
  CHECK(chats({"-p", "", "-n", "2"}).code == 2);
  CHECK(chats({"-p", "", "-n", "2", "-no-cnv"}).code == 0);

  const Outcome endless = bench({"-f", "/dev/zero", "-n", "2"});
  CHECK(endless.code == 2);
  CHECK(contains(endless.err, "/dev/zero: has more than 64.0 MiB"));
  CHECK(contains(bench({"-p", "ab", "-sysf", "/dev/zero"}).err, "/dev/zero: has more than"));
}

TEST_CASE("a chat template is used; that there is none is mentioned, unless raw completion was asked for") {
  TinyFile file = tiny_model({.layers = 2, .context = 100000});
  file.set("tokenizer.chat_template", "<{{ messages[0].content }}>");
  const RunBench with(std::move(file)), bench;
  const Outcome by_template = with({"-p", "ab", "-n", "9", "--temp", "0"});
  CHECK(by_template.code == 0);
  CHECK_FALSE(contains(by_template.err, "template"));
  CHECK(by_template.out == bench({"-p", "<ab>", "-n", "9", "--temp", "0"}).out);
  CHECK(with({"-p", "ab", "-n", "9", "--temp", "0", "-no-cnv"}).out ==
        bench({"-p", "ab", "-n", "9", "--temp", "0"}).out);

  const Outcome o = bench({"-p", "a", "-n", "1"});
  CHECK(o.code == 0);
  CHECK(contains(o.err, "llm-run: note: the file has no chat template: raw completion"));
  for (const char* option : {"-no-cnv", "--no-cnv", "--no-conversation", "-q"}) {
    INFO(option);
    const Outcome quiet = bench({"-p", "a", "-n", "1", option});
    CHECK(quiet.code == 0);
    CHECK_FALSE(contains(quiet.err, "template"));
  }
}

TEST_CASE("failing output is never success") {
  const RunBench bench;
  Command full = bench.command({"-p", "a", "-n", "5"});
  full.output_file = "/dev/full";
  const Outcome o = run(full);
  CHECK(o.code == 8);
  CHECK(contains(o.err, "llm-run: error[E-IO]: stdout: "));
  CHECK(contains(bench({"-p", "a", "-n", "5", "-o", "/dev/full"}).err, "error[E-IO]: /dev/full: "));
  Command closed = bench.command({"-p", "a", "-n", "5"});
  closed.output_file = "-";
  CHECK(run(closed).code == 8);
  for (const char* what : {"--help", "--version"}) {
    Command shown = bench.command({what});
    shown.output_file = "/dev/full";
    CHECK(run(shown).code == 8);
  }
}

TEST_CASE("a reader that goes away ends the program quietly") {
  const RunBench bench;
  Command c = bench.command({"-p", "a", "--ignore-eos", "-q"});
  c.read_at_most = 10;
  const Outcome o = run(c);
  CHECK(o.code == 141);
  CHECK(o.err.empty());
}

TEST_CASE("signals stop an answer and keep what there is") {
  const RunBench bench;
  struct Expected {
    int signal, code;
  };
  for (const Expected e : {Expected{SIGINT, 130}, Expected{SIGTERM, 143}, Expected{SIGHUP, 129}}) {
    Command c = bench.command({"-p", "a", "--ignore-eos"});
    c.signal = e.signal;
    const Outcome o = run(c);
    CHECK(o.code == e.code);
    CHECK(o.out.ends_with('\n'));
    CHECK(contains(o.err, "stop: interrupted"));
  }
}

TEST_CASE("a model file that is cut while it is in use ends in one line") {
  const RunBench bench;
  const std::string script =
      "{ \"$0\" -m \"$1\" -p a --ignore-eos -q; echo code $? >&2; } | { head -c 3 >/dev/null; : > \"$1\"; cat "
      ">/dev/null; }";
  const Outcome o =
      run({.program = "/bin/sh", .arguments = {"-c", script, program("llm-run").string(), bench.model().string()}});
  CHECK(o.err == "llm-run: error[E-IO]: " + bench.model().string() +
                     " was cut or became unreadable while it was in use\ncode 8\n");
}

TEST_CASE("numbers are checked before anything is done") {
  const RunBench bench;
  for (const char* option : {"-n", "-c", "-t", "-s", "--top-k", "--temp", "--top-p", "--min-p", "--repeat-penalty"}) {
    for (const char* value : {"", " 5", "5x", "9223372036854775808", "-3"}) {
      INFO(option << " \"" << value << '"');
      const Outcome o =
          run({.program = program("llm-run"), .arguments = {"-m", "/no/model", "-p", "a", option, value}});
      CHECK(o.code == 2);
      CHECK(contains(o.err, option));
      CHECK(contains(o.err, " to "));
      CHECK(lines(o.err) == (contains(o.err, "; it may end in") ? 1 : 2));  // the error and a hint
      CHECK(o.out.empty());
    }
  }
  for (const char* value : {"-2", "1e9", "2147483648"}) {
    CHECK(run({.program = program("llm-run"), .arguments = {"-m", "/no/model", "-p", "a", "-t", value}}).code == 2);
  }
}

TEST_CASE("an answer in a file") {
  const RunBench bench;
  const auto path =
      bench.file("answer.txt", "something longer than the answer will ever be, which must be gone after this");
  const Outcome o = bench({"-p", "ab", "-n", "5", "--temp", "0", "-o", path.string()});
  CHECK(o.code == 0);
  CHECK(o.out.empty());
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  CHECK(text == bench({"-p", "ab", "-n", "5", "--temp", "0"}).out);
  CHECK(bench({"-p", "ab", "-o", "/nonexistent/x"}).code == 8);
  CHECK(bench({"-p", "ab", "-o", bench.model().string()}).code == 2);
  CHECK(bench({"-p", "ab", "-np", "2"}).code == 2);
}

TEST_CASE("options that are unknown, reserved or misspelt") {
  const RunBench bench;
  const Outcome misspelt = bench({"-p", "a", "--tmep", "0"});
  CHECK(misspelt.code == 2);
  CHECK(contains(misspelt.err, "unknown option --tmep; did you mean --temp?"));
  CHECK(contains(bench({"-p", "a", "-temp", "0"}).err, "did you mean --temp?"));
  for (const char* reserved : {"--adaptive-target", "-cram", "--rpc=x", "--control-vector"}) {
    INFO(reserved);
    const Outcome o = bench({"-p", "a", reserved, "1"});
    CHECK(o.code == 2);
    CHECK(contains(o.err, "recognised, not supported"));
  }
  const Outcome stray = bench({"-p", "a", "stray", "other"});
  CHECK(stray.code == 2);
  CHECK(contains(stray.err, "unexpected argument \"stray\": -m names the model, -p gives the prompt"));
  CHECK(contains(bench({"-p", "-n", "5"}).err,
                 "unexpected argument \"5\": -p took \"-n\" as its value; an empty text is \"\""));
  CHECK(contains(bench({"-p", "a", "-N", "1"}).err, "did you mean -n?"));
  for (const auto& [name, meant] : std::vector<std::pair<std::string, std::string>>{{"--system", "--system-prompt"},
                                                                                    {"--schema", "--json-schema"},
                                                                                    {"--max-tokens", "--predict"},
                                                                                    {"--num-ctx", "--ctx-size"}}) {
    CHECK(contains(bench({"-p", "a", name, "x"}).err, "unknown option " + name + "; did you mean " + meant + "?"));
  }
  const auto alone = [](std::vector<std::string> words) {
    return run({.program = program("llm-run"), .arguments = std::move(words)}).err;
  };
  CHECK(contains(alone({"doctr"}), "unexpected argument \"doctr\"; did you mean doctor?"));
  CHECK(contains(alone({"doctor", "extra"}), "unexpected argument \"extra\": nothing goes behind doctor but options"));
  CHECK(contains(alone({"--instruct"}), "option --instruct is recognised, not supported: -i chats"));
  CHECK(bench({"-p", "a", "--n_predict", "2", "--top_k=1"}).code == 0);
  CHECK(contains(alone({"--no-think"}), "unknown option --no-think; did you mean --reasoning?"));
  CHECK(contains(bench({"-p", "a", "-np", "2"}).err, "--parallel is for a batch: give --batch FILE"));
  CHECK(bench({"-p", "-ngl", "-n", "1", "-q"}).code == 0);  // a value may look like an option
  CHECK(bench({"-n1", "-p", "a", "--temp=0", "-q"}).code == 0);
  CHECK(run({.program = program("llm-run"), .arguments = {"-p", "a"}}).code == 2);  // no model
}

TEST_CASE("help and version") {
  const Outcome help = run({.program = program("llm-run"), .arguments = {"--help-all"}});
  CHECK(help.code == 0);
  CHECK(help.err.empty());
  for (const char* option : {"-m",           "-p",        "-f",
                             "-n",           "-c",        "-t",
                             "-s",           "--temp",    "--top-k",
                             "--top-p",      "--min-p",   "--repeat-penalty",
                             "--ignore-eos", "--no-cnv",  "--no-conversation",
                             "-no-cnv",      "--backend", "-q",
                             "-v",           "--profile", "--dump-graph",
                             "LLM_RUN_ISA"}) {
    INFO(option);
    CHECK(contains(help.out, option));
  }
  const Outcome version = run({.program = program("llm-run"), .arguments = {"--version"}});
  CHECK(version.code == 0);
  CHECK(version.out.starts_with("llm-run "));
  CHECK(contains(version.out, "cpu"));
  Command forced{.program = program("llm-run"), .arguments = {"--version"}};
  forced.environment = {{"LLM_RUN_ISA", "portable"}};
  CHECK(contains(run(forced).out, "portable"));
}

TEST_CASE("exit codes of models, memory, context, devices and numbers") {
  const RunBench bench(tiny_model({.layers = 4, .kv_heads = 4, .context = 100000}));
  const Outcome missing = run({.program = program("llm-run"), .arguments = {"-m", "/no/such.gguf", "-p", "a"}});
  CHECK(missing.code == 3);
  CHECK(missing.err.starts_with("llm-run: error[E-MODEL]: /no/such.gguf: "));

  const Outcome memory = bench({"-p", "a", "-c", "2147483647"});  // 512 bytes each: a TiB
  CHECK(memory.code == 4);
  CHECK(contains(memory.err, "1.0 TiB"));
  CHECK(contains(memory.err, "memory"));

  const Outcome context = bench({"-p", "a b c d e f g h i j k l m n o p", "-c", "8"});
  CHECK(context.code == 5);
  CHECK(contains(context.err, ", context 8"));
  CHECK(context.out.empty());

  CHECK(bench({"-p", "a", "-dev", "CUDA99"}).code == 9);
  CHECK(bench({"-p", "a", "--backend", "abacus"}).code == 2);  // a wrong word, as others are
  Command isa = bench.command({"-p", "a"});
  isa.environment = {{"LLM_RUN_ISA", "mmx"}};
  CHECK(run(isa).code == 9);

  TinyFile file = tiny_model();
  const RunBench nan(std::move(file));
  {
    // The last row of the output matrix, a NaN that no screening at load may look for.
    std::fstream out(nan.model(), std::ios::in | std::ios::out | std::ios::binary | std::ios::ate);
    Warnings warnings;
    const GgufFile stored = GgufFile::open(nan.model(), warnings);
    out.seekp(static_cast<std::streamoff>(stored.tensors().find("output.weight")->data_offset));
    out.write("\x00\x00\xc0\x7f", 4);
  }
  const Outcome numeric = nan({"-p", "a"});
  CHECK(numeric.code == 11);
  CHECK(contains(numeric.err, "non-finite logits at token "));
  CHECK(contains(numeric.err, "output.weight"));
  CHECK(numeric.out.empty());
}

TEST_CASE("errors as JSON have the same parts") {
  const Outcome o =
      run({.program = program("llm-run"), .arguments = {"-m", "/no/such.gguf", "-p", "a", "--error-format=json"}});
  CHECK(o.code == 3);
  CHECK(lines(o.err) == 1);
  CHECK(o.err.starts_with(
      R"({"error":{"program":"llm-run","kind":"model","code":3,"id":"E-MODEL","file":"/no/such.gguf",)"));
  const Outcome usage = run({.program = program("llm-run"), .arguments = {"--wrong", "--error-format", "json"}});
  CHECK(usage.code == 2);
  CHECK(usage.err.starts_with(R"({"error":{"program":"llm-run","kind":"usage","code":2,"id":"E-USAGE",)"));
}

TEST_CASE("-v, --profile and --dump-graph tell about a run without changing it") {
  const RunBench bench;
  const std::string plain = bench({"-p", "ab", "-n", "12", "-s", "3", "-q"}).out;
  const Outcome verbose = bench({"-p", "ab", "-n", "12", "-s", "3", "-v"});
  CHECK(verbose.out == plain);
  for (const char* part : {"cpu", "threads: ", "seed: 3", "context 100,000", "program for up to 1 token"}) {
    INFO(part);
    CHECK(contains(verbose.err, part));
  }
  const Outcome profile = bench({"-p", "ab", "-n", "12", "-s", "3", "--profile"});
  CHECK(profile.out == plain);
  for (const char* part : {"profile: prompt", "profile: generation", "blk.*.ffn_down", "GB/s", "output"}) {
    INFO(part);
    CHECK(contains(profile.err, part));
  }
  const Outcome quiet = bench({"-p", "ab", "-n", "12", "-s", "3", "--profile", "-q"});
  CHECK(quiet.err.starts_with("profile: prompt"));  // it was asked for
  CHECK_FALSE(contains(quiet.err, "TTFT"));
  const auto text_of = [](const std::filesystem::path& path) {
    std::ifstream in(path);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  for (const char* name : {"graph.txt", "graph.dot"}) {
    const auto path = bench.path(name), planned = bench.path("planned-" + std::string(name)),
               one_token = bench.path("one-token-" + std::string(name));
    CHECK(bench({"-p", "ab", "-n", "12", "-s", "3", "-q", "--dump-graph", path.string()}).out == plain);
    const std::string text = text_of(path);
    CHECK(contains(text, name == std::string("graph.dot") ? "digraph" : "# after passes"));
    CHECK(contains(text, "blk.1.ffn_down"));
    CHECK(bench({"-p", "ab", "--dry-run", "--dump-graph", planned.string()}).code == 0);
    CHECK(text_of(planned) == text);
    CHECK(bench({"--dry-run", "--dump-graph", one_token.string()}).code == 0);
    CHECK(contains(text_of(one_token), "blk.1.ffn_down"));
  }
  CHECK(bench({"-p", "ab", "--dump-graph", "/no/folder/graph.txt"}).code == 8);
}

TEST_CASE("the locale changes nothing") {
  const RunBench bench;
  Command c = bench.command({"-p", "ab", "-n", "12", "-s", "3", "--temp", "0.7", "-v"});
  const Outcome plain = run(c);
  c.environment = {{"LC_ALL", "de_DE.UTF-8"}, {"LANG", "tr_TR.UTF-8"}};
  const Outcome german = run(c);
  CHECK(german.code == 0);
  CHECK(german.out == plain.out);
}

TEST_CASE("an option without its value is named, with what it takes") {
  const RunBench bench;
  const Outcome o = bench({"-p", "a", "--reasoning"});
  CHECK(o.code == 2);
  CHECK(contains(o.err, "error[E-USAGE]: option --reasoning needs a value, on|off|auto (see --help)\n"));
  CHECK(contains(bench({"-p", "a", "--output-format", "xml"}).err,
                 "\nllm-run: hint: llm-run --help-all lists all options\n"));
  const Outcome missing = run({.program = program("llm-run"), .arguments = {"-m", "/no/such.gguf", "-p", "a"}});
  CHECK(contains(missing.err, "\nllm-run: hint: a model is named by the path of its GGUF file"));
  const Outcome text = run({.program = program("llm-run"), .arguments = {"-m", "/proc/version", "-p", "a"}});
  CHECK(text.code == 3);
}

#if defined(__SANITIZE_ADDRESS__)
#define LLM_TEST_TAKES_ADDRESSES  // terabytes, for shadow memory
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LLM_TEST_TAKES_ADDRESSES
#endif
#endif

#ifndef LLM_TEST_TAKES_ADDRESSES
TEST_CASE("a small address space is an error or enough, never a program that does not end", "[cli]") {
  const auto limited = [](const std::string& line) {
    return run({.program = "/bin/bash",
                .arguments = {"-c", "ulimit -v 200000; exec '" + program("llm-run").string() + "' " + line}});
  };
  const Outcome version = limited("--version");
  INFO(version.err);
  CHECK(version.code == 0);
  CHECK(version.out.find("blas (not here)") != std::string::npos);
  const Outcome blas =
      limited("-m '" + std::string(LLM_TEST_SOURCE) + "/models/samples/fable-dense.gguf' -p a -n 1 --backend blas");
  INFO(blas.err);
  const bool built = blas.err.find("without OpenBLAS") == std::string::npos;
  CHECK(blas.code == (built ? 4 : 9));
}

TEST_CASE("a limit of addresses that a file has no place in is named", "[cli]") {
  const RunBench bench;
  std::filesystem::resize_file(bench.model(), std::uintmax_t{2} << 30);
  const Outcome o = run({.program = "/bin/bash",
                         .arguments = {"-c", "ulimit -v 1000000; exec '" + program("llm-run").string() + "' -m '" +
                                                 bench.model().string() + "' -p a -n 1"}});
  INFO(o.err);
  CHECK(o.code == 4);
  CHECK(contains(o.err, "hint: ulimit -v is 1000000 (KiB) here"));
  CHECK_FALSE(contains(o.err, "-ctk"));
}
#endif

TEST_CASE("a dry run refuses what the run would refuse") {
  const RunBench bench;
  CHECK(bench({"-p", "a", "--dry-run"}).code == 0);
  CHECK(bench({"-p", "a", "--dry-run", "--grammar", "root ::= ("}).code == 6);
  CHECK(bench({"--dry-run", "--regex", "("}).code == 6);
  CHECK(bench({"--dry-run", "-l", "99999+1"}).code == bench({"-p", "a", "-n", "1", "-l", "99999+1"}).code);
  CHECK(bench({"--dry-run", "-l", "99999+1"}).code == 2);

  const std::string takes_no_system =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system text') }}{% endif %}{% endfor "
      "%}";
  const std::string notes = bench.file("notes", "my notes").string(), other = bench.path("other.gguf").string(),
                    state = bench.path("other.state").string(), broken = bench.file("broken", "{% if %}").string(),
                    narrow = bench.file("narrow", takes_no_system).string();
  tiny_model({.layers = 1, .context = 1000}).write(other);
  REQUIRE(bench({"-m", other, "-p", "ab", "-n", "1", "--prompt-cache", state}).code == 0);
  const auto error_in = [](const Outcome& o) {
    const std::size_t at = o.err.find("error[");
    return at == std::string::npos ? "" : o.err.substr(at, o.err.find('\n', at) - at);
  };
  struct Case {
    std::vector<std::string> words;
    int code;
  };
  for (const Case& c : {Case{{"-o", bench.path("none/out").string()}, 8},
                        {{"-o", bench.path("").string()}, 8},
                        {{"--prompt-cache", notes}, 2},
                        {{"--prompt-cache", state}, 2},
                        {{"-t", "1", "--tune"}, 2},
                        {{"-tb", "1", "--tune"}, 2},
                        {{"-sys", "short"}, 6},
                        {{"--chat-template-file", broken}, 6},
                        {{"-i"}, 6},
                        {{"-i", "--chat-template", "chatml", "--prefill", "a"}, 2},
                        {{"-i", "--chat-template", "chatml", "--special"}, 2},
                        {{"-i", "--chat-template", "chatml", "--prompt-cache", state}, 2},
                        {{"-i", "--chat-template-file", narrow, "-sys", "short"}, 6}}) {
    const Outcome real = bench(with({"-p", "a", "-n", "1"}, c.words));
    INFO(real.err);
    CHECK(real.code == c.code);
    REQUIRE_FALSE(error_in(real).empty());
    for (const std::vector<std::string>& prompt : {std::vector<std::string>{"-p", "a"}, {}}) {
      const Outcome dry = bench(with(with({"--dry-run"}, prompt), c.words));
      CHECK(dry.code == c.code);
      CHECK(error_in(dry) == error_in(real));
      CHECK(dry.out.empty());
    }
  }
  // What is sound is planned, and nothing is written.
  const std::string cache = bench.path("new.state").string(), out = bench.path("new.txt").string();
  CHECK(bench({"--dry-run", "-p", "a", "-o", out, "--prompt-cache", cache}).code == 0);
  CHECK(bench({"--dry-run", "-i", "--chat-template", "chatml", "-sys", "short"}).code == 0);
  CHECK(bench({"--dry-run", "-m", other, "--prompt-cache", state}).code == 0);
  CHECK_FALSE(std::filesystem::exists(cache));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("a dry run tells what the run would tell, once") {
  const RunBench bench;
  const auto count = [](const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  const std::string unread = "the chat template does not read the variable \"tone\"",
                    longer = "longer than the 100,000 that the model was trained with";
  const auto rows = bench.file("rows.jsonl", R"({"messages":[{"role":"user","content":"ab"}]})").string();
  const std::vector<std::string> options{
      "--chat-template", "chatml", "--chat-template-kwargs", R"({"tone":1})", "-c", "100001", "-n", "1"};
  for (const std::vector<std::string>& prompt : {std::vector<std::string>{"-p", "ab"}, {"--batch", rows}}) {
    for (const std::vector<std::string>& dry : {std::vector<std::string>{}, {"--dry-run"}}) {
      const Outcome o = bench(with(with(options, prompt), dry));
      INFO(o.err);
      CHECK(o.code == 0);
      CHECK(count(o.err, unread) == 1);
      CHECK(count(o.err, longer) == 1);
    }
  }
}

TEST_CASE("bytes that the vocabulary has nothing for are told") {
  const RunBench bench(tiny_model({.context = 200, .tokenizer = TinyTokenizer::BpeWithGaps}));
  const std::string text = "a\x04z \xF1\x80\x80\x80 c\x04";
  const std::string lost = "the vocabulary has no token for 3 bytes of it (\"\\x04\", \"\\xf1\"), and the model gets";
  const std::string warning = "warning[missing-bytes]: ";
  const auto file = bench.file("text", text).string();
  for (const char* option : {"-f", "-bf"}) {
    const Outcome o = bench({option, file, "-no-cnv", "-n", "1"});
    CHECK(o.code == 0);
    CHECK(contains(o.err, warning + "the prompt: " + lost));
    CHECK(o.err.find(warning) == o.err.rfind(warning));
  }
  CHECK(contains(bench({"-bf", file, "-no-cnv", "--explain-prompt"}).err, warning));
  CHECK(contains(bench({"-bf", file, "-no-cnv", "--dry-run"}).err, warning));
  CHECK_FALSE(contains(bench({"-p", "abc", "-no-cnv", "-n", "1"}).err, warning));
  const std::string rows = R"({"prompt":"abc"}
{"prompt":"a\u0004c"}
{"prompt":"b\u0004\u0004c"}
)";
  const Outcome batch = bench({"--batch", bench.file("rows.jsonl", rows).string(), "-n", "1"});
  CHECK(batch.code == 0);
  CHECK(contains(batch.err, warning + "line 2: the vocabulary has no token for 1 byte of it (\"\\x04\"), and the model "
                                      "gets the text without, and 1 more like it"));
  const Outcome chat = run({.program = "/bin/sh",
                            .arguments = {"-c", "printf 'a\\004c\\n' | \"$0\" -m \"$1\" -i --chat-template chatml -n 1",
                                          program("llm-run").string(), bench.model().string()}});
  CHECK(chat.code == 0);
  CHECK(contains(chat.err, warning + "the message: "));
  const Outcome bias = bench({"-p", "abc", "-no-cnv", "-n", "1", "-l", "\"\\x04\"+5"});
  CHECK(bias.code == 2);
  CHECK(contains(bias.err, "the vocabulary has no token for \"\\x04\""));
}

TEST_CASE("a regular expression and a chat template are not empty") {
  const RunBench bench;
  for (const char* option : {"--regex", "--chat-template"}) {
    const Outcome o = bench({"-p", "abc", "-n", "1", option, ""});
    CHECK(o.code == 2);
    CHECK(contains(o.err, "option " + std::string(option) + ": "));
  }
}

TEST_CASE("one token is told as one") {
  const RunBench bench(tiny_model({.tokenizer = TinyTokenizer::Bpe}));
  CHECK(contains(bench({"-p", "x", "-no-cnv", "--explain-prompt"}).out, "\nIts 1 token ("));
  CHECK(contains(bench({"-p", "xz", "-no-cnv", "--explain-prompt"}).out, "\nIts 2 tokens ("));
}
