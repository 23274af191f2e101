// The large blocks that are live, to ask when they end how much of them was ever used: programs ask for much and touch little, and
// a replay that touches everything would need another amount of memory.
//
// A table of fixed size without locks: a entry is taken by exchanging its address, and its size is valid for who made or ends
// the block, which happen one after the other. A block that finds no entry is not known.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heapwright::recorder {

inline constexpr std::size_t kLarge = 64 * 1024;

// How many large blocks begin in the pages that share this entry. Not part of the table, so that free() finds it at once.
inline constexpr std::size_t kFilterCounters = 1024;
extern std::atomic<std::uint16_t> large_filter[kFilterCounters];

[[gnu::always_inline]] inline bool may_be_large(const void* block) {
  const auto page = reinterpret_cast<std::uintptr_t>(block) >> 12;
  return large_filter[page % kFilterCounters].load(std::memory_order_relaxed) != 0;
}

class LargeBlocks {
 public:
  void insert(const void* block, std::size_t size);
  // Forgets a block: its size, or 0 if it is not known.
  std::size_t remove(const void* block);
  // Calls f(address, size) for each; others may come and go meanwhile.
  template <class F>
  void each(F f) const {
    for (const Entry& entry : entries_) {
      const auto address = entry.address.load(std::memory_order_acquire);
      if (address > kRemoved) {
        f(address, entry.size.load(std::memory_order_relaxed));
      }
    }
  }

 private:
  static constexpr std::size_t kEntries = 1 << 16;
  static constexpr std::size_t kMaxProbes = 64;
  static constexpr std::uintptr_t kFree = 0;
  static constexpr std::uintptr_t kRemoved = 1;  // was taken: the search goes on behind it

  struct Entry {
    std::atomic<std::uintptr_t> address;
    std::atomic<std::size_t> size;
  };
  static std::size_t first(std::uintptr_t address) { return (address >> 12) * 0x9e3779b97f4a7c15U >> 48; }

  Entry entries_[kEntries];
};

// How many bytes of these are resident, whole pages of it.
std::size_t resident_part(std::uintptr_t address, std::size_t size);

}  // namespace heapwright::recorder
