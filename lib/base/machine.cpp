// Reads /proc, /sys and the cgroups of this process. Every path is below `root`, so that tests can show other machines.
#include "base/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"

namespace llm {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
static_assert(kMaxCpus > 8192);  // the most of a kernel; a list that claims more than kMaxCpus is damaged

/// As large as is asked for, unlike a cpu_set_t.
class CpuSet {
 public:
  explicit CpuSet(int cpus) : bytes_(CPU_ALLOC_SIZE(cpus)), set_(CPU_ALLOC(static_cast<std::size_t>(cpus))) {
    if (set_ == nullptr) throw std::bad_alloc();
    CPU_ZERO_S(bytes_, set_);
  }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;
  ~CpuSet() { CPU_FREE(set_); }

  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes_, set_); }
  bool has(int cpu) const { return CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes_, set_); }
  std::size_t bytes() const { return bytes_; }
  cpu_set_t* get() const { return set_; }

 private:
  std::size_t bytes_;
  cpu_set_t* set_;
};

/// `absolute` as a path below root.
fs::path below(const fs::path& root, const fs::path& absolute) { return root / absolute.relative_path(); }

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

template <class T>
std::optional<T> first_number(const fs::path& path) {
  std::ifstream in(path);
  T value{};
  if (!(in >> value)) return std::nullopt;  // also "max"
  return value;
}

/// The number after `key` in a file of lines "key number" or "key: number ...".
std::optional<std::uint64_t> keyed_number(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (!(words >> word)) continue;
    if (word.ends_with(':')) word.pop_back();
    if (word == key && (words >> value)) return value;
  }
  return std::nullopt;
}

// --- cores ---

/// "0-3,8" as numbers.
std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream in(text);
  std::string range;
  while (std::getline(in, range, ',')) {
    int first = 0, last = 0;
    const int n = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (n < 1) continue;
    if (n == 1) last = first;
    for (int cpu = std::max(first, 0); cpu <= std::min(last, kMaxCpus - 1); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int>& counted_cpus() {
  static std::vector<int> cpus;
  return cpus;
}

/// Of another root, what its proc/self/status says.
std::vector<int> allowed_cpus(const fs::path& root) {
  if (root == "/") return counted_cpus().empty() ? affinity() : counted_cpus();
  std::ifstream in(below(root, "/proc/self/status"));
  constexpr std::string_view kKey = "Cpus_allowed_list:";
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with(kKey)) return parse_cpu_list(line.substr(kKey.size()));
  }
  return {};
}

/// What names the core that a CPU is a thread of; CPUs without topology count as cores.
std::string core_of(const fs::path& root, int cpu) {
  const fs::path topology = below(root, "/sys/devices/system/cpu") / ("cpu" + std::to_string(cpu)) / "topology";
  for (const char* file : {"core_cpus_list", "thread_siblings_list", "thread_siblings"}) {
    if (auto line = first_line(topology / file); line && !line->empty()) return *line;
  }
  return "cpu" + std::to_string(cpu);
}

int physical_cores(const fs::path& root) {
  std::set<std::string> cores;
  for (const int cpu : allowed_cpus(root)) cores.insert(core_of(root, cpu));
  return std::max(1, static_cast<int>(cores.size()));
}

// --- caches ---

/// "32768K"
std::uint64_t cache_bytes(const fs::path& index) {
  std::ifstream in(index / "size");
  std::uint64_t n = 0;
  char unit = 0;
  if (!(in >> n)) return 0;
  if (!(in >> unit)) return n;
  return n << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

struct Cache {
  int level = 0;
  std::string cpus;  ///< that share it
  std::uint64_t bytes = 0;
};
/// The one that is nearest to the memory.
Cache outermost_cache(const fs::path& root, int cpu) {
  Cache outermost;
  const fs::path folder = below(root, "/sys/devices/system/cpu") / ("cpu" + std::to_string(cpu)) / "cache";
  for (int i = 0;; ++i) {
    const fs::path index = folder / ("index" + std::to_string(i));
    const auto level = first_number<int>(index / "level");
    if (!level) return outermost;
    if (*level > outermost.level)
      outermost = {*level, first_line(index / "shared_cpu_list").value_or(""), cache_bytes(index)};
  }
}

// --- cgroups ---

struct CgroupMount {
  bool unified;         ///< cgroup v2
  std::string options;  ///< v1: "rw,cpu,cpuacct"
  fs::path mount;       ///< where, without root
  std::string mounted;  ///< which directory of the hierarchy is there
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool lists(const std::string& comma_separated, std::string_view item) {
  const auto items = split(comma_separated, ',');
  return std::find(items.begin(), items.end(), item) != items.end();
}

/// Lines "36 35 98:0 /mounted /mount options optional... - type source super_options".
std::vector<CgroupMount> cgroup_mounts(const fs::path& root) {
  std::vector<CgroupMount> mounts;
  std::ifstream in(below(root, "/proc/self/mountinfo"));
  for (std::string line; std::getline(in, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const auto head = split(line.substr(0, dash), ' ');
    const auto tail = split(line.substr(dash + 3), ' ');
    if (head.size() < 5 || tail.size() < 3 || (tail[0] != "cgroup" && tail[0] != "cgroup2")) continue;
    mounts.push_back({tail[0] == "cgroup2", tail[2], head[4], head[3]});
  }
  return mounts;
}

/// This process's directory in the hierarchy of v1 controller `controller`, or of v2 if that is empty.
std::optional<std::string> cgroup_path(const fs::path& root, std::string_view controller) {
  std::ifstream in(below(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(in, line);) {  // "4:memory:/path", "0::/path"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool found = controller.empty() ? controllers.empty() : lists(controllers, controller);
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The directories from the process's own cgroup up to the root of the mount. A path outside what is mounted (a
/// container that sees its own cgroup as the root) gives the mount alone.
std::vector<fs::path> directories(const fs::path& root, const CgroupMount& mount, const std::string& path) {
  const std::string above = mount.mounted == "/" ? "" : mount.mounted;
  fs::path inside;
  const bool leaves = path.find("/..") != std::string::npos;
  if (!leaves && path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '/')) {
    inside = fs::path(path.substr(above.size())).relative_path();
  }
  std::vector<fs::path> found;
  for (const fs::path top = below(root, mount.mount);; inside = inside.parent_path()) {
    std::error_code ignored;
    const fs::path directory = inside.empty() ? top : top / inside;
    if (fs::is_directory(directory, ignored)) found.push_back(directory);
    if (inside.empty()) return found;
  }
}

enum class CgroupVersion { V1, V2 };
struct Cgroup {
  CgroupVersion version;
  fs::path directory;
};

/// The cgroups that limit this process in `controller`, innermost first, of both versions where both are mounted.
std::vector<Cgroup> cgroups(const fs::path& root, std::string_view controller) {
  std::vector<Cgroup> found;
  for (const CgroupMount& mount : cgroup_mounts(root)) {
    if (!mount.unified && !lists(mount.options, controller)) continue;
    const auto path = cgroup_path(root, mount.unified ? std::string_view{} : controller);
    if (!path) continue;
    const CgroupVersion version = mount.unified ? CgroupVersion::V2 : CgroupVersion::V1;
    for (fs::path& directory : directories(root, mount, *path)) found.push_back({version, std::move(directory)});
  }
  return found;
}

/// CPUs' worth of time that one cgroup allows, if it limits them.
std::optional<double> quota_of(const Cgroup& group) {
  double quota = 0, period = 0;
  if (group.version == CgroupVersion::V2) {
    std::ifstream in(group.directory / "cpu.max");
    if (!(in >> quota >> period)) return std::nullopt;  // "max 100000" fails at the first number
  } else {
    quota = first_number<double>(group.directory / "cpu.cfs_quota_us").value_or(-1);
    period = first_number<double>(group.directory / "cpu.cfs_period_us").value_or(0);
  }
  if (!(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  for (const Cgroup& group : cgroups(root, "cpu")) {
    if (const auto quota = quota_of(group)) least = std::min(least.value_or(*quota), *quota);
  }
  return least;
}

/// Bytes that one memory cgroup still leaves. Its page cache can be reclaimed, so it does not count as used.
std::uint64_t memory_left(const Cgroup& group) {
  const bool v2 = group.version == CgroupVersion::V2;
  const auto limit = first_number<std::uint64_t>(group.directory / (v2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = first_number<std::uint64_t>(group.directory / (v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used) return kUnlimited;
  const fs::path stat = group.directory / "memory.stat";
  const std::uint64_t inactive = keyed_number(stat, v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  const std::uint64_t active = keyed_number(stat, v2 ? "active_file" : "total_active_file").value_or(0);
  const std::uint64_t cache = std::min(*used, inactive + active);
  return *limit - std::min(*limit, *used - cache);
}

std::uint64_t system_available(const fs::path& root) {
  const fs::path meminfo = below(root, "/proc/meminfo");
  if (const auto kib = keyed_number(meminfo, "MemAvailable")) return *kib * 1024;
  if (const auto kib = keyed_number(meminfo, "MemFree")) {
    return (*kib + keyed_number(meminfo, "Cached").value_or(0)) * 1024;  // Linux before 3.14
  }
  const long pages = ::sysconf(_SC_AVPHYS_PAGES);
  return pages < 0 ? kUnlimited
                   : static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::vector<int> affinity() {
  // The kernel refuses a mask smaller than its own.
  std::vector<int> allowed;
  for (int cpus = 1024; cpus <= kMaxCpus && allowed.empty(); cpus *= 2) {
    const CpuSet set(cpus);
    if (::sched_getaffinity(0, set.bytes(), set.get()) != 0) continue;
    for (int cpu = 0; cpu < cpus; ++cpu) {
      if (set.has(cpu)) allowed.push_back(cpu);
    }
  }
  return allowed;
}

bool set_affinity(std::span<const int> cpus) {
  CpuSet set(kMaxCpus);
  for (const int cpu : cpus) set.add(cpu);
  return ::sched_setaffinity(0, set.bytes(), set.get()) == 0;
}

void count_cpus(std::vector<int> cpus) { counted_cpus() = std::move(cpus); }

std::uint64_t last_level_cache(const fs::path& root) {
  std::map<std::string, std::uint64_t> caches;
  for (const int cpu : allowed_cpus(root)) {
    const Cache cache = outermost_cache(root, cpu);
    caches[cache.cpus.empty() ? std::to_string(cpu) : cache.cpus] = cache.bytes;
  }
  std::uint64_t all = 0;
  for (const auto& [cpus, bytes] : caches) all += bytes;
  return all;
}

ThreadChoice default_threads(const fs::path& root) {
  const int cores = physical_cores(root);
  ThreadChoice choice{cores,
                      std::to_string(cores) + " physical " + (cores == 1 ? "core" : "cores") + " in the affinity mask"};
  if (const auto quota = cpu_quota(root)) {
    choice.threads = std::max(1, static_cast<int>(std::min(static_cast<double>(cores), std::floor(*quota))));
    char text[48];
    std::snprintf(text, sizeof text, ", cgroup quota %.4g", *quota);
    choice.reason += text;
  }
  if (const auto limit = environment("OMP_THREAD_LIMIT")) {
    const int threads = std::atoi(limit->c_str());
    if (threads >= 1 && threads < choice.threads) {
      choice.threads = threads;
      choice.reason += ", OMP_THREAD_LIMIT " + std::to_string(threads);
    }
  }
  return choice;
}

std::uint64_t available_memory(const fs::path& root) {
  std::uint64_t least = system_available(root);
  for (const Cgroup& group : cgroups(root, "memory")) least = std::min(least, memory_left(group));
  return least;
}

std::string cpu_info(std::string_view key, const fs::path& root) {
  std::ifstream in(below(root, "/proc/cpuinfo"));
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    return colon + 2 <= line.size() ? line.substr(colon + 2) : "";
  }
  return {};
}

std::string processor_name(const fs::path& root) {
  const std::string name = cpu_info("model name", root), part = cpu_info("CPU part", root);
  if (!name.empty()) return name;
  return part.empty() ? "unknown" : "implementer " + cpu_info("CPU implementer", root) + ", part " + part;
}

std::uint64_t peak_resident_bytes() {
  // Not getrusage() where it can be avoided: its maximum survives exec and may be that of the program that started this
  // one.
  if (const auto kib = keyed_number("/proc/self/status", "VmHWM")) return *kib * 1024;
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace llm
