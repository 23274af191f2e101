// Reads the recorder's clock: the processor's ticks if the counters of all processors agree, else
// the monotonic clock. A unit is 32 ticks or 8 nanoseconds, so that the time between two events
// mostly fits in a byte. To pass memory from thread to thread takes longer than a unit.
#pragma once

#include <ctime>

#include "raw_format/format.h"

namespace heapwright::recorder {

using namespace raw;  // NOLINT(google-build-using-namespace): the recorder writes this format

// Chosen once, before the first event.
inline ClockKind clock_kind = ClockKind::kMonotonic;
// arm64's counter has between 25 MHz and 1 GHz. This many bits more bring it to the rate of x86's.
inline unsigned tick_shift = 0;

inline std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// Returns the present time in units. With `ordered`, the clock is read after all earlier
// instructions of the thread are complete, which is needed to compare times of different threads.
// (Later instructions may begin earlier, but their stores become visible later.)
template <bool ordered>
[[gnu::always_inline]] inline std::uint64_t clock_now() {
#if defined(__x86_64__)
  if (__builtin_expect(clock_kind == ClockKind::kTsc, 1)) {
    if constexpr (ordered) {
      __builtin_ia32_lfence();
    }
    return __builtin_ia32_rdtsc() >> kTicksShift;
  }
#elif defined(__aarch64__)
  if (__builtin_expect(clock_kind == ClockKind::kTsc, 1)) {
    if constexpr (ordered) {
      asm volatile("isb" ::: "memory");
    }
    std::uint64_t ticks = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks << tick_shift >> kTicksShift;
  }
#endif
  return monotonic_ns() >> kNanosecondsShift;
}

}  // namespace heapwright::recorder
