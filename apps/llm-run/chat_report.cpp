#include "chat_report.h"

#include <cmath>
#include <filesystem>

#include "common/columns.h"
#include "common/help_page.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "timing_text.h"

namespace llm::app {
namespace {

std::string right(std::string text, std::size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

}  // namespace

std::string timing(const Conversation::Answered& a, const std::string& seed) {
  return timing_text(a.result, a.cached) + seed + " · stop: " + std::string(name(a.result.reason));
}

std::string model_info(const RunOptions& options, Model& m, const Session& session, const PromptMaker& prompts) {
  std::string adapters;
  for (const LoraAdapter& a : m.adapters()) adapters += "adapter    " + escaped(a.title()) + "\n";
  return "model      " + options.model.path + "\n           " + m.dims().architecture + ", " +
         number_text(m.parameter_count()) + " parameters, " + bytes_text(m.weight_bytes()) + "\n" + adapters +
         "tokenizer  " + m.tokenizer().describe() + "\ntemplate   " + prompts.template_name() + "\ncontext    " +
         number_text(session.context()) + " tokens, " + bytes_text(session.cache_bytes_per_position()) +
         " each\nbackend    " + m.backend().describe() + "\n";
}

std::string license_text(const Model& model) {
  const Metadata& metadata = model.file().metadata();
  if (metadata.find("general.license") == nullptr) return "the file names none\n";
  return std::string(metadata.get<std::string_view>("general.license")) + "\n";
}

std::string context_table(const Conversation& talk, const Session& session, const PendingText& pending,
                          std::size_t width) {
  constexpr std::size_t kTextColumn = 22;
  std::string table;
  std::int64_t used = 0;
  for (const MessageSize& m : talk.sizes()) {
    used += m.tokens;
    table += right(number_text(m.tokens), 9) + "  " + std::string(m.role) + std::string(11 - m.role.size(), ' ') +
             escaped_to_fit(m.text, width - kTextColumn) + "\n";
  }
  table += right(number_text(used), 9) + "  of " + number_text(talk.context()) + " tokens; " +
           number_text(talk.cached_tokens()) + " in the cache (" + bytes_text(session.cache_bytes_in_use()) + ")\n";
  if (used >= talk.context())
    table += wrapped("The context is full: the oldest turns go before the next answer.", width, 0) + "\n";
  if (pending.text.empty()) return table;
  const std::size_t tokens = pending.tokenizer.encode(pending.text).size();
  constexpr std::size_t kColumn = 11;
  return table + right(number_text(tokens), kColumn - 2) + "  " +
         wrapped("wait before the next message (/read, /glob); /undo drops them", width, kColumn) + "\n";
}

std::string token_list(std::span<const Token> tokens, const Tokenizer& tokenizer, std::size_t width) {
  std::string text;
  std::size_t column = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string one = std::to_string(i + 1) + ":\"" + escaped(tokenizer.spelling(tokens[i])) + "\"";
    const std::size_t columns = columns_of(one);
    const bool fits = column == 0 || column + 1 + columns <= width;
    if (column > 0) text += fits ? " " : "\n";
    column = (column > 0 && fits ? column + 1 : 0) + columns;
    text += one;
  }
  return text + "\n";
}

std::string alternatives(const Logprobs& l, const Tokenizer& tokenizer) {
  std::string table;
  const auto row = [&](const TokenLogprob& t, const char* mark) {
    table += mark + right(fixed_text(100 * std::exp(t.logprob), 2), 6) + " %  \"" +
             escaped(tokenizer.spelling(t.token)) + "\"\n";
  };
  bool chosen_is_listed = false;
  for (const TokenLogprob& t : l.best) {
    chosen_is_listed |= t.token == l.chosen.token;
    row(t, t.token == l.chosen.token ? "* " : "  ");
  }
  if (!chosen_is_listed) row(l.chosen, "* ");
  return table;
}

}  // namespace llm::app
