#include "doctor.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "backend/registry/registry.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/instruction_sets.h"
#include "base/machine.h"
#include "common/build_info.h"
#include "common/help_page.h"
#include "common/machine_limits.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/peak_loops.h"
#include "common/placement.h"
#include "common/reserved.h"
#include "common/terminal.h"

extern char** environ;

namespace llm::app {
namespace {

constexpr double kSpeedSeconds = 3;   ///< of measuring; the best of what was seen counts
constexpr double kFairShare = 0.8;    ///< of what is expected
constexpr double kSlowMemory = 10e9;  ///< bytes per second; one channel of DDR4-2133 gives 17e9
constexpr std::uint64_t kLittleMemory = std::uint64_t{1} << 30;

enum class Verdict : std::uint8_t {
  Ok,
  Note,     ///< worth knowing
  Warning,  ///< slower than it could be
  Wrong,    ///< a run will fail
};
std::string_view name(Verdict v) {
  switch (v) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Note:
      return "note";
    case Verdict::Warning:
      return "warning";
    case Verdict::Wrong:
      return "wrong";
  }
  return "";
}

struct Finding {
  Verdict verdict;
  std::string subject, text, hint = {};
};

// What /proc/cpuinfo calls the processor's features, and those of them that kernels could use.
#if defined(__aarch64__)
constexpr std::string_view kFeatures = "Features", kUseful = "asimd asimddp asimdhp asimdfhm i8mm bf16 sve sve2";
#else
constexpr std::string_view kFeatures = "flags";
constexpr std::string_view kUseful =
    "avx2 fma f16c avx_vnni avx512f avx512bw avx512dq avx512vl avx512_vnni avx512vbmi avx512_bf16 amx_int8";
#endif

/// Of the names in `wanted`, those that are in `all`, or those that are not.
std::string among(std::string_view wanted, std::string_view all, bool present) {
  std::istringstream in{std::string(wanted)};
  std::string found;
  for (std::string word; in >> word;) {
    if (has_name(all, word) == present) found += (found.empty() ? "" : " ") + word;
  }
  return found;
}

Finding processor(const std::string& features) {
  const std::string known = among(kUseful, features, true);
  return {Verdict::Ok, "processor", processor_name() + (known.empty() ? "" : ": " + known)};
}

Finding instruction_set(const std::string& features) {
  const auto sets = instruction_sets();
  const auto best = std::find_if(sets.rbegin(), sets.rend(), [](const auto& s) { return s.runs_here(); });
  std::string text(best->name);
  if (const auto forced = environment("LLM_RUN_ISA")) {
    try {
      choose_instruction_set(*forced);
    } catch (const Error& e) {
      return {Verdict::Wrong, "instruction set", e.what(), "unset LLM_RUN_ISA"};
    }
    text = *forced + ", by LLM_RUN_ISA; the best here is " + text;
    return {*forced == best->name ? Verdict::Ok : Verdict::Warning, "instruction set", text, "unset LLM_RUN_ISA"};
  }
  if (best == sets.rbegin()) return {Verdict::Ok, "instruction set", text + ": the widest of this build runs here"};
  const std::string missing = among((best - 1)->needs, features, false);
  return {best->name == "portable" ? Verdict::Warning : Verdict::Note, "instruction set",
          text + ": " + std::string((best - 1)->name) + " needs " + (missing.empty() ? "another processor" : missing),
          best->name == "portable" ? "a virtual machine may hide features: ask for the host's processor type" : ""};
}

Finding threads(int given) {
  const ThreadChoice choice = default_threads();
  const int n = given > 0 ? given : choice.threads;
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  std::string text = std::to_string(n) + (given > 0 ? " (-t); by default " + std::to_string(choice.threads) : "") +
                     ": " + choice.reason + "; load " + fixed_text(load, 1);
  if (n > choice.threads) {
    return {Verdict::Warning, "threads", text, "more threads than cores or quota wait for one another"};
  }
  if (load > n) return {Verdict::Note, "threads", text, "other programs use the processors now"};
  return {Verdict::Ok, "threads", text};
}

Finding memory() {
  const std::uint64_t available = available_memory();
  const auto total =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::string text = bytes_text(available) + " available of " + bytes_text(total);
  if (available < kLittleMemory) {
    return {Verdict::Warning, "memory", text, "llm-run -m MODEL --dry-run says what a model takes"};
  }
  return {Verdict::Ok, "memory", text};
}

void backends(int threads, std::vector<Finding>& findings) {
  const int gpu = first_usable_gpu(look_for_gpus());
  for (const std::string_view backend : backend_names()) {
    const std::string subject = "backend " + std::string(backend);
    try {
      const BackendOptions options{.threads = threads, .isa = {}, .device = backend == "cuda" ? gpu : 0};
      findings.push_back({Verdict::Ok, subject, make_backend(backend, options)->describe()});
    } catch (const Error& e) {
      findings.push_back({backend == "cpu" ? Verdict::Wrong : Verdict::Note, subject, e.what()});
    }
  }
}

Finding gpu(const std::string& subject, const GpuReport& report, std::size_t i) {
  const Gpu& gpu = report.gpus[i];
  if (!gpu.why_not.empty()) return {Verdict::Note, subject, gpu.why_not, "no model runs there"};
  try {
    return {Verdict::Ok, subject,
            gpu_text(gpu) + "; driver for CUDA " + report.driver + ", built with " + report.toolkit + "; " +
                bytes_text(free_gpu_memory(i)) + " free of " + bytes_text(gpu.memory)};
  } catch (const Error& e) {
    return {Verdict::Warning, subject, e.what(), "no model runs there"};
  }
}

void gpus(std::vector<Finding>& findings) {
  const GpuReport report = look_for_gpus();
  using State = GpuReport::State;
  if (report.state == State::Usable) {
    for (std::size_t i = 0; i < report.gpus.size(); ++i)
      findings.push_back(gpu(i == 0 ? "gpu" : "gpu " + gpu_name(static_cast<int>(i)), report, i));
    return;
  }
  const Verdict unusable = report.state == State::Unusable ? Verdict::Warning : Verdict::Note;
  if (report.state == State::NotBuilt) {
    findings.push_back({unusable, "gpu", "built without CUDA"});
  } else {
    findings.push_back({unusable, "gpu", report.reason, "a model runs on the CPU"});
  }
}

void variables(std::vector<Finding>& findings) {
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry = *e;
    const std::string_view variable = entry.substr(0, entry.find('='));
    const bool ours = variable.starts_with("LLM_RUN_") || variable.starts_with("LLAMA_ARG_");
    if (ours || variable.starts_with("OMP_") || variable.starts_with("GOMP_") || variable.starts_with("OPENBLAS_")) {
      findings.push_back({Verdict::Note, "environment", escaped(entry, 200)});
    }
  }
}

// --- speed ---

struct Speed {
  Limits limits;
  std::size_t read_buffer = 0;                        ///< memory that was read
  std::optional<double> clock_alone, clock_together;  ///< cycles per second and thread
};

void keep_best(std::optional<double>& best, const std::optional<double>& value) {
  if (value) best = std::max(best.value_or(0), *value);
}

Speed measure(int threads) {
  const auto start = Clock::now();
  const LimitMeter meter(threads);
  Speed s;
  s.read_buffer = meter.buffer_bytes();
  do {
    const Limits l = meter.measure();
    keep_best(s.limits.read_bytes, l.read_bytes);
    keep_best(s.limits.int8_ops, l.int8_ops);
    keep_best(s.limits.f32_ops, l.f32_ops);
    keep_best(s.clock_alone, LimitMeter::clock(1));
    keep_best(s.clock_together, LimitMeter::clock(threads));
  } while (seconds_since(start) < kSpeedSeconds);
  return s;
}

Finding clock(const Speed& s, int threads) {
  if (!s.clock_alone || !s.clock_together) return {Verdict::Note, "clock", "not measured on this processor"};
  const std::string text = fixed_text(*s.clock_alone / 1e9, 2) + " GHz on one thread, " +
                           fixed_text(*s.clock_together / 1e9, 2) + " GHz on each of " + std::to_string(threads);
  if (*s.clock_together >= kFairShare * *s.clock_alone) return {Verdict::Ok, "clock", text};
  return {Verdict::Warning, "clock", text,
          "the threads do not have a core each: other programs, a CPU quota, or cores that the host shares; try fewer "
          "threads (-t)"};
}

Finding products(const std::string& subject, const std::optional<double>& measured, const PeakLoop& loop,
                 const Speed& s, int threads) {
  if (!measured || loop.run == nullptr) return {Verdict::Note, subject, "not measured on this processor"};
  std::string text = fixed_text(*measured / 1e9, 0) + " G operations per second";
  if (!s.clock_together) return {Verdict::Ok, subject, text};
  const double per_cycle = *measured / *s.clock_together / threads;
  text += ", " + fixed_text(per_cycle, 0) + " per cycle and thread; one unit of this kind gives " +
          fixed_text(loop.ops_per_cycle, 0) + (loop.usual_units == 1 ? ", a core has one" : ", most cores have two");
  if (per_cycle >= kFairShare * loop.ops_per_cycle) return {Verdict::Ok, subject, text};
  return {Verdict::Warning, subject, text, "the cores are busy with other work, or slow down under wide instructions"};
}

Finding reading(const Speed& s) {
  if (!s.limits.read_bytes) {
    return {Verdict::Note, "reading memory", "not measured: the memory for a fair test is not there"};
  }
  constexpr double kGiB = 1 << 30;
  const double speed = *s.limits.read_bytes;
  const std::string text = fixed_text(speed / 1e9, 1) + " GB/s: per GiB of weights that a token needs at most " +
                           fixed_text(speed / kGiB, 1) + " tokens per second; measured in " + bytes_text(s.read_buffer);
  if (speed >= kSlowMemory) return {Verdict::Ok, "reading memory", text};
  return {Verdict::Warning, "reading memory", text,
          "less than one channel of DDR4 gives: other programs, one memory module, or a shared host; smaller storage "
          "types help most"};
}

std::string in_columns(const std::vector<Finding>& findings, std::size_t width) {
  constexpr std::size_t kTextColumn = 27;
  std::string text;
  for (const Finding& f : findings) {
    std::string line(name(f.verdict));
    line.resize(9, ' ');
    line += f.subject;
    line.resize(std::max(kTextColumn, line.size() + 1), ' ');
    text += line + wrapped(f.text, width, kTextColumn) + "\n";
    if (f.hint.empty() || f.verdict == Verdict::Ok) continue;
    text += std::string(kTextColumn, ' ') + wrapped("hint: " + f.hint, width, kTextColumn) + "\n";
  }
  return text;
}

std::string as_json(const std::vector<Finding>& findings, const Speed& s, int threads) {
  nlohmann::ordered_json json;
  json["version"] = build_version();
  json["threads"] = threads;
  const auto figure = [](const std::optional<double>& value, double unit) {
    return value ? nlohmann::ordered_json(*value / unit) : nlohmann::ordered_json();
  };
  json["read_gbps"] = figure(s.limits.read_bytes, 1e9);
  json["int8_tops"] = figure(s.limits.int8_ops, 1e12);
  json["f32_gflops"] = figure(s.limits.f32_ops, 1e9);
  json["clock_ghz"] = figure(s.clock_together, 1e9);
  for (const Finding& f : findings) {
    nlohmann::ordered_json one{{"verdict", name(f.verdict)}, {"subject", f.subject}, {"text", f.text}};
    if (!f.hint.empty() && f.verdict != Verdict::Ok) one["hint"] = f.hint;
    json["findings"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

Command* add_doctor_command(Command& cli, DoctorOptions& o) {
  Command* command =
      cli.add_subcommand("doctor", "says what this machine offers, what is used of it, and what is wrong");
  command->fallthrough();
  command->add_flag("--json", o.json, "one JSON object");
  return command;
}

int run_doctor(const DoctorOptions& o, int given_threads) {
  const int n = given_threads > 0 ? given_threads : default_threads().threads;
  const std::string features = cpu_info(kFeatures);
  std::vector<Finding> findings{processor(features), instruction_set(features), threads(given_threads), memory()};
  variables(findings);  // before the backends, which set some for their libraries
  backends(n, findings);
  gpus(findings);
  const bool wrong =
      std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.verdict == Verdict::Wrong; });
  Speed speed;
  if (!wrong) {
    speed = measure(n);
    findings.push_back(clock(speed, n));
    findings.push_back(products("int8 products", speed.limits.int8_ops, int8_peak_loop(), speed, n));
    findings.push_back(products("f32 products", speed.limits.f32_ops, f32_peak_loop(), speed, n));
    findings.push_back(reading(speed));
  }
  write_stdout(o.json ? as_json(findings, speed, n) : in_columns(findings, text_width(STDOUT_FILENO)));
  return wrong ? static_cast<int>(ErrorKind::Runtime) : 0;
}

}  // namespace llm::app
