// What the programs have in common: help, version, errors and their exit codes.
#include "programs.h"

using namespace llm::test;

TEST_CASE("help has examples, and goes to stdout like the version", "[apps]") {
  for (const char* name : {"llm-inspect", "llm-bench", "llm-perplexity"}) {
    INFO(name);
    CHECK(output_of(name, {"--help"}).find(std::string("Examples:\n  ") + name) != std::string::npos);
    CHECK(output_of(name, {"--version"}).starts_with(std::string(name) + " "));
  }
  for (const char* command : {"show", "tokenize", "graph"}) {
    CHECK(output_of("llm-inspect", {command, "--help"}).find("MODEL") != std::string::npos);
  }
}

TEST_CASE("usage errors end with code 2", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string text = write_file(folder / "text", "abc");
  check_fails(2, "a command is required: show, tokenize", "llm-inspect", {});
  check_fails(2, "a command is required: show, tokenize", "llm-inspect", {model});
  check_fails(2, "an argument is missing: MODEL (see", "llm-inspect", {"show"});
  check_fails(2,
              "a command is required: show, tokenize, render, graph, verify, split, merge, not \"shwo\"; did you mean "
              "show?",
              "llm-inspect", {"shwo", model});
  check_fails(2, "option --ids goes with tokenize (see", "llm-inspect", {"show", model, "--ids"});
  check_fails(2, "option --dry-run goes with split and merge (see", "llm-inspect", {"show", model, "--dry-run"});
  check_fails(2, "an argument is missing: MODEL OUT TYPE (see", "llm-quantize", {});
  check_fails(2, "unexpected argument \"stray\" (see", "llm-bench", {"-m", model, "stray", "other"});
  check_fails(8, "File name too long", "llm-perplexity",
              {"-m", model, "-f", "/proc/version", "-c", "4", "--save-logits", std::string(300, 'a')});
  check_fails(2, "unexpected argument \"a text\": tokenize takes MODEL and options; --text gives the text (see",
              "llm-inspect", {"tokenize", model, "a text"});
  check_fails(2, "option -m is recognised, not supported: the file is named without an option", "llm-inspect",
              {"tokenize", "-m", model});
  check_fails(2, "--save-logits FILE keeps", "llm-perplexity", {"-m", model, "-f", text, "--kl-divergence"});
  check_fails(2, "--jsn", "llm-inspect", {"show", model, "--jsn"});
  check_fails(2, "--text", "llm-inspect", {"tokenize", model});
  check_fails(2, "--text", "llm-inspect", {"tokenize", model, "--text", "a", "--stdin"});
  check_fails(2, "svg", "llm-inspect", {"graph", model, "--format", "svg"});
  check_fails(2, "--tokens", "llm-inspect", {"graph", model, "--tokens", "0"});
  check_fails(2, "--model", "llm-bench", {"-p", "8"});
  check_fails(2, "1x", "llm-bench", {"-m", model, "-p", "8,1x"});
  check_fails(2, "\"\"", "llm-bench", {"-m", model, "-p", "8,"});
  check_fails(2, "sql", "llm-bench", {"-m", model, "-o", "sql"});
  check_fails(2, "nothing to measure", "llm-bench", {"-m", model, "-p", "0", "-n", "0"});
  check_fails(2, "-f FILE (-f - reads stdin), or token ids with --tokens", "llm-perplexity", {"-m", model});
  check_fails(2, "--tokens", "llm-perplexity", {"-m", model, "-f", text, "--tokens", text});
  check_fails(2, "-c", "llm-perplexity", {"-m", model, "-f", text, "-c", "3"});
  check_fails(2, "No such file", "llm-perplexity", {"-m", model, "-f", (folder / "none").string()});
  check_fails(2, "a window takes 64", "llm-perplexity", {"-m", model, "-f", text, "-c", "64"});
  check_fails(2, "the text has 1 token, a window takes 512", "llm-perplexity", {"-m", model, "-f", "/dev/null"});
}

TEST_CASE("programs that run a model take llama.cpp's options that ask for what is so anyway", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string text = write_file(folder / "text", std::string(200, 'a'));
  const std::vector<std::pair<std::string, std::vector<std::string>>> runs{
      {"llm-bench", {"-m", model, "-p", "4", "-n", "0", "-r", "1"}},
      {"llm-perplexity", {"-m", model, "-f", text, "-c", "8"}},
      {"llm-imatrix", {"-m", model, "-f", text, "-c", "8", "-o", (folder / "matrix.gguf").string(), "--force"}}};
  for (const auto& [name, run] : runs) {
    INFO(name);
    const auto with_more = [own = run](std::vector<std::string> more) {
      more.insert(more.begin(), own.begin(), own.end());
      return more;
    };
    (void)output_of(name, with_more({"-fa", "on", "--no-warmup", "-nr", "--swa-full", "--no-host", "--poll", "50",
                                     "--prio", "0", "-fit", "off", "-lzm", "auto", "--cpu-strict", "0", "-q"}));
    (void)output_of(name, with_more({"-fa", "1", "-q"}));
    check_fails(2, "option -fa off is recognised, not supported: attention never writes", name,
                with_more({"-fa", "off"}));
    check_fails(2, "option --prio 2 is recognised, not supported: nice(1)", name, with_more({"--prio", "2"}));
    check_fails(2, "is recognised, not supported: rows of a batch always", name, with_more({"-nocb"}));
  }
}

TEST_CASE("nothing is no name of a file", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string text = write_file(folder / "text", "abc");
  check_fails(2, "option --sha256: the value is empty, SUM|FILE is required", "llm-inspect",
              {"verify", model, "--sha256", ""});
  check_fails(2, "option --sha256: the value is empty", "llm-inspect", {"verify", model, "--sha256="});
  check_fails(2, "an argument is empty", "llm-inspect", {"show", ""});
  check_fails(2, "an argument is empty", "llm-quantize", {model, "", "Q8_0"});
  check_fails(2, "option -m: the value is empty, MODEL is required", "llm-bench", {"-m", ""});
  check_fails(2, "option --kl-base: the value is empty", "llm-perplexity",
              {"-m", model, "-f", text, "-c", "4", "--kl-base", ""});
  check_fails(2, "option -jf: the value is empty, FILE is required", "llm-run", {"-m", model, "-p", "a", "-jf", ""});
  check_fails(2, "option --backend: the value is empty, cpu|cuda|blas|reference is required", "llm-run",
              {"-m", model, "-p", "a", "--backend", ""});
  CHECK(run_program("llm-run", {"-m", model, "-p", "", "-sys", "", "-n", "1"}).code == 0);
}

TEST_CASE("an error names the option that was typed", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const auto typed = [&](const std::string& option, const std::string& value) {
    check_fails(2, "error[E-USAGE]: option " + option + ": \"" + value + "\"", "llm-run",
                {"-m", model, "-p", "a", option, value});
    if (!option.starts_with("--")) return;
    check_fails(2, "error[E-USAGE]: option " + option + ": \"" + value + "\"", "llm-run",
                {"-m", model, "-p", "a", option + "=" + value});
  };
  for (const char* option :
       {"-s", "--seed", "-b", "--batch-size", "-n", "--predict", "-tb", "--threads-batch", "--temp"})
    typed(option, "-x");
  for (const char* option : {"-l", "--logit-bias"}) typed(option, "5+");  // found wrong when all options are read
  check_fails(2, "option -s: \"-5\"", "llm-run", {"-m", model, "-p", "a", "-s-5"});
}

TEST_CASE("--help-all of a program with commands shows the options of all", "[apps]") {
  const std::string page = output_of("llm-inspect", {"--help-all"});
  for (const char* text : {"\nllm-inspect split MODEL PREFIX:\n", "--no-tensor-first-split",
                           "\nllm-inspect render [FILE]:\n", "--no-generation-prompt"}) {
    INFO(text);
    CHECK(page.find(text) != std::string::npos);
  }
}

TEST_CASE("a file that is missing or no model ends with code 3", "[apps]") {
  TempDir folder;
  const std::string none = (folder / "none.gguf").string();
  const std::string text = write_file(folder / "text", "this is no model");
  for (const std::string& file : {none, text}) {
    check_fails(3, file, "llm-inspect", {"show", file});
    check_fails(3, file, "llm-inspect", {"tokenize", file, "--text", "a"});
    check_fails(3, file, "llm-inspect", {"graph", file});
    check_fails(3, file, "llm-bench", {"-m", file});
    check_fails(3, file, "llm-perplexity", {"-m", file, "-f", text});
  }
}

TEST_CASE("a file that cannot be read on is to be fetched again, one of another kind says of which", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const auto told = [&](const std::string& file) { return run_program("llm-run", {"-m", file, "-p", "a"}).err; };
  const std::string cut = told(write_file(folder / "cut.gguf", contents(model).substr(0, 500)));
  CHECK_THAT(cut, contains("hint: what lies behind that place was not read: fetch the file again"));
  CHECK_THAT(cut, !contains("llm-inspect verify"));
  CHECK_THAT(told(write_file(folder / "empty.gguf", "")), contains("the file is empty"));
  CHECK_THAT(told(write_file(folder / "text.gguf", "{\"a\": 1}")), contains("hint: this is no model in GGUF"));
  for (const auto& [type, words] : std::vector<std::pair<std::string, std::string>>{
           {"imatrix", "the file is an importance matrix, no model; llm-quantize --imatrix"},
           {"adapter", "the file is an adapter, which changes a model and is none"}}) {
    TinyFile file = tiny_model();
    file.set("general.type", type);
    file.write(folder / "other.gguf");
    const std::string path = (folder / "other.gguf").string();
    check_fails(3, words, "llm-run", {"-m", path, "-p", "a"});
  }
}

TEST_CASE("a backend that nobody knows is a wrong word, as others are", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  check_fails(2, "unknown backend \"abacus\"; there are: cpu, ", "llm-bench", {"-m", model, "--backend", "abacus"});
}

TEST_CASE("bytes that the vocabulary has nothing for are told by all who read texts", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model({.tokenizer = TinyTokenizer::BpeWithGaps}));
  const std::string text = write_file(folder / "text", std::string(20, 'a') + '\x04'),
                    matrix = (folder / "i.gguf").string();
  const std::vector<std::pair<std::string, std::vector<std::string>>> runs{
      {"llm-inspect", {"tokenize", model, "-f", text}},
      {"llm-perplexity", {"-m", model, "-f", text, "-c", "8"}},
      {"llm-imatrix", {"-m", model, "-f", text, "-c", "8", "-o", matrix}}};
  for (const auto& [name, run] : runs) {
    INFO(name);
    const Outcome o = run_program(name, run);
    CHECK(o.code == 0);
    CHECK_THAT(o.err, contains("warning[missing-bytes]: "));
    CHECK_THAT(o.err, contains("the vocabulary has no token for 1 byte of it (\"\\x04\")"));
  }
}

TEST_CASE("--kv-offload has its short name in all programs that run a model", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string text = write_file(folder / "text", std::string(200, 'a'));
  (void)output_of("llm-bench", {"-m", model, "-p", "4", "-n", "0", "-r", "1", "-kvo"});
  (void)output_of("llm-perplexity", {"-m", model, "-f", text, "-c", "8", "-nkvo", "-kvo"});
  (void)output_of("llm-imatrix", {"-m", model, "-f", text, "-c", "8", "-o", (folder / "i.gguf").string(), "-kvo"});
  (void)output_of("llm-run", {"-m", model, "-p", "a", "-n", "1", "-kvo"});
}

TEST_CASE("--usage is --help, and names of llama-quantize's are known", "[apps]") {
  for (const char* name : {"llm-run", "llm-inspect", "llm-bench", "llm-perplexity", "llm-quantize", "llm-imatrix"})
    CHECK(output_of(name, {"--usage"}) == output_of(name, {"--help"}));
  for (const char* option : {"--include-weights", "--exclude-weights", "--tensor-type-file"}) {
    check_fails(2, "option " + std::string(option) + " is recognised, not supported: ", "llm-quantize",
                {"a", "b", "Q8_0", option, "x"});
  }
}

TEST_CASE("a page of help has the commonest options of each program", "[apps]") {
  for (const auto& [name, option] :
       std::vector<std::pair<std::string, std::string>>{{"llm-bench", "--n-prompt"},
                                                        {"llm-perplexity", "--chunks"},
                                                        {"llm-quantize", "--imatrix"},
                                                        {"llm-imatrix", "--output-file"}}) {
    INFO(name);
    const std::string brief = output_of(name, {"--help"}), all = output_of(name, {"--help-all"});
    CHECK_THAT(brief, contains(option));
    CHECK_THAT(brief, contains(" more options: " + name + " --help-all, man " + name + "\n"));
    CHECK_THAT(brief, !contains("--error-format"));
    CHECK_THAT(all, contains("--error-format"));
    CHECK(brief.size() < all.size());
  }
}
