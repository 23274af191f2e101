// Thread stacks of one process, so that the heap figures can leave them out: VmData counts them.
//
// A thread library maps a stack with MAP_STACK and makes all but a guard writable. Seen at call entries only,
// the mapping's address is not known yet; it follows from the same thread's next call, the mprotect of the
// stack's upper part (glibc, Linux before guard pages) or the madvise(MADV_GUARD_INSTALL) of its lower end.
//
// Invariants: stacks_ holds whole mappings by address; bytes() is the sum of their writable parts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "calls.h"

namespace heapwright::meter {

class ThreadStacks {
 public:
  // A mapping call of one of the process's threads, at its entry.
  void called(pid_t thread, const CallArguments& call);
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  struct Stack {
    std::uint64_t length = 0;
    std::uint64_t writable = 0;
  };
  void add(std::uint64_t address, const Stack& stack);
  void unmap(std::uint64_t address, std::uint64_t length);

  std::map<pid_t, std::uint64_t> pending_;  // thread → length of a stack it has just asked for
  std::map<std::uint64_t, Stack> stacks_;
  std::uint64_t bytes_ = 0;
};

}  // namespace heapwright::meter
