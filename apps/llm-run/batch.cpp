#include "batch.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "answer_options.h"
#include "base/output_file.h"
#include "batch_input.h"
#include "batch_output.h"
#include "batch_progress.h"
#include "batch_response.h"
#include "batch_rows.h"
#include "batch_state.h"
#include "batch_time.h"
#include "batch_warnings.h"
#include "common/messages.h"
#include "common/signals.h"
#include "constrain/token_masks.h"
#include "plan.h"
#include "prompt.h"
#include "runtime/batch_outlook.h"
#include "runtime/scheduler.h"
#include "shaping_options.h"

namespace llm::app {
namespace {

constexpr int kSomeRowsFailed = 7;
constexpr const char* kGoesOn = "stopped; --resume goes on after the rows that are done";

BatchStart start_mode(const BatchOptions& o) {
  if (o.retry_failed) return BatchStart::RetryFailed;
  if (o.resume) return BatchStart::Resume;
  return o.overwrite ? BatchStart::Overwrite : BatchStart::Fresh;
}

bool goes_on(BatchStart start) { return start == BatchStart::Resume || start == BatchStart::RetryFailed; }

bool was_stopped(const BatchResult& r) { return r.reason == StopReason::Cancelled; }
bool was_late(const BatchResult& r) { return r.reason == StopReason::TimeUp; }

class BatchRun {
 public:
  explicit BatchRun(const RunOptions& o) : options_(o), start_(start_mode(o.batch)), choices_(o.sampling) {}
  int run();
  int plan();

 private:
  /// A row of the input that is to be answered; `index` is its place there.
  struct Work {
    std::size_t index;
    std::vector<std::optional<BatchResult>> choices;
    std::size_t missing = 0;
    AnswerShape shape{};
    std::int64_t prompt_tokens = 0;
  };

  /// What the output says of a row.
  struct Result {
    Json line;
    RowOutcome outcome;
  };

  void take_seed_and_time();
  void read_rows();
  struct Done {
    std::size_t answered = 0, failed = 0;
  };
  Done mark_known(const std::map<std::string, RowOutcome>& known);
  void skip_known();
  void require_same_rows(const std::map<std::string, RowOutcome>& known) const;
  void load(std::optional<Grammar>, LoadOptions::Weights);
  void warn_of_what_is_lost() const;
  void fail_what_is_too_long(const SessionOptions&);
  BatchState new_state() const;
  void open_state();
  void plan_of_what_is_done();
  void encode_rows();
  void encode(std::size_t index);
  int rows_at_once() const;
  RowOrder row_order() const;
  SessionOptions session_of(int parallel) const;
  void compute();
  void finished(BatchResult&&);
  BatchControl after_step(const BatchProgress&, BatchProgressLine&);
  void say_rows_at_once(int parallel, const Session&) const;
  void fail_row(std::size_t index, const RowFailure&);
  void remember_failure(std::size_t index, const RowFailure&);
  void put(std::size_t index, Result);
  void drop_held();
  void save_state(std::string status);
  bool ends_early() const;
  bool too_many_failures() const;
  void say_summary(double seconds) const;

  const RunOptions& options_;
  BatchStart start_;
  SamplingChoices choices_;
  AnswerOptions common_;  ///< of rows that ask for nothing else
  std::optional<BatchState> before_;
  std::int64_t time_ = std::time(nullptr);  ///< that templates read: one for all rows, also of a run that goes on
  std::vector<BatchRequest> requests_;      ///< all rows of the input
  std::vector<bool> known_;                 ///< by index: the output has them already
  std::optional<BatchOutput> output_;
  std::unique_ptr<Model> model_;
  std::optional<PromptMaker> prompts_;
  std::optional<BatchRowMaker> row_maker_;
  BatchState state_;

  std::vector<BatchRow> rows_;
  std::vector<std::pair<std::size_t, std::size_t>> choice_of_;  ///< work and choice of each of rows_
  std::vector<Work> work_;
  std::vector<std::pair<std::size_t, std::string>> with_lost_bytes_;  ///< lines, and what is to say of them
  std::map<std::size_t, Result> held_;                                ///< that wait for their turn, by index
  std::size_t next_in_order_ = 0;
  std::size_t answered_ = 0, failed_ = 0;  ///< in this run
  std::string first_failure_;              ///< its line, and why
  bool may_go_well_ = false;               ///< a row failed for what it says not, and may be answered another time
  BatchProgress progress_;
  bool draining_ = false;
};

void BatchRun::take_seed_and_time() {
  const std::string path = state_path(options_.batch.output);
  if (goes_on(start_)) before_ = read_state(path);
  if (!before_) return;
  if (before_->time > 0) time_ = before_->time;
  if (choices_.seed_drawn) choices_.seed = before_->seed;
  if (*choices_.seed == before_->seed) return;
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = path,
                         .problem = "the results there were written with the seed " + std::to_string(before_->seed) +
                                    ", not " + std::to_string(*choices_.seed) + "; leave -s out"});
}

void BatchRun::read_rows() {
  const BatchOptions& o = options_.batch;
  RowRules rules;
  if (o.template_row) rules.template_row.emplace(*o.template_row);
  requests_ = read_batch(o.input, batch_format(o.format, o.input), rules, o.limit);
  print_warnings(warnings_of_keys(requests_));
  note_options_beside(requests_);
}

/// Finds the rows that the results have, tells of what else these are, and refuses those of other rows.
BatchRun::Done BatchRun::mark_known(const std::map<std::string, RowOutcome>& known) {
  known_.assign(requests_.size(), false);
  if (known.empty()) return {};
  if (!before_) {
    print_warnings({{"no-state", state_path(options_.batch.output) +
                                     " is missing: nobody knows if the results that are there had these options"}});
  }
  Done done;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const auto found = known.find(requests_[i].id);
    if (found == known.end()) continue;
    known_[i] = true;
    ++(found->second == RowOutcome::Failed ? done.failed : done.answered);
  }
  require_same_rows(known);
  const std::size_t strangers = known.size() - done.answered - done.failed;
  if (strangers > 0)
    note(std::to_string(strangers) + " results are of rows that " +
         (options_.batch.limit > 0 ? "--limit leaves out or " : "") + "the input does not have");
  return done;
}

void BatchRun::skip_known() {
  const Done done = mark_known(output_->known());
  if (output_->known().empty()) return;
  say(std::to_string(done.answered + done.failed) + " of " + std::to_string(requests_.size()) + " rows are done" +
      (done.failed > 0 ? ", " + std::to_string(done.failed) + " of them failed; --retry-failed runs those again" : ""));
}

/// An answer belongs to what its row said when it was written.
void BatchRun::require_same_rows(const std::map<std::string, RowOutcome>& known) const {
  if (!before_) return;
  std::vector<const BatchRequest*> changed;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const auto then = before_->digests.find(requests_[i].id);
    if (known_[i] && then != before_->digests.end() && then->second != requests_[i].digest)
      changed.push_back(&requests_[i]);
  }
  if (changed.empty()) return;
  const auto failed = [&](const BatchRequest* r) { return known.at(r->id) == RowOutcome::Failed; };
  if (std::all_of(changed.begin(), changed.end(), failed))
    throw Error(ErrorKind::Usage, ErrorParts{.file = options_.batch.output,
                                             .problem = "row \"" + escaped(changed[0]->id) +
                                                        "\", which failed, has another text now; --retry-failed runs " +
                                                        "rows again that were corrected"});
  throw Error(
      ErrorKind::Usage,
      ErrorParts{
          .file = options_.batch.output,
          .problem =
              "the answer of row \"" + escaped(changed[0]->id) + "\" was written for another text than line " +
              std::to_string(changed[0]->line) + " of the input has now" +
              (changed.size() > 1 ? ", with " + std::to_string(changed.size() - 1) + " more like it" : "") +
              "; put the rows back, take another file with -o, or --force to begin anew (rows that have an \"id\" "
              "may change their places)"});
}

/// The model, and what all rows have in common.
void BatchRun::load(std::optional<Grammar> grammar, LoadOptions::Weights weights) {
  model_ = load_model(options_.model, weights);
  prompts_.emplace(options_.chat, model_->file().metadata(), model_->tokenizer());
  prompts_->hold_time(std::chrono::system_clock::from_time_t(static_cast<std::time_t>(time_)));
  const auto reads_template = [&](const RowPrompt& prompt) {
    return std::holds_alternative<PlainPrompt>(prompt) ||
           (std::holds_alternative<ChatPrompt>(prompt) && prompts_->has_template());
  };
  const auto any_does = [&](const BatchRequest& r) {
    return std::any_of(r.prompts.begin(), r.prompts.end(), reads_template);
  };
  const bool any_chat = std::any_of(requests_.begin(), requests_.end(), any_does);
  if (any_chat) prompts_->say_what_is_lost();
  const ChatOptions& chat = options_.chat;
  const bool of_chats = chat.system || !chat.system_file.empty() || !chat.template_text.empty() ||
                        !chat.template_file.empty() || !chat.template_kwargs.empty();
  if (of_chats && !any_chat)
    print_warnings({{"no-effect",
                     "-sys and the options of chat templates do nothing: no row is a chat, a \"prompt\" is "
                     "completed as it is (\"messages\" are chats)"}});
  auto constraint = grammar ? constraint_for(*std::move(grammar), *model_) : nullptr;
  common_ = resolve_answer_options(options_, choices_, std::move(constraint), *model_);
  row_maker_.emplace(*model_, *prompts_, common_, options_.output.max_seconds);
  warn_of_what_is_lost();
  note_long_context(options_, *model_);
}

void BatchRun::warn_of_what_is_lost() const {
  print_warnings(warnings_of_other_models(requests_, options_.model, model_->file().metadata()));
  if (!prompts_->has_template()) return;
  print_warnings(warnings_of_unread_variables(requests_, *prompts_));
  print_warnings(warnings_of_unknown_roles(requests_, *prompts_));
}

BatchState BatchRun::new_state() const {
  std::map<std::string, std::string> digests;
  for (const BatchRequest& r : requests_) digests.emplace(r.id, r.digest);
  if (before_) digests.insert(before_->digests.begin(), before_->digests.end());  // of results without a row
  Json shaping = shaping_options(options_, common_.sampling, *prompts_, model_->backend());
  const BatchOptions& o = options_.batch;
  if (const BatchFormat format = batch_format(o.format, o.input); format != BatchFormat::Jsonl)
    shaping["--batch-format"] = format == BatchFormat::Csv ? "csv" : "lines";
  return {.options = std::move(shaping),
          .seed = common_.sampling.seed,
          .time = time_,
          .model = describe_model(*model_),
          .rows = requests_.size(),
          .digests = std::move(digests),
          .status = "running"};
}

void BatchRun::open_state() {
  state_ = new_state();
  if (output_->is_file()) {
    if (before_) require_same_run(state_path(options_.batch.output), *before_, state_);
    output_->prepare();
    save_state("running");
  }
}

void BatchRun::save_state(std::string status) {
  state_.status = std::move(status);
  state_.answered = answered_;
  state_.failed = failed_;
  for (const auto& [id, outcome] : output_->known())
    ++(outcome == RowOutcome::Failed ? state_.failed : state_.answered);
  if (output_->is_file()) write_state(state_path(options_.batch.output), state_);
}

void BatchRun::encode(std::size_t index) {
  const BatchRequest& r = requests_[index];
  if (r.failure) return fail_row(index, *r.failure);
  RequestRows made = row_maker_->rows_of(r);
  if (made.failure) return fail_row(index, *made.failure);
  if (!made.lost.empty()) with_lost_bytes_.emplace_back(r.line, std::move(made.lost));
  const std::size_t n = made.rows.size();
  for (std::size_t choice = 0; choice < n; ++choice) choice_of_.emplace_back(work_.size(), choice);
  std::move(made.rows.begin(), made.rows.end(), std::back_inserter(rows_));
  work_.push_back({.index = index,
                   .choices = std::vector<std::optional<BatchResult>>(n),
                   .missing = n,
                   .shape = made.shape,
                   .prompt_tokens = made.prompt_tokens});
}

void BatchRun::encode_rows() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (ends_early()) break;
    if (!known_[i]) encode(i);
  }
  print_warnings(warnings_of_lost_bytes(with_lost_bytes_));
}

void BatchRun::fail_row(std::size_t index, const RowFailure& failure) {
  remember_failure(index, failure);
  if (output_) {
    put(index, {failure_line(requests_[index], failure), RowOutcome::Failed});
  } else {
    print_warnings({{"bad-row", "line " + std::to_string(requests_[index].line) + ": " + failure.message}});
  }
  ++failed_;
}

void BatchRun::remember_failure(std::size_t index, const RowFailure& failure) {
  if (failure.code == RowFailure::Code::Timeout || failure.code == RowFailure::Code::Internal) may_go_well_ = true;
  if (first_failure_.empty())
    first_failure_ = "line " + std::to_string(requests_[index].line) + ", " + std::string(name(failure.code)) + ": " +
                     failure.message;
}

/// Lines go out as they come, or wait for those of the rows before them.
void BatchRun::put(std::size_t index, Result result) {
  // Text of a model is UTF-8; what a broken row quotes need not be.
  const auto write = [&](const Json& l) { output_->append(l.dump(-1, ' ', false, Json::error_handler_t::replace)); };
  if (options_.batch.order == BatchOptions::Order::Done) return write(result.line);
  held_.emplace(index, std::move(result));
  for (;;) {
    while (next_in_order_ < known_.size() && known_[next_in_order_]) ++next_in_order_;
    const auto turn = held_.find(next_in_order_);
    if (turn == held_.end()) return;
    const auto next = held_.extract(turn);  // no longer held, if it cannot be written
    write(next.mapped().line);
    ++next_in_order_;
  }
}

void BatchRun::finished(BatchResult&& result) {
  const auto [w, c] = choice_of_[result.row];
  Work& work = work_[w];
  if (!options_.chat.reasoning.is_apart()) result.thinking.clear();  // the text has it
  work.choices[c] = std::move(result);
  if (--work.missing > 0) return;
  std::vector<BatchResult> choices;
  for (std::optional<BatchResult>& choice : work.choices) choices.push_back(std::move(*choice));
  work.choices.clear();
  const auto bad =
      std::find_if(choices.begin(), choices.end(), [](const BatchResult& r) { return r.error.has_value(); });
  if (bad != choices.end()) return fail_row(work.index, failure_of_answer(*bad->error));
  // A row that was stopped, if only in one of its choices, has no result: it is run again when the batch goes on.
  if (std::any_of(choices.begin(), choices.end(), was_stopped)) return;
  const BatchRequest& request = requests_[work.index];
  const AnsweringModel model{
      .name = model_name(*model_), .tokenizer = model_->tokenizer(), .seed = common_.sampling.seed, .created = time_};
  if (std::any_of(choices.begin(), choices.end(), was_late)) {
    const RowFailure late = too_late_for(*options_.output.max_seconds);
    remember_failure(work.index, late);
    put(work.index, {timeout_line(request, choices, model, work.shape, work.prompt_tokens, late), RowOutcome::Failed});
    ++failed_;
    return;
  }
  put(work.index, {answer_line(request, choices, model, work.shape, work.prompt_tokens), RowOutcome::Answered});
  ++answered_;
}

/// Lines that wait for that of a row that was stopped have no place in the output.
void BatchRun::drop_held() {
  if (held_.empty()) return;
  for (const auto& [index, result] : held_) --(result.outcome == RowOutcome::Failed ? failed_ : answered_);
  note(std::to_string(held_.size()) +
       " rows were done before their turn came; they are not written and will be run again");
  held_.clear();
}

/// Of a plan: never, it counts all rows.
bool BatchRun::ends_early() const { return output_ && (too_many_failures() || stop_requested().load()); }

bool BatchRun::too_many_failures() const {
  if (!options_.batch.max_failures) return false;
  const auto [value, percent] = *options_.batch.max_failures;
  const double most = percent ? value / 100 * static_cast<double>(requests_.size()) : value;
  return static_cast<double>(failed_) > most;
}

BatchControl BatchRun::after_step(const BatchProgress& p, BatchProgressLine& line) {
  progress_ = p;
  output_->sync_when_due();
  line.update(answered_ + failed_, failed_, p);
  if (too_many_failures()) return BatchControl::Stop;
  if (!stop_requested().load()) return BatchControl::Continue;
  if (signal_exit_code() != kInterrupted) return BatchControl::Stop;
  if (!std::exchange(draining_, true)) {
    line.drain();
    line.clear();
    say("finishing the " + (p.rows_running == 1 ? "row that runs" : std::to_string(p.rows_running) + " rows that run") +
        "; Ctrl-C again ends at once" + (output_->is_file() ? ", and --resume goes on in either case" : ""));
    if (output_->is_file()) set_last_words(note_line(kGoesOn));  // again, for the time that JSON tells
  }
  return BatchControl::Drain;
}

int BatchRun::rows_at_once() const {
  const int wanted = options_.batch.parallel > 0 ? options_.batch.parallel : model_->backend().rows_at_once();
  return static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(wanted), rows_.size()));
}

/// Lines that wait for their turn are lost if the run ends: in that order rows are run as well.
RowOrder BatchRun::row_order() const {
  return options_.batch.order == BatchOptions::Order::Input ? RowOrder::AsGiven : RowOrder::ByBeginning;
}

SessionOptions BatchRun::session_of(int parallel) const {
  SessionOptions o = session_options(options_, *model_);
  o.sequences = batch_sequences(parallel);
  o.pool = 0;
  return o;
}

/// The rows that the results have are skipped, as a run would skip them, and what it would refuse is refused.
void BatchRun::plan_of_what_is_done() {
  const std::filesystem::path path = options_.batch.output;
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return;
  const BatchOutput results(path.string(), start_);
  if (!goes_on(start_)) return;
  const Done done = mark_known(results.known());
  print_batch_progress(done.answered, done.failed, requests_.size() - done.answered - done.failed);
}

/// Of a plan: rows that the run would find too long for its context.
void BatchRun::fail_what_is_too_long(const SessionOptions& session) {
  const std::optional<std::int64_t> context = context_that_fits(*model_, session);
  std::map<std::size_t, std::int64_t> too_long;  // the tokens, by the work
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::int64_t tokens = std::ssize(*rows_[i].prompt);
    if (context && tokens > *context) too_long.emplace(choice_of_[i].first, tokens);
  }
  for (const auto& [work, tokens] : too_long) fail_row(work_[work].index, too_long_for(*context, tokens));
  std::vector<BatchRow> kept;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!too_long.contains(choice_of_[i].first)) kept.push_back(std::move(rows_[i]));
  }
  rows_ = std::move(kept);
}

/// What run() would do, without touching the output.
int BatchRun::plan() {
  take_seed_and_time();
  read_rows();
  known_.assign(requests_.size(), false);
  load(compile_constraint(options_.constraint), LoadOptions::Weights::Leave);
  if (before_) require_same_run(state_path(options_.batch.output), *before_, new_state());
  plan_of_what_is_done();
  encode_rows();
  if (!rows_.empty()) fail_what_is_too_long(session_of(rows_at_once()));
  std::vector<std::span<const Token>> prompts;
  for (const BatchRow& row : rows_) prompts.emplace_back(*row.prompt);
  print_batch_plan(measure_batch(prompts, row_order()), requests_.size(), failed_);
  if (rows_.empty()) return 0;
  const int parallel = rows_at_once();
  const SessionOptions session = session_of(parallel);
  const int code = print_memory_plan(*model_, session,
                                     [&](std::int64_t context) { return most_positions(rows_, parallel, context); });
  if (code == 0) print_time_plan(*model_, session, rows_, row_order(), parallel);
  return code;
}

/// The cache has all the memory that the weights leave, of which these rows may never touch most.
void BatchRun::say_rows_at_once(int parallel, const Session& session) const {
  const std::int64_t positions = std::min(most_positions(rows_, parallel, session.context()), session.free_positions());
  say("rows at once: up to " + std::to_string(parallel) + ", whose cache takes up to " +
      bytes_text(static_cast<std::uint64_t>(positions) * session.cache_bytes_per_position()));
}

void BatchRun::compute() {
  if (rows_.empty()) return;
  const int parallel = rows_at_once();
  Session session(*model_, session_of(parallel));
  say_rows_at_once(parallel, session);
  BatchProgressLine line(requests_.size() - static_cast<std::size_t>(std::count(known_.begin(), known_.end(), true)),
                         BatchOutlook(rows_, session.context()));
  run_batch(*model_, session, rows_, parallel,
            {.finished =
                 [&](BatchResult&& r) {
                   line.row_ended(r);
                   if (!output_->is_file() && stdout_is_terminal()) line.clear();
                   finished(std::move(r));
                 },
             .progress = [&](const BatchProgress& p) { return after_step(p, line); }},
            row_order());
}

void BatchRun::say_summary(double seconds) const {
  // Prompts are read beside rows that generate: they have no time of their own.
  const double speed = static_cast<double>(progress_.generated_tokens) / std::max(seconds, 1e-9);
  say(std::to_string(answered_) + (answered_ == 1 ? " row answered, " : " rows answered, ") + std::to_string(failed_) +
      " failed · prompts " + number_text(progress_.prompt_tokens) + " tok (shared " +
      number_text(progress_.shared_tokens) + ") · gen " + number_text(progress_.generated_tokens) + " tok " +
      fixed_text(speed, 1) + " t/s · " + fixed_text(seconds, 1) + " s");
  if (failed_ == 0 || first_failure_.empty()) return;
  say((failed_ > 1 ? "the first failure: " : "the failure: ") + first_failure_ +
      (output_->is_file() ? "; --retry-failed runs " +
                                std::string(may_go_well_ ? "what failed again" : "rows again that were corrected")
                          : ""));
}

int BatchRun::run() {
  read_rows();
  std::optional<Grammar> grammar = compile_constraint(options_.constraint);
  output_.emplace(options_.batch.output, start_);
  take_seed_and_time();  // by a state that nobody else writes now
  skip_known();
  install_signal_handlers();
  load(std::move(grammar), LoadOptions::Weights::Load);
  open_state();
  const auto begin = std::chrono::steady_clock::now();
  try {
    if (output_->is_file()) set_last_words(note_line(kGoesOn));
    on_signal(OnSignal::AskToStop);
    encode_rows();
    if (!ends_early()) compute();
    output_->sync();
  } catch (...) {
    drop_held();
    try {
      save_state("failed");
    } catch (const Error&) {
      // what ended the batch is the error to show
    }
    throw;
  }
  set_last_words("");
  const bool too_many = too_many_failures();
  drop_held();
  const int signal = signal_exit_code();
  const auto known = static_cast<std::size_t>(std::count(known_.begin(), known_.end(), true));
  const bool whole = answered_ + failed_ + known == requests_.size();
  check(whole || too_many || signal != 0, "rows of a batch that were never run");
  save_state(whole ? "finished" : "interrupted");
  say_summary(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (too_many) {
    note("more rows failed than --max-failures allows" + std::string(whole ? "" : ": the batch was stopped"));
    return kSomeRowsFailed;
  }
  if (signal != 0 && !whole) {
    if (output_->is_file()) note(kGoesOn);
    return signal;
  }
  return state_.failed > 0 ? kSomeRowsFailed : 0;
}

}  // namespace

int run_batch_mode(const RunOptions& options) {
  BatchRun batch(options);
  return options.dry_run ? batch.plan() : batch.run();
}

}  // namespace llm::app
