// Implements the thread cache: one free list for each size class, which malloc takes from and free
// puts on first.
//
// Both fast paths touch only this object, the block, and (free) one tag. They never touch a
// superblock's description. The most recently freed block is reused first, whichever superblock it
// belongs to, because the processor's caches probably still hold it. A list that has
// grown long moves to the depot as a whole (depot.h).
//
//     one cache line for four classes
//     ┌──────┬────────────┬─────────────────┐     ┌──────────────────────┐┌──────┬───────┬───────┐
//     │ head │ frees_left │ max_length      │ ... │ list of a size       ││ base │ limit │ owner │
//     └──────┴────────────┴─────────────────┘     │ (65 pointers)        ││      │       │       │
//       list 0 (no class), list 1, ...            └──────────────────────┘└──────┴───────┴───────┘
//                                                                          the region   our tag
//
// Three tests of the fast paths serve several purposes each:
//
// - `frees_left` counts the frees until the next check of a list. It is not the list's length, so
//   malloc need not write it. List 0 belongs to no class and its `frees_left` is 0: freeing a span
//   or a wrong pointer, whose tag is 0, ends in the slow path by the same test as a full list.
// - The comparison with `limit` asks whether the address is in the region. NULL, foreign pointers
//   and large blocks fail it. disable() sets `limit` to 0, and every free fails it.
// - A list without blocks and a size above kMaxTableBytes both make allocation return nullptr.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "carving.h"
#include "free_list.h"
#include "size_classes.h"

namespace heapwright::alloc {

// The usable bytes of a block of each class, by its number; 0 for class 0.
template <Configuration C>
constexpr auto usable_bytes_of_classes() {
  using Classes = SizeClasses<C::kClassesPerDoubling>;
  std::array<std::uint32_t, Classes::kCount> sizes{};
  for (std::size_t number = 1; number < Classes::kCount; ++number) {
    sizes[number] =
        static_cast<std::uint32_t>(Classes::bytes(number) - (C::kSecure ? Hardening::kMarkBytes : 0));
  }
  return sizes;
}
template <Configuration C>
inline constexpr auto kUsableBytes = usable_bytes_of_classes<C>();

template <Configuration C>
class ThreadCache {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;
  static constexpr std::size_t kMaxTableBytes = 1024;  // the class of a size up to this comes from a table
  // Bytes of each block that the program does not get: a hardened block's mark.
  static constexpr std::size_t kMarkBytes = C::kSecure ? Hardening::kMarkBytes : 0;

  constexpr ThreadCache(Pool& pool, std::uint32_t owner) : owner_(owner), pool_(&pool) {
    for (std::size_t i = 0; i < lists_by_size_.size(); ++i) {
      lists_by_size_[i] = &lists_[Classes::of(i * Classes::kGranule)];
    }
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      lists_[number] = {nullptr, max_blocks(number), max_blocks(number) + 1};
    }
  }

  // Takes a block for `bytes` from its list; nullptr if the list has none or the size is not in the
  // table.
  HEAPWRIGHT_INLINE Block* take(std::size_t bytes) {
    if (bytes <= kMaxTableBytes - kMarkBytes) [[likely]] {
      const std::size_t granules = (bytes + kMarkBytes + Classes::kGranule - 1) / Classes::kGranule;
      FreeList& list = *lists_by_size_[granules];
      Block* const block = list.head;
      if (block != nullptr) [[likely]] {
        list.head = next_of<C>(*pool_, block);
        return block;
      }
    }
    return nullptr;
  }
  // The same for a class by its number.
  Block* take_from(std::size_t number) {
    Block* const block = lists_[number].head;
    if (block != nullptr) {
      lists_[number].head = next_of<C>(*pool_, block);
    }
    return block;
  }
  // Puts a block on the list that a tag names. Returns false when the list is due for its check:
  // the caller then calls take_full(). For a tag of no class nothing sensible is stored; the
  // caller calls reset_list_of_no_class().
  HEAPWRIGHT_INLINE bool put(std::uint32_t offset, void* address) {
    FreeList& list = list_at(offset);
    auto* const block = static_cast<Block*>(address);
    set_next<C>(*pool_, block, list.head);
    list.head = block;
    return --list.frees_left >= 0;
  }
  void reset_list_of_no_class() { lists_[0] = {}; }

  // Offset of an address in the region; it lies in the region exactly if the offset is below
  // limit().
  [[nodiscard]] HEAPWRIGHT_INLINE std::size_t offset_in_region(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - base_;
  }
  [[nodiscard]] HEAPWRIGHT_INLINE std::size_t limit() const { return limit_; }
  [[nodiscard]] HEAPWRIGHT_INLINE std::uint32_t owner() const { return owner_; }
  // The tag of the superblock at an offset below limit().
  [[nodiscard]] HEAPWRIGHT_INLINE std::uint32_t tag_at(std::size_t offset) const {
    const std::ptrdiff_t index = Region::tag_index(offset);
    return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(base_) + index, __ATOMIC_RELAXED);
  }

  // How many blocks a list may hold when it is checked.
  [[nodiscard]] constexpr std::int32_t max_blocks(std::size_t number) const {
    const std::size_t fit = bytes_per_class_ / Classes::bytes(number);
    return static_cast<std::int32_t>(std::clamp(fit, kMinBlocks, C::kCacheBlocksPerClass));
  }
  // How many blocks a refill brings: half of that.
  [[nodiscard]] std::size_t batch_blocks(std::size_t number) const {
    return std::max(static_cast<std::size_t>(max_blocks(number)) / 2, std::size_t{1});
  }
  // Fills an empty list with linked blocks, at most `count`. A list of more than batch_blocks()
  // does not shorten the time until the next check.
  void fill(std::size_t number, Block* first, std::size_t count) {
    FreeList& list = lists_[number];
    list.head = first;
    list.frees_left = max_blocks(number) - static_cast<std::int32_t>(std::min(count, batch_blocks(number)));
    list.max_length = list.frees_left + 1 + static_cast<std::int32_t>(count);
  }
  // Called when a list is due for its check, one free after `frees_left` was 0: empties it, and
  // returns its blocks and an upper bound of their number. A list that is short already stays,
  // because the program allocates as much as it frees; then returns an empty chain.
  BlockChain take_full(std::size_t number);
  // Empties a list.
  BlockChain take_all(std::size_t number) {
    const std::int32_t max = max_blocks(number);
    const FreeList list = std::exchange(lists_[number], FreeList{nullptr, max, max + 1});
    return {list.head, static_cast<std::size_t>(list.max_length)};
  }
  // Changes the size limit of every list. All lists must be empty.
  void set_bytes_per_class(std::size_t bytes) {
    bytes_per_class_ = bytes;
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      lists_[number] = {nullptr, max_blocks(number), max_blocks(number) + 1};
    }
  }

  // Reads the bounds of the region again: it may have begun or grown.
  void update_region_bounds() {
    base_ = pool_->region.base();
    limit_ = pool_->region.bytes();
  }
  // Takes over the lists of another cache, whose fast paths fail from then on.
  void take_over(ThreadCache& other) {
    lists_ = std::exchange(other.lists_, {});
    base_ = other.base_;
    limit_ = std::exchange(other.limit_, 0);
    owner_ = other.owner_;
    bytes_per_class_ = other.bytes_per_class_;
    pool_ = other.pool_;
  }
  // Tells a reader in another process where the lists are.
  constexpr void describe(HeapLayout& layout) const {
    layout.first_lists = &lists_;
    layout.lists = Classes::kCount;
    layout.list_bytes = sizeof(FreeList);
  }
  // Calls f(class number, list) for each list. The count is an upper bound: the blocks that the list had
  // when it was last filled or checked, and those freed since then.
  template <class F>
  void each_list(F f) const {
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      if (const FreeList& list = lists_[number]; list.head != nullptr) {
        f(number, BlockChain{list.head, static_cast<std::size_t>(list.max_length - list.frees_left - 1)});
      }
    }
  }
  // Calls f(class number, block) for each cached block.
  template <class F>
  void each(F f) const {
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      for (const Block* block = lists_[number].head; block != nullptr; block = next_of<C>(*pool_, block)) {
        f(number, block);
      }
    }
  }

 private:
  // With fewer blocks, malloc would hand out large blocks that are not in the CPU's caches.
  static constexpr std::size_t kMinBlocks = 8;
  // A list of at most so many blocks, and of half the maximum, is short.
  static constexpr std::int32_t kShort = 16;

  HEAPWRIGHT_INLINE FreeList& list_at(std::size_t offset) {
    return *reinterpret_cast<FreeList*>(reinterpret_cast<char*>(lists_.data()) + offset);
  }

  std::array<FreeList, Classes::kCount> lists_{};  // first: a tag is an offset from here
  std::array<FreeList*, kMaxTableBytes / Classes::kGranule + 1> lists_by_size_{};
  std::uintptr_t base_ = 0;
  std::size_t limit_ = 0;
  std::uint32_t owner_;  // owner_tag() of this heap
  std::size_t bytes_per_class_ = C::kCacheBytesPerClass;
  Pool* pool_;
};

template <Configuration C>
BlockChain ThreadCache<C>::take_full(std::size_t number) {
  FreeList& list = lists_[number];
  const std::int32_t max = max_blocks(number);
  std::int32_t length = 0;
  for (const Block* block = list.head; block != nullptr; block = next_of<C>(*pool_, block)) {
    if (++length > std::min(max / 2, kShort)) {
      return take_all(number);
    }
  }
  list.frees_left = max;
  list.max_length = max + 1 + length;
  return {};
}

}  // namespace heapwright::alloc
