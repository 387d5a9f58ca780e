#include "answer_output.h"

#include <utility>
#include <vector>

#include "answer_json.h"
#include "answer_writer.h"
#include "common/messages.h"
#include "common/output.h"

namespace llm::app {
namespace {

class TextOutput final : public AnswerOutput {
 public:
  TextOutput(const OutputOptions& o, AnswerHead head) : prefill_(std::move(head.prefill)), writer_(o.text_end) {}

  void begin() override { writer_.write(prefill_); }
  void step(const Answer&, std::string_view text) override {
    if (!text.empty()) writer_.write(text);
  }
  void finish(const GenerateResult&, std::string_view) override { writer_.finish(); }

 private:
  std::string prefill_;
  AnswerWriter writer_;
};

class JsonOutput final : public AnswerOutput {
 public:
  JsonOutput(const OutputOptions& o, AnswerHead head, const Tokenizer& tokenizer)
      : lines_(o.format == OutputFormat::JsonLines),
        wants_logprobs_(o.logprobs.has_value()),
        head_(std::move(head)),
        tokenizer_(tokenizer) {}

  void begin() override {
    text_ = head_.prefill;
    if (lines_ && !head_.prefill.empty()) write({{"text", head_.prefill}});
  }

  void step(const Answer& answer, std::string_view text) override {
    text_ += text;
    const bool sampled = answer.tokens().size() > n_tokens_;  // the end token is none of them
    n_tokens_ = answer.tokens().size();
    if (sampled && wants_logprobs_) logprobs_.push_back(answer.token_logprobs().back());
    if (!lines_ || (!sampled && text.empty())) return;
    Json line{{"text", text}};
    if (sampled) line["token"] = answer.tokens().back();
    if (sampled && wants_logprobs_) line["logprobs"] = logprob_json(logprobs_.back(), tokenizer_);
    write(line);
  }

  void finish(const GenerateResult& r, std::string_view reason) override {
    Json end{{"text", text_}, {"finish_reason", reason}, {"model", head_.model}, {"seed", head_.seed}};
    const std::int64_t prompt = head_.cached_tokens + r.prompt_tokens;
    end["usage"] = {{"prompt_tokens", prompt},
                    {"completion_tokens", r.generated_tokens},
                    {"total_tokens", prompt + r.generated_tokens},
                    {"prompt_tokens_details", {{"cached_tokens", head_.cached_tokens}}}};
    end["timings"] = {{"load_ms", milliseconds(head_.load_seconds)},
                      {"prompt_n", r.prompt_tokens},
                      {"prompt_ms", milliseconds(r.prompt_seconds)},
                      {"first_token_ms", milliseconds(r.first_token_seconds)},
                      {"predicted_n", r.generated_tokens},
                      {"predicted_ms", milliseconds(r.generate_seconds)},
                      {"cache_n", head_.cached_tokens},

                      {"draft_n", r.speculation.drafted},
                      {"draft_n_accepted", r.speculation.accepted}};
    if (wants_logprobs_ && !lines_) end["logprobs"] = logprobs_json(logprobs_, tokenizer_);
    write(end);
  }

 private:
  /// A model's text is whole UTF-8; a single token's, or a prefill, need not be. A terminal gets no controls of C1 and
  /// no bidirectional ones; the others JSON escapes itself.
  static void write(const Json& json) {
    const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    write_stdout(stdout_is_terminal() ? terminal_safe(line) : line);
  }

  bool lines_, wants_logprobs_;
  AnswerHead head_;
  const Tokenizer& tokenizer_;
  std::string text_;
  std::size_t n_tokens_ = 0;
  std::vector<Logprobs> logprobs_;
};

}  // namespace

std::unique_ptr<AnswerOutput> make_answer_output(const OutputOptions& o, AnswerHead head, const Tokenizer& tokenizer) {
  if (o.format == OutputFormat::Text) return std::make_unique<TextOutput>(o, std::move(head));
  return std::make_unique<JsonOutput>(o, std::move(head), tokenizer);
}

}  // namespace llm::app
