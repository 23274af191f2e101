// Manages the blocks of one superblock: describes a new superblock, carves blocks from its unused
// memory, splits its free list.
//
// These functions have no state. Their caller owns the superblock and keeps its `free_count`.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "free_list.h"
#include "size_classes.h"

namespace heapwright::alloc {

// Linked blocks and how many there are.
struct BlockChain {
  Block* first = nullptr;
  std::size_t count = 0;
};

// Linked blocks as one word, which threads exchange: 16 bits of length, 48 of address; 0: none.
inline constexpr unsigned kChainLengthShift = 48;
static_assert(kAddressLimit == std::size_t{1} << kChainLengthShift);
inline std::uint64_t pack(BlockChain list) {
  return std::uint64_t{list.count} << kChainLengthShift | reinterpret_cast<std::uintptr_t>(list.first);
}
inline BlockChain unpack(std::uint64_t word) {
  return {reinterpret_cast<Block*>(word % kAddressLimit), word >> kChainLengthShift};
}

// Returns whether a block of the superblock begins at `address`. In granules of 16 bytes from the
// first block on, with r = ⌈2³²/size⌉: the low half of offset·r is at most the offset, and so below
// 2¹⁶, for a multiple of the size, and at least r > 2¹⁶ for everything else. An address before the
// first block has an offset of 2¹⁶ less at most `first`. That is no multiple of the size, because
// `first` is less than a power of two that divides the size.
inline bool begins_block(const Superblock* superblock, const void* address) {
  const std::uint32_t offset =
      static_cast<std::uint16_t>(reinterpret_cast<std::uintptr_t>(address) - superblock->first);
  return offset / 16 * superblock->reciprocal < kSuperblockBytes && offset % 16 == 0;
}
static_assert(kSuperblockBytes == 1U << 16U);  // the offset has 16 bits

// Returns whether the superblock can still hand out a block: a free one, an uncarved one or one on
// a purged page. The last test also finds free bits, which are in the same field.
inline bool has_blocks(const Superblock* superblock) {
  return superblock->free != nullptr || superblock->carved < superblock->capacity ||
         superblock->purged_pages != 0;
}

// Returns a superblock's colour, of `colours`. A multiple of the golden ratio spreads them evenly also
// where a class has every second or every third superblock only.
inline std::size_t colour_of(const Superblock* superblock, std::size_t colours) {
  constexpr std::size_t kGoldenRatio = 39;  // 64ths
  return index_in_chunk(superblock) * kGoldenRatio % kSuperblocksInChunk * colours / kSuperblocksInChunk;
}

// Describes a superblock just taken from the region as one of blocks of `size` bytes, none of them
// carved. The region has cleared `purged_pages`.
inline void describe_superblock(Superblock* superblock, std::size_t class_number, std::size_t size,
                                std::size_t colours = 1) {
  superblock->free = nullptr;
  store_shared(superblock->free_count, 0U);
  store_shared(superblock->carved, 0U);
  superblock->first = static_cast<std::uint16_t>(colour_of(superblock, colours) * kCacheLineBytes);
  superblock->capacity =
      static_cast<std::uint16_t>((kSuperblockBytes - (colours - 1) * kCacheLineBytes) / size);
  store_shared(superblock->size, static_cast<std::uint32_t>(size));
  superblock->reciprocal =
      static_cast<std::uint32_t>(((std::uint64_t{1} << 32U) + size / 16 - 1) / (size / 16));
  superblock->size_class = static_cast<std::uint8_t>(class_number);
  store_shared(superblock->current, false);
  store_shared(superblock->shared, false);
  store_shared(superblock->quick_limit, 0U);
  set_kind(superblock, Kind::kBlocks);
}

// A hardened build carves at least this many blocks at a time: enough for an order that an
// attacker cannot guess.
template <Configuration C>
inline constexpr std::size_t kMinCarved =
    C::kSecure ? std::min(std::size_t{8}, std::size_t{C::kCacheBlocksPerClass}) : 1;

// Links `count` neighbouring blocks in random order.
template <Configuration C>
Block* link_shuffled(Pool& pool, char* first, std::size_t size, std::size_t count) {
  std::array<std::uint16_t, C::kCacheBlocksPerClass> order{};
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t j = pool.hardening.random_below(i + 1);
    order[i] = order[j];
    order[j] = static_cast<std::uint16_t>(i);
  }
  Block* head = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    auto* const block = reinterpret_cast<Block*>(first + order[i] * size);
    set_next<C>(pool, block, head);
    head = block;
  }
  return head;
}

// Carves up to `max_count` blocks that were never handed out. In new memory all of them begin on one
// page, so that no page is touched before it is needed.
template <Configuration C>
BlockChain carve(Pool& pool, Superblock* superblock, std::size_t max_count) {
  const std::size_t size = superblock->size;
  const std::size_t begin = superblock->first + superblock->carved * size;
  const std::size_t page_end = round_up(begin + 1, platform::page_size());
  const std::size_t on_page = std::max((page_end - begin + size - 1) / size, kMinCarved<C>);
  const std::size_t uncarved = superblock->capacity - superblock->carved;
  const std::size_t count = std::min({max_count, superblock->touched ? max_count : on_page, uncarved});
  char* const first = memory_of(superblock) + begin;
  store_shared(superblock->carved, superblock->carved + static_cast<std::uint32_t>(count));
  if constexpr (C::kSecure) {
    return {link_shuffled<C>(pool, first, size, count), count};
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    set_next<C>(pool, reinterpret_cast<Block*>(first + i * size),
                reinterpret_cast<Block*>(first + (i + 1) * size));
  }
  set_next<C>(pool, reinterpret_cast<Block*>(first + (count - 1) * size), nullptr);
  return {reinterpret_cast<Block*>(first), count};
}

// Takes the first blocks, at most `max_count`, from a superblock's free list, which has at least
// one.
template <Configuration C>
BlockChain split_free_list(const Pool& pool, Superblock* superblock, std::size_t max_count) {
  Block* const first = superblock->free;
  Block* last = first;
  Block* next = next_of<C>(pool, last);
  std::size_t count = 1;
  for (; count < max_count && next != nullptr; ++count) {
    last = next;
    next = next_of<C>(pool, last);
  }
  superblock->free = next;
  set_next<C>(pool, last, nullptr);
  return {first, count};
}

// Shortens a list to at most `max_count` blocks, and returns the rest of it.
template <Configuration C>
BlockChain split_list(const Pool& pool, BlockChain& list, std::size_t max_count) {
  Block* last = list.first;
  std::size_t count = 1;
  for (Block* next = next_of<C>(pool, last); count < max_count && next != nullptr;
       next = next_of<C>(pool, last)) {
    last = next;
    ++count;
  }
  const BlockChain rest{next_of<C>(pool, last), list.count - count};
  set_next<C>(pool, last, nullptr);
  list.count = count;
  return rest;
}

// Returns whether a list contains a cycle: it has more blocks, by up to three, than its bound
// allows.
template <Configuration C>
bool has_cycle(const Pool& pool, BlockChain list) {
  const Block* block = list.first;
  for (std::size_t fours = list.count / 4 + 1; fours > 0; --fours) {
    for (int i = 0; i < 4; ++i) {
      if (block == nullptr) {
        return false;
      }
      block = next_of<C>(pool, block);
    }
  }
  return block != nullptr;
}

// Returns the first block that a list with a cycle reaches a second time.
template <Configuration C>
const Block* first_repeated(const Pool& pool, const Block* first) {
  std::size_t before = 0;
  for (const Block* block = first;; block = next_of<C>(pool, block), ++before) {
    const Block* earlier = first;
    for (std::size_t i = 0; i < before; ++i, earlier = next_of<C>(pool, earlier)) {
      if (earlier == block) {
        return block;
      }
    }
  }
}

// Checks the blocks of a list: takes addresses inside blocks out, and drops a list with a cycle (a
// double free). It reports both. Returns the list, now with its exact length.
template <Configuration C>
BlockChain check_list(const Pool& pool, BlockChain list) {
  BlockChain checked{};
  Block* last = nullptr;
  for (Block* block = list.first; block != nullptr; block = next_of<C>(pool, block)) {
    if (checked.count == list.count) [[unlikely]] {
      pool.report(first_repeated<C>(pool, list.first), Fault::kDoubleFree);
      return {};
    }
    if (!begins_block(superblock_of(block), block)) [[unlikely]] {
      pool.report(block, Fault::kInterior);
      --list.count;
      continue;
    }
    if (last == nullptr) {
      checked.first = block;
    } else if (last->next != block) {
      set_next<C>(pool, last, block);
    }
    last = block;
    ++checked.count;
  }
  if (last != nullptr) {
    set_next<C>(pool, last, nullptr);
  }
  return checked;
}

// Puts linked blocks in front of a superblock's free list.
template <Configuration C>
void prepend_blocks(const Pool& pool, Superblock* superblock, Block* first) {
  if (superblock->free != nullptr) {
    Block* last = first;
    for (Block* next = next_of<C>(pool, last); next != nullptr; next = next_of<C>(pool, last)) {
      last = next;
    }
    set_next<C>(pool, last, superblock->free);
  }
  superblock->free = first;
}

}  // namespace heapwright::alloc
