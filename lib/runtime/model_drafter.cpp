#include "runtime/model_drafter.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "runtime/figures.h"
#include "runtime/logit_scan.h"

namespace llm {
namespace {

/// Tokens that the draft model reads at once while the answer goes on.
constexpr std::size_t kChunk = 512;
/// More unread ones are read in steps of their own, before there are guesses again.
constexpr std::size_t kFew = 64;

std::size_t vocabulary_of(const Model& model) {
  return std::min(static_cast<std::size_t>(model.dims().vocab), model.tokenizer().n_vocab());
}

}  // namespace

void require_same_vocabulary(const Model& model, const Model& draft) {
  const Tokenizer &a = model.tokenizer(), &b = draft.tokenizer();
  for (std::size_t i = 0; i < std::min(a.n_vocab(), b.n_vocab()); ++i) {
    const auto t = static_cast<Token>(i);
    if (a.token_text(t) == b.token_text(t)) continue;
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = draft.file().metadata().file(),
                           .problem = "cannot draft for this model, its vocabulary is another one: token " +
                                      number_text(t) + " is \"" + escaped(b.token_text(t)) + "\", the model's is \"" +
                                      escaped(a.token_text(t)) + "\""});
  }
}

ModelDrafter::ModelDrafter(const Model& model, Model& draft, Options options)
    : n_tokens_(std::min(vocabulary_of(model), vocabulary_of(draft))),
      session_(draft, options.session),
      sequence_(session_.create()),
      p_min_(options.p_min) {}

/// A token that the draft model lacks is another one to it: a guess after it is worse, and no more than a guess.
Token ModelDrafter::known(Token token) const { return static_cast<std::size_t>(token) < n_tokens_ ? token : 0; }

/// What the cache holds of a text that begins alike is kept.
void ModelDrafter::begin(std::span<const Token> text) {
  text_.clear();
  for (const Token t : text) text_.push_back(known(t));
  record_.forget_guesses();
  if (start_ > 0) return start_at(0);
  agreed_ = static_cast<std::size_t>(std::mismatch(read_.begin(), read_.end(), text_.begin(), text_.end()).first -
                                     read_.begin());
}

void ModelDrafter::append(Token token) {
  token = known(token);
  record_.came(token);
  const bool read = agreed_ == part() && agreed_ < read_.size() && read_[agreed_] == token;
  text_.push_back(token);
  if (read) ++agreed_;
}

/// Forgets what it has read and goes on with this part of the text.
void ModelDrafter::start_at(std::size_t place) {
  start_ = place;
  read_.clear();
  agreed_ = 0;
  session_.rewind(sequence_, 0);
}

bool ModelDrafter::read(std::span<const Token> tokens, Logits wanted) {
  const Append work{sequence_, tokens, wanted};
  try {
    logits_ = session_.eval({&work, 1});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Numeric) throw;
    faulty_ = true;
    fault_ = std::string("the draft model guesses no more: ") + error.what();
    return false;
  }
  read_.insert(read_.end(), tokens.begin(), tokens.end());
  return true;
}

bool ModelDrafter::ready() {
  record_.forget_guesses();
  if (faulty_) return true;
  const auto context = static_cast<std::size_t>(session_.context());
  if (part() + std::min(kFew, context / 4) >= context) start_at(text_.size() - context / 2);
  // The last token is read again in any case: its logits are needed.
  agreed_ = std::min(agreed_, part() - 1);
  read_.resize(agreed_);
  session_.rewind(sequence_, static_cast<std::int64_t>(agreed_));
  if (part() - agreed_ <= kFew) return true;
  const std::size_t n = std::min(kChunk, part() - agreed_ - 1);
  if (!read(std::span(text_).subspan(start_ + agreed_, n), Logits::None)) return true;
  agreed_ += n;
  return part() - agreed_ <= kFew;
}

std::optional<Guess> ModelDrafter::guess(std::span<const Token> ahead) {
  if (faulty_) return std::nullopt;
  const std::size_t wanted = part() + ahead.size();
  if (wanted > static_cast<std::size_t>(session_.context())) return std::nullopt;
  next_.clear();
  for (std::size_t i = read_.size(); i < wanted; ++i) {
    next_.push_back(i < part() ? text_[start_ + i] : ahead[i - part()]);
  }
  if (!read(next_, Logits::Last)) return std::nullopt;
  agreed_ = part();

  const std::span<const float> logits = logits_.first(n_tokens_);
  const Candidate best = best_of(logits);
  const double probability = 1 / exp_sums(logits, best.logit).total;
  if (probability < p_min_) return std::nullopt;
  return Guess{best.token, record_.made(best.token, probability)};
}

}  // namespace llm
