#include "prepared_answer.h"

#include <utility>

#include "answer_options.h"
#include "answer_prompt.h"
#include "base/machine.h"
#include "common/messages.h"
#include "constrain/token_masks.h"

namespace llm::app {
namespace {

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

AnswerOptions settings_for(const std::optional<Prompt>& prompt, const RunOptions& options,
                           std::optional<Grammar> grammar, const Model& model) {
  std::shared_ptr<TokenMasks> constraint = grammar ? constraint_for(*std::move(grammar), model) : nullptr;
  AnswerOptions settings = resolve_answer_options(options, options.sampling, std::move(constraint), model);
  if (prompt) settings.reasoning = prompt->reasoning;
  if (settings.reasoning) settings.reasoning->begun = options.output.prefill;
  return settings;
}

}  // namespace

Asked read_asked(const RunOptions& options) {
  const Clock::time_point begin = Clock::now();
  std::optional<std::string> prompt;
  if (options.prompt.given()) {
    const bool chats = options.chat.interactive && !options.chat.single_turn;  // then stdin has the next messages
    if (!chats) mention_unread_stdin(options.prompt);
    prompt = read_prompt(options.prompt);
  }
  const Clock::duration awaited = Clock::now() - begin;
  return {std::move(prompt), awaited, compile_constraint(options.constraint)};
}

Prompt make_prompt(const RunOptions& options, const PromptMaker& prompts, const Tokenizer& tokenizer,
                   const std::string& text) {
  prompts.say_what_is_lost();
  Prompt prompt = prompts.from_text({text, {}});
  add_prefill(prompt, options.output.prefill, tokenizer);
  warn_of_lost_bytes(prompt, tokenizer);
  return prompt;
}

PreparedAnswer prepare_answer(const RunOptions& options, Asked asked, LoadOptions::Weights weights) {
  PreparedAnswer made;
  made.model = load_model(options.model, weights);
  Model& model = *made.model;
  const PromptMaker prompts(options.chat, model.file().metadata(), model.tokenizer());
  if (options.chat.interactive) prompts.require_template();
  if (asked.prompt) {
    made.prompt = make_prompt(options, prompts, model.tokenizer(), *asked.prompt);
    verbose("prompt: " + (made.prompt->made_by.empty() ? "raw text" : "by " + made.prompt->made_by));
  } else if (options.chat.interactive) {
    prompts.say_what_is_lost();
    prompts.require_system();
  }
  say_choices(model, options);
  made.settings = settings_for(made.prompt, options, std::move(asked.grammar), model);
  made.drafting = std::make_unique<Drafting>(options.speculation, options.model, model, options.context.cache, weights);
  made.session = session_options(options, model);
  made.session.beside = made.drafting->memory();
  made.cache = open_cache(options.prompt_cache, model, options.context.cache);
  return made;
}

}  // namespace llm::app
