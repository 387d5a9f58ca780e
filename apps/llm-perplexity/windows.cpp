#include "windows.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "common/input.h"
#include "common/messages.h"

namespace llm::perplexity {
namespace {

constexpr std::string_view kSpace = " \t\r\n,";

[[noreturn]] void fail(const std::string& path, std::string problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = path, .problem = std::move(problem)});
}

std::vector<std::int64_t> json_numbers(const std::string& path, const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto is_integer = [](const nlohmann::json& j) { return j.is_number_integer(); };
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_integer)) fail(path, "is not a JSON array of ids");
  std::vector<std::int64_t> numbers;
  for (const nlohmann::json& j : json) numbers.push_back(j.get<std::int64_t>());
  return numbers;
}

std::vector<std::int64_t> plain_numbers(const std::string& path, std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return numbers;
    const std::string_view word = text.substr(0, text.find_first_of(kSpace));
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc{} || end != word.data() + word.size()) fail(path, "\"" + escaped(word) + "\" is not an id");
    numbers.push_back(number);
    text.remove_prefix(word.size());
  }
}

}  // namespace

Windows::Windows(std::vector<Token> tokens, std::int64_t size, const Tokenizer& tokenizer, std::int64_t most)
    : tokens_(std::move(tokens)), size_(size), count_(std::ssize(tokens_) / size), tokenizer_(tokenizer) {
  if (count_ == 0) {
    throw Error(ErrorKind::Usage, "the text has " + number_text(std::ssize(tokens_)) + " tokens, a window takes " +
                                      number_text(size) + ": give a longer text or a smaller -c");
  }
  if (most > 0) count_ = std::min(count_, most);
}

std::vector<Token> Windows::input(std::int64_t window) const {
  const auto begin = tokens_.begin() + window * size_;
  std::vector<Token> input(begin, begin + size_ - 1);
  const SpecialTokens& special = tokenizer_.special();
  if (special.add_bos && special.bos != kNoToken) input.front() = special.bos;
  return input;
}

Token Windows::next(std::int64_t window, std::int64_t position) const {
  return tokens_[static_cast<std::size_t>(window * size_ + position + 1)];
}

std::uint64_t Windows::scored_bytes() const {
  std::uint64_t bytes = 0;
  for (std::int64_t w = 0; w < count_; ++w) {
    for (std::int64_t p = first_scored(); p + 1 < size_; ++p) {
      const Token token = next(w, p);  // a model may have more rows than its vocabulary has tokens
      if (token < static_cast<Token>(tokenizer_.n_vocab())) bytes += tokenizer_.piece(token).size();
    }
  }
  return bytes;
}

std::vector<Token> read_token_file(const std::string& path, std::int64_t vocab) {
  const std::string text = app::read_input(path);
  const std::size_t first = text.find_first_not_of(kSpace);
  const bool json = first != std::string::npos && text[first] == '[';
  std::vector<Token> tokens;
  for (const std::int64_t id : json ? json_numbers(path, text) : plain_numbers(path, text)) {
    if (id < 0 || id >= vocab) {
      fail(path, "number " + number_text(std::ssize(tokens) + 1) + " is " + std::to_string(id) +
                     "; ids of this model are 0 to " + std::to_string(vocab - 1));
    }
    tokens.push_back(static_cast<Token>(id));
  }
  return tokens;
}

std::vector<Token> read_text_file(const std::string& path, const Tokenizer& tokenizer) {
  std::string text = app::read_input(path);
  if (text.ends_with('\n')) text.pop_back();
  std::vector<Token> tokens = tokenizer.encode(text, {.add_special = true, .parse_special = false});
  const SpecialTokens& special = tokenizer.special();
  if (special.add_eos && !tokens.empty() && tokens.back() == special.eos) tokens.pop_back();  // the text goes on
  return tokens;
}

}  // namespace llm::perplexity
