// What a constraint costs per token: prints processor times of compiling, of the vocabulary's tree and of the masks
// along a text.
//   mask_speed MODEL (--gbnf FILE | --schema FILE) TEXT_FILE
#include <time.h>

#include <bit>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>

#include "constrain/constraint.h"
#include "gguf/file.h"

namespace {

/// Of this thread's processor time: other programs do not count.
double now() {
  std::timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}
double milliseconds(double since) { return now() - since; }

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
    double start = now();
    const std::string text = contents(argv[3]);
    auto grammar = std::make_shared<const llm::Grammar>(std::string(argv[2]) == "--gbnf"
                                                            ? llm::grammar_from_gbnf(text)
                                                            : llm::grammar_from_json_schema(text, warnings));
    std::printf("compile    %8.2f ms  %s\n", milliseconds(start), grammar->describe().c_str());
    start = now();
    auto tree = std::make_shared<const llm::TokenTree>(*tokenizer);
    std::printf("vocabulary %8.2f ms  %zu tokens, %zu nodes\n", milliseconds(start), tree->tokens().size(),
                tree->nodes().size());
    const auto masks = std::make_shared<llm::TokenMasks>(grammar, tree);
    std::string target = contents(argv[4]);
    while (!target.empty() && target.back() == '\n') target.pop_back();
    const auto tokens = tokenizer->encode(target, {.add_special = false, .parse_special = false});
    std::vector<float> logits(tokenizer->n_vocab(), 1.0F), masked;
    for (int pass = 0; pass < 3; ++pass) {
      llm::Constraint constraint(masks);
      double total = 0, most = 0;
      std::size_t refused = 0;
      for (const llm::Token t : tokens) {
        start = now();
        const auto bits = constraint.allowed();
        // As the runtime applies it: a copy of the logits that may be sampled.
        masked.assign(logits.size(), -std::numeric_limits<float>::infinity());
        for (std::size_t w = 0; w < bits.size(); ++w) {
          for (std::uint64_t left = bits[w]; left != 0; left &= left - 1) {
            const std::size_t token = w * 64 + static_cast<std::size_t>(std::countr_zero(left));
            masked[token] = logits[token];
          }
        }
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
                  refused != 0           ? " (some refused)"
                  : constraint.can_end() ? " (complete)"
                                         : " (incomplete)");
    }
  } catch (const llm::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
