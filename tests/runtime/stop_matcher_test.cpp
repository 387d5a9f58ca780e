// The streaming matcher against its definition: look at the whole text for the stop string that is complete first.
#include "runtime/stop_matcher.h"

#include <algorithm>
#include <random>

#include "support/catch.h"

using namespace llm;

namespace {

/// Where the text ends, and the string that ended it.
struct Found {
  std::size_t length;
  std::size_t complete;  ///< bytes seen when it was found
  std::string string;
};

/// By definition: the earliest end, of strings with this end the longest.
std::optional<Found> find_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<Found> found;
    for (const std::string& stop : stops) {
      if (stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (!found || stop.size() > found->string.size()) found = Found{end - stop.size(), end, stop};
    }
    if (found) return found;
  }
  return std::nullopt;
}

/// The longest end of the text with which a stop string begins.
std::size_t must_hold(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t most = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = 1; n < stop.size(); ++n) {
      if (n <= text.size() && text.compare(text.size() - n, n, stop, 0, n) == 0) most = std::max(most, n);
    }
  }
  return most;
}

std::string random_text(std::mt19937& random, std::size_t most, unsigned letters) {
  std::string text(random() % (most + 1), ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % letters);
  return text;
}

}  // namespace

TEST_CASE("random texts end where the definition says, whatever the pieces") {
  std::mt19937 random(3);
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    const auto letters = static_cast<unsigned>(1 + random() % 3);
    std::vector<std::string> stops;
    for (std::size_t i = 0, n = random() % 5; i < n; ++i) {
      stops.push_back(random_text(random, 6, letters));
      if (stops.back().empty()) stops.pop_back();
    }
    const std::string text = random_text(random, 40, letters + 1);
    StopMatcher matcher(stops);
    std::string out, seen;
    while (seen.size() < text.size() && !matcher.matched()) {
      const std::string piece = text.substr(seen.size(), random() % 5);
      seen += piece;
      out += matcher.push(piece);
      if (!matcher.matched()) REQUIRE(out == seen.substr(0, seen.size() - must_hold(seen, stops)));
    }
    const auto expected = find_stop(text, stops);
    REQUIRE(matcher.matched().has_value() == expected.has_value());
    if (expected) {
      ++stopped;
      REQUIRE(stops[*matcher.matched()] == expected->string);
      REQUIRE(out == text.substr(0, expected->length));
      REQUIRE(matcher.push("more").empty());
      REQUIRE(matcher.finish().empty());
    } else {
      REQUIRE(out + matcher.finish() == text);
    }
  }
  CHECK(stopped > 1000);
}

TEST_CASE("stop strings that overlap") {
  const auto run = [](std::vector<std::string> stops, const std::string& text) {
    StopMatcher matcher(stops);
    std::string out;
    for (const char c : text) out += matcher.push({&c, 1});
    return out + (matcher.matched() ? "|" + stops[*matcher.matched()] : matcher.finish());
  };
  CHECK(run({"abcd", "bc"}, "xabcd") == "xa|bc");  // complete first
  CHECK(run({"c", "abc"}, "xabc") == "x|abc");     // the longest of those complete
  CHECK(run({"aab"}, "aaab") == "a|aab");          // begins anew inside itself
  CHECK(run({"\n\n"}, "a\nb\n\nc") == "a\nb|\n\n");
  CHECK(run({}, "anything") == "anything");
  CHECK(run({"\xe2\x82\xac!"}, "\xe2\x82\xac?") == "\xe2\x82\xac?");
}

TEST_CASE("a copy goes back") {
  StopMatcher matcher({"stop!"});
  CHECK(matcher.push("a st") == "a ");
  const StopMatcher before = matcher;
  CHECK(matcher.push("op!").empty());
  CHECK(matcher.matched());
  matcher = before;
  CHECK_FALSE(matcher.matched());
  CHECK(matcher.push("art") == "start");
}
