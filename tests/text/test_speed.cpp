// How fast texts become tokens: only run when asked for, `test_text "[speed]"`, and nothing is asserted about time.
// LLM_VOCABULARIES names a folder of vocabulary files to measure; else the real vocabularies of the shared data.
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

#include "support/catch.h"
#include "support/paths.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

constexpr std::size_t kMebibyte = 1 << 20;

std::string repeated(std::string_view part) {
  std::string out;
  while (out.size() < kMebibyte) out += part;
  return out;
}

std::vector<std::pair<std::string, std::string>> texts() {
  std::string noise, english;
  std::mt19937 random(1);
  while (noise.size() < kMebibyte) noise += static_cast<char>(random());
  if (const auto path = shared_file("data/text/wiki.test.raw")) {
    std::ifstream in(*path, std::ios::binary);
    english.assign(std::istreambuf_iterator<char>(in), {});
  }
  return {{"English", english},
          {"letter", repeated("a")},
          {"spaces", repeated(" ")},
          {"lines", repeated("\n")},
          {"digits", repeated("7")},
          {"emoji", repeated("\U0001F600")},
          {"Chinese", repeated("\u4e2d\u6587\u5b57")},
          {"random bytes", noise}};
}

/// MB (10^6 bytes) per second of processor time, the best of three.
double speed(const Tokenizer& t, const std::string& text) {
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    const std::size_t n = t.encode(text, {.add_special = false, .parse_special = false}).size();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (n > 0) best = std::max(best, static_cast<double>(text.size()) / 1e6 / seconds);
  }
  return best;
}

}  // namespace

TEST_CASE("speed of encoding", "[.][speed]") {
  const char* given = std::getenv("LLM_VOCABULARIES");
  const TempDir unpacked;
  std::filesystem::path folder = given == nullptr ? unpacked.path() : std::filesystem::path(given);
  if (given == nullptr) {
    const auto archive = shared_file("data/tokenizers/vocabs.tar.xz");
    if (!archive) return;
    REQUIRE(std::system(("tar -xJf '" + archive->string() + "' -C '" + folder.string() + "'").c_str()) == 0);
  }
  const auto all = texts();
  std::cout << "MB/s";
  for (const auto& [name, text] : all) std::cout << " | " << name;
  std::cout << "\n";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const LoadedTokenizer t = load_tokenizer(entry.path());
    std::cout << entry.path().stem().string();
    for (const auto& [name, text] : all) {
      std::cout << " | " << std::round(10 * speed(*t, text)) / 10 << std::flush;
    }
    std::cout << "\n";
  }
}
