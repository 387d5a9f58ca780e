// Results do not depend on threads (law 6 of docs/architecture.md), so that a stored choice changes nothing but time.
#include "tuning.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/gpus.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/output_file.h"
#include "base/sha256.h"
#include "common/build_info.h"
#include "common/messages.h"
#include "common/progress.h"
#include "gguf/fingerprint.h"
#include "runtime/session.h"

namespace llm::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kTuningFormat = 1;
constexpr std::int64_t kPromptTokens = 64, kNewTokens = 8;  ///< of one sample
constexpr int kMostRounds = 30;
constexpr double kSeconds = 5;        ///< no round begins later
constexpr double kWorthwhile = 0.97;  ///< another number than the usual one must take less than this share of its time

struct Choice {
  int threads = 0, prompt_threads = 0;
};

/// Empty if neither variable is set.
fs::path folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return fs::path(cache) / "llm-run" / "threads";
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? fs::path() : fs::path(home) / ".cache" / "llm-run" / "threads";
}

int logical_processors() { return std::max(1, static_cast<int>(affinity().size())); }

/// A file per model, processor, share of it that may be used, and version of this program.
fs::path place_of(const ModelOptions& options) {
  Warnings ignored;  // load() gives them
  Sha256 sum;
  const ThreadChoice usual = default_threads();
  const std::string said = fingerprint(open_file(options, ignored)) + "\n" + processor_name() + "\n" + usual.reason +
                           "\n" + std::to_string(logical_processors()) + "\n" + std::string(build_version());
  sum.update(std::as_bytes(std::span(said)));
  return folder() / (sum.digest().substr(0, 32) + ".json");
}

std::optional<Choice> read_choice(const fs::path& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  const Json json = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kTuningFormat) return std::nullopt;
  const Json threads = json.value("threads", Json()), prompts = json.value("prompt_threads", Json());
  const auto sane = [](const Json& n) { return n.is_number_unsigned() && n >= 1 && n <= 1024; };
  if (!sane(threads) || !sane(prompts)) return std::nullopt;
  return Choice{threads.get<int>(), prompts.get<int>()};
}

// --- the measurement ---

/// One number of threads, its session and its best times.
struct Candidate {
  int threads;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
  double token_seconds = 0, prompt_seconds = 0;  ///< the best so far; 0: none
};

/// The usual number first.
std::vector<int> numbers_of_threads() {
  const int usual = default_threads().threads;
  std::vector<int> list{usual};
  for (const int n : {usual / 4, usual / 2, usual * 3 / 4, std::min(logical_processors(), 2 * usual)}) {
    if (n >= 1 && std::find(list.begin(), list.end(), n) == list.end()) list.push_back(n);
  }
  return list;
}

double step_seconds(Session& session, SequenceId sequence, std::span<const Token> tokens) {
  const Append work{sequence, tokens, Logits::Last};
  const auto begin = Clock::now();
  session.eval({&work, 1});
  return seconds_since(begin);
}

/// Of all the tokens in one evaluation.
double prompt_seconds(Session& session, std::span<const Token> tokens) {
  const SequenceId sequence = session.create();
  const double seconds = step_seconds(session, sequence, tokens);
  session.remove(sequence);
  return seconds;
}

/// Of the tokens one after the other.
double token_seconds(Session& session, std::span<const Token> tokens) {
  const SequenceId sequence = session.create();
  double seconds = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) seconds += step_seconds(session, sequence, tokens.subspan(i, 1));
  session.remove(sequence);
  return seconds;
}

void sample(Candidate& c) {
  std::vector<Token> tokens(kPromptTokens);
  const std::int64_t vocab = c.model->dims().vocab;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<Token>(static_cast<std::int64_t>(i * 7919) % vocab);
  const auto keep_best = [](double& best, double seconds) { best = best == 0 ? seconds : std::min(best, seconds); };
  keep_best(c.prompt_seconds, prompt_seconds(*c.session, tokens));
  keep_best(c.token_seconds, token_seconds(*c.session, std::span(tokens).first(kNewTokens)));
}

int best_of(const std::vector<Candidate>& all, double Candidate::*seconds) {
  const auto best = std::min_element(
      all.begin(), all.end(), [seconds](const Candidate& a, const Candidate& b) { return a.*seconds < b.*seconds; });
  return (*best).*seconds < all.front().*seconds * kWorthwhile ? best->threads : all.front().threads;
}

/// All candidates stay loaded, over the same pages of the file, and take turns: what else the machine does then meets
/// them alike.
std::vector<Candidate> measure(const ModelOptions& options) {
  Warnings ignored;  // load_model() gives them
  std::vector<Candidate> all;
  for (const int n : numbers_of_threads()) {
    LoadOptions load;
    load.path = options.path;
    load.threads = n;
    load.prepare = [&](GgufFile& file, Warnings& warnings) { options.overrides.apply(file, warnings); };
    Candidate c{.threads = n, .model = {}, .session = {}};
    c.model = Model::load(load, ignored);
    c.session = std::make_unique<Session>(*c.model, SessionOptions{.context = kPromptTokens + kNewTokens});
    all.push_back(std::move(c));
  }
  Progress progress("measuring threads");
  for (Candidate& c : all) {
    sample(c);  // compiles the programs and reads the weights
    c.token_seconds = c.prompt_seconds = 0;
  }
  const auto begin = Clock::now();
  const auto spent = [&] { return seconds_since(begin); };
  for (int round = 0; round < kMostRounds && (round == 0 || spent() < kSeconds); ++round) {
    for (Candidate& c : all) sample(c);
    progress.update(std::max(spent() / kSeconds, static_cast<double>(round + 1) / kMostRounds));
  }
  return all;
}

Json report(const ModelOptions& options, const std::vector<Candidate>& all, Choice choice) {
  Json json{{"format", kTuningFormat},
            {"model", fs::path(options.path).filename().string()},
            {"threads", choice.threads},
            {"prompt_threads", choice.prompt_threads}};
  for (const Candidate& c : all) {
    json["measured"].push_back({{"threads", c.threads},
                                {"tokens_per_second", static_cast<double>(kNewTokens) / c.token_seconds},
                                {"prompt_tokens_per_second", static_cast<double>(kPromptTokens) / c.prompt_seconds}});
  }
  return json;
}

void store(const fs::path& path, const Json& json) {
  try {
    std::error_code none;
    fs::create_directories(path.parent_path(), none);
    replace_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const Error& e) {
    print_warnings({{"tune", std::string("what --tune found is not kept: ") + e.what()}});
  }
}

void use(ModelOptions& options, Choice choice, const std::string& why) {
  options.threads = choice.threads;
  options.prompt_threads = choice.prompt_threads;
  say("threads: " + std::to_string(choice.threads) +
      (choice.prompt_threads != choice.threads ? ", " + std::to_string(choice.prompt_threads) + " for prompts" : "") +
      ", " + why);
}

bool gives_threads(const ModelOptions& o) { return o.threads > 0 || o.prompt_threads > 0; }

/// The program that would run the model, as far as it can be told without loading it.
bool runs_on_cpu(const Placement& p) {
  if (!p.backend.empty()) return p.backend == "cpu";
  return p.gpu_layers == 0 || !p.host_option.empty() || look_for_gpus().state != GpuReport::State::Usable;
}

}  // namespace

void refuse_given_threads(const ModelOptions& options) {
  if (!gives_threads(options)) return;
  throw Error(ErrorKind::Usage, "--tune measures how many threads are best, -t and -tb say it: leave these out");
}

bool tune_threads(ModelOptions& options, Tune wish) {
  const bool measuring = wish == Tune::Measure;
  std::error_code none;
  const fs::path cache = folder();
  if (gives_threads(options) || (!measuring && (cache.empty() || !fs::exists(cache, none)))) return false;
  if (!runs_on_cpu(options.placement)) {
    if (measuring) note("--tune has nothing to choose: only the backend cpu depends on threads");
    return false;
  }
  if (!measuring) {
    const std::optional<Choice> stored = read_choice(place_of(options));
    if (stored) use(options, *stored, "as --tune found for this model");
    return stored.has_value();
  }
  const std::vector<Candidate> all = measure(options);
  const Choice choice{best_of(all, &Candidate::token_seconds), best_of(all, &Candidate::prompt_seconds)};
  const Json found = report(options, all, choice);
  for (const Json& m : found["measured"]) {
    verbose("threads " + m["threads"].dump() + ": " + fixed_text(m["tokens_per_second"].get<double>(), 1) +
            " t/s, prompts " + fixed_text(m["prompt_tokens_per_second"].get<double>(), 1) + " t/s");
  }
  if (cache.empty()) {
    print_warnings({{"tune", "what --tune found is not kept: neither XDG_CACHE_HOME nor HOME is set"}});
  } else {
    store(place_of(options), found);
  }
  use(options, choice, "the fastest of those measured");
  return true;
}

}  // namespace llm::app
