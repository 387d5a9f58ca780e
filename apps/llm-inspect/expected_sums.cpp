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

/// sha256sum writes names with a backslash, a line end or a carriage return in them so, behind a line's first
/// backslash.
std::string unescaped(std::string_view name) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char next = name[i] == '\\' && i + 1 < name.size() ? name[i + 1] : '\0';
    const bool is_escape = next == 'n' || next == 'r' || next == '\\';
    if (is_escape) ++i;
    out += !is_escape ? name[i] : next == 'n' ? '\n' : next == 'r' ? '\r' : '\\';
  }
  return out;
}

/// How many parts of a path a line's path is the end of; none if it is not.
std::size_t parts_in_common(const std::filesystem::path& file, const std::filesystem::path& line) {
  const std::vector<std::filesystem::path> all(file.begin(), file.end()), end(line.begin(), line.end());
  const bool fits = end.size() <= all.size() && std::equal(end.rbegin(), end.rend(), all.rbegin());
  return fits ? end.size() : 0;
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
    lines_.push_back(read(line));
  }
  if (lines_.empty()) fail(given, "holds no SHA-256 sum");
}

/// "SUM  NAME", "SUM *NAME", "SUM" or, as --tag writes it, "SHA256 (NAME) = SUM".
ExpectedSums::Line ExpectedSums::read(std::string_view line) const {
  constexpr std::string_view kTag = "SHA256 (", kTagEnd = ") = ";
  const bool has_escapes = line.starts_with('\\');
  std::string_view rest = line.substr(has_escapes ? 1 : 0), sum, name;
  const std::size_t tag_end = rest.starts_with(kTag) ? rest.rfind(kTagEnd) : std::string_view::npos;
  if (tag_end != std::string_view::npos) {
    sum = rest.substr(tag_end + kTagEnd.size());
    name = rest.substr(kTag.size(), tag_end - kTag.size());
  } else {
    sum = rest.substr(0, kDigits);
    name = rest.substr(sum.size());  // two blanks, or a blank and an asterisk, come before it
    name.remove_prefix(std::min(name.find_first_not_of(" *"), name.size()));
  }
  if (!is_sha256(sum)) {
    fail(given_, "\"" + escaped(line) + "\" has not the 64 digits of a SHA-256 sum where sha256sum writes them");
  }
  return {lower_case(sum), std::filesystem::path(has_escapes ? unescaped(name) : std::string(name)).lexically_normal()};
}

std::string ExpectedSums::sum_of(const std::filesystem::path& file, std::size_t n_files) const {
  const std::string name = file.filename().string();
  const std::filesystem::path whole = std::filesystem::absolute(file).lexically_normal();
  const Line* best = nullptr;
  std::size_t most = 0;
  bool ambiguous = false;
  for (const Line& line : lines_) {
    if (line.path.filename() != name) continue;
    const std::size_t parts = parts_in_common(whole, line.path);
    if (best == nullptr || parts > most) {
      best = &line;
      most = parts;
      ambiguous = false;
    } else if (parts == most) {
      ambiguous = ambiguous || line.sum != best->sum;
    }
  }
  if (ambiguous) {
    fail(given_, "has several lines for \"" + escaped(name) +
                     "\" with different sums, of which none has more of the "
                     "file's path than the others");
  }
  if (best != nullptr) return best->sum;
  const bool one_sum = lines_.size() == 1 && lines_.front().path.empty();
  if (one_sum && n_files == 1) return lines_.front().sum;
  if (one_sum) {
    fail({}, "the model is a set of " + std::to_string(n_files) + " files: give a file with the sum of each");
  }
  fail(given_, "has no line for \"" + escaped(name) + "\"");
}

}  // namespace llm::inspect
