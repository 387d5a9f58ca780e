// llm-run doctor. Speeds are whatever this machine has at the moment: only their presence and units are asserted.
#include <nlohmann/json.hpp>

#include "backend/registry/registry.h"
#include "base/machine.h"
#include "common/columns.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/sanitized.h"

using namespace llm;
using namespace llm::test;

namespace {

Outcome doctor(std::vector<std::string> arguments, std::vector<std::pair<std::string, std::string>> environment = {}) {
  arguments.insert(arguments.begin(), "doctor");
  return run({.program = program("llm-run"), .arguments = std::move(arguments), .environment = std::move(environment)});
}

nlohmann::json finding(const nlohmann::json& report, const std::string& subject) {
  for (const auto& f : report["findings"]) {
    if (f["subject"] == subject) return f;
  }
  FAIL("no finding about " << subject);
  return {};
}

}  // namespace

TEST_CASE("doctor reports what a run would use, with figures") {
  const Outcome o = doctor({"-t", "1", "--json"}, {{"OMP_DYNAMIC", "false"}, {"LLM_RUN_ISA", "portable"}});
  CHECK(o.code == 0);
  CHECK(o.err.empty());
  const auto report = nlohmann::json::parse(o.out);
  CHECK(report["threads"] == 1);
  for (const char* subject : {"processor", "memory", "backend cpu", "backend cuda", "backend reference", "gpu", "clock",
                              "int8 products", "f32 products", "reading memory"}) {
    CHECK_FALSE(finding(report, subject)["text"].get<std::string>().empty());
  }
  CHECK(finding(report, "instruction set")["text"].get<std::string>().starts_with("portable, by LLM_RUN_ISA"));
  CHECK(finding(report, "threads")["text"].get<std::string>().starts_with("1 (-t); by default "));
  const GpuReport gpus = look_for_gpus();
  const std::string gpu = finding(report, "gpu")["text"];
  if (gpus.state == GpuReport::State::NotBuilt) {
    CHECK(gpu == "built without CUDA");
  } else if (gpus.state == GpuReport::State::Usable) {
    CHECK(gpu.starts_with(gpus.gpus.front().name + ", compute capability "));
    CHECK(gpu.find(" free of ") != std::string::npos);
  } else {
    CHECK(gpu == gpus.reason);
  }
  CHECK(finding(report, "backend cpu")["text"] == "cpu: portable, 1 thread");
  CHECK(finding(report, "environment")["text"].get<std::string>().find("=") != std::string::npos);
#if defined(__x86_64__)
  CHECK(report["clock_ghz"] > 0.01);  // a busy machine may give little, but not a thousandth
  CHECK(report["clock_ghz"] < 8.0);
#endif
}

TEST_CASE("doctor takes no more memory than it says, and no more columns than there are") {
  const Outcome o = doctor({});
  const std::size_t at = o.out.find(" measured");  // or no memory for that
  INFO(o.out);
  for (std::size_t begin = 0; begin < o.out.size();) {
    const std::size_t end = o.out.find('\n', begin);
    const std::string line = o.out.substr(begin, end - begin);
    const bool wide = line.find(' ', 27) == std::string::npos;  // a single word, as a path is
    CHECK((wide || app::columns_of(line) <= 80));
    begin = end + 1;
  }
  const std::uint64_t caches = last_level_cache();
  if (at == std::string::npos || caches == 0 || kSanitized) return;
  CHECK(o.peak_bytes < std::max<std::uint64_t>(8 * caches, 256u << 20) + (64u << 20));
}

TEST_CASE("doctor says what would stop a run, and fails") {
  const Outcome o = doctor({}, {{"LLM_RUN_ISA", "abacus"}});
  CHECK(o.code == 1);
  CHECK(o.out.find("wrong    instruction set   unknown instruction set abacus") != std::string::npos);
  CHECK(o.out.find("hint: unset LLM_RUN_ISA\n") != std::string::npos);
  CHECK(o.out.find("note     environment       LLM_RUN_ISA=abacus\n") != std::string::npos);
  CHECK(doctor({"--jsn"}).code == 2);
}
