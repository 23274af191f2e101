// Waiting for a number to come up: a little spinning, then sleep. Who passes the number on makes a system call only if somebody
// sleeps. Nothing here allocates.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace heapwright::replay {

using Number = std::atomic<std::uint32_t>;

inline Number sleepers{0};  // in the whole process

inline void pause_a_little() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

inline long futex(Number& number, int what, std::uint32_t value) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&number), what | FUTEX_PRIVATE_FLAG, value,
                   nullptr, nullptr, 0);
}

// Returns once `number` is `wanted`; what was done before it became so is seen.
inline void wait_for(Number& number, std::uint32_t wanted) {
  for (int i = 0; i < 100; i++) {
    if (number.load(std::memory_order_acquire) == wanted) {
      return;
    }
    pause_a_little();
  }
  // Sleeper and waker both write first and look then, so at least one sees the other.
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

inline void wake(Number& number) {
  if (sleepers.load(std::memory_order_seq_cst) != 0) {
    (void)futex(number, FUTEX_WAKE, INT_MAX);
  }
}

inline void pass_on(Number& number, std::uint32_t value) {
  number.store(value, std::memory_order_seq_cst);
  wake(number);
}

inline void one_more(Number& number) {
  number.fetch_add(1, std::memory_order_seq_cst);
  wake(number);
}

}  // namespace heapwright::replay
