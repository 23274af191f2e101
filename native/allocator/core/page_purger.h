// Purges pages of a superblock that hold only free blocks, while other blocks of the superblock are
// still allocated.
//
// After a peak of memory use, the surviving blocks are spread thinly: a tenth of the blocks can pin
// every superblock. When three quarters of a superblock's blocks have become free, and again at
// seven eighths, the superblock begins to wait. A heap has room for kMaxWaiting of them, many heaps for
// kMaxWaitingOfAll together, because a heap whose thread sleeps keeps them. When another one comes, the
// purger returns the wholly free pages of the oldest to the kernel. Two conditions must hold: the heap's
// free blocks hold more memory than its share of what free superblocks may hold, and the region's budget
// for premature purges is not spent (region.h).
//
// They wait because most superblocks that become three quarters free become wholly free soon after, in
// a program that frees blocks in the order of their allocation. The region then gets them whole; pages
// that were purged one by one before would have cost system calls under the pool's lock
// (docs/design-notes/handovers.md has figures).
//
// A purged page reads as zero, so links on it are lost. Blocks that touch a purged page therefore
// leave the superblock's free list. The bits in `purged_pages` are enough to find them again:
//
//     Every carved block that touches a page whose bit is set is free, and is not in the free list.
//
// It follows that a page that reaches into uncarved memory is never purged. `free_count` includes
// the blocks on purged pages. Each superblock's description has 16 bits; one bit stands for a page
// of at least 4 KiB.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "free_list.h"

namespace heapwright::alloc {

template <Configuration C>
class PagePurger {
 public:
  constexpr explicit PagePurger(Pool& pool) : pool_(&pool) {}

  // Bytes in the free blocks of the heap's superblocks, without the current superblocks.
  // The heap's thread reads it without the heap's lock, which those who change it hold.
  [[nodiscard]] std::size_t idle_bytes() const { return load_shared(idle_bytes_); }
  void add_idle(std::size_t bytes) { store_shared(idle_bytes_, idle_bytes_ + bytes); }
  void remove_idle(std::size_t bytes) { store_shared(idle_bytes_, idle_bytes_ - bytes); }

  // Must be called after a superblock's number of free blocks has risen from `before`. The superblock
  // begins to wait if it has become free enough; the one that has waited longest is purged if there is
  // no more room.
  void after_frees(Superblock* superblock, std::uint32_t before) {
    const std::size_t heaps = pool_->heaps();
    if (superblock->size < kMinPurgedBytes || superblock->current ||
        idle_bytes_ <= pool_->region.settings.keep_bytes / heaps) {
      return;
    }
    const std::uint32_t now = superblock->free_count;
    const std::uint32_t all = superblock->carved;
    const bool crossed =
        (before * 4 < all * 3 && now * 4 >= all * 3) || (before * 8 < all * 7 && now * 8 >= all * 7);
    if (!crossed || waits(superblock)) {
      return;
    }
    const std::size_t room = std::clamp(kMaxWaitingOfAll / heaps, std::size_t{1}, kMaxWaiting);
    while (waiting_count_ >= room) {
      Superblock* const oldest = waiting_[0];
      forget(oldest);
      purge_if_worthwhile(oldest);
    }
    waiting_[waiting_count_++] = superblock;
  }
  // Must be called before a superblock becomes current or leaves its queue: it does not wait any more.
  void forget(const Superblock* superblock) {
    const auto end = waiting_.begin() + waiting_count_;
    if (const auto found = std::find(waiting_.begin(), end, superblock); found != end) {
      std::copy(found + 1, end, found);
      --waiting_count_;
    }
  }
  // Forgets everything: another purger has taken it over.
  void clear() { idle_bytes_ = waiting_count_ = 0; }
  // Called when no superblock should wait any longer: the heap's thread ends, or the heap is flushed.
  void purge_waiting() {
    while (waiting_count_ > 0) {
      purge_if_worthwhile(waiting_[--waiting_count_]);
    }
  }
  // Purges every wholly free page of a superblock. The caller holds the pool's lock.
  void purge(Superblock* superblock) const;
  // Uses purged pages of a superblock again, the first ones, until its empty free list has a block
  // or no page is left.
  void reuse(Superblock* superblock) const;

 private:
  static constexpr std::size_t kMaxWaiting = 16;
  static constexpr std::size_t kMaxWaitingOfAll = 64;

  [[nodiscard]] bool waits(const Superblock* superblock) const {
    const auto end = waiting_.begin() + waiting_count_;
    return std::find(waiting_.begin(), end, superblock) != end;
  }
  void purge_if_worthwhile(Superblock* superblock) const {
    const Pool::Guard guard(*pool_);
    const std::size_t share = pool_->region.allowance() * kSuperblockBytes / pool_->heaps();
    if (idle_bytes_ > share && pool_->region.may_purge()) {
      purge(superblock);
    }
  }
  // The bits of the pages that a block touches, which begins at offset `begin` of its superblock.
  static std::uint32_t pages_of(std::size_t begin, std::size_t size) {
    const std::size_t page = purged_page_bytes();
    return (2U << (begin + size - 1) / page) - (1U << begin / page);
  }
  static bool touches_no_purged_page(const Superblock* superblock, std::size_t begin) {
    return (superblock->purged_pages & pages_of(begin, superblock->size)) == 0;
  }
  [[nodiscard]] std::uint32_t wholly_free_pages(const Superblock* superblock) const;

  std::size_t idle_bytes_ = 0;
  // Superblocks of this heap's queues that wait, the oldest first. None of them is current.
  std::array<Superblock*, kMaxWaiting> waiting_{};
  std::size_t waiting_count_ = 0;
  Pool* pool_;
};

// Returns a bit for each page that is not purged yet and on which every byte belongs to a free block, or
// lies before the first block or behind the last. The free list lacks the free blocks that touch a purged
// page.
template <Configuration C>
std::uint32_t PagePurger<C>::wholly_free_pages(const Superblock* superblock) const {
  const std::size_t page = purged_page_bytes();
  const char* const memory = memory_of(superblock);
  std::array<std::uint32_t, 16> free_bytes{};
  free_bytes[0] = superblock->first;
  const std::size_t blocks_end = superblock->first + superblock->capacity * superblock->size;
  if (superblock->carved == superblock->capacity && kSuperblockBytes - blocks_end < page) {
    free_bytes[kSuperblockBytes / page - 1] += static_cast<std::uint32_t>(kSuperblockBytes - blocks_end);
  }
  const auto add = [&](std::size_t begin) {
    for (const std::size_t end = begin + superblock->size; begin < end;) {
      const std::size_t next = std::min(end, (begin / page + 1) * page);
      free_bytes[begin / page] += static_cast<std::uint32_t>(next - begin);
      begin = next;
    }
  };
  std::uint32_t count = 0;
  for (const Block* block = superblock->free; block != nullptr; block = next_of<C>(*pool_, block)) {
    const auto begin = static_cast<std::size_t>(reinterpret_cast<const char*>(block) - memory);
    if (begin > kSuperblockBytes - superblock->size || ++count > superblock->free_count) {
      return 0;  // the program has written to a free block
    }
    add(begin);
  }
  if (superblock->purged_pages != 0) {
    for (std::size_t i = 0, begin = superblock->first; i < superblock->carved;
         ++i, begin += superblock->size) {
      if (!touches_no_purged_page(superblock, begin)) {
        add(begin);
      }
    }
  }
  std::uint32_t pages = 0;
  for (std::size_t i = 0; i < kSuperblockBytes / page; ++i) {
    pages |= (free_bytes[i] == page ? 1U : 0U) << i;
  }
  return pages & ~std::uint32_t{superblock->purged_pages};
}

template <Configuration C>
void PagePurger<C>::purge(Superblock* superblock) const {
  std::uint32_t pages = wholly_free_pages(superblock);
  if (pages == 0) {
    return;
  }
  const std::size_t page = purged_page_bytes();
  char* const memory = memory_of(superblock);
  superblock->purged_pages |= static_cast<std::uint16_t>(pages);
  Block* resident = nullptr;  // the free list without the blocks that lose their links
  for (Block* block = superblock->free; block != nullptr;) {
    Block* const next = next_of<C>(*pool_, block);
    if (touches_no_purged_page(superblock,
                               static_cast<std::size_t>(reinterpret_cast<char*>(block) - memory))) {
      set_next<C>(*pool_, block, resident);
      resident = block;
    }
    block = next;
  }
  superblock->free = resident;
  pool_->region.before_purge(superblock);
  pool_->region.count_purged(static_cast<std::size_t>(std::popcount(pages)) * page);
  while (pages != 0) {  // neighbouring pages in one system call
    const auto first = static_cast<std::size_t>(std::countr_zero(pages));
    const auto run = static_cast<std::size_t>(std::countr_one(pages >> first));
    platform::purge(memory + first * page, run * page);
    pages &= pages + (1U << first);
  }
}

template <Configuration C>
void PagePurger<C>::reuse(Superblock* superblock) const {
  const std::size_t page = purged_page_bytes();
  const std::size_t size = superblock->size;
  char* const memory = memory_of(superblock);
  const Pool::Guard guard(*pool_);
  while (superblock->purged_pages != 0 && superblock->free == nullptr) {
    const auto i = static_cast<std::size_t>(std::countr_zero(superblock->purged_pages));
    superblock->purged_pages &= static_cast<std::uint16_t>(superblock->purged_pages - 1U);
    pool_->region.count_reused(page);
    const std::size_t first = superblock->first;
    const std::size_t end = std::min(first + superblock->carved * size, (i + 1) * page);
    for (std::size_t begin = first + (i * page - std::min(i * page, first)) / size * size; begin < end;
         begin += size) {
      if (touches_no_purged_page(superblock, begin)) {
        auto* const block = reinterpret_cast<Block*>(memory + begin);
        set_next<C>(*pool_, block, superblock->free);
        superblock->free = block;
      }
    }
  }
}

}  // namespace heapwright::alloc
