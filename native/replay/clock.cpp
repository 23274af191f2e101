#include "clock.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace heapwright::replay {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr clockid_t kClocks = CLOCK_TAI + 1;

// Readings of the kernel's clocks at the beginning of the replay, by number; 0 for a clock that is
// not changed.
std::uint64_t begins[kClocks];  // NOLINT(modernize-avoid-c-arrays)
std::atomic<std::uint64_t> passed{0};
bool begun = false;
bool paced = false;
double slowdown = 1.0;

constexpr bool counts_real_time(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW ||
         clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME ||
         clock == CLOCK_TAI;
}

// Returns nanoseconds of a clock as the allocator sees it; `clock` counts real time.
std::uint64_t replayed_clock(clockid_t clock) {
  return begun ? begins[clock] + passed.load(std::memory_order_relaxed) : kernel_clock(clock);
}

}  // namespace

void begin_clock(bool real_pace, double times) {
  for (clockid_t clock = 0; clock < kClocks; ++clock) {
    begins[clock] = counts_real_time(clock) ? kernel_clock(clock) : 0;
  }
  paced = real_pace;
  slowdown = times;
  begun = true;
}

void set_clock(std::uint64_t recorded) {
  const auto seen = static_cast<std::uint64_t>(static_cast<double>(recorded) * slowdown);
  if (paced) {
    const std::uint64_t until = begins[CLOCK_MONOTONIC] + seen;
    timespec time{};
    time.tv_sec = static_cast<time_t>(until / kSecond);
    time.tv_nsec = static_cast<long>(until % kSecond);
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
    }
  }
  std::uint64_t before = passed.load(std::memory_order_relaxed);
  while (before < seen && !passed.compare_exchange_weak(before, seen, std::memory_order_relaxed)) {
  }
}

std::uint64_t kernel_clock(clockid_t which) {
  timespec time{};
  (void)::syscall(SYS_clock_gettime, which, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace heapwright::replay

// glibc's headers declare that these functions do not throw. musl's do not.
#ifdef __GLIBC__
#define HEAPWRIGHT_NOTHROW noexcept
#else
#define HEAPWRIGHT_NOTHROW
#endif

using heapwright::replay::counts_real_time;
using heapwright::replay::kSecond;
using heapwright::replay::replayed_clock;

extern "C" [[gnu::visibility("default")]] int clock_gettime(clockid_t clock,
                                                            timespec* time) HEAPWRIGHT_NOTHROW {
  if (!counts_real_time(clock)) {
    return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  }
  const std::uint64_t now = replayed_clock(clock);
  time->tv_sec = static_cast<time_t>(now / kSecond);
  time->tv_nsec = static_cast<long>(now % kSecond);
  return 0;
}

extern "C" [[gnu::visibility("default")]] int gettimeofday(timeval* time, void* zone) HEAPWRIGHT_NOTHROW {
  if (zone != nullptr) {
    return static_cast<int>(::syscall(SYS_gettimeofday, time, zone));
  }
  const std::uint64_t now = replayed_clock(CLOCK_REALTIME);
  time->tv_sec = static_cast<time_t>(now / kSecond);
  time->tv_usec = static_cast<suseconds_t>(now % kSecond / 1000);
  return 0;
}

extern "C" [[gnu::visibility("default")]] time_t time(time_t* result) HEAPWRIGHT_NOTHROW {
  const auto now = static_cast<time_t>(replayed_clock(CLOCK_REALTIME) / kSecond);
  if (result != nullptr) {
    *result = now;
  }
  return now;
}
