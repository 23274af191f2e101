// Reads the heap of a process that runs on exgen, reaper or one of their hardened builds, without
// stopping it.
//
// Each of these libraries, and each program linked with one, holds a descriptor of its heap
// (allocator/core/heap_layout.h). The reader searches the writable data of the executable and of
// all libraries for it. It follows every heap of a thread and every superblock:
//
//     live = blocks carved − blocks in the superblock's free list, in its remote queue,
//            in thread caches and in remote-free batches
//
// In hardened builds the links between free blocks are encoded, but a bit for each block says
// whether it is allocated: there live blocks are counted by those bits.
//
// Nothing is locked. A block on its way between two lists is counted in both or in neither. So the
// whole is read twice or more, until two passes give the same counts. If that does not happen, the
// last pass counts and `consistent` is false: each figure may then be wrong by what the process
// changed during one pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory.h"
#include "size_class.h"

namespace heapwright::diagnose {

// All figures are in bytes unless they say otherwise.
struct ClassHeap {
  std::string allocator;  // "exgen", "reaper", "exgen-secure" or "reaper-secure"
  std::string evidence;   // where the descriptor is
  bool consistent = false;
  std::optional<std::uint64_t> resident_bytes;  // with the allocator's own descriptions
  std::uint64_t live_bytes = 0;                 // whole blocks, as the allocator's own statistics count
  // In free blocks of size classes, empty superblocks, quarantines and kept mappings, without
  // purged pages.
  std::uint64_t free_bytes = 0;
  // Whole pages in memory without any live block on them, of all kinds of free memory.
  std::optional<std::uint64_t> free_pages_bytes;
  // Free bytes on pages in memory, those on pages with live blocks included: no other malloc and no
  // trim can give back more.
  std::optional<std::uint64_t> releasable_bytes;
  std::uint64_t mapped_blocks = 0;  // large blocks with a mapping of their own
  std::uint64_t mapped_bytes = 0;
  std::uint64_t span_blocks = 0;  // live blocks that take whole superblocks
  std::uint64_t span_bytes = 0;
  std::uint64_t heaps = 0;        // of threads, those of ended threads included
  std::uint64_t used_bytes = 0;   // in superblocks in use
  std::uint64_t empty_bytes = 0;  // in empty superblocks that may hold memory
  std::uint64_t kept_bytes = 0;   // in freed large blocks whose mappings are kept
  // In remote-free queues and batches, and in thread caches. Not told apart in hardened builds.
  std::optional<std::uint64_t> waiting_bytes;
  std::optional<std::uint64_t> cached_bytes;
  std::uint64_t quarantined_bytes = 0;  // hardened builds only
  std::uint64_t purged_bytes = 0;       // pages returned to the kernel inside superblocks in use
  // By size. `spans` are superblocks of 64 KiB; a free block was handed out at least once.
  std::vector<SizeClass> classes;
};

// Reads the heap. nullopt: the process has no such malloc, does not use it, or it is another
// version.
std::optional<ClassHeap> read_own_heap(const Memory& memory);

}  // namespace heapwright::diagnose
