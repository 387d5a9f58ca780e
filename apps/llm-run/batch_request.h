// One row of a batch as its line asks for it: what to complete, and how. A line that cannot be understood becomes a row
// that has failed, so that one bad line never stops a file.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "constrain/grammar.h"
#include "row_template.h"
#include "runtime/answer.h"
#include "runtime/sampler_options.h"
#include "text/tokenizer.h"
#include "written_json.h"

namespace llm::app {

using Json = nlohmann::ordered_json;

/// Why a row has no answer: a code of the batch format and a sentence.
struct RowFailure {
  enum class Code : std::uint8_t {
    InvalidJson,
    InvalidRequest,
    SchemaInvalid,
    TemplateError,
    ContextLengthExceeded,
    Timeout,
    Internal
  } code;
  std::string message;
};
/// As results have it: "invalid_json".
std::string_view name(RowFailure::Code);

struct ChatPrompt {
  std::vector<std::string> roles;   ///< of the messages
  std::string messages_text;        ///< as they are written (written_json.h): an array
  Json variables = Json::object();  ///< for the template, beside the messages: tools, chat_template_kwargs
  std::string variables_text = {};  ///< as they are written: further members of an object

  /// What the template is given, an object of JSON.
  std::string text() const { return "{\"messages\":" + messages_text + variables_text + "}"; }
};
using TokenPrompt = std::vector<Token>;
/// A line, or a filled row template: what a user says where the model has a chat template, else the text to complete.
struct PlainPrompt {
  PromptText text;
};
using RowPrompt = std::variant<PromptText, TokenPrompt, ChatPrompt, PlainPrompt>;

constexpr int kNoLogprobs = -1;  ///< asked for by a row whose command line has some
/// What a row asks for otherwise than the command line.
struct RowChanges {
  std::vector<std::pair<const SamplingParameter*, double>> sampling;
  std::optional<std::uint64_t> seed;
  std::vector<LogitBias> logit_bias;  ///< beside those of the command line
  std::optional<std::int64_t> max_tokens;
  std::optional<AnswerOptions::EndToken> end_token;
  std::optional<std::vector<std::string>> stop_strings;  ///< in place of the command line's
  std::optional<int> logprobs;  ///< the likeliest tokens that are told for each, or kNoLogprobs
  std::string form;             ///< key of the constraint that holds for the answer; empty: none of its own
  std::shared_ptr<const Grammar> grammar;
  bool free_of_form = false;  ///< without one of its own: has not that of the command line either
};

struct BatchRequest {
  std::size_t line = 0;            ///< of the input, from 1
  std::string id;                  ///< the row's own, else line-N
  std::string digest;              ///< of what it says; of rows of a file (batch_input.h)
  std::vector<RowPrompt> prompts;  ///< one, or all that the row has answers for
  RowChanges changes;
  int choices = 1;    ///< of each prompt
  std::string model;  ///< that the row was written for; empty: not said
  std::optional<RowFailure> failure;
  bool is_filled = false;  ///< it has all columns that the row template wants
  /// Of a row that has not, or has null there: those that it has.
  std::optional<std::vector<std::string>> columns = {};
  std::vector<std::string> ignored_keys;    ///< that mean nothing here: warned about
  std::vector<std::string> options_beside;  ///< keys that count although the row template makes the prompt
  Warnings warnings;                        ///< of its schema
};

/// How rows are read.
struct RowRules {
  /// Each row is an object of columns, the filled text its prompt, and other columns count only where they are keys of
  /// options.
  std::optional<RowTemplate> template_row = {};
};

/// The keys that a row may have, for messages.
std::vector<std::string> row_keys();
/// A row from a JSON object: OpenAI's batch line, a flat one, or columns for the template.
BatchRequest request_from_json(std::string_view text, std::size_t line, const RowRules&);
/// A row from named columns (CSV): those of the template; without one the columns are the keys of a flat row.
BatchRequest request_from_columns(const Json& columns, std::size_t line, const RowRules&);
/// A row that fails as `invalid_request`.
BatchRequest request_refused(const std::string& problem, std::size_t line);
/// A row that is its prompt.
BatchRequest request_from_text(std::string text, std::size_t line);

/// The row's own options. A row without a seed of its own draws its random numbers by its id: neither the order of the
/// file nor what else is in it matters; one with a seed answers as `llm-run -s SEED` does.
AnswerOptions row_options(const BatchRequest&, const AnswerOptions& common);

/// That a row template names a column that is not there, and what may be meant.
std::string no_column(const std::string& name, std::span<const std::string> columns);

/// That a table has no prompts, and what may be meant.
std::string no_content_column(std::span<const std::string> columns);

}  // namespace llm::app
