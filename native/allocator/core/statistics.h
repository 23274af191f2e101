// Counts a heap's memory by walking all superblocks on request. The fast paths count nothing.
#pragma once

#include <algorithm>
#include <cstddef>

#include "free_list.h"
#include "pool.h"
#include "remote_queue.h"

namespace heapwright::alloc {

struct Statistics {
  Region::Statistics region;
  std::size_t large_bytes;  // in large blocks, which have mappings of their own
  std::size_t large_count;
  std::size_t live_bytes;    // in allocated blocks: their full sizes, large ones included
  std::size_t live_blocks;   // allocated blocks of a size class
  std::size_t cached_bytes;  // in the thread cache

  // Free memory that may be resident, in whole superblocks or in freed large blocks.
  [[nodiscard]] std::size_t free_bytes() const { return region.dirty_bytes + region.kept_bytes; }
  // Blocks of a size class that are not allocated but wait in a cache, a batch or a quarantine.
  // Owners may move blocks while they are counted, so both can be more than what counted as live.
  void remove_live(std::size_t count, std::size_t bytes) {
    live_blocks -= std::min(count, live_blocks);
    live_bytes -= std::min(bytes, live_bytes - large_bytes);
  }
};

// Counts the memory of a whole process. Blocks that heaps hold back count as live. The caller holds
// the pool's lock. Owners may be changing their superblocks meanwhile: then the numbers are close
// to the truth.
inline Statistics count_memory(const Pool& pool) {
  const Region& region = pool.region;
  const Large& large = region.large;
  Statistics result{region.statistics(), large.bytes(), large.count(), large.bytes(), 0, 0};
  for (Superblock* s = region.next_used(nullptr); s != nullptr; s = region.next_used(s)) {
    const Kind kind = kind_of(s);
    if (kind == Kind::kBlocks) {
      const std::size_t carved = load_shared(s->carved);
      const std::size_t free = load_shared(s->free_count) + (pool.threaded ? RemoteQueue::of(s).count() : 0);
      const std::size_t live = carved - std::min(free, carved);
      result.live_blocks += live;
      result.live_bytes += live * load_shared(s->size);
    } else if (kind == Kind::kSpan) {
      result.live_bytes += load_shared(s->size);
    }
  }
  return result;
}

}  // namespace heapwright::alloc
