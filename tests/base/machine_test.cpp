// Threads and memory on machines made of files: affinity, hyper-threads, cgroups of both versions, containers.
#include "base/machine.h"

#include <sched.h>

#include <cstdlib>

#include "support/catch.h"
#include "support/temp_dir.h"

using namespace llm;

namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

/// A machine of `cores` cores with two threads each: CPU c and c + cores share a core. No cgroups, no limits.
class Machine {
 public:
  explicit Machine(int cores) {
    for (int cpu = 0; cpu < 2 * cores; ++cpu) {
      const int first = cpu % cores;
      dir_.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
                 std::to_string(first) + "," + std::to_string(first + cores) + "\n");
    }
    allow("0-" + std::to_string(2 * cores - 1));
    dir_.write("proc/meminfo", "MemTotal:  8388608 kB\nMemFree:  1 kB\nMemAvailable:  4194304 kB\n");
  }

  void allow(const std::string& cpus) {
    dir_.write("proc/self/status", "Name:\ttest\nCpus_allowed:\tff\nCpus_allowed_list:\t" + cpus + "\nVmHWM:\t1 kB\n");
  }
  void write(const std::string& name, const std::string& content) { dir_.write(name, content); }

  /// cgroup v2 mounted as it is outside containers, the process in `path`.
  void unified(const std::string& path) {
    write("proc/self/cgroup", "0::" + path + "\n");
    write("proc/self/mountinfo",
          "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
          "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  }

  ThreadChoice threads() const { return default_threads(dir_.path()); }
  std::uint64_t cache() const { return last_level_cache(dir_.path()); }
  std::uint64_t memory() const { return available_memory(dir_.path()); }

 private:
  test::TempDir dir_;
};

}  // namespace

TEST_CASE("a processor is called by its name, or by its numbers where it has none") {
  const llm::test::TempDir dir;
  const auto called = [&](const std::string& info) {
    dir.write("proc/cpuinfo", info);
    return processor_name(dir.path());
  };
  CHECK(called("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: "
               "Another\n") == "Some CPU @ 2 GHz");
  CHECK(cpu_info("flags", dir.path()) == "fpu avx2");
  CHECK(cpu_info("Features", dir.path()).empty());
  CHECK(called("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n") == "implementer 0x41, part 0xd40");
  CHECK(called("") == "unknown");
}

TEST_CASE("the outermost caches of the processors that may be used") {
  Machine m(4);
  CHECK(m.cache() == 0);  // the system does not say
  for (int cpu = 0; cpu < 8; ++cpu) {
    const auto cache = [&](int index, int level, const std::string& size, const std::string& cpus) {
      const std::string folder =
          "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
      m.write(folder + "level", std::to_string(level) + "\n");
      m.write(folder + "size", size + "\n");
      m.write(folder + "shared_cpu_list", cpus + "\n");
    };
    cache(0, 1, "32K", std::to_string(cpu));
    cache(1, 2, "1024K", std::to_string(cpu));
    cache(2, 3, "16M", cpu % 4 < 2 ? "0-1,4-5" : "2-3,6-7");  // two of them
  }
  CHECK(m.cache() == 32 * kMiB);
  m.allow("0,5");
  CHECK(m.cache() == 16 * kMiB);
  m.allow("2");
  CHECK(m.cache() == 16 * kMiB);
}

TEST_CASE("one thread per physical core of the affinity mask") {
  Machine m(4);
  CHECK(m.threads().threads == 4);
  CHECK(m.threads().reason == "4 physical cores in the affinity mask");
  m.allow("0,4");  // both threads of one core
  CHECK(m.threads().threads == 1);
  CHECK(m.threads().reason == "1 physical core in the affinity mask");
  m.allow("1-2,5");
  CHECK(m.threads().threads == 2);
  m.allow("4-7");
  CHECK(m.threads().threads == 4);
}

TEST_CASE("the default keeps to OMP_THREAD_LIMIT") {
  Machine m(4);
  ::setenv("OMP_THREAD_LIMIT", "3", 1);
  CHECK(m.threads().threads == 3);
  CHECK(m.threads().reason == "4 physical cores in the affinity mask, OMP_THREAD_LIMIT 3");
  ::setenv("OMP_THREAD_LIMIT", "9", 1);
  CHECK(m.threads().threads == 4);
  ::unsetenv("OMP_THREAD_LIMIT");
}

TEST_CASE("CPUs without topology count as cores") {
  Machine m(1);
  m.allow("2-4");
  CHECK(m.threads().threads == 3);
}

TEST_CASE("a machine that shows nothing gives one thread") {
  const test::TempDir empty;
  CHECK(default_threads(empty.path()).threads == 1);
}

TEST_CASE("the smallest CPU quota above the process counts, rounded down") {
  Machine m(8);
  m.unified("/user.slice/job/leaf");
  m.write("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  m.write("sys/fs/cgroup/user.slice/job/cpu.max", "350000 100000\n");
  m.write("sys/fs/cgroup/user.slice/job/leaf/cpu.max", "max 100000\n");
  CHECK(m.threads().threads == 3);
  CHECK(m.threads().reason == "8 physical cores in the affinity mask, cgroup quota 3.5");
  m.write("sys/fs/cgroup/user.slice/job/leaf/cpu.max", "50000 100000\n");
  CHECK(m.threads().threads == 1);  // half a CPU is still one thread
  m.write("sys/fs/cgroup/user.slice/job/leaf/cpu.max", "1600000 100000\n");
  m.write("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  CHECK(m.threads().threads == 8);  // a quota above the cores
}

TEST_CASE("a sibling's quota does not count") {
  Machine m(4);
  m.unified("/a");
  m.write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  m.write("sys/fs/cgroup/b/cpu.max", "100000 100000\n");
  CHECK(m.threads().threads == 4);
}

TEST_CASE("inside a container the process's cgroup is the root of the mount") {
  Machine m(8);
  m.unified("/");  // a cgroup namespace
  m.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(m.threads().threads == 2);

  // No namespace: the path is the host's, and only the container's directory is mounted.
  m.write("proc/self/cgroup", "0::/docker/abc/inner\n");
  m.write("proc/self/mountinfo", "30 22 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  m.write("sys/fs/cgroup/inner/cpu.max", "100000 100000\n");
  CHECK(m.threads().threads == 1);

  // A path outside what is mounted.
  m.write("proc/self/cgroup", "0::/../other\n");
  CHECK(m.threads().threads == 2);
}

TEST_CASE("quotas of cgroup version 1") {
  Machine m(8);
  m.write("proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/box/job\n0::/\n");
  m.write("proc/self/mountinfo",
          "31 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
          "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
          "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  m.write("sys/fs/cgroup/cpu,cpuacct/box/job/cpu.cfs_quota_us", "-1\n");
  m.write("sys/fs/cgroup/cpu,cpuacct/box/job/cpu.cfs_period_us", "100000\n");
  CHECK(m.threads().threads == 8);
  m.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "125000\n");
  m.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "50000\n");
  CHECK(m.threads().threads == 2);

  CHECK(m.memory() == 4096 * kMiB);
  m.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(1000 * kMiB) + "\n");
  m.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(700 * kMiB) + "\n");
  m.write("sys/fs/cgroup/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file " + std::to_string(100 * kMiB) +
                                                      "\ntotal_active_file " + std::to_string(50 * kMiB) + "\n");
  CHECK(m.memory() == 450 * kMiB);
  m.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");  // version 1's "no limit"
  CHECK(m.memory() == 4096 * kMiB);
}

TEST_CASE("available memory is what the tightest cgroup leaves, page cache not counted as used") {
  Machine m(2);
  CHECK(m.memory() == 4096 * kMiB);
  m.unified("/box/job");
  m.write("sys/fs/cgroup/box/job/memory.max", "max\n");
  m.write("sys/fs/cgroup/box/job/memory.current", "1000\n");
  CHECK(m.memory() == 4096 * kMiB);
  m.write("sys/fs/cgroup/box/memory.max", std::to_string(2000 * kMiB) + "\n");
  m.write("sys/fs/cgroup/box/memory.current", std::to_string(1500 * kMiB) + "\n");
  CHECK(m.memory() == 500 * kMiB);
  m.write("sys/fs/cgroup/box/memory.stat",
          "anon 5\ninactive_file " + std::to_string(800 * kMiB) + "\nactive_file " + std::to_string(200 * kMiB) + "\n");
  CHECK(m.memory() == 1500 * kMiB);
  m.write("sys/fs/cgroup/box/memory.max", std::to_string(100 * kMiB) + "\n");  // lowered below what is used
  CHECK(m.memory() == 0);
}

TEST_CASE("this machine") {
  CHECK(default_threads().threads >= 1);
  CHECK(available_memory() > 16 * kMiB);
  const std::uint64_t before = peak_resident_bytes();
  CHECK(before > kMiB);
  CHECK(std::string(64 * kMiB, 'x').size() == 64 * kMiB);
  CHECK(peak_resident_bytes() >= before + 32 * kMiB);

  cpu_set_t saved;
  REQUIRE(::sched_getaffinity(0, sizeof saved, &saved) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &saved)) CPU_SET(cpu, &one);
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(default_threads().threads == 1);
  ::sched_setaffinity(0, sizeof saved, &saved);
}
