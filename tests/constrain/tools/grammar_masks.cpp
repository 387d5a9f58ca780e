// For scripts/check-grammars: a grammar and tokens in, the tokens that may come before each of them out, as hexadecimal
// words.
//   grammar_masks MODEL;  {"grammar": "...", "tokens": [...]}  ->  {"masks": ["...", ...], "accepted": n} or {"error":
//   "..."}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "constrain/constraint.h"
#include "gguf/file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  llm::Warnings warnings;
  const llm::GgufFile file = llm::GgufFile::open(argv[1], warnings);
  const auto tokenizer = llm::Tokenizer::load(file.metadata(), warnings);
  const auto tree = std::make_shared<const llm::TokenTree>(*tokenizer);
  std::string line;
  while (std::getline(std::cin, line)) {
    const nlohmann::json in = nlohmann::json::parse(line);
    nlohmann::json out;
    try {
      auto grammar = std::make_shared<const llm::Grammar>(llm::grammar_from_gbnf(in["grammar"].get<std::string>()));
      llm::Constraint constraint(std::make_shared<llm::TokenMasks>(std::move(grammar), tree));
      const auto add_mask = [&] {
        std::string hex;
        for (const std::uint64_t word : constraint.allowed()) {
          for (int digit = 0; digit < 16; ++digit) hex += "0123456789abcdef"[word >> (4 * digit) & 15];
        }
        out["masks"].push_back(hex);
      };
      add_mask();
      for (const auto& token : in["tokens"]) {
        if (!constraint.accept(token.get<llm::Token>())) break;
        add_mask();
      }
      out["accepted"] = constraint.accepted();
    } catch (const llm::Error& e) {
      out["error"] = e.what();
    }
    std::cout << out.dump() << std::endl;
  }
}
