#include "options.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "common/accepted_options.h"
#include "common/cache_type.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "runtime/programs.h"

namespace llm::bench {
namespace {

constexpr std::array kAliases{app::Alias{"-np", "--parallel"},      app::Alias{"-ctk", "--cache-type-k"},
                              app::Alias{"-ctv", "--cache-type-v"}, app::Alias{"-nopo", "--no-op-offload"},
                              app::Alias{"-mmp", "--mmap"},         app::Alias{"-dio", "--direct-io"},
                              app::Alias{"-embd", "--embeddings"}};
constexpr std::array<std::string_view, 4> kSwitches{"--no-kv-offload", "--no-op-offload", "--mmap", "--no-host"};
constexpr std::array<std::string_view, 15> kCommon{"--model",        "--threads",     "--gpu-layers", "--n-prompt",
                                                   "--n-gen",        "--n-depth",     "--parallel",   "--cache-type-k",
                                                   "--cache-type-v", "--repetitions", "--output",     "--roofline",
                                                   "--help",         "--help-all",    "--version"};
constexpr std::int64_t kMaxTokens = 1 << 24;
constexpr int kMaxRepetitions = 10000;

constexpr std::string_view kDescription =
    "Measures prefill and decode speed by llama-bench's definitions, and what share of this machine's limits it is.\n"
    "Tests: ppN, a prompt of N random tokens in batches of 512 (GPU: 2,048); tgN, N steps of one token; @dD, after D\n"
    "tokens; xP, for P sequences at once, counted together. Each is warmed up, then measured several times; between\n"
    "the samples the limits are measured by the same threads. Those of a GPU are not measured: a dash stands there. A\n"
    "model whose weights fit into the processor's caches can pass 100 % of the read bandwidth.\n\n"
    "Examples:\n"
    "  llm-bench -m model.gguf\n"
    "  llm-bench -m model.gguf -p 512,2048 -n 64 -d 0,8192 -np 1,8 -o json --roofline";

/// Of each value the first.
void drop_repeated(std::vector<int>& list) {
  std::set<int> seen;
  std::erase_if(list, [&seen](int n) { return !seen.insert(n).second; });
}

/// A number, or one of llama-bench's ranges: "1-4" is 1,2,3,4, "128-512+128" and "1-8*2" have another step.
void append_values(const std::string& name, const std::string& text, std::int64_t min, std::int64_t max,
                   std::vector<int>& list) {
  constexpr std::size_t kMostValues = 1000;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::Usage, "option " + name + ": \"" + escaped(text) + "\" " + why);
  };
  const std::size_t dash = text.find('-', 1), step_at = text.find_first_of("+*", 1);
  const std::int64_t first = app::parse_integer(name, text.substr(0, dash), min, max);
  if (dash == std::string::npos) return list.push_back(static_cast<int>(first));
  const std::size_t end = std::min(step_at, text.size());
  const std::int64_t last = app::parse_integer(name, text.substr(dash + 1, end - dash - 1), min, max);
  const std::int64_t step = end == text.size() ? 1 : app::parse_integer(name, text.substr(end + 1), 1, max);
  const bool times = end < text.size() && text[end] == '*';
  if (last < first) refuse("ends before it begins");
  if (times && (first == 0 || step == 1)) refuse("never ends");
  for (std::int64_t n = first; n <= last; n = times ? n * step : n + step) {
    if (list.size() == kMostValues) refuse("makes more than " + number_text(kMostValues) + " values");
    list.push_back(static_cast<int>(n));
  }
}

Format format(const std::string& text) {
  constexpr std::pair<std::string_view, Format> kFormats[] = {
      {"md", Format::Markdown}, {"json", Format::Json}, {"jsonl", Format::JsonLines}, {"csv", Format::Csv}};
  for (const auto& [name, format] : kFormats) {
    if (text == name) return format;
  }
  throw Error(ErrorKind::Usage, "option -o: \"" + escaped(text) + "\" is not md, json, jsonl or csv");
}

/// A list option, in messages called `name`: values separated by commas, or given several times, or both.
void add_list(app::Command& cli, const std::string& names, const std::string& name, std::vector<int>& list,
              std::int64_t min, std::int64_t max, const std::string& help) {
  const auto set = [&list, name, min, max](const std::vector<std::string>& given) {
    list.clear();
    for (const std::string& text : given) {
      for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        append_values(name, text.substr(begin, end - begin), min, max, list);
        begin = end + 1;
      }
    }
    drop_repeated(list);
  };
  cli.add_option_function<std::vector<std::string>>(names, set, help)->type_name("N")->one_value();
}

/// llama-bench would test each value; here the last one would count, and the others be lost.
void refuse_repeated(const app::Command& cli) {
  struct Once {
    std::vector<const char*> names;  ///< that set the same
    const char* shown;
  };
  for (const Once& o : {Once{{"--model"}, "-m"},
                        {{"--threads-batch"}, "-tb"},
                        {{"--cache-type-k"}, "-ctk"},
                        {{"--cache-type-v"}, "-ctv"},
                        {{"--gpu-layers"}, "-ngl"},
                        {{"--no-kv-offload", "--kv-offload"}, "-nkvo"},
                        {{"--no-op-offload", "--op-offload"}, "-nopo"},
                        {{"--mmap", "--no-mmap"}, "-mmp"}}) {
    std::size_t times = 0;
    for (const char* name : o.names) times += cli.times_given(name);
    if (times > 1) {
      throw Error(ErrorKind::Usage,
                  std::string("option ") + o.shown +
                      " was given more than once: a run measures one; -p, -n, -d, -np and -t take lists");
    }
  }
}

}  // namespace

std::optional<int> read_options(int argc, char** argv, Options& o) {
  o.prompts = {512};
  o.generated = {128};
  o.depths = {0};
  o.parallel = {1};
  o.threads = {0};
  app::Command cli{std::string(kDescription)};
  app::add_model_place_options(cli, o.model);
  add_list(cli, "-t,--threads", "-t", o.threads, -1, app::kMaxThreads,
           "threads (default -1: physical cores, within the CPU quota); of several, all tests run with each");
  app::add_loading_options(cli, o.model);
  app::add_adapter_options(cli, o.model.adapters);
  add_list(cli, "-p,--n-prompt", "-p", o.prompts, 0, kMaxTokens,
           "prompt lengths; 0: none (default 512); lists and ranges, as for all of these: 512,2048; 1-4; 128-512+128; "
           "512-4096*2");
  add_list(cli, "-n,--n-gen", "-n", o.generated, 0, kMaxTokens, "numbers of generated tokens; 0: none (default 128)");
  add_list(cli, "-d,--n-depth", "-d", o.depths, 0, kMaxTokens, "tokens in the cache before the test (default 0)");
  add_list(cli, "--parallel", "-np", o.parallel, 1, kMaxBatchTokens, "sequences that generate at once (default 1)");
  app::add_cache_types(cli, o.cache.k, o.cache.v);
  app::add_integer(cli, "-r,--repetitions", o.sampling.repetitions, 1, kMaxRepetitions, "samples per test (default 5)");
  cli.add_option_function<std::string>(
         "-o,--output", [&o](const std::string& text) { o.format = format(text); }, "form of the results (default md)")
      ->type_name("md|json|jsonl|csv")
      ->take_last();
  cli.add_flag("--roofline", o.roofline,
               "show which limit binds each test, the speed at that limit, and what each kind of node took in one more "
               "run, which is watched");
  cli.add_flag_callback(
      "--no-warmup", [&o] { o.sampling.warm_up = Sampling::WarmUp::None; },
      "measure from the first run on, which finds caches and clock as they are");
  app::add_accepted_options(cli);
  app::add_accepted_switches(cli);
  app::add_common_options(cli);
  if (const auto code = app::parse(cli, argc, argv, {.aliases = kAliases, .common = kCommon, .switches = kSwitches}))
    return code;
  refuse_repeated(cli);
  if (o.roofline && o.format == Format::Csv)
    app::note("what nodes took is left out of -o csv: md, json and jsonl have it");
  const std::vector<Test> all = tests(o);
  if (all.empty()) throw Error(ErrorKind::Usage, "nothing to measure: give -p or -n other than 0");
  const bool prompts_only = std::ranges::all_of(all, [](const Test& t) { return t.kind == Test::Kind::Prompt; });
  if (prompts_only && o.parallel != std::vector{1})
    app::print_warnings({{"no-effect", "-np does nothing for prompts: the sequences are those that generate (-n)"}});
  return std::nullopt;
}

std::vector<Test> tests(const Options& o) {
  std::vector<int> depths = o.depths;
  std::sort(depths.begin(), depths.end());
  std::vector<Test> list;
  for (const int depth : depths) {
    for (const int n : o.prompts) {
      if (n > 0) list.push_back({.kind = Test::Kind::Prompt, .n = n, .depth = depth});
    }
    for (const int n : o.generated) {
      for (const int parallel : o.parallel) {
        if (n > 0) list.push_back({.kind = Test::Kind::Generate, .n = n, .depth = depth, .parallel = parallel});
      }
    }
  }
  return list;
}

}  // namespace llm::bench
