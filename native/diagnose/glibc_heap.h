// Reads the heap of glibc's malloc in another process: its arenas, and the free blocks in them.
//
// The figures are those of malloc_info: a chunk is free if it is in a bin or a fastbin, or if it is
// the top. A chunk in a thread's tcache counts as live, and is also counted by itself where that can
// be read (thread_caches.h). Sizes are those of chunks, with their headers.
//
// Two ways lead to the free chunks. The first one walks the chunks of the arena's memory in order,
// by their sizes: a chunk is free if the chunk behind it says so (bit 0 of its size is clear). It
// reads whole pages, so a process that goes on working hardly disturbs it. The other one follows
// the lists of the bins. It is for a main arena whose memory is not one piece: after a foreign
// sbrk, or where brk could not grow. Adjacent mappings of [heap] are one piece. It is also for
// arenas with swapped pages, where a walk would end; it brings pages of free chunks back into
// memory.
//
// Nothing is stopped, so the heap may change meanwhile. If neither way leads to the end, both are
// repeated. If that does not help, the arena's `consistent` is false, and its figures cover a part.
//
// A process that means harm could send the reader around for ever, so there is a limit of CPU time.
// The first walk of a heap does not count: the larger the heap, the longer it takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "arena_layout.h"
#include "memory.h"
#include "page_map.h"

namespace heapwright::diagnose {

// All figures are in bytes unless they say otherwise. "In memory" means: not given back to the
// kernel and not swapped out.
struct Arena {
  std::uint64_t address = 0;
  std::uint64_t system = 0;        // obtained from the kernel
  std::uint64_t free = 0;          // with fastbins and top
  std::uint64_t fast = 0;          // of `free`: in fastbins
  std::uint64_t top = 0;           // of `free`: the chunk at the end, from which new ones are cut
  std::uint64_t free_pages = 0;    // whole pages of free chunks, top included, that are in memory
  std::uint64_t absent = 0;        // whole pages of free chunks that are not in memory
  std::uint64_t trimmable = 0;     // of `free_pages`: those that malloc_trim(0) gives back
  std::uint64_t largest_free = 0;  // chunk, without the top
  std::uint64_t free_chunks = 0;   // number of chunks, with the top
  std::uint64_t threads = 0;       // number of threads attached to it
  // Number of live chunks, with those in caches of threads. Only a walk counts them.
  std::optional<std::uint64_t> live_blocks;
  // Of the live bytes: free chunks in caches of threads.
  std::optional<std::uint64_t> cached;
  std::optional<std::uint64_t> resident;
  bool consistent = true;
};

struct GlibcHeap {
  std::vector<Arena> arenas;  // the main arena first
  std::optional<MappedBlocks> mapped;
};

using Now = std::function<std::chrono::nanoseconds()>;

// Returns the CPU time of this process. Unlike real time, it does not depend on how busy the machine
// is.
std::chrono::nanoseconds cpu_time();

// nullopt: no arena of glibc was found. `now` tells the time for the limit.
std::optional<GlibcHeap> read_glibc_heap(const Memory& memory, const Now& now = cpu_time);

}  // namespace heapwright::diagnose
