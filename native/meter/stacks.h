// Thread stacks of one process, so that the heap figures can leave them out: VmData counts them.
//
// A thread library maps a stack with MAP_STACK and makes all but a guard writable. Seen at call entries only,
// the mapping's address is not known yet; it follows from the same thread's next call, the mprotect of the
// stack's upper part (glibc, Linux before guard pages) or the madvise(MADV_GUARD_INSTALL) of its lower end.
//
// A stack is unmapped some time after the entry of its munmap. Until it is seen to be gone (less data memory,
// or the same thread's next call) it still counts: otherwise another thread's reading in between would take
// it for heap.
//
// Invariants: stacks_ holds whole mappings by address; bytes() is the sum of their writable parts, and of
// leaving_, those whose munmap has begun.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "calls.h"

namespace heapwright::meter {

class ThreadStacks {
 public:
  // A reading of the process's data memory (stacks included). Comes before called() of the same stop.
  void reading(std::uint64_t data);
  // A mapping call of one of the process's threads, at its entry.
  void called(pid_t thread, const CallArguments& call);
  [[nodiscard]] std::uint64_t bytes() const { return bytes_ + leaving_bytes_; }

 private:
  struct Stack {
    std::uint64_t length = 0;
    std::uint64_t writable = 0;
  };
  void add(std::uint64_t address, const Stack& stack);
  std::uint64_t unmap(std::uint64_t address, std::uint64_t length);

  std::map<pid_t, std::uint64_t> pending_;  // thread → length of a stack it has just asked for
  std::map<std::uint64_t, Stack> stacks_;
  std::uint64_t bytes_ = 0;
  std::map<pid_t, std::uint64_t> leaving_;  // thread in munmap → bytes of stacks it unmaps
  std::uint64_t leaving_bytes_ = 0;
  std::uint64_t data_ = 0;         // the last reading
  std::uint64_t data_before_ = 0;  // the reading at the entry of the first munmap under way
};

}  // namespace heapwright::meter
