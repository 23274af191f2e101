// What a hardened heap adds, all of it checked when a block comes or goes:
//
// - Links between free blocks are stored xor a secret and the place they stand at: an overwritten link
// decodes to an
//   address that is (but for one in 2²⁰ or so) no block of the region, and the process ends before it is
//   followed.
// - One bit a block says that the program has it: freeing twice, or an address inside a block, ends the
// process at
//   once, whatever happened between.
// - The last eight bytes of a block hold a value that depends on its address: writing past the end of what
// was asked
//   for is found at free if it reaches them.
// - Blocks are carved in random order; descriptions of superblocks, and large blocks, end in a page without
// access.
//
//     chunk ┌───────────────┬───────────────────────────┬─ ─ ─┬───────┐
//           │ descriptions  │ bits: 512 bytes for each  │     │ guard │ superblock 1 ...
//           └───────────────┴───────────────────────────┴─ ─ ─┴───────┘
//           0               4096                        36864
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "superblock.h"

namespace heapwright::alloc {

class Hardening {
 public:
  static constexpr std::size_t kCanaryBytes = 8;

  void start(std::uint64_t seed) { secret_ = seed * 0x9e3779b97f4a7c15U | 1U; }

  [[nodiscard]] Block* encode(const Block* at, const Block* next) const {
    return reinterpret_cast<Block*>(reinterpret_cast<std::uintptr_t>(next) ^ key(at));
  }
  [[nodiscard]] Block* decode(const Block* at) const { return encode(at, at->next); }

  // The bit of a block: of the granule of 16 bytes that it begins with, among those of that superblock.
  static std::uint64_t& word(const void* block, std::uint64_t& mask) {
    const std::size_t number = reinterpret_cast<std::uintptr_t>(block) % kSuperblockBytes / 16;
    mask = std::uint64_t{1} << number % 64;
    char* const bits = reinterpret_cast<char*>(chunk_of(block)) + kBitsBegin +
                       index_in_chunk(superblock_of(block)) * kBitsEach;
    return reinterpret_cast<std::uint64_t*>(bits)[number / 64];
  }

  void write_canary(void* block, std::size_t size) const {
    const std::uint64_t value = key(static_cast<Block*>(block));
    std::memcpy(static_cast<char*>(block) + size - kCanaryBytes, &value, kCanaryBytes);
  }
  [[nodiscard]] bool canary_lives(const void* block, std::size_t size) const {
    std::uint64_t value = 0;
    std::memcpy(&value, static_cast<const char*>(block) + size - kCanaryBytes, kCanaryBytes);
    return value == key(static_cast<const Block*>(block));
  }

  // For the order of carving.
  std::size_t random_below(std::size_t limit) {
    const std::uint64_t next = __atomic_load_n(&random_, __ATOMIC_RELAXED) * 6364136223846793005U + secret_;
    __atomic_store_n(&random_, next, __ATOMIC_RELAXED);  // two threads may get the same order
    return static_cast<std::size_t>((next >> 32U) * limit >> 32U);
  }

 private:
  static constexpr std::size_t kBitsBegin = 4096;
  static constexpr std::size_t kBitsEach = kSuperblockBytes / 16 / 8;
  static_assert(kBitsBegin + kSuperblocksInChunk * kBitsEach <= kSuperblockBytes - 4096);

  [[nodiscard]] std::uint64_t key(const Block* at) const {
    return secret_ ^ std::rotl(reinterpret_cast<std::uintptr_t>(at), 17);
  }
  std::uint64_t secret_ = 1;
  std::uint64_t random_ = 0;
};

}  // namespace heapwright::alloc
