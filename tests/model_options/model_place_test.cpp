// Which file is meant: a folder's, or one of the caches that other programs fill. Layouts as those programs document
// them.
#include <filesystem>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
using Environment = std::vector<std::pair<std::string, std::string>>;

class ModelPlaceBench {
 public:
  /// A model of so many layers, by which runs tell which file they got.
  void put(const std::string& name, int layers) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    tiny_model({.layers = layers}).write(path);
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  const TempDir& folder() const { return folder_; }
  /// With no cache but those that a case sets; nothing set: HOME is this folder.
  Outcome operator()(Arguments arguments, Environment environment = {}) const {
    environment.emplace_back("HOME", folder_.path().string());  // the first of a name counts
    for (const char* unset : {"LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME",
                              "LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO"})
      environment.emplace_back(unset, "");
    arguments.insert(arguments.end(), {"-no-cnv", "-p", "ab", "-n", "1", "--temp", "0", "-v"});
    return run({.program = program("llm-run"), .arguments = arguments, .environment = environment});
  }

 private:
  TempDir folder_;
};

void check_uses(const Outcome& o, const std::string& file) {
  INFO(o.err);
  CHECK(o.code == 0);
  CHECK(contains(o.err, "model: " + file + "\n"));
}

void check_refusal(const Outcome& o, int code, std::initializer_list<std::string> parts) {
  INFO(o.err);
  CHECK(o.code == code);
  CHECK(o.out.empty());
  for (const std::string& part : parts) CHECK(contains(o.err, part));
}

}  // namespace

TEST_CASE("a folder stands for the one model in it") {
  const ModelPlaceBench bench;
  bench.put("one/model.gguf", 1);
  bench.folder().write("one/mmproj-model.gguf", "beside it");
  bench.folder().write("one/imatrix.gguf", "beside it");
  bench.folder().write("one/notes.txt", "x");
  check_uses(bench({"-m", bench.path("one")}), bench.path("one/model.gguf"));
  check_uses(bench({"-m", bench.path("one") + "/"}), bench.path("one/model.gguf"));

  bench.folder().write("none/readme.txt", "x");
  check_refusal(bench({"-m", bench.path("none")}), 3, {bench.path("none"), "a folder without a model's .gguf file"});
  bench.put("two/b.gguf", 1);
  bench.put("two/a.gguf", 1);
  check_refusal(bench({"-m", bench.path("two")}), 2, {"a folder with 2 models", "a.gguf, b.gguf"});
  CHECK(bench({"-m", bench.path("absent")}).code == 3);

  // Of a split model the first part counts, whatever else is missing.
  bench.folder().write("parts/m-00002-of-00002.gguf", "later");
  bench.folder().write("parts/m-00001-of-00002.gguf", "first");
  const Outcome parts = bench({"-m", bench.path("parts")});
  CHECK(parts.code == 3);
  CHECK(contains(parts.err, "m-00001-of-00002.gguf"));

  check_refusal(run({.program = program("llm-bench"), .arguments = {"-m", bench.path("two")}}), 2, {"a.gguf, b.gguf"});
  check_refusal(run({.program = program("llm-bench"), .arguments = {}}), 2,
                {"no model: give one with --model FILE (-m)"});
}

TEST_CASE("a name on the hub is a file of the hub's cache") {
  const ModelPlaceBench bench;
  const std::string hub = ".cache/huggingface/hub/", repo = hub + "models--ann--Toy-GGUF/",
                    snapshot = repo + "snapshots/";
  const std::string commit(40, 'a'), old(40, 'b');
  bench.folder().write(repo + "refs/main", commit);
  bench.folder().write(repo + "refs/pr", old);
  for (const char* name : {"Toy-Q8_0.gguf", "Toy-Q4_K_M.gguf", "Toy-IQ4_NL.gguf", "big/Toy-BF16-00001-of-00002.gguf"})
    bench.put(snapshot + commit + "/" + name, 1);
  bench.folder().write(snapshot + commit + "/big/Toy-BF16-00002-of-00002.gguf", "later");
  bench.folder().write(snapshot + commit + "/mmproj-Toy-Q2_K.gguf", "beside");
  bench.put(snapshot + old + "/Toy-Q2_K.gguf", 1);
  fs::create_symlink("/nowhere", bench.path(snapshot + commit + "/Toy-Q3_K.gguf"));  // never finished
  const auto at = [&](const std::string& name) { return bench.path(snapshot + commit + "/" + name); };

  check_uses(bench({"-hf", "ann/Toy-GGUF"}), at("Toy-Q4_K_M.gguf"));
  check_uses(bench({"-hf", "ann/Toy-GGUF:q8_0"}), at("Toy-Q8_0.gguf"));
  check_uses(bench({"-hfr", "ann/Toy-GGUF:BF16"}), at("big/Toy-BF16-00001-of-00002.gguf"));
  check_uses(bench({"--hf-repo", "ann/Toy-GGUF", "-hff", "toy-q8_0.gguf"}), at("Toy-Q8_0.gguf"));
  check_uses(bench({"-hf", "ann/Toy-GGUF", "--offline"}), at("Toy-Q4_K_M.gguf"));
  for (const char* missing : {"Q2_K", "Q3_K", "Q4_NL"})
    check_refusal(bench({"-hf", std::string("ann/Toy-GGUF:") + missing}), 3,
                  {"is in no local cache, and nothing is downloaded", "has Toy-IQ4_NL.gguf, Toy-Q4_K_M.gguf, ",
                   "hf download ann/Toy-GGUF"});

  // Its other places, by their variables.
  const std::string cache = bench.path(".cache/huggingface");
  for (const Environment& e :
       {Environment{{"LLAMA_CACHE", cache + "/hub"}}, Environment{{"HF_HUB_CACHE", cache + "/hub"}},
        Environment{{"HUGGINGFACE_HUB_CACHE", cache + "/hub"}}, Environment{{"HF_HOME", cache}},
        Environment{{"XDG_CACHE_HOME", bench.path(".cache")}}}) {
    Environment all{{"HOME", "/nowhere"}};
    all.insert(all.end(), e.begin(), e.end());
    const Outcome o = bench({"-hf", "ann/Toy-GGUF"}, all);
    INFO(e.front().first << ": " << o.err);
    CHECK(o.code == 0);
  }
  // Without a quantisation that is usual, the first by name.
  fs::remove(at("Toy-Q4_K_M.gguf"));
  check_uses(bench({"-hf", "ann/Toy-GGUF"}), at("Toy-Q8_0.gguf"));
  fs::remove(at("Toy-Q8_0.gguf"));
  check_uses(bench({"-hf", "ann/Toy-GGUF"}), at("Toy-IQ4_NL.gguf"));
}

TEST_CASE("a folder of the hub's cache without a snapshot that counts is told as what it is") {
  const ModelPlaceBench bench;
  const std::string repository = ".cache/huggingface/hub/models--ann--Toy-GGUF";
  bench.put(repository + "/snapshots/aaa/Toy-Q8_0.gguf", 1);
  const std::string place = bench.path(repository);
  check_refusal(bench({"-hf", "ann/Toy-GGUF"}), 3,
                {"is in no local cache", place + " has nothing in refs, which says what snapshot counts"});
  bench.folder().write(repository + "/refs/main", "bbb");
  check_refusal(bench({"-hf", "ann/Toy-GGUF"}), 3,
                {"is in no local cache", place + " has no files in snapshots/bbb, which its refs name"});
  bench.folder().write(repository + "/refs/main", "aaa");
  check_uses(bench({"-hf", "ann/Toy-GGUF"}), bench.path(repository + "/snapshots/aaa/Toy-Q8_0.gguf"));
}

TEST_CASE("a name on the hub is a file of llama.cpp's older cache") {
  const ModelPlaceBench bench;
  const std::string cache = ".cache/llama.cpp/";
  bench.put(cache + "ann_Toy-GGUF_Toy-Q4_K_M.gguf", 1);
  bench.put(cache + "ann_Toy-GGUF_sub_Toy-Q5_K_M.gguf", 1);
  bench.put(cache + "ann_Toy-GGUF-2_Other-Q6_K.gguf", 1);
  const auto at = [&](const std::string& name) { return bench.path(cache + name); };
  check_uses(bench({"-hf", "ann/Toy-GGUF"}), at("ann_Toy-GGUF_Toy-Q4_K_M.gguf"));
  check_uses(bench({"-hf", "ann/Toy-GGUF:Q5_K_M"}), at("ann_Toy-GGUF_sub_Toy-Q5_K_M.gguf"));
  check_uses(bench({"-hf", "ann/Toy-GGUF", "-hff", "sub/Toy-Q5_K_M.gguf"}), at("ann_Toy-GGUF_sub_Toy-Q5_K_M.gguf"));
  check_refusal(bench({"-hf", "ann/Toy-GGUF:Q6_K"}), 3, {"in no local cache"});
  // A manifest says which file a tag is.
  bench.folder().write(cache + "manifest=ann=Toy-GGUF=latest.json",
                       R"({"ggufFile": {"rfilename": "sub/Toy-Q5_K_M.gguf", "size": 1}})");
  check_uses(bench({"-hf", "ann/Toy-GGUF"}), at("ann_Toy-GGUF_sub_Toy-Q5_K_M.gguf"));
  for (const char* unknown : {"{ broken", "\"Toy\"", R"({"ggufFile": [1]})", R"({"ggufFile": {"rfilename": 3}})"}) {
    bench.folder().write(cache + "manifest=ann=Toy-GGUF=latest.json", unknown);
    check_uses(bench({"-hf", "ann/Toy-GGUF"}), at("ann_Toy-GGUF_Toy-Q4_K_M.gguf"));
  }
  check_uses(bench({"-hf", "ann/Toy-GGUF"}, {{"HOME", "/nowhere"}, {"LLAMA_CACHE", bench.path(".cache/llama.cpp")}}),
             at("ann_Toy-GGUF_Toy-Q4_K_M.gguf"));
}

TEST_CASE("a file of llama.cpp's older cache may be another repository's whose name is longer") {
  const ModelPlaceBench bench;
  const std::string cache = ".cache/llama.cpp/", chat = "ann_toy_chat_fable-Q8_0.gguf", plain = "ann_toy_z-Q8_0.gguf";
  const std::string manifest = cache + "manifest=ann=toy_chat=Q8_0.json", beside = cache + chat + ".json";
  const auto from = [](const std::string& repository) {
    return R"({"etag": "x", "url": "https://huggingface.co/)" + repository + R"(/resolve/main/fable-Q8_0.gguf"})";
  };
  bench.put(cache + chat, 1);
  const std::string at = bench.path(cache + chat);
  check_uses(bench({"-hf", "ann/toy"}), at);  // nothing says that it is not its file
  bench.folder().write(manifest, "{}");
  check_refusal(bench({"-hf", "ann/toy"}), 3, {"\"ann/toy\" is in no local cache"});
  check_uses(bench({"-hf", "ann/toy_chat"}), at);
  bench.put(cache + plain, 1);
  check_uses(bench({"-hf", "ann/toy"}), bench.path(cache + plain));

  // Where it came from counts before names.
  bench.folder().write(beside, from("ann/toy"));
  check_uses(bench({"-hf", "ann/toy"}), at);
  check_refusal(bench({"-hf", "ann/toy_chat"}), 3, {"in no local cache"});
  fs::remove(bench.path(manifest));
  bench.folder().write(beside, from("ann/toy_chat"));
  check_uses(bench({"-hf", "ann/toy"}), bench.path(cache + plain));
  bench.folder().write(beside, R"({"url": [3]})");
  check_uses(bench({"-hf", "ann/toy"}), at);
}

TEST_CASE("names that are none, and two models, are refused; what is nowhere is told with its places") {
  const ModelPlaceBench bench;
  bench.put("m.gguf", 1);
  for (const char* name : {"toy", "ann/", "/toy", "ann/../toy", "../x", "ann/toy:", "a/b/c", "ann/t y"})
    check_refusal(bench({"-hf", name}), 2, {"-hf", "is not USER/REPO"});
  check_refusal(bench({"-hf", "ann/toy", "-m", bench.path("m.gguf")}), 2, {"--model and --hf-repo both name a model"});
  check_refusal(bench({"-hff", "toy.gguf", "-m", bench.path("m.gguf")}), 2, {"--hf-file needs --hf-repo"});
  // One that is set elsewhere is for when nothing is said here.
  CHECK(bench({"-m", bench.path("m.gguf")}, {{"LLAMA_ARG_HF_REPO", "ann/toy"}}).code == 0);
  CHECK(bench({}, {{"LLM_RUN_MODEL", bench.path("m.gguf")}}).code == 0);
  check_refusal(bench({"-hf", "ann/toy"}, {{"LLM_RUN_MODEL", bench.path("m.gguf")}}), 3,
                {"\"ann/toy\" is in no local cache"});
  check_refusal(bench({}, {{"LLAMA_ARG_HF_REPO", "ann/toy"}, {"LLM_RUN_MODEL", bench.path("m.gguf")}}), 2,
                {"both name a model", "--hf-repo is set by LLAMA_ARG_HF_REPO"});
  check_refusal(bench({}), 2, {"no model"});
  check_refusal(bench({"-hf", "ann/toy"}), 3,
                {"\"ann/toy\" is in no local cache, and nothing is downloaded: looked for ",
                 bench.path(".cache/huggingface/hub/models--ann--toy"), bench.path(".cache/llama.cpp/ann_toy_*.gguf"),
                 "or give a file with -m"});
  check_refusal(bench({"-mu", "https://host/m.gguf"}), 2, {"nothing is downloaded"});
}
