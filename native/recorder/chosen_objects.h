// A table of the live objects of the sample, and a filter in front of it.
//
// free() must learn quickly, and with few cache lines, that a block is not in the sample. So every
// address belongs to one bit of the filter, and neighbouring addresses have neighbouring bits: a
// cache line of the filter serves 4 KiB of the heap. A bit of zero means that the block is not
// chosen. free() reads nothing else. A counter beside the filter says how many chosen objects have
// the same bit. A counter that has reached 255 stays there, with its bit: the table then decides.
//
//     a word of the filter    | 32 bits | 32: how often a bit of this word was set |
//
// Invariant: from the return of insert() to the call of remove(), the bit of an object is 1.
// insert() increments the counter, and then sets the bit and counts that. remove() of the last one
// reads the word, sees that the counter is 0, and clears the bit only if the word is still the
// same.
//
// Nothing here waits for a lock, so a signal handler may enter every function again. A table that
// has no room for an address gets a successor of twice its size; a search visits all of them. A
// slot is half a cache line, so that adding and removing an object mostly touches one line of the
// table:
//
//     | key, 8 bytes | ChosenObject, 24 bytes | next slot …
//       0: free, 1: removed, 2: being written, else an address
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "raw_format/format.h"

namespace heapwright::recorder {

struct ChosenObject {
  std::uint64_t size = 0;    // requested bytes, now
  std::uint64_t order = 0;   // rank of its birth among all chosen objects, if there is a window
  std::uint32_t thread = 0;  // that allocated it
  raw::Tag kind = raw::Tag::kMalloc;
  std::uint8_t level = 0;
  std::int8_t alignment_log2 = -1;  // -1: malloc or calloc
};

inline constexpr std::size_t kFilterBits = std::size_t{1} << 18;
inline constexpr std::size_t kWordBits = 32;
extern std::atomic<std::uint64_t> chosen_filter[kFilterBits / kWordBits];

[[gnu::always_inline]] inline std::size_t filter_bit(const void* block) {
  return (reinterpret_cast<std::uintptr_t>(block) >> 4) % kFilterBits;
}
[[gnu::always_inline]] inline bool may_be_chosen(const void* block) {
  const std::size_t bit = filter_bit(block);
  // Only the half with the bits: the shift is then one instruction.
  const auto bits =
      static_cast<std::uint32_t>(chosen_filter[bit / kWordBits].load(std::memory_order_relaxed));
  return (bits >> bit % kWordBits & 1) != 0;
}
// Sets the bits of the bootstrap pool's addresses for ever, so that frees of its blocks never take
// the fast path.
void fill_filter_of_pool();
// Clears the filter, except for the pool's addresses. Other threads may use it meanwhile.
void clear_filter();

class ChosenObjects {
 public:
  // Adds the object at an address. Returns false if there is no memory for it.
  bool insert(const void* block, const ChosenObject& object);
  // Removes the object at an address into `object`. Returns false if there is none.
  bool remove(const void* block, ChosenObject& object);
  // Returns how many bytes of the tables are in memory. Pages of more than 4 KiB count by parts, so
  // there it is less until a table is full.
  [[nodiscard]] std::uint64_t resident_bytes() const {
    return touched_.load(std::memory_order_relaxed) * kPartBytes;
  }
  // Calls f(address, object) for each. Other threads may add and remove objects meanwhile.
  template <class F>
  void each(F f) const {
    for (std::size_t t = 0; t < kTables; ++t) {
      const Slot* const table = tables_[t].load(std::memory_order_acquire);
      for (std::size_t i = 0; table != nullptr && i < slots(t); ++i) {
        const std::uintptr_t key = table[i].key.load(std::memory_order_acquire);
        if (key > kBusy) {
          const ChosenObject object = table[i].object;
          if (table[i].key.load(std::memory_order_acquire) == key) {
            f(key, object);
          }
        }
      }
    }
  }

 private:
  static constexpr std::size_t kTables = 24;
  static constexpr std::size_t kFirstSlots = 1 << 12;
  static constexpr std::size_t kMaxProbes = 16;
  static constexpr std::uintptr_t kFree = 0;
  static constexpr std::uintptr_t kRemoved = 1;
  static constexpr std::uintptr_t kBusy = 2;

  struct Slot {
    std::atomic<std::uintptr_t> key;
    ChosenObject object;
  };
  static_assert(sizeof(Slot) == 32);
  static constexpr std::size_t slots(std::size_t table) { return kFirstSlots << table; }
  // A bit for each part of a table, behind its slots, says that an object was there.
  static constexpr std::size_t kPartBytes = 4096;
  static constexpr std::size_t kPartSlots = kPartBytes / sizeof(Slot);
  void touch(Slot* table, std::size_t number, std::size_t slot);
  static std::size_t first(std::uintptr_t address, std::size_t table) {
    return ((address >> 4) * 0x9e3779b97f4a7c15U >> 20) & (slots(table) - 1);
  }
  Slot* table_at(std::size_t number);

  std::atomic<Slot*> tables_[kTables];
  std::atomic<std::uint32_t> newest_;
  std::atomic<std::uint64_t> touched_;  // parts
};

}  // namespace heapwright::recorder
