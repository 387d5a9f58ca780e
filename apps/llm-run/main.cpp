// llm-run: one prompt, one answer. Only the answer goes to stdout.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "answer_json.h"
#include "answer_options.h"
#include "answer_output.h"
#include "answer_prompt.h"
#include "base/clock.h"
#include "base/machine.h"
#include "batch.h"
#include "chat.h"
#include "common/app.h"
#include "common/events.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/signals.h"
#include "constrain/grammar.h"
#include "constrain/token_masks.h"
#include "form_warning.h"
#include "graph/print.h"
#include "options.h"
#include "plan.h"
#include "profile.h"
#include "prompt.h"
#include "prompt_cache.h"
#include "runtime/generator.h"
#include "runtime/programs.h"
#include "timing_text.h"
#include "tuning.h"

namespace llm::app {
namespace {

/// Both graphs of the bucket that a prompt of `tokens` starts with.
void dump_graph(const Model& model, const std::string& path, std::int64_t tokens) {
  const int n = static_cast<int>(std::min<std::int64_t>(tokens, kMaxBatchTokens));
  const Bucket bucket{.tokens = n, .sequences = 1, .outputs = n};
  const Graph before = model.graph_before_passes(bucket), after = model.graph(bucket);
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  if (path.ends_with(".dot")) {
    out << to_dot(before) << to_dot(after);
  } else {
    out << "# before passes\n" << to_text(before) << "# after passes\n" << to_text(after);
  }
  out.flush();
  if (!out)
    throw Error(ErrorKind::Io,
                ErrorParts{.file = path, .problem = std::string("cannot write the graph: ") + std::strerror(errno)});
}

/// Needs no weights.
void explain_prompt(const RunOptions& options, const std::string& text) {
  Warnings warnings;
  const GgufFile file = open_file(options.model, warnings);
  const auto tokenizer = Tokenizer::load(file.metadata(), warnings);
  print_warnings(warnings);
  const PromptMaker prompts(options.chat, file.metadata(), *tokenizer);
  prompts.say_what_is_lost();
  Prompt prompt = prompts.from_text({text, {}});
  add_prefill(prompt, options.output.prefill, *tokenizer);
  warn_of_lost_bytes(prompt, *tokenizer);
  if (prompt.reasoning) {
    ReasoningParser begun(prompt.reasoning->markers, prompt.reasoning->begins);
    (void)begun.push(options.output.prefill);
    prompt.reasoning->begins = begun.phase();
  }
  const std::string explained = explain(prompt, *tokenizer);
  write_stdout(stdout_is_terminal() ? terminal_safe(explained) : explained);
}

/// What ends inside of the thinking, or right behind it, has nothing to show.
void say_if_only_thought(const GenerateResult& r, bool said) {
  const bool cut = r.reason == StopReason::Cancelled || r.reason == StopReason::TimeUp;
  if (r.thinking_tokens == 0 || said || cut) return;
  const std::string after = ", after " + number_text(r.generated_tokens) + " tokens";
  if (r.reason == StopReason::Length || r.reason == StopReason::ContextFull) {
    note("the answer ended inside its thinking" + after +
         ": a larger -n or a --reasoning-budget leaves room for what it would say");
  } else {
    note("the model ended without an answer to its thinking" + after);
  }
}

std::string timing(double load_seconds, std::int64_t cached, const GenerateResult& r, const std::string& seed) {
  const std::string stop(signal_exit_code() != 0 ? "interrupted" : name(r.reason));
  return "load " + fixed_text(load_seconds, 1) + "s · " +
         timing_text(r, cached > 0 ? std::optional(cached) : std::nullopt) + " · peak " +
         bytes_text(peak_resident_bytes()) + seed + " · stop: " + stop;
}

void say_choices(Model& model, const RunOptions& options) {
  note_long_context(options, model);
  const ThreadChoice threads = default_threads();
  verbose(model.backend().describe());
  verbose("threads: " + (options.model.threads > 0
                             ? std::to_string(options.model.threads) + (options.tune ? " (--tune)" : " (-t)")
                             : std::to_string(threads.threads) + " (" + threads.reason + ")"));
  verbose("model: " + model.dims().architecture + ", " + number_text(model.parameter_count()) +
          " parameters, weights " + bytes_text(model.weight_bytes()) + ", tokenizer " + model.tokenizer().describe());
}

/// Behind the answer: among its words a line would be in the way.
void warn_of_shifts(const GenerateResult& result, std::int64_t context, std::optional<std::int64_t> keep) {
  const Window::Shifts& shifts = result.shifts;
  if (keep && result.reason == StopReason::ContextFull) {
    const std::string behind =
        *keep > 0 ? "behind the " + number_text(*keep) + " that stay (--keep, and what begins every text)" : "there";
    print_warnings(
        {{"ctx-shift", "the context of " + number_text(context) + " tokens was full, and the answer ended: " + behind +
                           " is no older half to go on without"}});
  }
  if (shifts.times == 0) return;
  print_warnings({{"ctx-shift", "the context of " + number_text(context) + " tokens was full " +
                                    (shifts.times == 1 ? "once" : number_text(shifts.times) + " times") +
                                    ": the answer went on without what was oldest, " + number_text(shifts.tokens) +
                                    (shifts.tokens == 1 ? " token" : " tokens") + " in all"}});
}

constexpr int kTimeUp = 124;
constexpr int kWarned = 10;

GenerateResult answer(Model& model, Session& session, SequenceId sequence, std::span<const Token> prompt,
                      GenerateOptions options, AnswerOutput& output, Profile& profile) {
  std::optional<Progress> bar(std::in_place, "reading the prompt");
  EventPace pace;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (pace.due(done == total)) emit_event("prefill", {{"done", done}, {"total", total}});
    bar->update(static_cast<double>(done) / static_cast<double>(total));
    if (done < total) return;
    bar.reset();
    set_stop_words("");
    profile.begin("generation");
    on_signal(OnSignal::AskToStop);  // from here on there is text that a signal must not cut
    output.begin();
  };
  GenerateResult result = generate(session, model, sequence, prompt, options);
  bar.reset();
  const std::string_view reason = finish_reason(result.reason);
  output.finish(result, reason);
  emit_event("done", {{"finish_reason", reason},
                      {"prompt_tokens", result.prompt_tokens},
                      {"completion_tokens", result.generated_tokens},
                      {"reasoning_tokens", result.thinking_tokens},
                      {"prompt_seconds", result.prompt_seconds},
                      {"first_token_seconds", result.first_token_seconds},
                      {"decode_seconds", result.generate_seconds}});
  return result;
}

GenerateOptions generate_options(const RunOptions& o, AnswerOptions settings, const Prompt& prompt,
                                 std::int64_t context, Clock::time_point start) {
  GenerateOptions g{.answer = std::move(settings), .cancel = &stop_requested()};
  if (o.output.max_seconds) {
    g.deadline =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*o.output.max_seconds));
  }
  if (o.max_tokens != kUntilContextIsFull) g.keep = kept_tokens(prompt, o.context, context);
  return g;
}

void show_prompt(const Prompt& prompt) {
  show(stderr_is_terminal() ? terminal_safe(prompt.text.text) : prompt.text.text);
}

/// Without weights: the prompt against the context, and what the run would take.
int dry_run(const RunOptions& options) {
  std::optional<std::string> text;
  if (options.prompt.given()) {
    mention_unread_stdin(options.prompt);
    text = read_prompt(options.prompt);
  }
  std::optional<Grammar> grammar = compile_constraint(options.constraint);
  const std::unique_ptr<Model> model = load_model(options.model, LoadOptions::Weights::Leave);
  (void)answer_options(options, options.sampling, grammar ? constraint_for(*std::move(grammar), *model) : nullptr,
                       *model);  // what the answer would be refused for
  const Drafting drafting(options.speculation, options.model, *model, options.context.cache,
                          LoadOptions::Weights::Leave);
  note_long_context(options, *model);
  SessionOptions session = session_options(options, *model);
  session.beside = drafting.memory();
  const auto print_plan = [&] { return print_memory_plan(*model, session, drafting.memory_text()); };
  if (!text) return print_plan();
  const PromptMaker prompts(options.chat, model->file().metadata(), model->tokenizer());
  prompts.say_what_is_lost();
  Prompt prompt = prompts.from_text({*text, {}});
  add_prefill(prompt, options.output.prefill, model->tokenizer());
  warn_of_lost_bytes(prompt, model->tokenizer());
  write_stdout("prompt                " + number_text(prompt.tokens.ids.size()) + " tokens\n");
  if (const int code = print_plan(); code != 0) return code;
  fit_prompt(prompt, options.context, choose_context(memory_request(*model, session)).context, options.max_tokens);
  return 0;
}

int answer_prompt(const RunOptions& options, Clock::time_point start) {
  const Clock::time_point asked = Clock::now();
  mention_unread_stdin(options.prompt);
  const std::string prompt_text = read_prompt(options.prompt);
  const Clock::duration awaited = Clock::now() - asked;  // of whoever writes it: no part of the time to load
  std::optional<Grammar> grammar = compile_constraint(options.constraint);
  install_signal_handlers();
  if (options.explain_prompt) {
    explain_prompt(options, prompt_text);
    return 0;
  }
  const std::unique_ptr<Model> model = load_model(options.model);
  const PromptMaker prompts(options.chat, model->file().metadata(), model->tokenizer());
  prompts.say_what_is_lost();
  Prompt prompt = prompts.from_text({prompt_text, {}});
  add_prefill(prompt, options.output.prefill, model->tokenizer());
  warn_of_lost_bytes(prompt, model->tokenizer());
  verbose("prompt: " + (prompt.made_by.empty() ? "raw text" : "by " + prompt.made_by));
  if (!options.dump_graph.empty())
    dump_graph(*model, options.dump_graph, static_cast<std::int64_t>(prompt.tokens.ids.size()));
  say_choices(*model, options);
  std::shared_ptr<TokenMasks> constraint = grammar ? constraint_for(*std::move(grammar), *model) : nullptr;
  AnswerOptions settings = answer_options(options, options.sampling, std::move(constraint), *model);
  settings.reasoning = prompt.reasoning;
  if (settings.reasoning) settings.reasoning->begun = options.output.prefill;
  Drafting drafting(options.speculation, options.model, *model, options.context.cache);
  SessionOptions session_settings = session_options(options, *model);
  session_settings.beside = drafting.memory();
  Session session(*model, session_settings);
  fit_prompt(prompt, options.context, session.context(), options.max_tokens);
  if (options.output.display_prompt) show_prompt(prompt);
  PromptCache cache(options.prompt_cache, *model, session);
  const SequenceId sequence = session.create();
  const std::int64_t cached = cache.take(sequence, prompt.tokens.ids);
  // From here on nothing is refused any more.
  redirect_stdout(options.batch.output);
  const double load_seconds = seconds_since(start + awaited);

  Profile profile;
  profile.begin("prompt");
  if (options.profile) {
    session.observer = &profile;
    if (model->kind() == "cuda") note("--profile waits for the GPU after each node: this run is slower than others");
  }
  const auto output = make_answer_output(options.output, options.chat.reasoning,
                                         {.model = std::filesystem::path(options.model.path).filename().string(),
                                          .seed = settings.sampling.seed,
                                          .load_seconds = load_seconds,
                                          .cached_tokens = cached,
                                          .prefill = options.output.prefill,
                                          .reasoning = prompt.reasoning},
                                         model->tokenizer());
  GenerateOptions generation = generate_options(options, std::move(settings), prompt, session.context(), start);
  generation.speculation = drafting.start(session);
  EventPace pace;
  bool said = false;
  generation.step = [&](const Answer& a, const AnswerText& piece) {
    output->step(a, piece);
    said = said || !piece.text.empty();
    if (pace.due(a.ended())) emit_event("decode", {{"tokens", a.tokens().size()}});
  };
  generation.cached = cached;
  if (cache.wanted()) {  // what was read until then is kept
    set_stop_words(note_line(kStopsBehindStep));
    on_signal(OnSignal::AskToStop);
  }
  const GenerateResult result = answer(*model, session, sequence, prompt.tokens.ids, generation, *output, profile);
  warn_of_shifts(result, session.context(), generation.keep);
  warn_of_cut_form(result, "a larger -n gives it room");
  warn_of_drafts(generation.speculation);
  cache.keep(sequence, prompt.tokens.ids, result);
  std::string programs = session.describe();
  if (programs.ends_with('\n')) programs.pop_back();
  verbose(programs);
  const std::string drafted = drafting.describe();
  if (!drafted.empty()) verbose(drafted);
  if (options.profile) show(profile.table() + (drafted.empty() ? "" : "\n" + drafted));
  say_if_only_thought(result, said);
  if (options.output.show_timings.value_or(true)) {
    const auto tell = options.output.show_timings ? show : say;
    const std::string seed = options.sampling.seed_drawn ? seed_text(generation.answer.sampling) : "";
    tell(timing(load_seconds, cached, result, seed));
  }
  return result.reason == StopReason::TimeUp ? kTimeUp : signal_exit_code();
}

int body(int argc, char** argv) {
  const auto start = Clock::now();
  RunOptions options;
  if (const auto code = read_options(argc, argv, options)) return *code;
  const bool runs = !options.dry_run && !options.explain_prompt;
  if (options.tune && !runs) note("--tune has nothing to measure: the model is not run");
  if (runs || options.batch.wanted()) {  // how long a batch takes is told for the threads that it would have
    options.tune = tune_threads(options.model, runs && options.tune ? Tune::Measure : Tune::TakeStored);
  }
  const int code = options.batch.wanted() ? run_batch_mode(options)
                   : wants_chat(options)  ? run_chat(options)
                   : options.dry_run      ? dry_run(options)
                                          : answer_prompt(options, start);
  return code == 0 && options.strict && warnings_printed() > 0 ? kWarned : code;
}

}  // namespace
}  // namespace llm::app

int main(int argc, char** argv) {
  return llm::app::run("llm-run", argc, argv, [&] { return llm::app::body(argc, argv); });
}
