// llm-run: one prompt, one answer. Only the answer goes to stdout.
#include <chrono>
#include <fstream>

#include "answer_options.h"
#include "answer_writer.h"
#include "base/machine.h"
#include "batch.h"
#include "chat.h"
#include "common/app.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/signals.h"
#include "graph/print.h"
#include "options.h"
#include "profile.h"
#include "prompt.h"
#include "runtime/generator.h"

namespace llm::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Both graphs of the bucket that a prompt of `tokens` starts with.
void dump_graph(const Model& model, const std::string& path, std::int64_t tokens) {
  const int n = static_cast<int>(std::min<std::int64_t>(tokens, kMaxBatchTokens));
  const Bucket bucket{.tokens = n, .sequences = 1, .outputs = n};
  const Graph before = model.graph_before_passes(bucket), after = model.graph(bucket);
  std::ofstream out(path, std::ios::binary);
  if (path.ends_with(".dot")) {
    out << to_dot(before) << to_dot(after);
  } else {
    out << "# before passes\n" << to_text(before) << "# after passes\n" << to_text(after);
  }
  out.flush();
  if (!out) throw Error(ErrorKind::Io, ErrorParts{.file = path, .problem = "cannot write the graph"});
}

/// Needs no weights.
void explain_prompt(const RunOptions& options, const std::string& text) {
  Warnings warnings;
  const GgufFile file = GgufFile::open(options.model.path, warnings);
  const auto tokenizer = Tokenizer::load(file.metadata(), warnings);
  print_warnings(warnings);
  const PromptMaker prompts(options.chat, file.metadata(), *tokenizer);
  prompts.say_what_is_lost();
  const std::string explained = explain(prompts.from_text({text, {}}), *tokenizer);
  write_stdout(stdout_is_terminal() ? terminal_safe(explained) : explained);
}

std::string speed(std::int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? " " + fixed_text(static_cast<double>(tokens) / seconds, 1) + " t/s" : "";
}

void say_timing(double load_seconds, const GenerateResult& r) {
  const std::string stop = signal_exit_code() != 0 ? "interrupted" : std::string(name(r.reason));
  say("load " + fixed_text(load_seconds, 1) + "s · prompt " + std::to_string(r.prompt_tokens) + " tok" +
      speed(r.prompt_tokens, r.prompt_seconds) + " · gen " + std::to_string(r.generated_tokens) + " tok" +
      speed(r.generated_tokens - 1, r.generate_seconds) + " · TTFT " + fixed_text(r.first_token_seconds, 2) +
      "s · peak " + bytes_text(peak_resident_bytes()) + " · stop: " + stop);
}

void say_choices(Model& model, const RunOptions& options) {
  const ThreadChoice threads = default_threads();
  verbose(model.backend().describe());
  verbose("threads: " + (options.model.threads > 0 ? std::to_string(options.model.threads) + " (-t)"
                                                   : std::to_string(threads.threads) + " (" + threads.reason + ")"));
  verbose("model: " + model.dims().architecture + ", " +
          number_text(static_cast<std::int64_t>(model.parameter_count())) + " parameters, weights " +
          bytes_text(model.weight_bytes()) + ", tokenizer " + model.tokenizer().describe());
}

GenerateResult answer(Model& model, Session& session, std::span<const Token> prompt, const AnswerOptions& options,
                      Profile& profile) {
  AnswerWriter writer;
  std::optional<Progress> bar(std::in_place, "reading the prompt");
  const auto progress = [&](std::int64_t done, std::int64_t total) {
    bar->update(static_cast<double>(done) / static_cast<double>(total));
    if (done < total) return;
    bar.reset();
    profile.begin("generation");
    on_signal(OnSignal::AskToStop);  // from here on there is text that a signal must not cut
  };
  const auto text = [&](std::string_view piece) {
    writer.write(piece);
    return true;
  };
  const GenerateOptions generation{.answer = options, .cancel = &stop_requested()};
  const GenerateResult result = generate(session, model, session.create(), prompt, generation, text, progress);
  writer.finish();
  return result;
}

int body(int argc, char** argv) {
  const auto start = Clock::now();
  RunOptions options;
  if (const auto code = read_options(argc, argv, options)) return *code;
  if (options.batch.wanted()) return run_batch_mode(options);
  if (wants_chat(options)) return run_chat(options);
  const std::string prompt_text = read_prompt(options);
  std::optional<Grammar> grammar = compile_constraint(options.constraint);
  install_signal_handlers();
  if (options.explain_prompt) {
    explain_prompt(options, prompt_text);
    return 0;
  }
  const std::unique_ptr<Model> model = load_model(options.model);
  const PromptMaker prompts(options.chat, model->file().metadata(), model->tokenizer());
  prompts.say_what_is_lost();
  const Prompt made = prompts.from_text({prompt_text, {}});
  const std::vector<Token>& prompt = made.tokens.ids;
  verbose("prompt: " + (made.made_by.empty() ? "raw text" : "by " + made.made_by));
  if (!options.dump_graph.empty()) dump_graph(*model, options.dump_graph, static_cast<std::int64_t>(prompt.size()));
  say_choices(*model, options);
  std::shared_ptr<TokenMasks> constraint = grammar ? constraint_for(*std::move(grammar), *model) : nullptr;
  const AnswerOptions settings = answer_options(options, options.sampling, std::move(constraint), *model);
  if (!options.batch.output.empty() && options.batch.output != "-") redirect_stdout(options.batch.output);
  Session session(*model, {.context = context_of(options, *model)});
  const double load_seconds = seconds_since(start);

  Profile profile;
  profile.begin("prompt");
  if (options.profile) session.observer = &profile;
  const GenerateResult result = answer(*model, session, prompt, settings, profile);
  std::string programs = session.describe();
  if (programs.ends_with('\n')) programs.pop_back();
  verbose(programs);
  if (options.profile) say(profile.table());
  say_timing(load_seconds, result);
  return signal_exit_code();
}

}  // namespace
}  // namespace llm::app

int main(int argc, char** argv) {
  return llm::app::run("llm-run", argc, argv, [&] { return llm::app::body(argc, argv); });
}
