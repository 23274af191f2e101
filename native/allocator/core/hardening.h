// What a hardened heap adds, all of it checked when a block comes or goes:
//
// - Links between free blocks are stored scrambled, by a key and the place they stand at: an overwritten link
//   decodes to an address that is (but for one in 2²⁰ or so) no block of the region, and the process ends before it is
//   followed.
// - One bit a block says that the program has it: freeing twice, or an address inside a block, ends the process at
//   once, whatever happened between.
// - The last eight bytes of a block hold a value that depends on its address: writing past the end of what was asked
//   for is found at free if it reaches them.
// - Blocks are carved in random order; descriptions of superblocks, and large blocks, end in a page without access.
//
// Links, canaries and the order have keys of their own, each from the kernel: who reads canaries through a bug learns
// nothing of links, and neither is akin to the stack protector's value. A cipher would cost more than the allocator; what
// stands in memory goes through two multiplications by secret odd numbers, with the bytes reversed between them, so that
// no key is one value read xor one known.
//
//     chunk ┌───────────────┬───────────────────────────┬─ ─ ─┬───────┐
//           │ descriptions  │ bits: 512 bytes for each  │     │ guard │ superblock 1 ...
//           └───────────────┴───────────────────────────┴─ ─ ─┴───────┘
//           0               4096                        36864
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../platform/platform.h"
#include "superblock.h"

namespace heapwright::alloc {

class Hardening {
 public:
  static constexpr std::size_t kCanaryBytes = 8;

  // Before the first block.
  void start() {
    std::array<std::uint64_t, 7> bytes{};
    platform::random_bytes(bytes.data(), sizeof bytes);
    links_ = Key(bytes[0], bytes[1], bytes[2]);
    canaries_ = Key(bytes[3], bytes[4], bytes[5]);
    random_ = bytes[6];
  }

  [[nodiscard]] Block* encode(const Block* at, const Block* next) const {
    return reinterpret_cast<Block*>(links_.scramble(reinterpret_cast<std::uintptr_t>(next) ^ place(at)));
  }
  [[nodiscard]] Block* decode(const Block* at) const {
    return reinterpret_cast<Block*>(links_.restore(reinterpret_cast<std::uintptr_t>(at->next)) ^ place(at));
  }

  // The bit of a block: of the granule of 16 bytes that it begins with, among those of that superblock.
  static std::uint64_t& word(const void* block, std::uint64_t& mask) {
    const std::size_t number = reinterpret_cast<std::uintptr_t>(block) % kSuperblockBytes / 16;
    mask = std::uint64_t{1} << number % 64;
    char* const bits = reinterpret_cast<char*>(chunk_of(block)) + kBitsBegin +
                       index_in_chunk(superblock_of(block)) * kBitsEach;
    return reinterpret_cast<std::uint64_t*>(bits)[number / 64];
  }

  void write_canary(void* block, std::size_t size) const {
    const std::uint64_t value = canary(block);
    std::memcpy(static_cast<char*>(block) + size - kCanaryBytes, &value, kCanaryBytes);
  }
  [[nodiscard]] bool canary_lives(const void* block, std::size_t size) const {
    std::uint64_t value = 0;
    std::memcpy(&value, static_cast<const char*>(block) + size - kCanaryBytes, kCanaryBytes);
    return value == canary(block);
  }

  // For the order of carving.
  std::size_t random_below(std::size_t limit) {
    std::uint64_t value = __atomic_add_fetch(&random_, 0x9e3779b97f4a7c15U, __ATOMIC_RELAXED);
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return static_cast<std::size_t>((value >> 32U) * limit >> 32U);
  }

 private:
  static constexpr std::size_t kBitsBegin = 4096;
  static constexpr std::size_t kBitsEach = kSuperblockBytes / 16 / 8;
  static_assert(kBitsBegin + kSuperblocksInChunk * kBitsEach <= kSuperblockBytes - 4096);

  // A permutation of 64 bits that its three numbers choose.
  class Key {
   public:
    constexpr Key() = default;
    Key(std::uint64_t add, std::uint64_t first, std::uint64_t second)
        : add_(add),
          first_(first | 1U),
          second_(second | 1U),
          unfirst_(inverse(first_)),
          unsecond_(inverse(second_)) {}
    [[nodiscard]] std::uint64_t scramble(std::uint64_t value) const {
      return __builtin_bswap64((value ^ add_) * first_) * second_;
    }
    [[nodiscard]] std::uint64_t restore(std::uint64_t value) const {
      return (__builtin_bswap64(value * unsecond_) * unfirst_) ^ add_;
    }

   private:
    // Of an odd number, modulo 2⁶⁴: each step doubles the bits that are right, of which the number itself has three.
    static constexpr std::uint64_t inverse(std::uint64_t odd) {
      std::uint64_t result = odd;
      for (int step = 0; step < 5; ++step) {
        result *= 2 - odd * result;
      }
      return result;
    }
    std::uint64_t add_ = 0;
    std::uint64_t first_ = 1;
    std::uint64_t second_ = 1;
    std::uint64_t unfirst_ = 1;
    std::uint64_t unsecond_ = 1;
  };

  static std::uint64_t place(const void* at) { return std::rotl(reinterpret_cast<std::uintptr_t>(at), 17); }
  // Its first byte is zero, so that a text that runs into it ends there and does not show the rest.
  [[nodiscard]] std::uint64_t canary(const void* block) const {
    return canaries_.scramble(place(block)) << 8U;
  }

  Key links_;
  Key canaries_;
  std::uint64_t random_ = 0;
};

}  // namespace heapwright::alloc
