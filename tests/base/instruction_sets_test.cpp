// Which instruction sets a build has, and what becomes of one that is asked for.
#include "base/instruction_sets.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/text.h"

namespace llm {
namespace {

std::string refusal(std::string_view forced) {
  try {
    choose_instruction_set(forced);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Device);
    return e.what();
  }
  return "none";
}

/// LLM_RUN_ISA of this process, put back afterwards.
class Forced {
 public:
  explicit Forced(const char* set) {
    if (const char* old = std::getenv("LLM_RUN_ISA")) before_ = old;
    ::setenv("LLM_RUN_ISA", set, 1);
  }
  ~Forced() {
    if (before_)
      ::setenv("LLM_RUN_ISA", before_->c_str(), 1);
    else
      ::unsetenv("LLM_RUN_ISA");
  }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;

 private:
  std::optional<std::string> before_;
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const InstructionSet& set : instruction_sets()) all.emplace_back(set.name);
  return all;
}

}  // namespace

TEST_CASE("a build has the instruction sets of its processor, the plain one first") {
  const std::vector<std::string> all = names();
  REQUIRE(!all.empty());
  CHECK(all.front() == "portable");
  CHECK(instruction_sets().front().runs_here());
#if defined(__aarch64__)
  CHECK(all == std::vector<std::string>{"portable", "neon", "neondotprod"});
#elif defined(__x86_64__)
  const std::vector<std::string> known{"portable", "avx2", "avx2vnni", "avx512", "avx512bf16", "amx"};
  CHECK(std::includes(known.begin(), known.end(), all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return std::find(known.begin(), known.end(), a) < std::find(known.begin(), known.end(), b);
  }));
  CHECK(std::find(all.begin(), all.end(), "amx") != all.end());
#else
  CHECK(all.size() == 1);
#endif
}

TEST_CASE("an instruction set that is forced is used where it runs, else refused") {
  std::string best;
  for (const InstructionSet& set : instruction_sets()) {
    INFO(set.name);
    const Forced forced(std::string(set.name).c_str());
    if (set.runs_here()) {
      best = set.name;
      CHECK(choose_instruction_set(set.name).name == best);
      CHECK(choose_instruction_set().name == best);
      CHECK(choose_instruction_set("portable").name == "portable");  // what is passed goes first
    } else {
      CHECK(refusal(set.name).starts_with("this machine cannot run instruction set " + std::string(set.name)));
      CHECK(refusal("").starts_with("this machine cannot run instruction set " + std::string(set.name)));
    }
  }
  const Forced forced("");
  CHECK(choose_instruction_set().name == best);
}

TEST_CASE("what refuses an instruction set names those of this build and which of them run here") {
  const std::string text = refusal("abacus");
  CHECK(text.starts_with("unknown instruction set abacus; there are: portable"));
  std::string expected;
  for (const InstructionSet& set : instruction_sets())
    expected +=
        (expected.empty() ? "" : ", ") + std::string(set.name) + (set.runs_here() ? "" : " (not on this machine)");
  CHECK(text.ends_with("there are: " + expected));
#if defined(__aarch64__)
  CHECK(test::contains(text, "neon, neondotprod"));
  CHECK_FALSE(test::contains(text, "avx"));
#elif defined(__x86_64__)
  CHECK(test::contains(text, "avx512bf16"));
  CHECK(test::contains(text, ", amx"));
  CHECK_FALSE(test::contains(text, "neon"));
#endif
}

TEST_CASE("a set includes those that every machine with it runs") {
  const auto included = [](std::string_view wide) {
    std::vector<std::string> all;
    for (const InstructionSet& set : instruction_sets()) {
      if (set.name != wide) continue;
      for (const std::string& name : names())
        if (includes(set, name)) all.push_back(name);
    }
    return all;
  };
  using Names = std::vector<std::string>;
  CHECK(included("portable") == Names{"portable"});
#if defined(__aarch64__)
  CHECK(included("neondotprod") == Names{"portable", "neon", "neondotprod"});
#elif defined(__x86_64__)
  const bool all = included("avx2") == Names{"portable", "avx2"};  // a build for sanitizers has fewer
  CHECK(included("amx") == (all ? Names{"portable", "avx2", "avx512", "avx512bf16", "amx"}
                                : Names{"portable", "avx512", "avx512bf16", "amx"}));
  if (all) CHECK(included("avx2vnni") == Names{"portable", "avx2", "avx2vnni"});
#endif
  for (const InstructionSet& set : instruction_sets()) {
    for (const InstructionSet& other : instruction_sets()) {
      if (set.runs_here() && includes(set, other.name)) CHECK(other.runs_here());
    }
  }
}

}  // namespace llm
