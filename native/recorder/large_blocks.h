// A table of the live large blocks. When one is freed, the recorder records how many of its bytes
// were touched (touched.h): programs often touch only a part of a large block, and a replay that
// touched all of it would need more memory.
//
// The table has a fixed size and no locks. A thread takes an entry by exchanging its address. The
// size in an entry is visible to the thread that frees the block, because its free happens after
// the allocation. So that thread removes the entry by a plain store. A block for which no entry is
// free is not in the table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "touched.h"

namespace heapwright::recorder {

inline constexpr std::size_t kLarge = 64 * 1024;

// Each counts the large blocks that begin in the pages that share the counter. Outside the table,
// so that free() needs one load. A free of a small block whose counter is not 0 searches the table
// in vain. 32 KiB keep that rare with thousands of large blocks.
inline constexpr std::size_t kFilterCounters = 16 * 1024;
extern std::atomic<std::uint16_t> large_filter[kFilterCounters];

[[gnu::always_inline]] inline bool may_be_large(const void* block) {
  const auto page = reinterpret_cast<std::uintptr_t>(block) >> 12;
  return large_filter[page % kFilterCounters].load(std::memory_order_relaxed) != 0;
}

struct LargeBlock {
  std::size_t size = 0;  // in bytes
  Touching touching = Touching::kUnknown;
};

class LargeBlocks {
 public:
  void insert(const void* block, LargeBlock large);
  // Removes a block. Returns a size of 0 if it is not in the table.
  LargeBlock remove(const void* block);
  // Returns a block, which may be another thread's, and a size of 0 if it is not in the table.
  [[nodiscard]] LargeBlock find(const void* block) const;
  // Returns how many entries remove() looks at, at most.
  std::size_t probes() const { return probes_.load(std::memory_order_relaxed); }
  // Calls f(address, large block) for each block. Other threads may add and remove blocks
  // meanwhile.
  template <class F>
  void each(F f) const {
    for (const Entry& entry : entries_) {
      const auto address = entry.address.load(std::memory_order_acquire);
      if (address > kRemoved) {
        f(address, unpack(entry.packed.load(std::memory_order_relaxed)));
      }
    }
  }

 private:
  static constexpr std::size_t kEntries = 1 << 16;
  static constexpr std::size_t kMaxProbes = 64;
  static constexpr std::uintptr_t kFree = 0;
  static constexpr std::uintptr_t kRemoved = 1;  // was taken once: a search goes on behind it

  struct Entry {
    std::atomic<std::uintptr_t> address;
    std::atomic<std::size_t> packed;  // the size and, in the upper two bits, how its touched part is known
  };
  static constexpr int kSizeBits = 62;
  static std::size_t pack(LargeBlock large) {
    return large.size | static_cast<std::size_t>(large.touching) << kSizeBits;
  }
  static LargeBlock unpack(std::size_t packed) {
    return {packed & ((std::size_t{1} << kSizeBits) - 1), static_cast<Touching>(packed >> kSizeBits)};
  }
  static std::size_t first(std::uintptr_t address) { return (address >> 12) * 0x9e3779b97f4a7c15U >> 48; }

  // Returns the index of a block's entry, or kEntries.
  [[nodiscard]] std::size_t index_of(std::uintptr_t address) const;

  Entry entries_[kEntries];
  // How far a block has ever been from its first entry, plus 1. After many blocks few entries are
  // kFree, and this ends a search in vain.
  std::atomic<std::size_t> probes_;
};

}  // namespace heapwright::recorder
