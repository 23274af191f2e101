// Measures how much of the process's resident memory is malloc's: glibc's heap and arenas, and live
// large blocks outside of them. The rest of the anonymous memory belongs to the program itself:
// memory that it maps, stacks, and the data of the program and its libraries.
//
// The mappings come from /proc/self/maps. Whether an address on a 64 MiB boundary begins a heap of
// an arena is read from that address by way of /proc/self/mem, because another thread may unmap it
// meanwhile. Resident pages come from mincore(), which takes about a millisecond for each GiB, so
// the caller limits how often it measures.
#pragma once

#include <cstdint>

#include "large_blocks.h"

namespace heapwright::recorder {

struct HeapSize {
  std::uint64_t resident = 0;   // bytes
  std::uint64_t untouched = 0;  // bytes of live large blocks that are not resident
};

// A measurement's room, which is too large for the stacks of some threads.
class HeapGauge {
 public:
  // Measures the heap of this process, which runs on glibc's malloc.
  //
  // blocks  the live large blocks
  // size    gets the result
  //
  // Returns false if the mappings cannot be read, or if another thread is measuring.
  bool measure(const LargeBlocks& blocks, HeapSize& size);

 private:
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  static constexpr unsigned kHeaps = 512;

  bool find_heaps();
  void read_line(const char* line, int memory);
  void add(std::uintptr_t begin, std::uintptr_t end);
  [[nodiscard]] bool contains(std::uintptr_t address) const;

  std::atomic<bool> busy_;
  unsigned count_;
  Range heaps_[kHeaps];  // as many as there is room for; a block outside of them counts by itself
  char text_[4096];
};

}  // namespace heapwright::recorder
