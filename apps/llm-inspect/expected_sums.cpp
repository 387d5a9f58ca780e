#include "expected_sums.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "common/input.h"

namespace llm::inspect {
namespace {

constexpr std::size_t kDigits = 64;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

[[noreturn]] void fail(const std::string& file, std::string problem) {
  throw Error(ErrorKind::Usage, ErrorParts{.file = file, .subject = "option --sha256", .problem = std::move(problem)});
}

}  // namespace

bool is_sha256(std::string_view text) {
  const auto hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), hex);
}

ExpectedSums::ExpectedSums(const std::string& given) : given_(given) {
  if (is_sha256(given)) {
    lines_.push_back({lower_case(given), {}});
    return;
  }
  const std::string text = app::read_input(given, app::kMostText);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string_view sum = line.substr(0, kDigits);
    if (!is_sha256(sum)) fail(given, "\"" + escaped(line) + "\" does not begin with the 64 digits of a SHA-256 sum");
    const std::string_view name = line.substr(kDigits);  // two blanks, or a blank and an asterisk, come before it
    const std::size_t begin = std::min(name.find_first_not_of(" *"), name.size());
    lines_.push_back({lower_case(sum), std::filesystem::path(name.substr(begin)).filename().string()});
  }
  if (lines_.empty()) fail(given, "holds no SHA-256 sum");
}

std::string ExpectedSums::sum_of(const std::filesystem::path& file, std::size_t n_files) const {
  const std::string name = file.filename().string();
  const auto line = std::ranges::find(lines_, name, &Line::name);
  if (line != lines_.end()) return line->sum;
  const bool one_sum = lines_.size() == 1 && lines_.front().name.empty();
  if (one_sum && n_files == 1) return lines_.front().sum;
  if (one_sum) {
    fail({}, "the model is a set of " + std::to_string(n_files) + " files: give a file with the sum of each");
  }
  fail(given_, "has no line for \"" + escaped(name) + "\"");
}

}  // namespace llm::inspect
