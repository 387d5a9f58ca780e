#include "common/token_input.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "common/input.h"
#include "common/messages.h"

namespace llm::app {
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

std::vector<Token> read_token_file(const std::string& path, std::int64_t vocab) {
  const std::string text = read_input(path);
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
  std::string text = read_text(path);
  if (text.ends_with('\n')) text.pop_back();
  std::vector<Token> tokens = tokenizer.encode(text, {.add_special = true, .parse_special = false});
  warn_of_lost_bytes(escaped(path == "-" ? "stdin" : path, 200), text, tokens, tokenizer);
  const SpecialTokens& special = tokenizer.special();
  if (special.add_eos && !tokens.empty() && tokens.back() == special.eos) tokens.pop_back();  // the text goes on
  return tokens;
}

std::string lost_bytes_text(std::string_view text, std::span<const Token> ids, const Tokenizer& tokenizer) {
  constexpr std::size_t kNamed = 8;
  std::size_t n = 0, named = 0;
  std::string list;
  const auto lost = tokenizer.lost_bytes(text, ids);
  for (const auto& [byte, count] : lost) {
    n += count;
    const char c = static_cast<char>(byte);
    if (named++ < kNamed) list += (list.empty() ? "\"" : ", \"") + escaped({&c, 1}) + "\"";
  }
  if (n == 0) return {};
  return "the vocabulary has no token for " + number_text(n) + (n == 1 ? " byte of it (" : " bytes of it (") + list +
         (named > kNamed ? ", ..." : "") + "), and the model gets the text without";
}

void warn_of_lost_bytes(const std::string& what, std::string_view text, std::span<const Token> ids,
                        const Tokenizer& tokenizer) {
  const std::string lost = lost_bytes_text(text, ids, tokenizer);
  if (!lost.empty()) print_warnings({{"missing-bytes", what + ": " + lost}});
}

std::int64_t count_stretches(std::int64_t tokens, std::int64_t size, std::int64_t most, std::string_view noun) {
  if (tokens < size)
    throw Error(ErrorKind::Usage, "the text has " + number_text(tokens) + (tokens == 1 ? " token, a " : " tokens, a ") +
                                      std::string(noun) + " takes " + number_text(size) +
                                      ": give a longer text or a smaller -c");
  return most > 0 ? std::min(most, tokens / size) : tokens / size;
}

}  // namespace llm::app
