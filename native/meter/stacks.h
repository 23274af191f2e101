// Finds the thread stacks of one process, so that the heap figures can leave them out: VmData
// counts them.
//
// A thread library maps a stack with MAP_STACK and makes all of it writable except a guard. The
// entry of the mmap does not show the address yet. It follows from the same thread's next call, the
// mprotect of the stack's upper part (glibc, Linux before guard pages) or the
// madvise(MADV_GUARD_INSTALL) of its lower end.
//
// A stack is unmapped some time after the entry of its munmap. It still counts as a stack until
// data memory falls or the same thread makes its next call. Otherwise a reading of another thread
// in between would count it as heap.
//
// Invariants: stacks_ holds whole mappings by address; bytes() is the sum of their writable parts
// and of leaving_, the stacks whose munmap has begun.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "calls.h"

namespace heapwright::meter {

class ThreadStacks {
 public:
  // Takes in a reading of the process's data memory, stacks included. Comes before called() of the
  // same stop.
  void reading(std::uint64_t data);
  // Takes in a mapping call of one of the process's threads, at its entry.
  void called(pid_t thread, const CallArguments& call);
  [[nodiscard]] std::uint64_t bytes() const { return bytes_ + leaving_bytes_; }
  // The stacks that a forked child has: its mappings are its parent's, its threads are not.
  [[nodiscard]] ThreadStacks inherited() const {
    ThreadStacks copy;
    copy.stacks_ = stacks_;
    copy.bytes_ = bytes_;
    return copy;
  }

 private:
  struct Stack {
    std::uint64_t length = 0;
    std::uint64_t writable = 0;
  };
  void add(std::uint64_t address, const Stack& stack);
  std::uint64_t unmap(std::uint64_t address, std::uint64_t length);

  std::map<pid_t, std::uint64_t> pending_;  // thread → length of the stack that it has just requested
  std::map<std::uint64_t, Stack> stacks_;
  std::uint64_t bytes_ = 0;
  std::map<pid_t, std::uint64_t> leaving_;  // thread in munmap → bytes of stacks it unmaps
  std::uint64_t leaving_bytes_ = 0;
  std::uint64_t data_ = 0;         // the last reading
  std::uint64_t data_before_ = 0;  // the reading at the entry of the first munmap in progress
};

}  // namespace heapwright::meter
