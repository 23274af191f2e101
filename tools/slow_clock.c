// A clock for programs under callgrind, which slows them some fifty times: preloaded, it lets the
// monotonic clock follow a fiftieth of the process's CPU time. Allocators that purge by the clock then do
// so about as often as without callgrind, however busy the machine is.
//
//     gcc -O2 -shared -fPIC tools/slow_clock.c -o out/slow_clock.so
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLOWDOWN = 50 };

int clock_gettime(clockid_t clock, struct timespec* result) {
  if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE && clock != CLOCK_MONOTONIC_RAW) {
    return (int)syscall(SYS_clock_gettime, clock, result);
  }
  const int failed = (int)syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, result);
  const long long ns = (result->tv_sec * 1000000000LL + result->tv_nsec) / SLOWDOWN;
  result->tv_sec = 1000 + ns / 1000000000;
  result->tv_nsec = ns % 1000000000;
  return failed;
}
