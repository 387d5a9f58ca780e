// What a constraint costs per token: prints times of compiling, of the vocabulary's tree and of the masks along a text.
//   mask_speed MODEL (--gbnf FILE | --schema FILE) TEXT_FILE
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "constrain/constraint.h"
#include "gguf/file.h"

namespace {

using Clock = std::chrono::steady_clock;
double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

std::string contents(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    llm::Warnings warnings;
    const llm::GgufFile file = llm::GgufFile::open(argv[1], warnings);
    const auto tokenizer = llm::Tokenizer::load(file.metadata(), warnings);
    auto start = Clock::now();
    const std::string text = contents(argv[3]);
    auto grammar = std::make_shared<const llm::Grammar>(std::string(argv[2]) == "--gbnf"
                                                            ? llm::grammar_from_gbnf(text)
                                                            : llm::grammar_from_json_schema(text, warnings));
    std::printf("compile    %8.2f ms  %s\n", milliseconds(start), grammar->describe().c_str());
    start = Clock::now();
    auto tree = std::make_shared<const llm::TokenTree>(*tokenizer);
    std::printf("vocabulary %8.2f ms  %zu tokens, %zu nodes\n", milliseconds(start), tree->tokens().size(),
                tree->nodes().size());
    const auto masks = std::make_shared<llm::TokenMasks>(grammar, tree);
    std::string target = contents(argv[4]);
    while (!target.empty() && target.back() == '\n') target.pop_back();
    const auto tokens = tokenizer->encode(target, {.add_special = false, .parse_special = false});
    for (int pass = 0; pass < 3; ++pass) {
      llm::Constraint constraint(masks);
      double total = 0, most = 0;
      std::size_t refused = 0;
      for (const llm::Token t : tokens) {
        start = Clock::now();
        const auto bits = constraint.allowed();
        const bool allowed = (bits[static_cast<std::size_t>(t) / 64] >> (t % 64) & 1) != 0;
        const bool accepted = constraint.accept(t);
        const double took = milliseconds(start);
        total += took;
        most = std::max(most, took);
        if (allowed != accepted) std::printf("mask and steps differ at token %zu\n", constraint.accepted());
        refused += !accepted;
      }
      std::printf("pass %d     %8.4f ms per token on average, %.3f ms at most, of %zu tokens%s\n", pass + 1,
                  total / static_cast<double>(tokens.size()), most, tokens.size(),
                  refused != 0 ? " (some refused)" : constraint.can_end() ? " (complete)" : " (incomplete)");
    }
  } catch (const llm::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
