// The state that all heaps of a process share: the region, the large blocks, the hardening keys,
// and one lock.
//
// A heap takes the lock to obtain or return a superblock, a span or a large block, never for a
// single block. While the process has one thread, nobody takes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../platform/platform.h"
#include "fault.h"
#include "hardening.h"
#include "large.h"
#include "quarantine.h"
#include "region.h"

namespace heapwright::alloc {

// Whether a heap is sending remotely freed blocks. As soon as they have arrived, other threads may
// release their superblock, but the sending thread still reads its description.
struct Sender {
  bool active = false;
  std::uint32_t forks = 0;  // Pool::forks + 1 when the heap joined the list; 0: never
  Sender* next = nullptr;
};

struct Pool {
  Region region;
  Large large;
  Hardening hardening;  // one set of keys for all heaps, because blocks and their links move between heaps
  std::size_t quarantine_bytes = 128 * 1024;  // how much each hardened heap keeps in quarantine
  // The quarantine of spans, shared by all heaps, holds this many times `quarantine_bytes`.
  static constexpr std::size_t kSpanQuarantineFactor = 9;
  Quarantine<Superblock*, 16, span_bytes> quarantined_spans;
  platform::Lock lock;
  bool threaded = false;            // set while there is still one thread, and never cleared
  std::size_t heaps = 0;            // with a thread; 0: the only heap
  std::uint32_t forks = 0;          // how many forks lie between the first process and this one
  Sender* senders = nullptr;        // of the heaps that have sent something since the last fork
  FaultHandler on_fault = nullptr;  // nullptr: faults are ignored

  // Bytes that one heap's depot may hold: its share of what free superblocks may hold. With several
  // threads it is at most 1 MiB, because a thread that sleeps strands its depot. The only heap of a
  // process may keep all while the region purges nothing. The caller holds the lock.
  [[nodiscard]] std::size_t depot_share() const {
    const std::size_t sharing = __atomic_load_n(&heaps, __ATOMIC_RELAXED);
    const std::size_t allowance = region.allowance() * kSuperblockBytes;
    if (sharing > 1) {
      return std::min(allowance / sharing, std::size_t{1024 * 1024});
    }
    return region.may_purge() ? allowance : SIZE_MAX;
  }
  // Returns to the kernel the address space that is free at the end of the region, unless a thread
  // may still read a description there. It suffices to look once: a thread becomes active before
  // its blocks arrive, and a superblock is free only after all its blocks have arrived. The caller
  // holds the lock.
  void shrink_region() {
    for (const Sender* sender = senders; sender != nullptr; sender = sender->next) {
      if (__atomic_load_n(&sender->active, __ATOMIC_ACQUIRE)) {
        return;
      }
    }
    region.shrink();
  }
  void report(const void* address, Fault fault) const {
    if (on_fault != nullptr) {
      on_fault(address, fault);
    }
  }

  // Chooses keys and switches guard pages on, once, before the process gets its first memory of any
  // kind: no block, and so no encoded link, exists yet. Only hardened builds call it. The caller
  // holds the lock.
  void start_hardening() {
    if (!large.guards) {
      hardening.start();
      region.settings.guards = large.guards = true;
    }
  }

  // Holds the lock if the process has threads.
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
