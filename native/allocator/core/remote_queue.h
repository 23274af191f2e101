// Implements the remote queue of a superblock, which takes blocks freed by threads that do not own
// the superblock, and decides who owns it.
//
// One heap owns a superblock while it has blocks to hand out; only the owner changes its
// description. When the last block has been handed out, no heap owns the superblock any more, so a
// sleeping thread strands no memory. The queue is one word, on a cache line of its own in the
// chunk's first superblock, apart from the lines that the owner writes:
//
//      31   30  29             17 16             0
//     ┌────┬────┬─────────────────┬────────────────┐
//     │unow│  0 │ count of blocks │ first block    │    unow: kUnowned
//     └────┴────┴─────────────────┴────────────────┘
//
// The first block is in granules of 16 bytes from the superblock's beginning, plus 1; 0: none.
//
//   push       Any thread: adds linked blocks by one compare-and-swap. If no heap owns the
//              superblock and at least `reclaim_threshold` blocks are there now, the pushing thread
//              takes them all and becomes the owner.
//   take       The owner: takes all blocks at once.
//   disown     The owner, when no block is left to hand out: sets kUnowned, unless blocks have
//              arrived meanwhile.
//   own_again  A heap with blocks of the superblock in its cache: becomes the owner unless
//              another heap is.
//
// Only push adds blocks, and taking removes all of them. So if the word has changed and changed
// back between a read and the compare-and-swap, its first block is again the first, and the link to
// it is right (no ABA problem). tests/native/allocator/remote_model_test.cpp checks the protocol in
// every order for small cases.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "heap_layout.h"
#include "superblock.h"

namespace heapwright::alloc {

// Blocks of one superblock, linked, on their way to its remote queue.
struct RemoteFreeBatch {
  Block* first = nullptr;  // the most recently added block
  Block* last = nullptr;
  Superblock* superblock = nullptr;  // nullptr: the batch is empty
  std::int32_t tag_index = 0;        // of the superblock, below 0; 0: the batch is empty
  std::uint16_t blocks_left = 0;     // so many frees until it is sent
  std::uint16_t max_blocks = 0;

  [[nodiscard]] std::uint32_t count() const { return std::uint32_t{max_blocks} - blocks_left; }
};
static_assert(sizeof(RemoteFreeBatch) == 32);

// `Word` is std::atomic except in the test that explores all orders of its steps.
template <class Word>
class BasicRemoteQueue {
 public:
  static constexpr std::uint32_t kUnowned = 1U << 31U;
  static constexpr std::uint32_t kStillMs = 50;  // longer than a thread waits for a processor, as a rule

  static BasicRemoteQueue& of(const Superblock* superblock) {
    char* const first = reinterpret_cast<char*>(chunk_of(superblock)) + kQueuesBegin;
    return reinterpret_cast<BasicRemoteQueue*>(first)[index_in_chunk(superblock)];
  }

  // Blocks taken from the queue: `count` linked blocks, or none.
  struct Taken {
    Block* first = nullptr;
    std::uint32_t count = 0;
  };

  // Begins the queue of a new superblock: owned and empty.
  void reset() {
    word_.store(0, std::memory_order_relaxed);
    look_ = cursor_look_ = {};
    purged_free_ = 0;
  }

  // Whether an earlier call, at least kStillMs ago, saw nearly the same number of free blocks. (Blocks
  // may have been allocated and freed in between.) The caller holds the owner's lock. `now`: milliseconds.
  bool is_still(const Superblock* superblock, std::uint64_t now) {
    return look_.is_still(superblock, now, kStillMs);
  }
  // The same for StillCursor, which looks at the superblock itself: whether its pages should be purged now.
  // Where it has as many free blocks and the same purged pages as after the last purge, there is nothing to
  // purge, as a rule.
  bool should_purge(const Superblock* superblock, std::uint64_t now, std::uint32_t still_ms) {
    return cursor_look_.is_still(superblock, now, still_ms) &&
           (purged_free_ != superblock->free_count || purged_pages_ != superblock->purged_pages);
  }
  // The superblock becomes free. (With one thread, no reset() follows when it is used again.)
  void forget_cursor() {
    cursor_look_ = {};
    purged_free_ = 0;
  }
  void set_purged(const Superblock* superblock) {
    purged_free_ = superblock->free_count;
    purged_pages_ = superblock->purged_pages;
  }

  // Pushes the blocks from `first` to `last`, `count` of them, which are linked. `link(last, next)`
  // sets a block's link. Returns true if the caller owns the superblock now: the blocks in `taken`,
  // which had arrived before, are then linked behind `last`. Otherwise `taken` only tells how many
  // had arrived before.
  template <class Link>
  bool push(Superblock* superblock, Block* first, Block* last, std::uint32_t count,
            std::uint32_t reclaim_threshold, Link link, Taken& taken) {
    std::uint32_t seen = word_.load(std::memory_order_relaxed);
    for (;;) {
      link(last, block_of(superblock, seen));
      const bool claims = (seen & kUnowned) != 0 && count_of(seen) + count >= reclaim_threshold;
      const std::uint32_t wanted =
          claims ? 0
                 : (seen & kUnowned) | (count_of(seen) + count) << kCountShift | number_of(superblock, first);
      if (word_.compare_exchange_weak(seen, wanted, std::memory_order_seq_cst, std::memory_order_relaxed)) {
        taken = {block_of(superblock, seen), count_of(seen)};
        return claims;
      }
    }
  }
  Taken take(Superblock* superblock) {
    if (word_.load(std::memory_order_relaxed) == 0) {
      return {};
    }
    return unpack(superblock, word_.exchange(0, std::memory_order_acquire));
  }
  // Returns true if no heap owns the superblock any more; false if there are blocks to take.
  bool disown() {
    std::uint32_t seen = 0;
    return word_.compare_exchange_strong(seen, kUnowned, std::memory_order_release,
                                         std::memory_order_relaxed);
  }
  // Returns true if the caller owns the superblock now; `taken` has the blocks that had arrived.
  bool own_again(Superblock* superblock, Taken& taken) {
    std::uint32_t seen = word_.load(std::memory_order_relaxed);
    while ((seen & kUnowned) != 0) {
      if (word_.compare_exchange_weak(seen, 0, std::memory_order_acq_rel, std::memory_order_relaxed)) {
        taken = unpack(superblock, seen);
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] std::uint32_t count() const { return count_of(word_.load(std::memory_order_seq_cst)); }
  // Tells a reader in another process where the queues are, and what a word means.
  static constexpr void describe(HeapLayout& layout) {
    layout.queue_begin = kQueuesBegin;
    layout.queue_bytes = sizeof(BasicRemoteQueue);
    layout.queue_count_shift = kCountShift;
    layout.queue_count_mask = kCountMask;
    layout.queue_first_mask = kNumberMask;
  }

 private:
  static constexpr std::uint32_t kCountShift = 17;
  static constexpr std::uint32_t kCountMask = (1U << 13U) - 1;
  static constexpr std::uint32_t kNumberMask = (1U << kCountShift) - 1;

  static std::uint32_t count_of(std::uint32_t word) { return word >> kCountShift & kCountMask; }
  static std::uint32_t number_of(const Superblock* superblock, const Block* block) {
    const auto offset = reinterpret_cast<const char*>(block) - memory_of(superblock);
    return static_cast<std::uint32_t>(offset / 16) + 1;
  }
  static Block* block_of(const Superblock* superblock, std::uint32_t word) {
    const std::uint32_t number = word & kNumberMask;
    return number == 0 ? nullptr
                       : reinterpret_cast<Block*>(memory_of(superblock) + std::size_t{number - 1} * 16);
  }
  static Taken unpack(const Superblock* superblock, std::uint32_t word) {
    return {block_of(superblock, word), count_of(word)};
  }

  // The first look at a superblock since its number of free blocks changed much.
  struct Look {
    std::uint32_t ms = 0;  // 0: there was none
    std::uint32_t free = 0;

    bool is_still(const Superblock* superblock, std::uint64_t now, std::uint32_t for_ms) {
      const std::uint32_t count = superblock->free_count;
      if (ms == 0 || std::max(count, free) - std::min(count, free) > superblock->capacity / kStillDivisor) {
        *this = {static_cast<std::uint32_t>(now), count};
        return false;
      }
      return static_cast<std::uint32_t>(now) - ms >= for_ms;
    }
  };
  static constexpr std::uint32_t kStillDivisor = 8;

  alignas(64) Word word_;
  Look look_;
  Look cursor_look_;
  std::uint32_t purged_free_ = 0;  // free blocks and pages after the last purge
  std::uint16_t purged_pages_ = 0;
};
using RemoteQueue = BasicRemoteQueue<std::atomic<std::uint32_t>>;
static_assert(sizeof(RemoteQueue) == 64 && kSuperblocksInChunk * sizeof(RemoteQueue) == kQueuesBytes &&
              kQueuesBegin + kQueuesBytes + 4096 <= kSuperblockBytes);

}  // namespace heapwright::alloc
