#include "answer_output.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "answer_json.h"
#include "answer_printer.h"
#include "common/messages.h"
#include "common/output.h"

namespace llm::app {
namespace {

/// A prefill divided as the answer that goes on with it.
AnswerText divided_prefill(const AnswerHead& head) {
  if (!head.reasoning || head.reasoning->text == ReasoningOptions::Text::Everything) return {{}, head.prefill};
  ReasoningParser::Parts parts = ReasoningParser(head.reasoning->markers, head.reasoning->begins).push(head.prefill);
  return {std::move(parts.thinking), std::move(parts.answer)};
}

class TextOutput final : public AnswerOutput {
 public:
  TextOutput(const OutputOptions& o, ShowThinking show, AnswerHead head)
      : head_(std::move(head)), printer_(thinking_style(show), AnswerPrinter::Start::AsItIs, o.text_end) {}

  void begin() override {
    begun_ = true;
    printer_.write(divided_prefill(head_));
  }
  void step(const Answer&, const AnswerText& piece) override { printer_.write(piece); }
  /// An answer that was stopped before it began has no line.
  void finish(const GenerateResult& r, std::string_view) override {
    if (begun_ || r.reason != StopReason::Cancelled) printer_.finish();
  }

 private:
  AnswerHead head_;
  bool begun_ = false;
  AnswerPrinter printer_;
};

class JsonOutput final : public AnswerOutput {
 public:
  JsonOutput(const OutputOptions& o, const ReasoningChoice& reasoning, AnswerHead head, const Tokenizer& tokenizer)
      : lines_(o.format == OutputFormat::JsonLines),
        wants_logprobs_(o.logprobs.has_value()),
        thinking_apart_(reasoning.is_apart()),
        head_(std::move(head)),
        tokenizer_(tokenizer),
        shown_(reasoning.show == ShowThinking::Stderr ? thinking_style(reasoning.show) : ThinkingStyle::Hidden) {}

  void begin() override {
    const AnswerText prefill = divided_prefill(head_);
    add(prefill);
    if (lines_ && !head_.prefill.empty()) write(line_of(prefill));
  }

  void step(const Answer& answer, const AnswerText& piece) override {
    add(piece);
    const bool sampled = answer.tokens().size() > n_tokens_;  // the end token is none of them
    n_tokens_ = answer.tokens().size();
    n_text_tokens_ = answer.text_tokens();
    if (sampled && wants_logprobs_) logprobs_.push_back(answer.token_logprobs().back());
    if (!lines_ || (!sampled && piece.text.empty() && piece.thinking.empty())) return;
    Json line = line_of(piece);
    if (sampled) line["token"] = answer.tokens().back();
    if (sampled && wants_logprobs_) line["logprobs"] = logprob_json(logprobs_.back(), tokenizer_);
    write(line);
  }

  void finish(const GenerateResult& r, std::string_view reason) override {
    shown_.break_off();
    Json end = line_of(all_);
    end.update(Json{{"finish_reason", reason}, {"model", head_.model}, {"seed", head_.seed}});
    const std::int64_t prompt = head_.cached_tokens + r.prompt_tokens;
    end["usage"] = {{"prompt_tokens", prompt},
                    {"completion_tokens", r.generated_tokens},
                    {"total_tokens", prompt + r.generated_tokens},
                    {"prompt_tokens_details", {{"cached_tokens", head_.cached_tokens}}}};
    if (head_.reasoning) end["usage"]["completion_tokens_details"] = {{"reasoning_tokens", r.thinking_tokens}};
    end["timings"] = {{"load_ms", milliseconds(head_.load_seconds)},
                      {"prompt_n", r.prompt_tokens},
                      {"prompt_ms", milliseconds(r.prompt_seconds)},
                      {"first_token_ms", milliseconds(r.first_token_seconds)},
                      {"predicted_n", r.generated_tokens},
                      {"predicted_ms", milliseconds(r.generate_seconds)},
                      {"cache_n", head_.cached_tokens},
                      {"draft_n", r.speculation.drafted},
                      {"draft_n_accepted", r.speculation.accepted}};
    if (wants_logprobs_ && !lines_)
      end["logprobs"] = logprobs_json(std::span(logprobs_).first(n_text_tokens_), tokenizer_);
    write(end);
  }

 private:
  /// A model's text is whole UTF-8; a single token's, or a prefill, need not be. A terminal gets no controls of C1 and
  /// no bidirectional ones; the others JSON escapes itself.
  static void write(const Json& json) {
    const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    write_stdout(stdout_is_terminal() ? terminal_safe(line) : line);
  }

  void add(const AnswerText& piece) {
    all_.thinking += piece.thinking;
    all_.text += piece.text;
    shown_.write(piece.thinking);
    if (!piece.text.empty()) shown_.end();
  }
  Json line_of(const AnswerText& piece) const {
    Json line{{"text", piece.text}};
    if (thinking_apart_ && !piece.thinking.empty()) line["reasoning_content"] = piece.thinking;
    return line;
  }

  bool lines_, wants_logprobs_, thinking_apart_;
  AnswerHead head_;
  const Tokenizer& tokenizer_;
  ThinkingWriter shown_;
  AnswerText all_;
  std::size_t n_tokens_ = 0, n_text_tokens_ = 0;
  std::vector<Logprobs> logprobs_;
};

}  // namespace

std::unique_ptr<AnswerOutput> make_answer_output(const OutputOptions& o, const ReasoningChoice& reasoning,
                                                 AnswerHead head, const Tokenizer& tokenizer) {
  if (o.format == OutputFormat::Text) return std::make_unique<TextOutput>(o, reasoning.show, std::move(head));
  return std::make_unique<JsonOutput>(o, reasoning, std::move(head), tokenizer);
}

}  // namespace llm::app
