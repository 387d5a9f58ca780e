// Short ways to run the programs on small models.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace llm::test {

using Json = nlohmann::json;

inline Outcome run_program(const std::string& name, std::vector<std::string> arguments,
                           const std::string& input_file = "/dev/null") {
  Command c{.program = program(name), .arguments = std::move(arguments), .input_file = input_file};
  c.limit = std::chrono::seconds(120);
  return run(c);
}

/// What a successful run wrote to stdout.
inline std::string output_of(const std::string& name, std::vector<std::string> arguments,
                             const std::string& input_file = "/dev/null") {
  const Outcome o = run_program(name, std::move(arguments), input_file);
  INFO(o.err);
  REQUIRE(o.code == 0);
  return o.out;
}

inline Json json_of(const std::string& name, std::vector<std::string> arguments) {
  return Json::parse(output_of(name, std::move(arguments)));
}

/// Checks that a run fails with one line on stderr that holds `text`, perhaps a hint behind it, and nothing on stdout.
inline void check_fails(int code, const std::string& text, const std::string& name,
                        std::vector<std::string> arguments) {
  const Outcome o = run_program(name, std::move(arguments));
  INFO(o.err);
  CHECK(o.code == code);
  CHECK(o.out.empty());
  CHECK(o.err.find(text) != std::string::npos);
  CHECK(o.err.starts_with(name + ": error[E-"));
  const std::size_t second = o.err.find('\n') + 1;
  CHECK((second == o.err.size() || o.err.substr(second).starts_with(name + ": hint: ")));
  CHECK(std::count(o.err.begin(), o.err.end(), '\n') == (second == o.err.size() ? 1 : 2));
}

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path.string();
}

inline std::string write_model(const TempDir& folder, const TinyFile& model, const std::string& name = "m.gguf") {
  model.write(folder / name);
  return (folder / name).string();
}

}  // namespace llm::test
