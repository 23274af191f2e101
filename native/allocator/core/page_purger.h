// Pages of a superblock that hold nothing but free blocks go back to the kernel while others of its blocks live on.
//
// After a fall, what survives is spread thinly: a tenth of the blocks can pin every superblock. When three quarters of a
// superblock's blocks have become free, and again at seven eighths, its wholly free pages are given back, if the heap
// has more in free blocks than free superblocks may hold, and there is time earned for it (region.h). The blocks that
// touch such a page leave the list of free blocks, for their links would be lost; they are found again from the pages'
// bits alone:
//
//     every carved block that touches a page whose bit is set is free, and not in the list.
//
// So a page that reaches into what is not carved yet never is hollow.
// `free_count` counts them with the others. Bits stand in the description of each 64 KiB; a bit is a page of at least
// 4 KiB.
#pragma once

#include <array>
#include <bit>

namespace heapwright::alloc {

namespace page_bits {

inline std::size_t page_bytes() { return std::max(platform::page_size(), kSuperblockBytes / 16); }
// The bits of the pages that a block touches.
inline std::uint32_t pages_of(std::size_t begin, std::size_t size) {
  const std::size_t page = page_bytes();
  return (2U << (begin + size - 1) / page) - (1U << begin / page);
}

}  // namespace page_bits

// Whether a block touches no hollow page.
template <Configuration C>
bool Heap<C>::is_resident(const Superblock* superblock, std::size_t begin) {
  return (superblock->purged_pages & page_bits::pages_of(begin, superblock->size)) == 0;
}

// Called when the number of free blocks has risen from `before`.
template <Configuration C>
void Heap<C>::maybe_purge_pages(Superblock* superblock, std::uint32_t before) {
  const std::uint32_t now = superblock->free_count;
  const std::uint32_t all = superblock->carved;
  const bool crossed =
      (before * 4 < all * 3 && now * 4 >= all * 3) || (before * 8 < all * 7 && now * 8 >= all * 7);
  if (!crossed || superblock->size < kMinPurgeBlockBytes || idle_bytes_ <= region().settings.keep_bytes) {
    return;
  }
  const Pool::Guard guard(*pool_);
  if (idle_bytes_ > region().allowance() * kSuperblockBytes && region().may_purge()) {
    purge_pages(superblock);
  }
}

template <Configuration C>
void Heap<C>::purge_pages(Superblock* superblock) {
  const std::size_t page = page_bits::page_bytes();
  const std::size_t pages = kSuperblockBytes / page;
  char* const memory = memory_of(superblock);
  std::array<std::uint32_t, 16> free_bytes{};
  for (const Block* block = superblock->free; block != nullptr; block = next_of(block)) {
    auto begin = static_cast<std::size_t>(reinterpret_cast<const char*>(block) - memory);
    for (const std::size_t end = begin + superblock->size; begin < end;) {
      const std::size_t next = std::min(end, (begin / page + 1) * page);
      free_bytes[begin / page] += static_cast<std::uint32_t>(next - begin);
      begin = next;
    }
  }
  std::uint32_t given = 0;
  for (std::size_t i = 0; i < pages; ++i) {
    given |= (free_bytes[i] == page ? 1U : 0U) << i;
  }
  if (given == 0) {
    return;
  }
  superblock->purged_pages |= static_cast<std::uint16_t>(given);
  Block* resident = nullptr;  // the list without the blocks that lose their links
  for (Block* block = superblock->free; block != nullptr;) {
    Block* const next = next_of(block);
    if (is_resident(superblock, static_cast<std::size_t>(reinterpret_cast<char*>(block) - memory))) {
      set_next(block, resident);
      resident = block;
    }
    block = next;
  }
  superblock->free = resident;
  region().count_purged(static_cast<std::size_t>(std::popcount(given)) * page);
  while (given != 0) {  // a run of pages at once
    const auto first = static_cast<std::size_t>(std::countr_zero(given));
    const auto run = static_cast<std::size_t>(std::countr_one(given >> first));
    platform::purge(memory + first * page, run * page);
    given &= given + (1U << first);
  }
}

// Nothing is left in the list: takes hollow pages back into use, the first ones, until they hold a block.
template <Configuration C>
void Heap<C>::reuse_purged_pages(Superblock* superblock) {
  const std::size_t page = page_bits::page_bytes();
  const std::size_t size = superblock->size;
  char* const memory = memory_of(superblock);
  const Pool::Guard guard(*pool_);
  while (superblock->purged_pages != 0 && superblock->free == nullptr) {
    const auto i = static_cast<std::size_t>(std::countr_zero(superblock->purged_pages));
    superblock->purged_pages &= static_cast<std::uint16_t>(superblock->purged_pages - 1U);
    region().count_reused(page);
    for (std::size_t number = i * page / size; number < superblock->carved && number * size < (i + 1) * page;
         ++number) {
      if (is_resident(superblock, number * size)) {
        auto* const block = reinterpret_cast<Block*>(memory + number * size);
        set_next(block, superblock->free);
        superblock->free = block;
      }
    }
  }
}

}  // namespace heapwright::alloc
