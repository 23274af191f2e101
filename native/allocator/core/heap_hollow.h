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

#include "heap.h"

namespace heapwright::alloc {

namespace hollow {

inline std::size_t page_bytes() { return std::max(platform::page_size(), kSuperblockBytes / 16); }
inline bool is_set(const Superblock* first, std::size_t page, std::size_t in_each) {
  return (first[page / in_each].hollow >> page % in_each & 1U) != 0;
}

}  // namespace hollow

// Which blocks touch no hollow page.
template <Configuration C>
bool Heap<C>::is_solid(const Superblock* superblock, std::size_t begin) {
  const std::size_t page = hollow::page_bytes();
  for (std::size_t i = begin / page; i <= (begin + superblock->size - 1) / page; ++i) {
    if (hollow::is_set(superblock, i, kSuperblockBytes / page)) {
      return false;
    }
  }
  return true;
}

template <Configuration C>
bool Heap<C>::is_hollow(const Superblock* superblock) {
  for (std::size_t i = 0; i < superblock->length; ++i) {
    if (superblock[i].hollow != 0) {
      return true;
    }
  }
  return false;
}

// Called when the number of free blocks has risen from `before`.
template <Configuration C>
void Heap<C>::maybe_hollow(Superblock* superblock, std::uint32_t before) {
  const std::uint32_t now = superblock->free_count;
  const std::uint32_t all = superblock->carved;
  const bool crossed =
      (before * 4 < all * 3 && now * 4 >= all * 3) || (before * 8 < all * 7 && now * 8 >= all * 7);
  if (!crossed || superblock->size < kHollowFrom || idle_bytes_ <= region().settings.keep_bytes) {
    return;
  }
  const Pool::Guard guard(*pool_);
  if (idle_bytes_ > region().allowance() * kSuperblockBytes && region().may_purge()) {
    hollow_out(superblock);
  }
}

template <Configuration C>
void Heap<C>::hollow_out(Superblock* superblock) {
  const std::size_t page = hollow::page_bytes();
  const std::size_t in_each = kSuperblockBytes / page;
  const std::size_t pages = superblock->length * in_each;
  char* const memory = memory_of(superblock);
  std::array<std::uint32_t, 16 * 16> free_bytes{};
  const auto add = [&](std::size_t begin, std::size_t end) {
    while (begin < end) {
      const std::size_t next = std::min(end, (begin / page + 1) * page);
      free_bytes[begin / page] += static_cast<std::uint32_t>(next - begin);
      begin = next;
    }
  };
  for (const Block* block = superblock->free; block != nullptr; block = next_of(block)) {
    const auto begin = static_cast<std::size_t>(reinterpret_cast<const char*>(block) - memory);
    add(begin, begin + superblock->size);
  }
  std::size_t given = 0;
  for (std::size_t i = 0; i < pages; ++i) {
    if (free_bytes[i] == page) {
      superblock[i / in_each].hollow |= static_cast<std::uint16_t>(1U << i % in_each);
      ++given;
    }
  }
  if (given == 0) {
    return;
  }
  Block* solid = nullptr;  // the list without the blocks that lose their links
  for (Block* block = superblock->free; block != nullptr;) {
    Block* const next = next_of(block);
    if (is_solid(superblock, static_cast<std::size_t>(reinterpret_cast<char*>(block) - memory))) {
      set_next(block, solid);
      solid = block;
    }
    block = next;
  }
  superblock->free = solid;
  for (std::size_t i = 0; i < pages;) {
    std::size_t end = i;
    while (end < pages && free_bytes[end] == page) {
      ++end;
    }
    if (end > i) {
      platform::purge(memory + i * page, (end - i) * page);
    }
    i = end + 1;
  }
  region().count_purged(given * page);
}

// Nothing is left in the list: takes hollow pages back into use, the first ones, until they hold a block.
template <Configuration C>
void Heap<C>::refill_hollow(Superblock* superblock) {
  const std::size_t page = hollow::page_bytes();
  const std::size_t in_each = kSuperblockBytes / page;
  const std::size_t size = superblock->size;
  char* const memory = memory_of(superblock);
  const Pool::Guard guard(*pool_);
  for (std::size_t i = 0; i < superblock->length * in_each && superblock->free == nullptr; ++i) {
    if (!hollow::is_set(superblock, i, in_each)) {
      continue;
    }
    superblock[i / in_each].hollow &= static_cast<std::uint16_t>(~(1U << i % in_each));
    region().wanted_again(page);
    for (std::size_t number = i * page / size; number < superblock->carved && number * size < (i + 1) * page;
         ++number) {
      if (is_solid(superblock, number * size)) {
        auto* const block = reinterpret_cast<Block*>(memory + number * size);
        set_next(block, superblock->free);
        superblock->free = block;
      }
    }
  }
}

}  // namespace heapwright::alloc
