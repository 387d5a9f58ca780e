#include "base/utf8.h"
#include "text/tokenizer.h"

namespace llm {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, StreamStart start)
    : tokenizer_(tokenizer), drop_space_(start == StreamStart::Beginning && tokenizer.adds_space_prefix()) {}

std::string StreamDecoder::push(Token token) {
  std::string piece = tokenizer_.piece(token);
  if (piece.empty()) return finish();
  if (drop_space_ && !piece.empty()) {
    if (piece.front() == ' ') piece.erase(0, 1);
    drop_space_ = false;
  }
  held_ += piece;

  std::string out;
  std::size_t at = 0;
  while (at < held_.size()) {
    const std::size_t good = utf8::valid_prefix(std::string_view(held_).substr(at));
    out.append(held_, at, good);
    at += good;
    if (at == held_.size()) break;
    const utf8::Unit unit = utf8::unit_at(held_, at);
    if (unit.form == utf8::Form::Incomplete) break;
    out += utf8::kReplacement;
    at += unit.length;
  }
  held_.erase(0, at);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out(held_.empty() ? std::string_view() : utf8::kReplacement);  // at most one incomplete sequence is held
  held_.clear();
  return out;
}

bool StreamDecoder::goes_on_in_character(Token next) const {
  return in_character() && utf8::unit_at(held_ + tokenizer_.piece(next), 0).length > held_.size();
}

}  // namespace llm
