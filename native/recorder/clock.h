// The recorder's clock: processor ticks where all processors agree on them, else the monotonic clock. In units of 32 ticks or
// 8 nanoseconds, so that the time between two events mostly fits a byte; passing memory from thread to thread takes longer.
#pragma once

#include <ctime>

#include "raw_format/format.h"

namespace heapwright::recorder {

using namespace raw;  // NOLINT(google-build-using-namespace): the recorder writes this format

// Chosen once, before the first event.
inline ClockKind clock_kind = ClockKind::kMonotonic;

inline std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// The time now. `ordered`: not before what the thread has done so far is done, as it must be for comparing with other
// threads' times. (What comes after may begin before, but its stores are seen after.)
template <bool ordered>
[[gnu::always_inline]] inline std::uint64_t clock_now() {
#if defined(__x86_64__)
  if (__builtin_expect(clock_kind == ClockKind::kTsc, 1)) {
    if constexpr (ordered) {
      __builtin_ia32_lfence();
    }
    return __builtin_ia32_rdtsc() >> kTicksShift;
  }
#endif
  return monotonic_ns() >> kNanosecondsShift;
}

}  // namespace heapwright::recorder
