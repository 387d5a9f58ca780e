#include "options.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "common/cache_type.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "runtime/session.h"

namespace llm::bench {
namespace {

constexpr std::array kAliases{app::Alias{"-np", "--parallel"}, app::Alias{"-ctk", "--cache-type-k"},
                              app::Alias{"-ctv", "--cache-type-v"}};
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

/// A list option, in messages called `name`: values separated by commas, or given several times, or both.
void add_list(app::Command& cli, const std::string& names, const std::string& name, std::vector<int>& list,
              std::int64_t min, std::int64_t max, const std::string& help) {
  const auto set = [&list, name, min, max](const std::vector<std::string>& given) {
    list.clear();
    for (const std::string& text : given) {
      for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        list.push_back(static_cast<int>(app::parse_integer(name, text.substr(begin, end - begin), min, max)));
        begin = end + 1;
      }
    }
    drop_repeated(list);
  };
  cli.add_option_function<std::vector<std::string>>(names, set, help)->type_name("N")->one_value();
}

/// llama-bench would test each value; here the last one would count, and the others be lost.
void refuse_repeated(const app::Command& cli) {
  for (const auto& [name, shown] : {std::pair{"--model", "-m"},
                                    {"--threads", "-t"},
                                    {"--threads-batch", "-tb"},
                                    {"--cache-type-k", "-ctk"},
                                    {"--cache-type-v", "-ctv"},
                                    {"--gpu-layers", "-ngl"}}) {
    if (cli.times_given(name) > 1)
      throw Error(ErrorKind::Usage, std::string("option ") + shown +
                                        " was given more than once: a run measures one; -p, -n, -d and -np take lists");
  }
}

}  // namespace

std::optional<int> read_options(int argc, char** argv, Options& o) {
  o.prompts = {512};
  o.generated = {128};
  o.depths = {0};
  o.parallel = {1};
  app::Command cli{std::string(kDescription)};
  app::add_model_options(cli, o.model);
  app::add_adapter_options(cli, o.model.adapters);
  add_list(cli, "-p,--n-prompt", "-p", o.prompts, 0, kMaxTokens, "prompt lengths; 0: none (default 512)");
  add_list(cli, "-n,--n-gen", "-n", o.generated, 0, kMaxTokens, "numbers of generated tokens; 0: none (default 128)");
  add_list(cli, "-d,--n-depth", "-d", o.depths, 0, kMaxTokens, "tokens in the cache before the test (default 0)");
  add_list(cli, "--parallel", "-np", o.parallel, 1, kMaxBatchTokens, "sequences that generate at once (default 1)");
  app::add_cache_types(cli, o.cache.k, o.cache.v);
  app::add_integer(cli, "-r,--repetitions", o.repetitions, 1, kMaxRepetitions, "samples per test (default 5)");
  const auto set_format = [&o](const std::string& text) {
    if (text != "md" && text != "json")
      throw Error(ErrorKind::Usage, "option -o: \"" + escaped(text) + "\" is not md or json");
    o.format = text == "json" ? Format::Json : Format::Markdown;
  };
  cli.add_option_function<std::string>("-o,--output", set_format, "form of the results (default md)")
      ->type_name("md|json")
      ->take_last();
  cli.add_flag("--roofline", o.roofline,
               "show which limit binds each test, the speed at that limit, and what each kind of node took in one more "
               "run, which is watched");
  app::add_common_options(cli);
  if (const auto code = app::parse(cli, argc, argv, {.aliases = kAliases})) return code;
  refuse_repeated(cli);
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
