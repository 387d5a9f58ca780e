// For scripts/check-schemas: schemas and texts in, what the engine makes of them out, one JSON object per line each.
//   {"schema": "...", "texts": ["...", ...]}  ->  {"error": "..."} or {"accepted": [true, ...], "warnings": n}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "../matching.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const nlohmann::json in = nlohmann::json::parse(line);
    nlohmann::json out;
    try {
      llm::Warnings warnings;
      const llm::Grammar grammar = llm::grammar_from_json_schema(in["schema"].get<std::string>(), warnings,
                                                                 {llm::SchemaOptions::Unmentioned::Allowed});
      out["accepted"] = nlohmann::json::array();
      for (const auto& text : in["texts"]) {
        out["accepted"].push_back(llm::test::matches(grammar, text.get<std::string>()));
      }
      out["warnings"] = warnings.size();
      out["size"] = grammar.describe();
    } catch (const llm::Error& e) {
      out["error"] = e.what();
      out["kind"] = static_cast<int>(e.kind());
    }
    std::cout << out.dump() << std::endl;
  }
}
