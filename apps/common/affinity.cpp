#include "common/affinity.h"

#include <omp.h>

#include <cctype>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

/// What -C and -Cr have named so far; they add up, as in llama.cpp.
std::vector<int>& chosen() {
  static std::vector<int> cpus;
  return cpus;
}

[[noreturn]] void refuse(const std::string& option, const std::string& text, const std::string& why) {
  throw Error(ErrorKind::Usage,
              ErrorParts{.file = {}, .subject = "option " + option, .problem = "\"" + escaped(text) + "\" " + why});
}

/// Not by the number of places: LLVM's library has some whether it binds to them or not.
bool threads_are_bound() { return omp_get_proc_bind() != omp_proc_bind_false; }

void keep_to_chosen(const std::string& option, const std::string& text) {
  if (threads_are_bound()) {
    throw Error(ErrorKind::Usage, "option " + option +
                                      ": OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY bind the threads already; give "
                                      "one or the other");
  }
  if (set_affinity(chosen())) return;
  refuse(option, text, std::string("names no processor that may be used here: ") + std::strerror(errno));
}

/// Hexadecimal digits, four processors each, the last digit those from 0 to 3.
void set_mask(const std::string& text) {
  const std::string digits = text.starts_with("0x") || text.starts_with("0X") ? text.substr(2) : text;
  if (digits.empty() || digits.size() > kMaxCpus / 4) refuse("-C", text, "is not a mask in hexadecimal digits");
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const auto c = static_cast<unsigned char>(digits[digits.size() - 1 - i]);
    if (std::isxdigit(c) == 0) refuse("-C", text, "is not a mask in hexadecimal digits");
    const int value = std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10;
    for (std::size_t bit = 0; bit < 4; ++bit) {
      if ((value >> bit & 1) != 0) chosen().push_back(static_cast<int>(i * 4 + bit));
    }
  }
  keep_to_chosen("-C", text);
}

/// "2-5", "-5" from the first one, "2-" to the last one.
void set_range(const std::string& text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string::npos || text == "-") refuse("-Cr", text, "is not a range like 0-3");
  const auto number = [](const std::string& part, std::int64_t otherwise) {
    return static_cast<int>(part.empty() ? otherwise : parse_integer("-Cr", part, 0, kMaxCpus - 1));
  };
  const int first = number(text.substr(0, dash), 0), last = number(text.substr(dash + 1), kMaxCpus - 1);
  if (first > last) refuse("-Cr", text, "ends before it begins");
  for (int cpu = first; cpu <= last; ++cpu) chosen().push_back(cpu);
  keep_to_chosen("-Cr", text);
}

}  // namespace

void count_all_places() {
  if (!threads_are_bound()) return;
  std::vector<int> all;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> cpus(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, cpus.data());
    all.insert(all.end(), cpus.begin(), cpus.end());
  }
  if (!all.empty()) count_cpus(std::move(all));
}

void add_affinity_options(Command& cli) {
  cli.add_option_function<std::string>("-C,--cpu-mask", set_mask,
                                       "processors that the threads may use, as a mask in hexadecimal digits")
      ->type_name("MASK")
      ->take_last();
  cli.add_option_function<std::string>("--cpu-range", set_range, "the same as a range: 0-3; added to those of -C")
      ->type_name("LO-HI")
      ->take_last();
}

}  // namespace llm::app
