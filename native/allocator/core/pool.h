// What all heaps of a process share: the region, the large blocks, and the lock around them. It is taken for
// a superblock, a span or a large block, never for a block; while the process has one thread, not at all.
#pragma once

#include "../platform/platform.h"
#include "hardening.h"
#include "large.h"
#include "quarantine.h"
#include "region.h"

namespace heapwright::alloc {

struct Pool {
  Region region;
  Large large;
  Hardening hardening;                        // one set of secrets for all: links go from heap to heap
  std::size_t quarantine_bytes = 128 * 1024;  // of a hardened heap's freed blocks
  static constexpr std::size_t kSpanQuarantineFactor = 9;  // so many times as much of spans, for all heaps
  Quarantine<Superblock*, 16, span_bytes> quarantined_spans;
  platform::Lock lock;
  bool threaded = false;    // set while there is one thread, never unset
  std::uint32_t forks = 0;  // behind us

  class Guard {
   public:
    explicit Guard(Pool& pool) : pool_(pool), held_(pool.threaded) {
      if (held_) {
        pool_.lock.lock();
      }
    }
    ~Guard() {
      if (held_) {
        pool_.lock.unlock();
      }
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Pool& pool_;
    bool held_;
  };
};

}  // namespace heapwright::alloc
