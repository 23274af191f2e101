#include "system.h"

#include <sys/resource.h>

#include <climits>
#include <cstring>

namespace heapwright::recorder::sys {

namespace {

struct Numbers {
  std::uint64_t second = 0;
  std::uint64_t third = 0;
};

// Moves `at` behind the next space and reads the number there, 0 if there is none.
std::uint64_t next_number(const char*& at) {
  while (*at != 0 && *at != ' ') {
    ++at;
  }
  std::uint64_t number = 0;
  for (at += *at == ' ' ? 1 : 0; *at >= '0' && *at <= '9'; ++at) {
    number = number * 10 + static_cast<std::uint64_t>(*at - '0');
  }
  return number;
}

// Returns the second and the third number in a file of /proc, 0 for one that is not there.
Numbers read_numbers(const char* path) {
  char text[128];
  read_start(path, text, sizeof(text));
  const char* at = text;
  const std::uint64_t second = next_number(at);
  return {.second = second, .third = next_number(at)};
}

}  // namespace

Resident resident_memory() {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const Numbers pages = read_numbers("/proc/self/statm");  // size, resident, shared, …
  return {.all = pages.second * page, .files = pages.third * page};
}

std::uint64_t process_start() {
  char text[1024];
  read_start("/proc/self/stat", text, sizeof(text));
  const char* at = std::strrchr(text, ')');  // ends the 2nd field, the name, which may have spaces
  constexpr int kField = 22;
  std::uint64_t number = 0;
  for (int field = 3; at != nullptr && field <= kField; ++field) {
    number = next_number(at);
  }
  return number;
}

std::uint64_t waited_ns() { return read_numbers("/proc/thread-self/schedstat").second; }

int reserve(int file, std::uint64_t where, std::uint64_t bytes) {
  rlimit limits{};
  // Beyond the limit the kernel would send SIGXFSZ, which ends the program.
  if (getrlimit(RLIMIT_FSIZE, &limits) == 0 && limits.rlim_cur != RLIM_INFINITY &&
      where + bytes > limits.rlim_cur) {
    return EFBIG;
  }
  for (;;) {
    if (syscall(SYS_fallocate, file, 0, where, bytes) == 0) {
      return 0;
    }
    if (errno != EINTR) {
      break;
    }
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) {
    return errno;
  }
  static constexpr char kZeroes[4096] = {};
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t left = bytes - done;
    const long wrote = write_at(file, kZeroes, left < sizeof(kZeroes) ? left : sizeof(kZeroes), where + done);
    if (wrote < 0 && errno != EINTR) {
      return errno;
    }
    done += wrote > 0 ? static_cast<std::uint64_t>(wrote) : 0;
  }
  return 0;
}

}  // namespace heapwright::recorder::sys
