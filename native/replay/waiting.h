// Lets threads of the replayer wait until a counter has a value: they spin for a moment and then
// sleep.
//
// A thread that changes a counter makes a system call only if another thread sleeps. Nothing here
// allocates memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace heapwright::replay {

using Counter = std::atomic<std::uint32_t>;

inline Counter sleepers{0};  // threads of the process that sleep, or are about to

inline void pause_a_little() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline long futex(Counter& number, int what, std::uint32_t value) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&number), what | FUTEX_PRIVATE_FLAG, value,
                   nullptr, nullptr, 0);
}

// Returns once `number` is `wanted`. Everything that other threads did before they set it is then
// visible.
inline void wait_for(Counter& number, std::uint32_t wanted) {
  for (int i = 0; i < 100; i++) {
    if (number.load(std::memory_order_acquire) == wanted) {
      return;
    }
    pause_a_little();
  }
  // The sleeper writes `sleepers` and then reads `number`; the waker writes `number` and then reads
  // `sleepers`. In that order at least one of them sees the write of the other, so no wake-up is
  // lost.
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t seen = number.load(std::memory_order_seq_cst);
    if (seen == wanted) {
      break;
    }
    (void)futex(number, FUTEX_WAIT, seen);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

inline void wake(Counter& number) {
  if (sleepers.load(std::memory_order_seq_cst) != 0) {
    (void)futex(number, FUTEX_WAKE, INT_MAX);
  }
}

inline void set_and_wake(Counter& number, std::uint32_t value) {
  number.store(value, std::memory_order_seq_cst);
  wake(number);
}

inline void increment_and_wake(Counter& number) {
  number.fetch_add(1, std::memory_order_seq_cst);
  wake(number);
}

}  // namespace heapwright::replay
