#include "system.h"

#include <sys/resource.h>

#include <climits>

namespace heapwright::recorder::sys {

std::uint64_t resident_bytes() {
  char text[128];
  read_start("/proc/self/statm", text, sizeof(text));
  const char* at = text;
  while (*at != 0 && *at != ' ') {
    ++at;
  }
  std::uint64_t pages = 0;
  for (at += *at == ' ' ? 1 : 0; *at >= '0' && *at <= '9'; ++at) {
    pages = pages * 10 + static_cast<std::uint64_t>(*at - '0');
  }
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

int reserve(int file, std::uint64_t where, std::uint64_t bytes) {
  rlimit most{};
  // Above its limit the kernel sends SIGXFSZ, which would end the program.
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
      where + bytes > most.rlim_cur) {
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
