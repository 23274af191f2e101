// Blocks with a mapping of their own: above 1 MiB, or aligned to more than a superblock. They go straight
// back to the kernel when freed, and grow by moving page tables, not bytes (mremap).
//
// A hash table of page numbers (open addressing, no tombstones) knows them all; a pointer that is not in it
// is not a large block. Entries are found by slow paths only.
//
// Threads: none here; who shares it locks it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "hardening.h"
#include "quarantine.h"

namespace heapwright::alloc {

class Large {
 public:
  // nullptr: out of memory. `alignment` is a power of two; last_was_clean() says whether the memory is zero.
  // Memory that must be zero (`zero`) is not taken from what was kept.
  void* allocate(std::size_t bytes, std::size_t alignment, bool zero = false);
  // The usable bytes, or 0 if no block begins here.
  [[nodiscard]] std::size_t usable(const void* block) const;
  // False if no block begins here. The mapping is kept. With `guards` and a random number, its addresses are, without
  // memory and without access, until others take their place.
  bool free(void* block, std::uint64_t random = 0);
  void empty_quarantine();
  // Gives the mapping that has been kept for longest to the kernel; its bytes, or 0 if none is kept.
  std::size_t drop_oldest();
  [[nodiscard]] std::size_t kept_bytes() const { return kept_bytes_; }
  // Of the last allocate(): nobody has used this memory since the kernel gave it.
  [[nodiscard]] bool last_was_clean() const { return clean_; }
  // The block, perhaps elsewhere, with so many bytes; nullptr and no change if there is no room.
  void* resize(void* block, std::size_t bytes);

  // Hardened heaps: what a block was asked for with, and how; its canary stands behind that, as far as its last page has
  // room. mark() of what is no block has no bytes.
  void describe(void* block, std::size_t asked, Origin origin, const Hardening& hardening);
  void set_origin(const void* block, Origin origin);
  [[nodiscard]] Hardening::Mark mark(const void* block, const Hardening& hardening) const;

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  // A page without access behind each block.
  bool guards = false;

 private:
  struct Entry {
    std::uintptr_t address;  // 0: empty
    std::size_t bytes;
    std::size_t asked = 0;
    Origin origin = Origin::kMalloc;
  };
  [[nodiscard]] std::size_t first_slot(std::uintptr_t address) const;
  [[nodiscard]] Entry* find(const void* block) const;
  static constexpr std::size_t kMaxKept = 16;
  static constexpr std::size_t kLargestKept = std::size_t{256} << 20U;  // bytes

  struct Mapping {
    void* address;
    std::size_t bytes;
  };
  static std::size_t mapping_bytes(const Mapping& mapping) { return mapping.bytes; }
  static constexpr std::size_t kMaxQuarantinedBytes = kLargestKept;

  static void unmap(const Mapping& mapping);
  void* reuse(std::size_t bytes);
  [[nodiscard]] std::size_t guard_bytes() const;
  bool make_room();
  void insert(Entry entry);
  void erase(Entry* entry);

  Entry* entries_ = nullptr;
  std::size_t capacity_ = 0;  // a power of two
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  std::array<Entry, kMaxKept> kept_{};  // the oldest first
  std::size_t kept_count_ = 0;
  std::size_t kept_bytes_ = 0;
  bool clean_ = true;
  Quarantine<Mapping, 16, mapping_bytes> quarantine_;
};

}  // namespace heapwright::alloc
