// Holds the state that all heaps of a process share: the region, the large blocks, the hardening
// keys, and one lock.
//
// A heap takes the lock to obtain or return a superblock, a span that its depot does not hold, or a
// large block, never for a block of a size class. A process with one thread never takes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../platform/platform.h"
#include "fault.h"
#include "hardening.h"
#include "inlining.h"
#include "quarantine.h"
#include "region.h"
#include "still_cursor.h"

namespace heapwright::alloc {

// A heap's entry in the pool's list of heaps, which other threads read.
struct HeapRecord {
  void* superblocks = nullptr;  // the heap's OwnedSuperblocks
  // Whether the heap is sending remotely freed blocks. As soon as they have arrived, other threads
  // may release their superblock, but the sending thread still reads its description.
  bool sends = false;
  std::uint32_t forks = 0;  // Pool::forks + 1 when the heap joined the list; 0: never
  HeapRecord* next = nullptr;
};

// What all threads may know of a heap's depot (depot.h).
class DepotRecord {
 public:
  // `freed_by_others`: the memory of the heap's blocks that other threads have freed. Atomic.
  constexpr explicit DepotRecord(const std::size_t* freed_by_others) : freed_by_others_(freed_by_others) {}

  // How many superblocks all spans have that the depot holds.
  [[nodiscard]] std::size_t span_superblocks() const {
    const std::size_t taken = __atomic_load_n(&spans_taken_, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&spans_pushed_, __ATOMIC_RELAXED) - taken;
  }
  // An upper bound of the memory of the lists that other threads can take. `taken_bytes_` is read
  // first: so it counts no list that `pushed_bytes_` does not.
  [[nodiscard]] std::size_t shared_bytes() const {
    const std::size_t taken = __atomic_load_n(&taken_bytes_, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&pushed_bytes_, __ATOMIC_RELAXED) - taken;
  }
  // The same, with spans and the blocks that other threads have freed for the heap: they take these
  // as well.
  [[nodiscard]] std::size_t takeable_bytes() const {
    return shared_bytes() + span_superblocks() * kSuperblockBytes +
           __atomic_load_n(freed_by_others_, __ATOMIC_RELAXED);
  }
  // To whom the stacks of spans belong: see span_stacks.h.
  enum class Bias : std::uint8_t { kShared, kBiased, kEnding };
  // Called by the heap's thread when it has used the depot: then it does not sleep. The fast paths of
  // span_stacks.h do not call it, so a thread that frees few spans can seem idle.
  void count_move() { __atomic_store_n(&moves_, moves_ + 1, __ATOMIC_RELAXED); }
  // Whether the stacks are biased towards the heap's thread.
  [[nodiscard]] bool is_biased() const { return bias() == Bias::kBiased; }

 protected:
  // Called by the heap's thread: the bytes in the shared stacks.
  void add_pushed(std::size_t bytes) {
    __atomic_store_n(&pushed_bytes_, pushed_bytes_ + bytes, __ATOMIC_RELAXED);
  }
  // The same for the superblocks of spans. The heap's thread, too, takes all of them at once.
  void set_pushed_spans(std::size_t superblocks) {
    __atomic_store_n(&spans_pushed_, superblocks, __ATOMIC_RELAXED);
  }
  [[nodiscard]] std::size_t taken_spans() const { return __atomic_load_n(&spans_taken_, __ATOMIC_RELAXED); }
  void add_taken_spans(std::size_t superblocks) {
    __atomic_fetch_add(&spans_taken_, superblocks, __ATOMIC_RELEASE);
  }
  [[nodiscard]] std::size_t pushed_spans() const { return spans_pushed_; }
  void reset_bytes() { pushed_bytes_ = taken_bytes_ = 0; }
  void reset_spans() { spans_pushed_ = spans_taken_ = 0; }
  // Called by the heap's thread before and after it changes the stacks of spans: see span_stacks.h. Returns
  // whether they are biased; if not, the change must be made by exchanges.
  HEAPWRIGHT_INLINE bool begin_change() {
    __atomic_store_n(&changing_, true, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);  // order_all_threads() makes it a fence between threads
    return bias() == Bias::kBiased;
  }
  HEAPWRIGHT_INLINE void end_change() { __atomic_store_n(&changing_, false, __ATOMIC_RELEASE); }
  void accept_end_of_bias() {
    if (bias() == Bias::kEnding) {
      set_bias(Bias::kShared);
    }
  }
  [[nodiscard]] HEAPWRIGHT_INLINE Bias bias() const {
    Bias bias{};
    __atomic_load(&bias_, &bias, __ATOMIC_ACQUIRE);
    return bias;
  }
  void set_bias(Bias bias) { __atomic_store(&bias_, &bias, __ATOMIC_RELEASE); }
  // Called by other threads.
  void add_taken(std::size_t bytes) { __atomic_fetch_add(&taken_bytes_, bytes, __ATOMIC_RELEASE); }

 private:
  friend struct Pool;
  const std::size_t* freed_by_others_;
  std::size_t pushed_bytes_ = 0;
  std::size_t taken_bytes_ = 0;
  std::size_t spans_pushed_ = 0;
  std::size_t spans_taken_ = 0;
  std::uint32_t moves_ = 0;
  Bias bias_ = Bias::kShared;
  bool changing_ = false;  // whether the heap's thread changes the stacks of spans, if they are biased
  // The pool's lock guards these. The heap's thread, which alone writes `forks_`, may read it without.
  std::uint32_t moves_seen_ = 0;      // when a thread looked at it the last time
  std::uint32_t forks_ = 0;           // Pool::forks + 1 when it joined the list; 0: never
  std::uint64_t still_since_ms_ = 0;  // when a thread saw its last move
  DepotRecord* next_ = nullptr;       // does not change after it has joined
};

struct Pool {
  Region region;
  Hardening hardening;  // one set of keys for all heaps, because blocks and their links move between heaps
  std::size_t quarantine_bytes = 128 * 1024;  // how much each hardened heap keeps in quarantine
  // The quarantine of spans, shared by all heaps, holds this many times `quarantine_bytes`.
  static constexpr std::size_t kSpanQuarantineFactor = 9;
  Quarantine<Superblock*, 16, span_bytes> quarantined_spans;
  platform::Lock lock;
  bool threaded = false;            // set while there is still one thread, and never cleared
  std::uint32_t forks = 0;          // how many forks lie between the first process and this one
  HeapRecord* records = nullptr;    // of heaps that started a superblock or sent blocks since the last fork
  DepotRecord* depots = nullptr;    // of heaps that have had a large depot, spans, or blocks freed by others
  StillCursor still_cursor;         // the lock guards it
  FaultHandler on_fault = nullptr;  // nullptr: faults are ignored
  bool (*order_all_threads)() = platform::order_all_threads;  // tests replace it
  // Flushes the lists that ended threads have left (thread_heaps.h); nullptr: there are none.
  void (*flush_left_lists)() = nullptr;

  // Bytes that one heap's depot may hold: three quarters of what free superblocks may hold. Several
  // heaps share all of it, or twice as much up to kDepotsBytes, because with less they return half of
  // each burst and take it again (docs/design-notes/bursts.md). While the region purges nothing,
  // a depot may keep all, because the region would keep free superblocks as well. `free_bytes` of
  // the memory in use are in free blocks of the heap. They do not count, because such a block may
  // be all that keeps its superblock in use. The caller holds the lock.
  [[nodiscard]] std::size_t depot_share(std::size_t free_bytes = 0) const {
    return region.may_purge() ? share_of_free_memory(free_bytes) : SIZE_MAX;
  }
  // The same while the region purges. The caller holds the lock.
  [[nodiscard]] std::size_t share_of_free_memory(std::size_t free_bytes = 0) const {
    const std::size_t sharing = heaps();
    const std::size_t bytes = region.allowance_without(free_bytes) * kSuperblockBytes;
    return sharing == 1 ? bytes / 4 * 3 : std::max(bytes, std::min(2 * bytes, kDepotsBytes)) / sharing;
  }
  [[nodiscard]] std::size_t heaps() const { return region.sharing_heaps(); }
  [[nodiscard]] bool has_depots() const { return __atomic_load_n(&depots, __ATOMIC_RELAXED) != nullptr; }
  // Lets other threads find a depot. The caller holds the lock.
  void join(DepotRecord& depot) {
    if (depot.forks_ != forks + 1) {
      depot.forks_ = forks + 1;
      depot.still_since_ms_ = region.settings.clock();
      depot.next_ = depots;
      __atomic_store_n(&depots, &depot, __ATOMIC_RELEASE);
    }
  }
  // Finds a depot, other than `own`, with at least `min_bytes` to take, whose heap has moved no
  // list since a thread looked at it the last time, and for at least `still_ms`. If that is not 0 and the
  // depot has been still as long as a still superblock, any memory to take is enough. Looks at a few
  // depots, each time at others; nullptr: none of them fits. The caller holds the lock.
  DepotRecord* find_idle_depot(const DepotRecord& own, std::size_t min_bytes, std::uint64_t still_ms = 0) {
    const std::uint64_t now = region.settings.clock();
    for (int i = 0; i < kDepotsPerLook && depots != nullptr; ++i) {
      DepotRecord* const depot = next_depot_ != nullptr ? next_depot_ : depots;
      next_depot_ = depot->next_;
      const std::uint32_t moves = __atomic_load_n(&depot->moves_, __ATOMIC_RELAXED);
      if (std::exchange(depot->moves_seen_, moves) != moves) {
        depot->still_since_ms_ = now;
      } else if (const std::uint64_t still = now - depot->still_since_ms_;
                 still >= still_ms && depot != &own &&
                 depot->takeable_bytes() >=
                     (still_ms == 0 || still < StillCursor::kStillMs ? min_bytes : 1)) {
        return depot;
      }
      if (next_depot_ == nullptr) {
        break;
      }
    }
    return nullptr;
  }
  // Calls f(record) for each depot that has joined.
  template <class F>
  void each_depot(F f) {
    for (DepotRecord* depot = __atomic_load_n(&depots, __ATOMIC_ACQUIRE); depot != nullptr;
         depot = depot->next_) {
      f(*depot);
    }
  }
  [[nodiscard]] bool has_joined(const DepotRecord& depot) const { return depot.forks_ == forks + 1; }
  // Lets a heap's thread use its depot's spans alone until another thread needs them, if no bias was
  // ended lately. The caller is this thread and holds the lock.
  void bias(DepotRecord& depot) {
    const std::uint64_t now = region.settings.clock();
    if (biases_paid_ms_ <= now + kSavedBiases * kBiasMs && platform::may_order_all_threads()) {
      depot.set_bias(DepotRecord::Bias::kBiased);
    }
  }
  // Ends the bias of all depots that have joined and have spans, but for `own`, or only that of `only`.
  // The caller holds the lock, and may then take the spans where may_take_spans() returns true.
  void end_bias(const DepotRecord& own, const DepotRecord* only) {
    bool any = false;
    each_depot([&](DepotRecord& depot) {
      const bool wanted = &depot != &own && (only == nullptr || &depot == only);
      if (wanted && depot.is_biased() && depot.span_superblocks() != 0) {
        depot.set_bias(DepotRecord::Bias::kEnding);
        any = true;
      }
    });
    if (!any) {
      return;
    }
    biases_paid_ms_ = std::max(biases_paid_ms_, region.settings.clock()) + kBiasMs;
    if (order_all_threads()) {
      each_depot([&](DepotRecord& depot) { depot.accept_end_of_bias(); });
    }
  }
  static bool may_take_spans(const DepotRecord& depot) {
    return depot.bias() == DepotRecord::Bias::kShared && !__atomic_load_n(&depot.changing_, __ATOMIC_ACQUIRE);
  }
  // In the child of a fork: the heaps of other threads may have been sending, and now never end, or
  // changing their depots. What these hold is lost, like the blocks in their thread caches.
  void forget_other_heaps() {
    ++forks;
    records = nullptr;
    depots = next_depot_ = nullptr;
    region.lent = {};
  }

  // Lets other threads find a heap. The caller holds the lock.
  void join(HeapRecord& record, void* superblocks) {
    if (record.forks != forks + 1) {
      record = {superblocks, false, forks + 1, records};
      __atomic_store_n(&records, &record, __ATOMIC_RELEASE);
    }
  }
  // The record behind one of the list; behind the last, or for nullptr, the first. nullptr: there is
  // none. Needs no lock: a record in the list keeps its place.
  [[nodiscard]] const HeapRecord* next_record(const HeapRecord* record) const {
    return record != nullptr && record->next != nullptr ? record->next
                                                        : __atomic_load_n(&records, __ATOMIC_ACQUIRE);
  }

  // Returns to the kernel the address space that is free at the end of the region, unless a thread
  // may still read a description there. It suffices to look once: a thread sets `sends` before
  // its blocks arrive, and a superblock is free only after all its blocks have arrived. The caller
  // holds the lock.
  void shrink_region() {
    for (const HeapRecord* record = records; record != nullptr; record = record->next) {
      if (__atomic_load_n(&record->sends, __ATOMIC_ACQUIRE)) {
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
    if (!region.large.guards) {
      hardening.start();
      region.settings.guards = region.large.guards = true;
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

 private:
  static constexpr int kDepotsPerLook = 16;
  static constexpr std::size_t kDepotsBytes = std::size_t{4} << 20;
  // Each end of a bias must be paid for by so much time. So many ends are saved up.
  static constexpr std::uint64_t kBiasMs = 4;
  static constexpr std::uint64_t kSavedBiases = 16;
  std::uint64_t biases_paid_ms_ = 0;   // when all ends of biases so far will be paid for
  DepotRecord* next_depot_ = nullptr;  // that find_idle_depot() looks at next; nullptr: the first
};

}  // namespace heapwright::alloc
