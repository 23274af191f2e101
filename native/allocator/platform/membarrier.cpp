// Orders the memory accesses of all threads by membarrier(2).
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "platform.h"

namespace heapwright::alloc::platform {

namespace {

// The headers of older C libraries lack them.
constexpr int kOrder = 1 << 3;     // MEMBARRIER_CMD_PRIVATE_EXPEDITED, Linux 4.14
constexpr int kRegister = 1 << 4;  // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED

constinit bool registered = false;  // the kernel keeps this for the process and for children of a fork
constinit bool refused = false;     // some call has failed

bool membarrier(int command) {
  if (__atomic_load_n(&refused, __ATOMIC_RELAXED)) {
    return false;
  }
  const int kept = errno;
  const bool done = syscall(SYS_membarrier, command, 0, 0) == 0;
  errno = kept;
  if (!done) {
    __atomic_store_n(&refused, true, __ATOMIC_RELAXED);
  }
  return done;
}

}  // namespace

bool order_all_threads() { return membarrier(kOrder); }

// Registers only once, because a seccomp filter may end a process that calls membarrier later.
bool may_order_all_threads() {
  if (!__atomic_load_n(&registered, __ATOMIC_RELAXED) && membarrier(kRegister)) {
    __atomic_store_n(&registered, true, __ATOMIC_RELAXED);
  }
  return __atomic_load_n(&registered, __ATOMIC_RELAXED) && !__atomic_load_n(&refused, __ATOMIC_RELAXED);
}

}  // namespace heapwright::alloc::platform
