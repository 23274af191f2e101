// Defines the format of DJ Delorie's workload files (.wl, of glibc's malloc trace utilities), which
// trace2wl writes and trace_run plays.
//
//     main program, at offset 0            for each thread, at its offset
//     ┌──────────────┬─────────────┐      ┌──────────┬─────────────────────────┐
//     │ ALLOC_PTRS   │ slots       │      │ MALLOC   │ slot, size              │
//     │ ALLOC_SYNCS  │ syncs       │      │ CALLOC   │ slot, size              │
//     │ NTHREADS     │ threads     │      │ REALLOC  │ new slot, old slot, size│
//     │ START_THREAD │ file offset │ …    │ FREE     │ slot                    │
//     │ DONE         │             │      │ MEMALIGN │ slot, alignment, size   │
//     └──────────────┴─────────────┘      │ SYNC_W   │ sync: lets its reader go│
//                                         │ SYNC_R   │ sync: waits for it      │
//     an operation is one byte            │ DONE     │                         │
//                                         └──────────┴─────────────────────────┘
// Numbers are groups of seven bits, the highest first, with bit 7 set in all bytes but the last. A
// slot stands for an address; later blocks use it again. Slot 0 is NULL: an allocation into it
// failed. There are no times. Only pairs of SYNC_W and SYNC_R order the operations of different
// threads.
#pragma once

#include <cstdint>

namespace heapwright::trace::wl {

enum Operation : std::uint8_t {
  kNop = 0,
  kDone,
  kMalloc,
  kCalloc,
  kRealloc,
  kFree,
  kSyncWrite,
  kSyncRead,
  kAllocPointers,
  kAllocSyncs,
  kThreads,
  kStartThread,
  kMemalign,
  kValloc,
  kPvalloc,
  kPosixMemalign,
};

}  // namespace heapwright::trace::wl
