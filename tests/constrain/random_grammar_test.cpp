// Random grammars and random expressions against recognisers that share nothing with the engine.
#include <functional>
#include <map>
#include <random>
#include <set>

#include "matching.h"
#include "support/catch.h"
#include "text/pattern.h"

using namespace llm;
using namespace llm::test;

namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t n) { return random() % n; }

/// A grammar as a tree, printed as GBNF and matched from its definition: an item derives a stretch of the text if ...
struct Item {
  enum Kind { Text, Class, Reference, Sequence, Choice, Repeat } kind;
  std::string text;              // Text: the characters; Class: its members
  std::size_t rule = 0;          // Reference
  std::vector<Item> items = {};  // Sequence, Choice; one for Repeat
  std::size_t min = 0, max = 0;  // Repeat; max 9: no limit
};

constexpr const char* kAlphabet[] = {"a", "b", "é"};

Item random_item(Random& random, std::size_t rules, int depth) {
  const std::size_t kind = below(random, depth == 0 ? 3 : 6);
  Item item{static_cast<Item::Kind>(kind), {}};
  switch (item.kind) {
    case Item::Text:
      for (std::size_t n = below(random, 3); n > 0; --n) item.text += kAlphabet[below(random, 3)];
      break;
    case Item::Class:
      for (const char* c : kAlphabet) {
        if (item.text.empty() || below(random, 2) == 0) item.text += c;
      }
      break;
    case Item::Reference:
      item.rule = below(random, rules);
      break;
    case Item::Sequence:
    case Item::Choice:
      for (std::size_t n = 1 + below(random, 3); n > 0; --n)
        item.items.push_back(random_item(random, rules, depth - 1));
      break;
    case Item::Repeat:
      item.items.push_back(random_item(random, rules, depth - 1));
      item.min = below(random, 3);
      item.max = below(random, 2) == 0 ? 9 : item.min + below(random, 3);
      break;
  }
  return item;
}

std::string rule_name(std::size_t i) { return i == 0 ? "root" : "r" + std::to_string(i); }

std::string printed(const Item& item) {
  std::string out;
  switch (item.kind) {
    case Item::Text:
      return "\"" + item.text + "\"";
    case Item::Class:
      return "[" + item.text + "]";
    case Item::Reference:
      return rule_name(item.rule);
    case Item::Sequence:
    case Item::Choice:
      for (const Item& i : item.items) out += (out.empty() ? "" : item.kind == Item::Choice ? " | " : " ") + printed(i);
      return "(" + out + ")";
    case Item::Repeat:
      return "(" + printed(item.items[0]) + "){" + std::to_string(item.min) + "," +
             (item.max == 9 ? "" : std::to_string(item.max)) + "}";
  }
  return out;
}

/// Ends of the stretches that an item derives from `begin` on. Left recursion is noticed, not followed.
class Derivations {
 public:
  Derivations(const std::vector<Item>& rules, std::string text) : rules_(rules), text_(std::move(text)) {}

  bool whole() { return of_rule(0, 0).count(text_.size()) > 0; }
  bool left_recursive = false;

 private:
  using Ends = std::set<std::size_t>;

  Ends of_rule(std::size_t rule, std::size_t begin) {
    const auto key = std::pair(rule, begin);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    if (!open_.insert(key).second) {
      left_recursive = true;
      return {};
    }
    Ends ends = of(rules_[rule], begin);
    open_.erase(key);
    known_[key] = ends;
    return ends;
  }

  Ends of(const Item& item, std::size_t begin) {
    Ends ends;
    switch (item.kind) {
      case Item::Text:
        if (text_.compare(begin, item.text.size(), item.text) == 0) ends.insert(begin + item.text.size());
        break;
      case Item::Class:
        for (const std::string c : kAlphabet) {
          if (item.text.find(c) != std::string::npos && text_.compare(begin, c.size(), c) == 0)
            ends.insert(begin + c.size());
        }
        break;
      case Item::Reference:
        return of_rule(item.rule, begin);
      case Item::Sequence:
        ends = {begin};
        for (const Item& i : item.items) ends = after(ends, i);
        break;
      case Item::Choice:
        for (const Item& i : item.items) ends.merge(of(i, begin));
        break;
      case Item::Repeat: {
        Ends now{begin};
        for (std::size_t n = 0; n < item.min; ++n) now = after(now, item.items[0]);
        ends = now;
        for (std::size_t n = item.min; n < item.max; ++n) {
          now = after(now, item.items[0]);
          const std::size_t before = ends.size();
          ends.insert(now.begin(), now.end());
          if (item.max == 9) n = ends.size() > before ? item.min : item.max;  // until nothing is new
        }
        break;
      }
    }
    return ends;
  }

  Ends after(const Ends& begins, const Item& item) {
    Ends ends;
    for (const std::size_t b : begins) ends.merge(of(item, b));
    return ends;
  }

  const std::vector<Item>& rules_;
  std::string text_;
  std::map<std::pair<std::size_t, std::size_t>, Ends> known_;
  std::set<std::pair<std::size_t, std::size_t>> open_;
};

std::vector<std::string> all_texts(std::size_t longest) {
  std::vector<std::string> texts{""};
  for (std::size_t begin = 0, length = 0; length < longest; ++length) {
    const std::size_t end = texts.size();
    for (; begin < end; ++begin) {
      for (const char* c : kAlphabet) texts.push_back(texts[begin] + c);
    }
  }
  return texts;
}

}  // namespace

TEST_CASE("random grammars match what their definition derives", "[gbnf][random]") {
  Random random(4711);
  const std::vector<std::string> texts = all_texts(6);
  std::size_t compared = 0, matched = 0, left_recursive = 0, barren = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Item> rules;
    const std::size_t n_rules = 1 + below(random, 4);
    for (std::size_t r = 0; r < n_rules; ++r) rules.push_back(random_item(random, n_rules, 3));
    std::string text;
    for (std::size_t r = 0; r < n_rules; ++r) text += rule_name(r) + " ::= " + printed(rules[r]) + "\n";
    INFO(text);
    std::optional<Grammar> grammar;
    const std::string error = grammar_error([&] { grammar = grammar_from_gbnf(text); });
    if (!error.empty()) {
      const bool recursion = error.find("left recursion") != std::string::npos;
      (recursion ? left_recursive : barren) += 1;
      if (!recursion) CHECK_THAT(error, contains("no finite text"));
      bool found = false;
      for (const std::string& t : texts) {
        Derivations d(rules, t);
        const bool whole = d.whole();
        found |= recursion ? d.left_recursive : whole;
      }
      // Left recursion shows wherever the rule is tried; a barren grammar derives nothing.
      CHECK((recursion ? found : !found));
      continue;
    }
    for (const std::string& t : texts) {
      Derivations d(rules, t);
      const bool expected = d.whole();
      if (d.left_recursive) break;  // only in parts that can never be completed
      ++compared;
      matched += expected;
      if (matches(*grammar, t) != expected) FAIL_CHECK("\"" << t << "\" should " << (expected ? "match" : "not match"));
    }
  }
  CHECK(compared > 100'000);
  CHECK(matched > 5'000);
  CHECK(left_recursive > 10);
  CHECK(barren > 2);
}

TEST_CASE("random expressions match as in PCRE2", "[regex][random]") {
  Random random(815);
  const std::function<std::string(int)> expression = [&](int depth) -> std::string {
    static const char* const atoms[] = {"a",      "b", "é",   ".",   "[ab]",   "[^a]", "\\d",
                                        "[^\\d]", "1", "\\s", "\\.", "[a-c1]", "😀"};
    switch (below(random, depth == 0 ? 1 : 5)) {
      case 0:
        return atoms[below(random, std::size(atoms))];
      case 1:
        return expression(depth - 1) + expression(depth - 1);
      case 2:
        return "(" + expression(depth - 1) + "|" + expression(depth - 1) + ")";
      case 3:
        return "(?:" + expression(depth - 1) + expression(depth - 1) + ")";
      default: {
        static const char* const repeats[] = {"*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "+?"};
        return "(?:" + expression(depth - 1) + ")" + repeats[below(random, std::size(repeats))];
      }
    }
  };
  static const char* const letters[] = {"a", "b", "é", "1", " ", ".", "😀", "c", "_"};
  PatternScratch scratch;
  std::size_t matched = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string e = expression(3);
    INFO(e);
    const Grammar grammar = grammar_from_regex(e);
    const Pattern pattern("\\A(?:" + e + ")\\z");
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (std::size_t n = below(random, 7); n > 0; --n) text += letters[below(random, std::size(letters))];
      const bool expected = pattern.find(text, 0, scratch).has_value();
      matched += expected;
      if (matches(grammar, text) != expected)
        FAIL_CHECK("\"" << text << "\" should " << (expected ? "match" : "not match"));
    }
  }
  CHECK(matched > 2'000);
}
