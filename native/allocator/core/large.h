// Large blocks: those above 1 MiB that do not become spans (big_blocks.h), or that are aligned to
// more than a superblock. Each has a mapping of its own.
//
// A large block grows by moving page tables, not bytes (mremap). After a free, its memory is kept
// for reuse as a range of addresses; a hardened build keeps the addresses in quarantine instead.
//
// Kept ranges. Ranges that touch are joined. A block takes the beginning of the shortest range that
// is long enough, and the rest stays kept. A block that grows takes from the range behind it:
//
//     ├─ block ─┤├────── kept ──────┤├─ block ─┤      a block is freed:
//     ├─ block ─┤├──────────── kept ───────────┤      another is allocated:
//     ├─ block ─┤├───── block ─────┤├── kept ──┤
//
// So a program that uses blocks of changing sizes does not touch new memory each time. The kernel
// places new mappings beside each other and makes them one, so most ranges can be joined. It does
// not if mremap has moved one of them, and mremap refuses several mappings. So ranges are joined
// only if mremap has moved neither, or both together.
//
// A hash table of page numbers (open addressing, no tombstones) holds all large blocks. A pointer
// that is not in it is not a large block. Only slow paths search it.
//
// Threads: callers hold the pool's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fault.h"
#include "hardening.h"
#include "heap_layout.h"
#include "quarantine.h"

namespace heapwright::alloc {

class Large {
 public:
  // Allocates a block; nullptr: out of memory. `alignment` is a power of two.
  void* allocate(std::size_t bytes, std::size_t alignment);
  // Returns the usable bytes, or 0 if no block begins here.
  [[nodiscard]] std::size_t usable(const void* block) const;
  struct Mapping {
    void* address;
    std::size_t bytes;
  };
  // Frees a block and keeps its mapping; returns false if no block begins here. With `guards` and a
  // random number, only the addresses are kept, decommitted and inaccessible, until the quarantine
  // evicts them. `rest`, if given, gets a mapping that is not kept, for the caller to unmap
  // without the lock: that takes the kernel 0.2 ms for each MiB in use.
  bool free(void* block, std::uint64_t random = 0, Mapping* rest = nullptr);
  static void unmap(const Mapping& mapping);
  // Says why an address is no block: it is in memory that is kept or in quarantine, in a block, or
  // neither. Searches everything.
  [[nodiscard]] Fault fault_of(const void* address) const;
  void empty_quarantine();
  // Unmaps at most so many bytes of the oldest kept range, from its end. Returns how many, or 0 if
  // none is kept. `bytes` is a multiple of the page size.
  std::size_t drop_oldest(std::size_t bytes = SIZE_MAX);
  // Whether a kept range is long enough for a block.
  [[nodiscard]] bool keeps(std::size_t bytes, std::size_t alignment) const {
    const std::size_t i = find_kept(bytes, alignment);
    return i < kept_count_ && kept_[i].bytes >= bytes;
  }
  [[nodiscard]] std::size_t kept_bytes() const { return kept_bytes_; }
  // Whether the memory of the last allocate() has not been used since the kernel gave it; and how
  // much the kernel gave anew to the last allocate(), or to the last resize() that made a block
  // longer.
  [[nodiscard]] bool last_was_clean() const { return clean_; }
  [[nodiscard]] std::size_t last_new_bytes() const { return new_bytes_; }
  // Resizes a block, which may move; nullptr and no change if there is no room. The part that
  // it gives up is kept.
  void* resize(void* block, std::size_t bytes);

  // Hardened builds: describe() records the requested bytes and the origin, and writes the canary
  // behind them, as far as the last page has room. mark() returns them, with 0 bytes if no block
  // begins here.
  void describe(void* block, std::size_t asked, Origin origin, const Hardening& hardening);
  void set_origin(const void* block, Origin origin);
  [[nodiscard]] Hardening::Mark mark(const void* block, const Hardening& hardening) const;

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t mapped_bytes() const { return bytes_ + kept_bytes_; }
  // Tells a reader in another process where the table is.
  constexpr void describe(HeapLayout& layout) const {
    layout.large_entries = static_cast<const void*>(&entries_);
    layout.large_capacity = &capacity_;
    layout.large_count = &count_;
    layout.large_bytes = &bytes_;
    layout.kept = &kept_;
    layout.kept_count = &kept_count_;
    layout.large_entry_bytes = sizeof(Entry);
    layout.large_entry_size = offsetof(Entry, bytes);
  }

  // Whether an inaccessible page follows each block.
  bool guards = false;

 private:
  struct Entry {
    std::uintptr_t address;  // 0: empty
    std::size_t bytes;
    std::size_t asked = 0;
    Origin origin = Origin::kMalloc;
    std::uint32_t move = 0;  // which mremap moved the memory here; 0: none did
  };
  [[nodiscard]] std::size_t first_slot(std::uintptr_t address) const;
  [[nodiscard]] Entry* find(const void* block) const;
  static constexpr std::size_t kMaxKept = 64;
  static constexpr std::size_t kLargestKept = std::size_t{256} << 20U;  // bytes

  static std::size_t mapping_bytes(const Mapping& mapping) { return mapping.bytes; }
  static constexpr std::size_t kMaxQuarantinedBytes = kLargestKept;

  [[nodiscard]] std::size_t find_kept(std::size_t bytes, std::size_t alignment) const;
  [[nodiscard]] std::size_t find_kept_at(std::uintptr_t address, std::uint32_t move) const;
  void keep(Entry entry);
  Entry take_kept(std::size_t i);
  Entry remap(Entry entry, std::size_t bytes);
  void* reuse(std::size_t bytes, std::size_t alignment);
  Entry grow(const Entry& entry, std::size_t bytes);
  [[nodiscard]] std::size_t guard_bytes() const;
  bool make_room();
  void insert(Entry entry);
  void erase(Entry* entry);

  Entry* entries_ = nullptr;
  std::size_t capacity_ = 0;  // a power of two
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  std::array<Entry, kMaxKept> kept_{};  // kept ranges, the oldest first; two of one move do not touch
  std::size_t kept_count_ = 0;
  std::size_t kept_bytes_ = 0;
  std::uint32_t moves_ = 0;
  bool clean_ = true;
  std::size_t new_bytes_ = 0;
  Quarantine<Mapping, 16, mapping_bytes> quarantine_;
};

}  // namespace heapwright::alloc
