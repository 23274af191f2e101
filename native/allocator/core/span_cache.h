// Keeps the spans that a heap freed last. The heap reuses them without the pool's lock. Otherwise
// the threads of a program that allocates buffers of 64 KiB would wait for each other. A process
// with one thread does not use it.
//
// Each slot is one word: the description of the span's first superblock, and the span's length in
// the low bits. The heap's thread fills empty slots. Other threads may only empty them, in trim().
//
// A cached span is of kind kHeldBack: a second free() of it is noticed, and statistics count it
// as free. The region counts its superblocks as used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "superblock.h"

namespace heapwright::alloc {

class SpanCache {
 public:
  static constexpr std::size_t kMaxSuperblocks = 4;  // all cached spans together: 256 KiB

  // Takes a span of `length` superblocks; nullptr: there is none.
  Superblock* take(std::size_t length) {
    for (std::uintptr_t& slot : slots_) {
      const std::uintptr_t seen = __atomic_load_n(&slot, __ATOMIC_RELAXED);
      if ((seen & kLengthMask) == length) {
        if (Superblock* const span = empty(slot, seen); span != nullptr) {
          return span;
        }
      }
    }
    return nullptr;
  }
  // Keeps a span of at most kMaxSuperblocks. Calls give_back(span) for each span that has to leave.
  // Only the heap's thread may call it.
  template <class F>
  void put(Superblock* span, std::size_t length, F give_back) {
    while (cached() + length > kMaxSuperblocks) {
      std::uintptr_t& oldest = slots_[next_++ % slots_.size()];
      if (Superblock* const old = empty(oldest, __atomic_load_n(&oldest, __ATOMIC_RELAXED))) {
        give_back(old);
      }
    }
    for (std::uintptr_t& slot : slots_) {  // one is empty: each span has at least one superblock
      if (__atomic_load_n(&slot, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&slot, reinterpret_cast<std::uintptr_t>(span) | length, __ATOMIC_RELEASE);
        return;
      }
    }
  }
  // Takes all spans and calls give_back(span) for each. Any thread may call it.
  template <class F>
  void clear(F give_back) {
    for (std::uintptr_t& slot : slots_) {
      if (Superblock* const span = empty(slot, __atomic_load_n(&slot, __ATOMIC_RELAXED))) {
        give_back(span);
      }
    }
  }
  // Takes over the spans of another heap of the same thread. This one must be empty.
  void take_over(SpanCache& other) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const std::uintptr_t span = __atomic_exchange_n(&other.slots_[i], 0, __ATOMIC_ACQUIRE);
      __atomic_store_n(&slots_[i], span, __ATOMIC_RELEASE);
    }
  }

 private:
  friend struct Pool;
  static constexpr std::uintptr_t kLengthMask = alignof(Superblock) - 1;
  static_assert(kMaxSuperblocks <= kLengthMask);

  // Empties a slot whose word was `seen`. Returns its span, or nullptr if there is none any more.
  static Superblock* empty(std::uintptr_t& slot, std::uintptr_t seen) {
    if (seen == 0) {
      return nullptr;
    }
    seen = __atomic_exchange_n(&slot, 0, __ATOMIC_ACQUIRE);
    return reinterpret_cast<Superblock*>(seen & ~kLengthMask);
  }
  [[nodiscard]] std::size_t cached() const {
    std::size_t superblocks = 0;
    for (const std::uintptr_t& slot : slots_) {
      superblocks += __atomic_load_n(&slot, __ATOMIC_RELAXED) & kLengthMask;
    }
    return superblocks;
  }

  std::array<std::uintptr_t, kMaxSuperblocks> slots_{};
  std::uint32_t next_ = 0;      // the slot that is emptied next
  std::uint32_t forks_ = 0;     // Pool::forks + 1 when it joined the list; 0: never
  SpanCache* other_ = nullptr;  // the next in the pool's list
};

}  // namespace heapwright::alloc
