#include "limits.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

namespace heapwright::trace {

void die_with_parent() { (void)::prctl(PR_SET_PDEATHSIG, SIGKILL); }

std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  for (std::uint64_t kibibytes = 0; file >> name >> kibibytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") {
      return kibibytes * 1024;
    }
  }
  return std::numeric_limits<std::uint64_t>::max();
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
