// main's frame, and the options of a model.
#include "common/app.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/affinity.h"
#include "common/command_line.h"
#include "common/events.h"
#include "common/file_loading.h"
#include "common/message_codes.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/settings.h"
#include "common/signals.h"
#include "common/tensor_check.h"
#include "runtime/memory_budget.h"

namespace llm::app {
namespace {

constexpr int kBrokenPipeExit = 128 + SIGPIPE;

/// A closed standard stream is opened on something that refuses what we do with it; otherwise the next file that is
/// opened would take its number and get our output.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1) (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void ignore(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(signal, &action, nullptr);
}

/// Errors of parsing itself are printed as asked for, wherever on the line that is.
void find_how_errors_look(std::span<char*> args) {
  for (std::size_t i = 1; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    const bool json = arg == "--error-format=json" ||
                      (arg == "--error-format" && i + 1 < args.size() && std::string_view(args[i + 1]) == "json");
    if (json) set_error_format(ErrorFormat::Json);
    if (arg == "-q" || arg == "--quiet" || arg == "--log-disable") set_verbosity(Verbosity::Quiet);
  }
}

void refuse_contradictions(const ModelOptions& options) {
  if (options.f8 && options.deterministic)
    throw Error(ErrorKind::Usage,
                "--fp8 and --deterministic contradict each other: what is rounded to FP8 depends on how a prompt is "
                "cut; give one of them");
}

LoadOptions load_options(const ModelOptions& options, LoadOptions::Weights weights) {
  return {.path = options.path,
          .adapters = options.adapters.all(),
          .threads = options.threads,
          .prompt_threads = options.prompt_threads,
          .deterministic = options.deterministic,
          .f8 = options.f8,
          .predicts = options.predicts,
          .weights = weights,
          .files = options.loading.files,
          .prepare = [&options](GgufFile& file, Warnings& warnings) { options.overrides.apply(file, warnings); },
          .examine =
              [&options](const GgufFile& file) {
                if (options.check_tensors) require_sound_tensors(file, options.threads);
              },
          .progress = {}};
}

/// "story.gguf x 0.5, 14 pairs of rank 8, 1.2 MiB"
std::string adapter_text(const LoraAdapter& adapter) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (const auto& [target, pair] : adapter.pairs()) {
    least = std::min(least, pair.rank());
    most = std::max(most, pair.rank());
  }
  const std::size_t n = adapter.pairs().size();
  return escaped(adapter.title()) + ", " + number_text(n) + (n == 1 ? " pair" : " pairs") + " of rank " +
         (least < most ? number_text(least) + " to " : "") + number_text(most) + ", " + bytes_text(adapter.bytes());
}

std::unique_ptr<Model> load_on(const BackendChoice& choice, Model::Opened opened, LoadOptions options) {
  Warnings warnings;
  std::unique_ptr<Model> model;
  {
    Progress progress("loading");
    EventPace pace;
    options.backend = choice.name;
    options.placement = choice.placement;
    options.progress = [&](double fraction) {
      progress.update(fraction);
      if (pace.due(fraction >= 1)) emit_event("load", {{"fraction", fraction}});
    };
    model = Model::load(std::move(opened), options, warnings);
  }
  warn_of_unread(model->file().metadata(), warnings);
  if (options.prompt_threads > 0 && model->kind() != "cpu" && !model->has_host_part())
    warnings.push_back(
        {"no-effect", "--threads-batch has no effect on the backend " + model->kind() + ", only on cpu"});
  print_warnings(warnings);
  for (const LoraAdapter& adapter : model->adapters()) verbose("adapter: " + adapter_text(adapter));
  if (!model->placement().empty()) {
    const bool fitted = choice.placement.layers == PlacementOptions::kFitting && model->has_host_part();
    (fitted || model->devices() > 1 ? note : verbose)(model->placement());
  }
  return model;
}

/// Threads that wait for a CPU while the others wait for them.
void note_too_many_threads(int threads) {
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (cpus <= 0 || threads <= 2 * cpus) return;
  note("-t " + std::to_string(threads) + ": there are " + std::to_string(cpus) + (cpus == 1 ? " CPU" : " CPUs") +
       " here, and more threads make it slower; without -t the number fits");
}

/// Whether the file, as it is, would do.
bool loads_without_overrides(LoadOptions load) {
  load.prepare = {};
  load.weights = LoadOptions::Weights::Leave;
  load.backend = "cpu";
  try {
    Warnings ignored;
    (void)Model::load(Model::open(load), load, ignored);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// A file that lacks what only a changed key asks for is not to blame. Where the key itself is refused, that is said
/// already.
[[noreturn]] void refuse_overrides(const Error& error) {
  ErrorParts parts = error.parts();
  parts.problem += "; with the file's own values, without --override-kv, it is sound";
  throw Error(ErrorKind::Usage, std::move(parts));
}

/// Before its weights are read. Options of a cache are about a draft model, too, whose heads may have another size.
void require_fitting_cache(const Model::Opened& opened, CacheFormat format) {
  const auto misfit = find_misfit(cache_types(opened.graph), format);
  if (!misfit) return;
  const bool keys = misfit->side == CacheMisfit::Side::Keys;
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = opened.file.metadata().file(),
                         .problem = misfit->problem + " for " + (keys ? "--cache-type-k" : "--cache-type-v")});
}

std::unique_ptr<Model> load_by_choice(const ModelOptions& options, LoadOptions::Weights weights) {
  using Failure = BackendChoice::Failure;
  refuse_contradictions(options);
  note_too_many_threads(options.threads);
  const LoadOptions load = load_options(options, weights);
  require_adapters(load.adapters);
  auto opening = std::async([&load] { return Model::open(load); });  // while GPUs are looked for
  const BackendChoice choice = choose_backend(options.placement);
  Model::Opened opened = opening.get();
  require_fitting_cache(opened, options.placement.room.cache);
  try {
    return load_on(choice, std::move(opened), load);
  } catch (const Error& error) {
    const bool of_the_gpu = error.kind() == ErrorKind::Device || error.kind() == ErrorKind::Memory;
    if (choice.failure == Failure::IsTheUsers || options.f8 || !of_the_gpu) throw;
    warn_of_cpu(error.parts().problem);
    warn_of_idle_options(options.placement);
  }
  return load_on({"cpu"}, Model::open(load), load);
}

std::unique_ptr<Model> load_where_it_can_run(const ModelOptions& options, LoadOptions::Weights weights) {
  try {
    return load_by_choice(options, weights);
  } catch (const Error& error) {
    const bool of_a_key = error.kind() == ErrorKind::Model && !options.overrides.keys.empty();
    if (!of_a_key || !loads_without_overrides(load_options(options, weights))) throw;
    refuse_overrides(error);
  }
}

int report(const Error& thrown) {
  const Error error = as_typed(thrown);
  emit_error(error);
  std::string elsewhere;
  if (error.kind() == ErrorKind::Usage || error.kind() == ErrorKind::Device)
    elsewhere = settings_named_in(error.parts().problem + " " + error.parts().subject);
  if (elsewhere.empty()) {
    print_error(error);
  } else {
    ErrorParts parts = error.parts();
    parts.problem += elsewhere;
    print_error(Error(error.kind(), parts));
  }
  print_hint(error);
  return static_cast<int>(error.kind());
}

}  // namespace

int run(std::string_view program, int argc, char** argv, const std::function<int()>& body) {
  open_standard_streams();
  ignore(SIGPIPE);
  ignore(SIGXFSZ);  // a file size limit is then an error of write
  set_program(program);
  report_lost_files();
  count_all_places();
  find_how_errors_look({argv, static_cast<std::size_t>(argc)});
  try {
    const int code = body();
    emit_event("end", {{"code", code}});
    return code;
  } catch (const BrokenPipe&) {
    return kBrokenPipeExit;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorKind::Memory, "out of memory"));
  } catch (const std::exception& error) {
    return report(Error(ErrorKind::Internal, std::string("unexpected: ") + error.what()));
  } catch (...) {
    return report(Error(ErrorKind::Internal, "unexpected exception"));
  }
}

void add_threads_option(Command& cli, int& threads) {
  const auto set = [&threads](const std::string& text) {
    threads = static_cast<int>(std::max<std::int64_t>(parse_integer("-t", text, -1, kMaxThreads), 0));
  };
  cli.add_option_function<std::string>("-t,--threads", set,
                                       "threads (default -1: physical cores, within the CPU quota)")
      ->type_name("N")
      ->take_last();
}

void add_loading_options(Command& cli, ModelOptions& options) {
  const auto set_prompt_threads = [&options](const std::string& text) {
    options.prompt_threads = static_cast<int>(std::max<std::int64_t>(parse_integer("-tb", text, -1, kMaxThreads), 0));
  };
  cli.add_option_function<std::string>("--threads-batch", set_prompt_threads,
                                       "threads that read prompts, in steps of more than 4 tokens (default: as -t)")
      ->type_name("N")
      ->take_last();
  add_file_loading_options(cli, options.loading);
  add_affinity_options(cli);
  add_placement_options(cli, options.placement);
  cli.add_flag("--deterministic", options.deterministic,
               "the same bits however a prompt is cut and whatever runs beside it; slower prompts on a GPU, on the CPU "
               "it is always so");
  cli.add_flag("--fp8", options.f8,
               "on a GPU, prompts and large batches multiply numbers rounded to FP8; faster and less exact, see "
               "docs/cuda.md; changes nothing on the CPU");
  add_override_options(cli, options.overrides);
  cli.add_flag("--check-tensors", options.check_tensors,
               "look for NaN and infinite scales in all weights before the model runs");
}

void add_model_options(Command& cli, ModelOptions& options) {
  add_model_place_options(cli, options);
  add_threads_option(cli, options.threads);
  add_loading_options(cli, options);
}

GgufFile open_file(const ModelOptions& options, Warnings& warnings) {
  GgufFile file = GgufFile::open(options.path, warnings);
  options.overrides.apply(file, warnings);
  return file;
}

std::unique_ptr<Model> load_model(const ModelOptions& options, LoadOptions::Weights weights) {
  std::unique_ptr<Model> model = load_where_it_can_run(options, weights);
  if (options.loading.lock && weights == LoadOptions::Weights::Load) lock_in_memory(*model);
  emit_event("loaded", {{"model", options.path},
                        {"adapters", model->adapters().size()},
                        {"architecture", model->dims().architecture},
                        {"parameters", model->parameter_count()},
                        {"weight_bytes", model->weight_bytes()},
                        {"backend", model->backend().describe()}});
  return model;
}

}  // namespace llm::app
