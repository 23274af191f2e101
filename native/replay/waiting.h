// Lets threads of the replayer wait until a counter has a value: they spin for a moment and then
// sleep.
//
// A thread that changes a counter makes a system call only if another thread sleeps until that
// counter changes. Nothing here allocates memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace heapwright::replay {

struct Counter {
  std::atomic<std::uint32_t> value{0};
  std::atomic<std::uint32_t> sleepers{0};  // threads that sleep until the value changes, or are about to
};

inline void pause_a_little() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline long futex(Counter& counter, int what, std::uint32_t value) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&counter.value), what | FUTEX_PRIVATE_FLAG,
                   value, nullptr, nullptr, 0);
}

// Returns once the counter has the value `wanted`. Everything that other threads did before they
// set it is then visible.
inline void wait_for(Counter& counter, std::uint32_t wanted) {
  for (int i = 0; i < 100; i++) {
    if (counter.value.load(std::memory_order_acquire) == wanted) {
      return;
    }
    pause_a_little();
  }
  // The sleeper writes `sleepers` and then reads `value`; the waker writes `value` and then reads
  // `sleepers`. In that order at least one of them sees the write of the other, so no wake-up is
  // lost.
  counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const std::uint32_t seen = counter.value.load(std::memory_order_seq_cst);
    if (seen == wanted) {
      break;
    }
    (void)futex(counter, FUTEX_WAIT, seen);
  }
  counter.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

inline void wake(Counter& counter) {
  if (counter.sleepers.load(std::memory_order_seq_cst) != 0) {
    (void)futex(counter, FUTEX_WAKE, INT_MAX);
  }
}

inline void set_and_wake(Counter& counter, std::uint32_t value) {
  counter.value.store(value, std::memory_order_seq_cst);
  wake(counter);
}

inline void increment_and_wake(Counter& counter) {
  counter.value.fetch_add(1, std::memory_order_seq_cst);
  wake(counter);
}

}  // namespace heapwright::replay
