#include "runtime/thinking.h"

#include <algorithm>
#include <utility>

namespace llm {
namespace {

constexpr EncodeOptions kBare{.add_special = false, .parse_special = true};

/// The tokens of a text that follows another one: without the space that some vocabularies put before a text.
std::vector<Token> encode_behind(const Tokenizer& tokenizer, std::string_view text) {
  if (!tokenizer.adds_space_prefix()) return tokenizer.encode(text, kBare);
  constexpr std::string_view kBefore = "\n";
  const std::vector<Token> all = tokenizer.encode(std::string(kBefore).append(text), kBare);
  std::string begun;
  for (auto t = all.begin(); t != all.end(); ++t) {
    begun += tokenizer.spelling(*t);
    if (begun.ends_with(kBefore)) return {t + 1, all.end()};
  }
  return tokenizer.encode(text, kBare);
}

/// Its first token says that it is one: a token of its own, as models that think have it. "<" could be anything, and a
/// model that means something else by it would have to think.
bool is_certain(const Tokenizer& tokenizer, const std::vector<Token>& opening) {
  if (opening.empty()) return false;
  const TokenKind kind = tokenizer.kind(opening.front());
  return opening.size() == 1 || kind == TokenKind::Control || kind == TokenKind::UserDefined;
}

}  // namespace

Thinking::Thinking(const Tokenizer& tokenizer, const ReasoningOptions& options, AnswerForm form)
    : tokenizer_(tokenizer),
      parser_(options.markers, options.begins),
      form_(form),
      budget_(options.budget),
      message_(options.budget_message) {
  const ReasoningMarkers& m = parser_.markers();
  const std::string header = m.header_begin + m.header_name + m.header_end;
  for (const std::string& text : {m.open, m.close, m.turn, header}) {
    for (const Token t : tokenizer.encode(text, kBare)) {
      if (tokenizer.kind(t) == TokenKind::Control) marks_.push_back(t);
    }
  }
  openings_.push_back(encode_behind(tokenizer, m.open));
  if (m.has_messages()) openings_.push_back(encode_behind(tokenizer, header));
  std::erase_if(openings_, [&](const std::vector<Token>& o) { return !is_certain(tokenizer, o); });
  (void)parser_.push(options.begun);
  const bool nothing_may_open = phase() == ReasoningPhase::Before && openings_.empty();
  if (form_ == AnswerForm::Given && (phase() == ReasoningPhase::After || nothing_may_open)) parser_.begin_answer();
}

bool Thinking::is_mark(Token token) const { return std::find(marks_.begin(), marks_.end(), token) != marks_.end(); }

std::optional<Token> Thinking::put_in(bool in_character) {
  constexpr std::int64_t kLongestCharacter = 3;  // bytes after its first, a token each at most
  const bool spent = phase() == ReasoningPhase::Inside && budget_ >= 0 && inside_ >= budget_;
  if (spent && !closed_ && !(in_character && inside_ < budget_ + kLongestCharacter)) close();
  if (queued_ == queue_.size()) return std::nullopt;
  return queue_[queued_];
}

bool Thinking::may_put_in(int unseen) const {
  if (queued_ < queue_.size()) return true;
  const bool may_think =
      phase() == ReasoningPhase::Before || phase() == ReasoningPhase::Inside || parser_.markers().has_messages();
  return may_think && budget_ >= 0 && inside_ + unseen >= budget_;
}

void Thinking::close() {
  const ReasoningMarkers& m = parser_.markers();
  const std::string_view begun = parser_.begun_close();
  std::string text;
  if (begun.empty()) {
    const char last = message_.empty() ? last_ : message_.back();
    text = message_ + (last == '\n' ? "" : m.before_close) + m.close;
  } else {
    text = m.close.substr(begun.size());
  }
  // Messages could go on with more thinking; a form begins with the answer's first byte.
  if (m.has_messages() || form_ == AnswerForm::Given) text += m.to_answer();
  put(text);
  closed_ = true;
}

void Thinking::put(std::string_view text) {
  queue_ = encode_behind(tokenizer_, text);
  queued_ = 0;
}

std::vector<Token> Thinking::openings() const {
  std::vector<Token> next;
  for (const std::vector<Token>& o : openings_) {
    if (opened_ < o.size()) next.push_back(o[opened_]);
  }
  return next;
}

bool Thinking::go_on_opening(Token token) {
  std::erase_if(openings_, [&](const std::vector<Token>& o) { return opened_ >= o.size() || o[opened_] != token; });
  ++opened_;
  if (!openings_.empty()) return true;
  parser_.begin_answer();
  return false;
}

bool Thinking::runs_into_answer(Token token, std::string_view text) const {
  if (phase() != ReasoningPhase::Inside || is_mark(token)) return false;
  ReasoningParser trial = parser_;
  return !trial.push(text).answer.empty();
}

ReasoningParser::Parts Thinking::accept(Token token, std::string text) {
  const ReasoningPhase before = phase();
  const bool was_put_in = queued_ < queue_.size() && queue_[queued_] == token;
  if (was_put_in) ++queued_;
  if (is_mark(token)) text += tokenizer_.spelling(token);
  if (!text.empty()) last_ = text.back();
  ReasoningParser::Parts parts = parser_.push(text);
  count(before);
  if (phase() != ReasoningPhase::Inside) closed_ = false;
  const bool nothing_comes = queued_ == queue_.size();
  if (phase() == ReasoningPhase::After && form_ == AnswerForm::Given && nothing_comes) {
    const bool is_there = !parser_.markers().has_messages() && (was_put_in || parts.aside.ends_with('\n'));
    if (!is_there) put(parser_.markers().to_answer());
    if (queued_ == queue_.size()) parser_.begin_answer();
  }
  return parts;
}

ReasoningParser::Parts Thinking::finish(std::string_view text) {
  ReasoningParser::Parts parts = parser_.push(text);
  const ReasoningParser::Parts last = parser_.finish();
  parts.thinking += last.thinking;
  parts.aside += last.aside;
  parts.answer += last.answer;
  return parts;
}

void Thinking::count(ReasoningPhase before) {
  const ReasoningPhase now = phase();
  if (before == ReasoningPhase::Inside) {
    ++tokens_;
    ++inside_;
  } else if (now == ReasoningPhase::Inside) {
    tokens_ += undecided_ + 1;
  }
  undecided_ = before == ReasoningPhase::Before && now == ReasoningPhase::Before ? undecided_ + 1 : 0;
}

}  // namespace llm
