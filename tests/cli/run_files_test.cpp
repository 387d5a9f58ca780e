// What a run reads is never overwritten by what it writes, stdin is read once, and files that are replaced keep their
// permissions and their links.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "conversation_bench.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

namespace fs = std::filesystem;

/// A model in parts, and settings.
class FilesBench {
 public:
  FilesBench() {
    tiny_model({.layers = 2, .context = 400}).write(model());
    const Outcome o = run({.program = program("llm-inspect"),
                           .arguments = {"split", model().string(), (folder_ / "p").string(), "--max-tensors", "8"}});
    REQUIRE(o.code == 0);
    folder_.write("rows.txt", "ab\nb\n");
    folder_.write("settings.toml", "predict = 2\n");
  }
  fs::path model() const { return folder_ / "tiny.gguf"; }
  std::string part(int n) const { return path("p-0000" + std::to_string(n) + "-of-00003.gguf"); }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  std::string write(std::string_view name, std::string_view text) const { return folder_.write(name, text).string(); }
  const fs::path& folder() const { return folder_.path(); }

  Outcome operator()(const char* name, std::vector<std::string> arguments, const std::string& input = "/dev/null",
                     std::vector<std::pair<std::string, std::string>> environment = {}) const {
    return run({.program = program(name),
                .arguments = std::move(arguments),
                .environment = std::move(environment),
                .input_file = input});
  }
  /// Code 2, and `file` has what it had.
  void keeps(const std::string& file, const char* name, std::vector<std::string> arguments,
             const std::string& input = "/dev/null",
             std::vector<std::pair<std::string, std::string>> environment = {}) const {
    const std::string before = read_file(file);
    REQUIRE(!before.empty());
    const Outcome o = (*this)(name, arguments, input, std::move(environment));
    std::string line = name;
    for (const std::string& a : arguments) line += " " + a;
    INFO(line << ": " << o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, "would be overwritten by "));
    CHECK(contains(o.err, file));
    CHECK(read_file(file) == before);
  }

 private:
  TempDir folder_;
};

int mode_of(const fs::path& file) {
  struct stat status {};
  REQUIRE(::stat(file.c_str(), &status) == 0);
  return static_cast<int>(status.st_mode & 0777);
}

}  // namespace

TEST_CASE("no part of a model is overwritten, whatever writes") {
  const FilesBench bench;
  const std::string first = bench.part(1), second = bench.part(2);
  REQUIRE(fs::exists(second));
  for (const char* option : {"-o", "--dump-graph", "--events", "--log-file", "--prompt-cache"})
    bench.keeps(second, "llm-run", {"-m", first, "-p", "a", "-n", "1", option, second});
  bench.keeps(first, "llm-run", {"-m", second, "-p", "a", "-n", "1", "-o", first});
  bench.keeps(second, "llm-run", {"-m", first, "-i", "-o", second});
  bench.keeps(second, "llm-run", {"-m", first, "--batch", bench.path("rows.txt"), "-o", second, "--force"});
  bench.keeps(second, "llm-run", {"-m", bench.model().string(), "-md", first, "-p", "a", "-o", second});
  bench.keeps(second, "llm-bench", {"-m", first, "-p", "4", "-n", "0", "-r", "1", "--log-file", second});
  const std::string tokens = bench.write("tokens", "1 2 3 4 5 6 7 8 9");
  bench.keeps(second, "llm-perplexity", {"-m", first, "--tokens", tokens, "-c", "4", "--save-logits", second});
  bench.keeps(second, "llm-quantize", {first, second, "Q8_0", "--force"});
  bench.keeps(second, "llm-imatrix", {"-m", first, "-f", tokens, "-o", second, "--force"});
  bench.keeps(second, "llm-inspect", {"merge", first, second, "--force"});
  bench.keeps(first, "llm-inspect", {"split", first, bench.path("p"), "--max-tensors", "8", "--force"});
  // By another name, and in a folder that stands for its model.
  fs::create_symlink(second, bench.folder() / "link");
  bench.keeps(bench.path("link"), "llm-run", {"-m", first, "-p", "a", "-o", bench.path("link")});
  fs::create_directory(bench.folder() / "one");
  fs::copy_file(bench.model(), bench.folder() / "one" / "m.gguf");
  for (const char* option : {"-o", "--log-file"})
    bench.keeps(bench.path("one/m.gguf"), "llm-run",
                {"-m", bench.path("one"), "-p", "a", option, bench.path("one/m.gguf")});
}

TEST_CASE("no settings, batch or text on stdin is overwritten while it is read") {
  const FilesBench bench;
  const std::string model = bench.model().string(), settings = bench.path("settings.toml"),
                    rows = bench.path("rows.txt"), out = bench.path("out");
  for (const char* option : {"-o", "--events", "--dump-graph", "--log-file"}) {
    bench.keeps(settings, "llm-run", {"-m", model, "-p", "a", "--config", settings, option, settings});
    bench.keeps(settings, "llm-run", {"-m", model, "-p", "a", option, settings}, "/dev/null",
                {{"LLM_RUN_CONFIG", settings}});
    bench.keeps(rows, "llm-run", {"-m", model, "-n", "1", option, rows}, rows);  // < rows.txt
  }
  bench.keeps(rows, "llm-run", {"-m", model, "-i", "-n", "1", "-o", rows}, rows);
  // Beside the results of a batch is its state.
  const std::string state = bench.write("out.state", "ab\n");
  for (const char* option : {"--events", "--log-file"}) {
    const Outcome o = bench("llm-run", {"-m", model, "--batch", rows, "-o", out, option, state});
    CHECK(o.code == 2);
    CHECK(read_file(state) == "ab\n");
  }
  bench.keeps(state, "llm-run", {"-m", model, "--batch", state, "--batch-format", "lines", "-o", out});
}

TEST_CASE("no saved chat and no cache is overwritten while it is read, but /save may go on with it") {
  const ConversationBench bench;
  const std::string chat = bench.path("chat.json").string(), cache = chat + ".cache";
  REQUIRE(bench.pipe("Why?\n/save " + chat + "\n", kShort).code == 0);
  const std::string saved = read_file(chat), kept = read_file(cache);
  for (const std::string& file : {chat, cache}) {
    for (const char* option : {"-o", "--events", "--log-file", "--prompt-cache"}) {
      const Outcome o = bench.pipe("Why?\n", with(kShort, {"--load", chat, option, file}));
      INFO(option << ": " << o.err);
      CHECK(o.code == 2);
      CHECK(contains(o.err, "would be overwritten by " + std::string(option) + " while it is read (--load)"));
      CHECK(read_file(chat) == saved);
      CHECK(read_file(cache) == kept);
    }
  }
  CHECK(bench.pipe("Why?\n/save " + chat + "\n", with(kShort, {"--load", chat})).code == 0);
  CHECK(read_file(chat).size() > saved.size());
  // What a chat writes replaces no file of the run either.
  const std::string own = bench.path("own").string();
  const Outcome o = bench.pipe("Why?\n/save " + own + "\n", with(kShort, {"--prompt-cache", own + ".cache"}));
  CHECK(o.code == 2);
  CHECK(contains(o.err, "would be overwritten by /save and by --prompt-cache: each needs a file of its own"));
}

TEST_CASE("stdin is read once") {
  const FilesBench bench;
  const std::string model = bench.model().string(), text = bench.write("text", "root ::= \"a\"\n");
  const auto refused = [&](std::vector<std::string> arguments, const std::string& who) {
    arguments.insert(arguments.begin(), {"-m", model, "-n", "1"});
    const Outcome o = bench("llm-run", std::move(arguments), text);
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, "stdin can be read only once: " + who + " both take it"));
  };
  refused({"-f", "-", "--grammar-file", "-"}, "-f and --grammar-file");
  refused({"--batch", "-", "-jf", "-"}, "-jf and --batch");
  refused({"-i", "--grammar-file", "-"}, "--grammar-file and the chat");
  refused({"--grammar-file", "-"}, "--grammar-file and the prompt");
  CHECK(bench("llm-run", {"-m", model, "-n", "1", "-p", "a", "--grammar-file", "-"}, text).code == 0);
}

TEST_CASE("what stdout has no place for makes no file called -") {
  const FilesBench bench;
  const std::string script = "cd \"$1\" && shift && exec \"$@\"";
  const auto in_folder = [&](const char* name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-c", script, "sh", bench.folder().string(), program(name).string()});
    return run({.program = "/bin/sh", .arguments = std::move(arguments)});
  };
  for (const char* option : {"--events", "--log-file", "--dump-graph", "--prompt-cache"}) {
    const Outcome o = in_folder("llm-run", {"-m", "tiny.gguf", "-p", "a", "-n", "1", option, "-"});
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, "option " + std::string(option) + ": stdout is for what the program prints"));
  }
  const std::string tokens = bench.write("tokens", "1 2 3 4 5 6 7 8 9");
  CHECK(in_folder("llm-perplexity", {"-m", "tiny.gguf", "--tokens", tokens, "-c", "4", "--save-logits", "-"}).code ==
        2);
  CHECK_FALSE(fs::exists(bench.folder() / "-"));
  CHECK(in_folder("llm-run", {"-m", "tiny.gguf", "-p", "a", "-n", "1", "-o", "-"}).code == 0);
  CHECK(contains(in_folder("llm-run", {"-m", "tiny.gguf", "-p", "a", "-n", "1", "--events", "/dev/stderr"}).err,
                 "\"event\":\"done\""));
}

TEST_CASE("a graph that could not be written is refused before the model is loaded") {
  const FilesBench bench;
  for (const std::string& file : {std::string("/nonexistent/g"), bench.folder().string()}) {
    const Outcome o = bench("llm-run", {"-m", bench.path("none.gguf"), "-p", "a", "--dump-graph", file});
    CHECK(o.code == 8);
    CHECK(contains(o.err, file == "/nonexistent/g" ? "No such file or directory" : "Is a directory"));
  }
  const Outcome full = bench("llm-run", {"-m", bench.model().string(), "-p", "a", "--dump-graph", "/dev/full"});
  CHECK(full.code == 8);
  CHECK(contains(full.err, "No space left on device"));
}

TEST_CASE("the file of a chat keeps what it has until the chat begins") {
  const ConversationBench bench;
  const std::string out = bench.write("out", "old\n").string();
  const auto refused = [&](int code, std::vector<std::string> more) {
    more.insert(more.end(), {"-o", out});
    CHECK(bench.pipe("Why?\n", with(kShort, more)).code == code);
    CHECK(read_file(out) == "old\n");
  };
  refused(4, {"-c", "2000000000"});
  refused(2, {"--load", bench.path("none").string()});
  tiny_model({}).write(bench.path("other.gguf"));
  refused(2, {"-md", bench.path("other.gguf").string()});
  CHECK(bench.pipe("Why?\n", with(kShort, {"-o", out})).code == 0);
  CHECK(read_file(out) != "old\n");
}

TEST_CASE("files that are replaced keep their permissions and their links") {
  const ConversationBench bench;
  const auto make = [&](const char* name, std::string_view text) {
    const fs::path file = bench.write(name, text);
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    return file;
  };
  const fs::path chat = bench.path("chat.json"), text = make("chat.md", ""), cache = bench.path("pc");
  REQUIRE(bench.pipe("Why?\n/save " + chat.string() + "\n", with(kShort, {"--prompt-cache", cache.string()})).code ==
          0);
  for (const fs::path& file : {chat, fs::path(chat.string() + ".cache"), cache})
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  const std::string before = read_file(chat), kept = read_file(cache);
  fs::create_symlink("chat.json", bench.path("link.json"));
  fs::create_symlink("pc", bench.path("link.pc"));
  const Outcome o = bench.pipe("/load " + bench.path("link.json").string() + "\nTell me a story.\n/save " +
                                   bench.path("link.json").string() + "\n/export " + text.string() + "\n",
                               with(kShort, {"--prompt-cache", bench.path("link.pc").string()}));
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK(fs::is_symlink(bench.path("link.json")));
  CHECK(fs::is_symlink(bench.path("link.pc")));
  CHECK(read_file(chat).size() > before.size());
  CHECK(read_file(cache) != kept);
  CHECK(!read_file(text).empty());
  for (const fs::path& file : {chat, text, cache}) {
    INFO(file);
    CHECK(mode_of(file) == 0600);
  }
}

TEST_CASE("a chat waits for no pipe") {
  const ConversationBench bench;
  const std::string fifo = bench.path("fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const char* command : {"/read ", "/load ", "/grammar ", "/json "}) {
    const Outcome o = bench.pipe(command + fifo + "\nWhy?\n", kShort);
    INFO(command << o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, fifo + ": is a pipe, a regular file is required"));
    CHECK(!o.out.empty());
  }
  CHECK(bench.pipe("/glob " + bench.path("*").string() + "\nWhy?\n", kShort).code == 0);
}

TEST_CASE("/show template shows the one that was read, also where it cannot be read again") {
  const ConversationBench bench;
  const std::string fifo = bench.path("fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const std::string source = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
  Command c = bench.command(with(kShort, {"--chat-template-file", fifo}));
  c.input_file = bench.write("input", "/show template\n").string();
  c.arguments.insert(c.arguments.begin(), {"-c", "cat \"$0\" > \"$1\" & shift; exec \"$@\"",
                                           bench.write("template", source).string(), fifo, c.program.string()});
  c.program = "/bin/sh";
  c.limit = std::chrono::seconds(20);
  const Outcome o = run(c);
  CHECK(o.code == 0);
  CHECK(contains(o.err, source));
}
