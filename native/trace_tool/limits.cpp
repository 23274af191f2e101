#include "limits.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

namespace heapwright::trace {

void die_with_parent() { (void)::prctl(PR_SET_PDEATHSIG, SIGKILL); }

namespace {

// The bytes that the memory cgroup of this process, and those above it, leave (cgroup version 2).
std::uint64_t available_in_cgroup() {
  std::uint64_t result = std::numeric_limits<std::uint64_t>::max();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) {
      continue;
    }
    for (std::string path = line.substr(3); !path.empty(); path.erase(path.rfind('/'))) {
      std::uint64_t max = 0;
      std::uint64_t current = 0;
      const std::string folder = "/sys/fs/cgroup" + path;
      if (std::ifstream(folder + "/memory.max") >> max &&
          std::ifstream(folder + "/memory.current") >> current) {
        result = std::min(result, max - std::min(max, current));  // `max` stands for no limit
      }
    }
  }
  return result;
}

}  // namespace

std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  for (std::uint64_t kibibytes = 0; file >> name >> kibibytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") {
      return std::min(kibibytes * 1024, available_in_cgroup());
    }
  }
  return available_in_cgroup();
}

void limit_memory(std::uint64_t bytes) {
#if !defined(__SANITIZE_ADDRESS__)  // the sanitizer's shadow memory counts as data
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) == 0 && bytes < limit.rlim_cur) {
    limit.rlim_cur = bytes;
    (void)::setrlimit(RLIMIT_DATA, &limit);
  }
#else
  (void)bytes;
#endif
}

}  // namespace heapwright::trace
