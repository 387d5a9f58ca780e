// llm-run: one answer, a chat or a batch. Only answers go to stdout.

#include "base/clock.h"
#include "batch.h"
#include "chat.h"
#include "common/app.h"
#include "common/messages.h"
#include "options.h"
#include "single_answer.h"
#include "tuning.h"

namespace llm::app {
namespace {

constexpr int kWarned = 10;

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
                   : options.dry_run      ? plan_answer(options)
                                          : answer_prompt(options, start);
  return code == 0 && options.strict && warnings_printed() > 0 ? kWarned : code;
}

}  // namespace
}  // namespace llm::app

int main(int argc, char** argv) {
  return llm::app::run("llm-run", argc, argv, [&] { return llm::app::body(argc, argv); });
}
