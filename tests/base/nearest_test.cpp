#include "base/nearest.h"

#include <vector>

#include "support/catch.h"

using namespace llm;

TEST_CASE("edits between words") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("top_k", "") == 5);
  CHECK(edit_distance("tpo", "top") == 1);
}

TEST_CASE("a name is suggested if it is near") {
  const std::vector<std::string> known{"top_k", "top_p", "temperature"};
  CHECK(nearest_name("temprature", known) == "temperature");
  CHECK(nearest_name("topk", known) == "top_k");
  CHECK(nearest_name("mirostat", known).empty());
  CHECK(nearest_name("TEMPERATURE", known) == "temperature");
  CHECK(nearest_name("-N", std::vector<std::string>{"-m", "-n"}) == "-n");
  CHECK(nearest_name("x", known).empty());
  CHECK(nearest_name("x", {}).empty());
}

TEST_CASE("a name is suggested that has the words of the one that is given") {
  const std::vector<std::string> known{"--system-prompt-file", "--system-prompt", "--json-schema", "--lora",
                                       "--load-mode",          "--top-k"};
  CHECK(nearest_name("--system", known) == "--system-prompt");
  CHECK(nearest_name("--system-pro", known) == "--system-prompt");
  CHECK(nearest_name("--schema", known) == "--json-schema");
  CHECK(nearest_name("--load", known) == "--load-mode");  // and not --lora
  CHECK(nearest_name("--tok-k", known) == "--top-k");
  CHECK(nearest_name("--mode-of", known).empty());
  CHECK(nearest_name("--p", known).empty());
}
