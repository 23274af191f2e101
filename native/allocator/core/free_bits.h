// Keeps free bits: for each block of a superblock one bit, which is set while the block is free and
// in no list.
//
// Blocks that are freed in random order would form a free list in random order. A thread that takes
// blocks from such a list reads the next link from memory that no CPU cache holds, and waits for it
// each time. Bits do not keep the order of the frees: a block returns by setting its bit, and
// neighbouring blocks are taken together. The program then gets blocks in the order of addresses,
// which the processor fetches ahead.
//
//     chunk, superblock 0:  0        4 KiB              36 KiB
//                           ├ descr. ┼ bits 1 … bits 63 ┼ ...
//
// Each superblock has 512 bytes: one bit for each granule of 16 bytes. The first `capacity` bits
// are used.
//
// Only superblocks of blocks below kMinPurgedBytes have free bits; page_purger.h works with the
// lists of the others. Hardened builds have their own bits in the same place, and no free bits.
//
// Invariant: `free_bits` in the superblock's description is the number of bits that are set. A
// thread that may change the superblock's free list may change them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "carving.h"

namespace heapwright::alloc {

class FreeBits {
 public:
  explicit FreeBits(Superblock* superblock)
      : superblock_(superblock), words_(words_of(memory_of(superblock))) {}

  // Whether superblocks with blocks of `size` bytes have free bits.
  static constexpr bool fit(std::size_t size) { return size < kMinPurgedBytes; }

  // Numbers the blocks of a size: offset · factor is the number in 2³⁶ths. In the fraction, the
  // bits 20 to 35 are 0 exactly where a block begins: see begins_block(). The reciprocal of one
  // granule, 2³², is stored as 0.
  static std::uint64_t factor(const Superblock* superblock) {
    return std::uint64_t{superblock->reciprocal - 1U} + 1;
  }
  // Sets the bit of a block of `superblock`. Returns false, and changes nothing, if it is set
  // already (a double free) or no block begins there.
  static HEAPWRIGHT_INLINE bool add(Superblock* superblock, const Block* block, std::uint64_t factor) {
    const auto offset = static_cast<std::uint16_t>(reinterpret_cast<std::uintptr_t>(block));
    const std::uint64_t product = offset * factor;
    const std::uint64_t number = product >> 36U;
    std::uint64_t& word = words_of(block)[number / 64];
    const std::uint64_t found = word;
    if (static_cast<std::uint16_t>(product >> 20U) != 0 || (found >> number % 64 & 1U) != 0) [[unlikely]] {
      return false;
    }
    word = found | std::uint64_t{1} << number % 64;
    ++superblock->free_bits;
    return true;
  }
  // Takes up to `max_count` blocks in the order of addresses, linked.
  template <Configuration C>
  BlockChain take(const Pool& pool, std::size_t max_count) {
    const std::size_t size = superblock_->size;
    const std::size_t count = std::min<std::size_t>(max_count, superblock_->free_bits);
    BlockChain result{nullptr, count};
    Block* last = nullptr;
    std::uint64_t* word = words_;
    char* memory = memory_of(superblock_);
    for (std::size_t left = count; left > 0; ++word, memory += 64 * size) {
      for (; *word != 0 && left > 0; --left, *word &= *word - 1) {
        auto* const block =
            reinterpret_cast<Block*>(memory + static_cast<std::size_t>(std::countr_zero(*word)) * size);
        if (last == nullptr) {
          result.first = block;
        } else {
          set_next<C>(pool, last, block);
        }
        last = block;
      }
    }
    if (last != nullptr) {
      set_next<C>(pool, last, nullptr);
    }
    superblock_->free_bits = static_cast<std::uint16_t>(superblock_->free_bits - count);
    return result;
  }
  // Clears all bits.
  void clear() {
    std::fill_n(words_, (superblock_->capacity + 63) / 64, std::uint64_t{0});
    superblock_->free_bits = 0;
  }
  // Tells a reader in another process where the bits are.
  static constexpr void describe(HeapLayout& layout) {
    layout.free_bits_begin = kBitsBegin;
    layout.free_bits_bytes = kBitBytesPerSuperblock;
    layout.free_bits_below = kMinPurgedBytes;
  }

 private:
  static_assert(kSuperblockBytes == 1U << 16U);  // add() finds an offset by its 16 bits

  // Where the bits of the superblock of `address` are.
  static std::uint64_t* words_of(const void* address) {
    const std::size_t index =
        reinterpret_cast<std::uintptr_t>(address) / kSuperblockBytes % kSuperblocksInChunk;
    return reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(chunk_of(address)) + kBitsBegin +
                                            index * kBitBytesPerSuperblock);
  }

  Superblock* superblock_;
  std::uint64_t* words_;
};

}  // namespace heapwright::alloc
