#include "single_answer.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "answer_json.h"
#include "answer_output.h"
#include "answer_prompt.h"
#include "base/error.h"
#include "base/machine.h"
#include "common/app.h"
#include "common/events.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/signals.h"
#include "form_warning.h"
#include "graph/print.h"
#include "plan.h"
#include "prepared_answer.h"
#include "profile.h"
#include "prompt.h"
#include "prompt_cache.h"
#include "runtime/generator.h"
#include "runtime/memory_budget.h"
#include "runtime/programs.h"
#include "timing_text.h"

namespace llm::app {
namespace {

constexpr int kTimeUp = 124;

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
  Prompt prompt = make_prompt(options, prompts, *tokenizer, text);
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

/// The prompt as the session has room for it, shown where that is wanted.
Prompt fitted(Prompt prompt, const RunOptions& options, const Session& session) {
  fit_prompt(prompt, options.context, session.context(), options.max_tokens);
  if (options.output.display_prompt) show_prompt(prompt);
  return prompt;
}

/// All that an answer is made with.
class SingleAnswer {
 public:
  /// What may still be refused is refused here. The options must outlive it.
  SingleAnswer(const RunOptions&, PreparedAnswer, Clock::time_point start);
  /// The exit code.
  int run(double load_seconds);

 private:
  void observe();
  std::unique_ptr<AnswerOutput> make_output(double load_seconds) const;
  void wire(AnswerOutput&);
  GenerateResult generate(AnswerOutput&);
  static void tell_end(AnswerOutput&, const GenerateResult&);
  void warn(const GenerateResult&) const;
  void tell_figures(const GenerateResult&, double load_seconds) const;

  const RunOptions& options_;
  PreparedAnswer made_;
  Model& model_;
  Drafting& drafting_;
  Session session_;
  const Prompt prompt_;
  PromptCache cache_;
  SequenceId sequence_;
  GenerateOptions generation_;
  Profile profile_;
  EventPace pace_;
  bool said_ = false;  ///< the answer has text
};

SingleAnswer::SingleAnswer(const RunOptions& options, PreparedAnswer made, Clock::time_point start)
    : options_(options),
      made_(std::move(made)),
      model_(*made_.model),
      drafting_(*made_.drafting),
      session_(model_, made_.session),
      prompt_(fitted(std::move(*made_.prompt), options, session_)),
      cache_(options.prompt_cache, std::move(made_.cache), model_, session_),
      sequence_(session_.create()),
      generation_(generate_options(options, std::move(made_.settings), prompt_, session_.context(), start)) {
  generation_.cached = cache_.take(sequence_, prompt_.tokens.ids);
}

int SingleAnswer::run(double load_seconds) {
  observe();
  const auto output = make_output(load_seconds);
  wire(*output);
  const GenerateResult result = generate(*output);
  warn(result);
  cache_.keep(sequence_, prompt_.tokens.ids, result);
  tell_figures(result, load_seconds);
  return result.reason == StopReason::TimeUp ? kTimeUp : signal_exit_code();
}

void SingleAnswer::observe() {
  profile_.begin("prompt");
  if (!options_.profile) return;
  session_.observer = &profile_;
  if (model_.kind() == "cuda") note("--profile waits for the GPU after each node: this run is slower than others");
}

std::unique_ptr<AnswerOutput> SingleAnswer::make_output(double load_seconds) const {
  return make_answer_output(options_.output, options_.chat.reasoning,
                            {.model = std::filesystem::path(options_.model.path).filename().string(),
                             .seed = generation_.answer.sampling.seed,
                             .load_seconds = load_seconds,
                             .cached_tokens = generation_.cached,
                             .prefill = options_.output.prefill,
                             .reasoning = prompt_.reasoning},
                            model_.tokenizer());
}

/// Who hears of each token, and what a signal does until the first one.
void SingleAnswer::wire(AnswerOutput& output) {
  generation_.speculation = drafting_.start(session_);
  generation_.step = [this, &output](const Answer& a, const AnswerText& piece) {
    output.step(a, piece);
    said_ = said_ || !piece.text.empty();
    if (pace_.due(a.ended())) emit_event("decode", {{"tokens", a.tokens().size()}});
  };
  if (!cache_.wanted()) return;
  set_stop_words(note_line(kStopsBehindStep));  // what was read until then is kept
  on_signal(OnSignal::AskToStop);
}

GenerateResult SingleAnswer::generate(AnswerOutput& output) {
  std::optional<Progress> bar(std::in_place, "reading the prompt");
  EventPace pace;
  GenerateOptions options = generation_;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (pace.due(done == total)) emit_event("prefill", {{"done", done}, {"total", total}});
    bar->update(static_cast<double>(done) / static_cast<double>(total));
    if (done < total) return;
    bar.reset();
    set_stop_words("");
    profile_.begin("generation");
    on_signal(OnSignal::AskToStop);  // from here on there is text that a signal must not cut
    output.begin();
  };
  GenerateResult result = llm::generate(session_, model_, sequence_, prompt_.tokens.ids, options);
  bar.reset();
  tell_end(output, result);
  return result;
}

void SingleAnswer::tell_end(AnswerOutput& output, const GenerateResult& result) {
  const std::string_view reason = finish_reason(result.reason);
  output.finish(result, reason);
  emit_event("done", {{"finish_reason", reason},
                      {"prompt_tokens", result.prompt_tokens},
                      {"completion_tokens", result.generated_tokens},
                      {"reasoning_tokens", result.thinking_tokens},
                      {"prompt_seconds", result.prompt_seconds},
                      {"first_token_seconds", result.first_token_seconds},
                      {"decode_seconds", result.generate_seconds}});
}

void SingleAnswer::warn(const GenerateResult& result) const {
  warn_of_shifts(result, session_.context(), generation_.keep);
  warn_of_cut_form(result, "a larger -n gives it room");
  warn_of_drafts(generation_.speculation);
}

void SingleAnswer::tell_figures(const GenerateResult& result, double load_seconds) const {
  std::string programs = session_.describe();
  if (programs.ends_with('\n')) programs.pop_back();
  verbose(programs);
  const std::string drafted = drafting_.describe();
  if (!drafted.empty()) verbose(drafted);
  if (options_.profile) show(profile_.table() + (drafted.empty() ? "" : "\n" + drafted));
  say_if_only_thought(result, said_);
  if (!options_.output.show_timings.value_or(true)) return;
  const auto tell = options_.output.show_timings ? show : say;
  const std::string seed = options_.sampling.seed_drawn ? seed_text(generation_.answer.sampling) : "";
  tell(timing(load_seconds, generation_.cached, result, seed));
}

}  // namespace

int answer_prompt(const RunOptions& options, Clock::time_point start) {
  Asked asked = read_asked(options);
  const Clock::duration awaited = asked.awaited;
  install_signal_handlers();
  if (options.explain_prompt) {
    explain_prompt(options, *asked.prompt);
    return 0;
  }
  PreparedAnswer made = prepare_answer(options, std::move(asked), LoadOptions::Weights::Load);
  if (!options.dump_graph.empty()) dump_graph(*made.model, options.dump_graph, std::ssize(made.prompt->tokens.ids));
  SingleAnswer answer(options, std::move(made), start);
  redirect_stdout(options.batch.output);  // from here on nothing is refused any more
  return answer.run(seconds_since(start + awaited));
}

int plan_answer(const RunOptions& options) {
  PreparedAnswer made = prepare_answer(options, read_asked(options), LoadOptions::Weights::Leave);
  if (!options.dump_graph.empty())
    dump_graph(*made.model, options.dump_graph, made.prompt ? std::ssize(made.prompt->tokens.ids) : 1);
  if (made.prompt) write_stdout(plan_line("prompt", number_text(made.prompt->tokens.ids.size()) + " tokens"));
  const int code = print_memory_plan(*made.model, made.session, made.drafting->memory_text());
  if (code != 0 || !made.prompt) return code;
  const ContextChoice chosen = choose_context(memory_request(*made.model, made.session));
  fit_prompt(*made.prompt, options.context, chosen.context, options.max_tokens);
  return 0;
}

}  // namespace llm::app
