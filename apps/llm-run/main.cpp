// llm-run: one answer, a chat or a batch. Only answers go to stdout.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "answer_options.h"
#include "answer_prompt.h"
#include "base/clock.h"
#include "batch.h"
#include "chat.h"
#include "common/app.h"
#include "common/messages.h"
#include "common/output.h"
#include "constrain/grammar.h"
#include "constrain/token_masks.h"
#include "options.h"
#include "plan.h"
#include "prompt.h"
#include "single_answer.h"
#include "tuning.h"

namespace llm::app {
namespace {

constexpr int kWarned = 10;

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
