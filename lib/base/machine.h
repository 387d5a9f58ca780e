// What this process may use of the machine it runs on: cores under affinity and cgroup quota, memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

struct ThreadChoice {
  int threads;         ///< at least 1
  std::string reason;  ///< e.g. "2 physical cores in the affinity mask, cgroup quota 1.5"
};

/// More CPUs than any machine has.
inline constexpr int kMaxCpus = 1 << 16;
/// The CPUs that this thread may run on.
std::vector<int> affinity();
/// Lets this thread, and those that it starts, run on these alone, as far as they are there. False: errno says why not.
bool set_affinity(std::span<const int> cpus);

/// From here on default_threads() counts these CPUs, not those of this thread's affinity mask: for a thread that was
/// bound to some of them before main().
void count_cpus(std::vector<int>);

/// The smaller of the physical cores in the process's affinity mask and its cgroup CPU quota rounded down.
ThreadChoice default_threads(const std::filesystem::path& root = "/");

/// The value of a line "key : value" in /proc/cpuinfo, of the first processor; empty: there is none.
std::string cpu_info(std::string_view key, const std::filesystem::path& root = "/");
/// The processor's, on ARM64 the numbers of who designed it and of what in its place.
std::string processor_name(const std::filesystem::path& root = "/");

/// Bytes of the outermost caches of the processors that this process may run on, all together; 0 where the system does
/// not say. Of a virtual machine sysconf(3) tells those of the whole chip, most of which others have.
std::uint64_t last_level_cache(const std::filesystem::path& root = "/");

/// Bytes that can still be taken without swapping: MemAvailable, and what the memory cgroups above the process leave
/// (page cache counted as available).
std::uint64_t available_memory(const std::filesystem::path& root = "/");

/// Largest resident size of this process so far, in bytes.
std::uint64_t peak_resident_bytes();

}  // namespace llm
