// What a hardened heap adds, all of it checked when a block comes or goes:
//
// - Links between free blocks are stored scrambled, by a key and the place they stand at: an overwritten link
//   decodes to an address that is (but for one in 2²⁰ or so) no block of the region, and the process ends before it is
//   followed.
// - One bit a block says that the program has it: freeing twice, or an address inside a block, ends the process at
//   once, whatever happened between.
// - A block carries a mark of eight bytes, half of it right behind what was asked for and half at its slot's end:
//
//       ├─ what was asked for ─┤ 0 · 3 bytes of canary ├─ slack, if any ─┤ slack, origin: 4 bytes, encoded ┤
//
//   Both depend on the block's address. Writing past the end of what was asked for is found when the block is freed; so
//   is a `delete` that names another size, or that does not fit how the block was allocated (`Origin`).
// - What is freed reads as zero from then on, and is looked at when it is handed out again: a write after free is found.
//   It first waits in a quarantine (quarantine.h).
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

// How a block was allocated, and so how it must be freed.
enum class Origin : std::uint8_t { kMalloc, kNew, kNewArray };

// What whoever frees a block says of it.
struct FreedAs {
  Origin origin = Origin::kMalloc;
  std::size_t bytes = SIZE_MAX;  // nothing
};

class Hardening {
 public:
  static constexpr std::size_t kMarkBytes = 8;

  bool wipes = true;                           // what is freed, and looks at it when it is handed out again
  static constexpr std::size_t kEndBytes = 4;  // of the mark, those behind what was asked for

  // Before the first block.
  void start() {
    std::array<std::uint64_t, 7> bytes{};
    platform::random_bytes(bytes.data(), sizeof bytes);
    links_ = Key(bytes[0], bytes[1], bytes[2]);
    canaries_ = Key(bytes[3], bytes[4], bytes[5]);
    random_ = bytes[6];
  }

  [[nodiscard]] Block* encode(const Block* at, const Block* next) const {
    return reinterpret_cast<Block*>(
        links_.scramble(reinterpret_cast<std::uintptr_t>(next) ^ address_mask(at)));
  }
  [[nodiscard]] Block* decode(const Block* at) const {
    return reinterpret_cast<Block*>(links_.restore(reinterpret_cast<std::uintptr_t>(at->next)) ^
                                    address_mask(at));
  }

  // A block's bit: sets it or clears it; what it was. Alone: without a locked instruction.
  static bool mark_allocated(const void* block, bool single_threaded) {
    std::uint64_t mask = 0;
    std::uint64_t& bits = bit_word(block, mask);  // shared with blocks of other threads
    const std::uint64_t before = __atomic_load_n(&bits, __ATOMIC_RELAXED);
    if (single_threaded) {
      bits = before | mask;
      return (before & mask) != 0;
    }
    return (__atomic_fetch_or(&bits, mask, __ATOMIC_RELAXED) & mask) != 0;
  }
  static bool mark_free(const void* block, bool single_threaded) {
    std::uint64_t mask = 0;
    std::uint64_t& bits = bit_word(block, mask);
    const std::uint64_t before = __atomic_load_n(&bits, __ATOMIC_RELAXED);
    if (single_threaded) {
      bits = before & ~mask;
      return (before & mask) != 0;
    }
    return (__atomic_fetch_and(&bits, ~mask, __ATOMIC_RELAXED) & mask) != 0;
  }
  static bool is_allocated(const void* block) {
    std::uint64_t mask = 0;
    return (__atomic_load_n(&bit_word(block, mask), __ATOMIC_RELAXED) & mask) != 0;
  }

  // The bit of a block: of the granule of 16 bytes that it begins with, among those of that superblock.
  static std::uint64_t& bit_word(const void* block, std::uint64_t& mask) {
    const std::size_t number = reinterpret_cast<std::uintptr_t>(block) % kSuperblockBytes / 16;
    mask = std::uint64_t{1} << number % 64;
    char* const bits = reinterpret_cast<char*>(chunk_of(block)) + kBitsBegin +
                       index_in_chunk(superblock_of(block)) * kBitsEach;
    return reinterpret_cast<std::uint64_t*>(bits)[number / 64];
  }

  // What a block's mark says.
  struct Mark {
    std::size_t bytes;  // that were asked for
    Origin origin;
    bool intact;  // else the rest means nothing
  };
  // `size`: of the slot.
  void write_mark(void* block, std::size_t size, std::size_t bytes, Origin origin) const {
    const std::uint64_t value = canaries_.scramble(address_mask(block));
    const auto slack = static_cast<std::uint32_t>(size - kMarkBytes - bytes);
    const std::uint32_t label = (slack | static_cast<std::uint32_t>(origin) << kOriginShift) ^
                                static_cast<std::uint32_t>(value >> 32U);
    write_canary(static_cast<char*>(block) + bytes, value);
    std::memcpy(static_cast<char*>(block) + size - kLabelBytes, &label, kLabelBytes);
  }
  [[nodiscard]] Mark read_mark(const void* block, std::size_t size) const {
    const std::uint64_t value = canaries_.scramble(address_mask(block));
    std::uint32_t label = 0;
    std::memcpy(&label, static_cast<const char*>(block) + size - kLabelBytes, kLabelBytes);
    label ^= static_cast<std::uint32_t>(value >> 32U);
    const std::size_t slack = label % (1U << kOriginShift);
    const std::uint32_t origin = label >> kOriginShift;
    if (origin > static_cast<std::uint32_t>(Origin::kNewArray) || slack > size - kMarkBytes) {
      return {0, Origin::kMalloc, false};
    }
    const std::size_t bytes = size - kMarkBytes - slack;
    return {bytes, static_cast<Origin>(origin),
            canary_intact(static_cast<const char*>(block) + bytes, value)};
  }
  // Only the half behind what was asked for, of a block that says the rest elsewhere; as much of it as there is room for.
  void write_end(void* block, std::size_t bytes, std::size_t room = kEndBytes) const {
    write_canary(static_cast<char*>(block) + bytes, canaries_.scramble(address_mask(block)), room);
  }
  [[nodiscard]] bool end_intact(const void* block, std::size_t bytes, std::size_t room = kEndBytes) const {
    return canary_intact(static_cast<const char*>(block) + bytes, canaries_.scramble(address_mask(block)),
                         room);
  }

  // Makes memory read as zero; pages that do so already, untouched ones among them, are only read.
  static void wipe(void* memory, std::size_t bytes) {
    constexpr std::size_t kPiece = 4096;
    auto* at = static_cast<char*>(memory);
    if (bytes <= kPiece) {
      std::memset(at, 0, bytes);
      return;
    }
    for (std::size_t left = bytes; left > 0;) {
      const std::size_t piece = left < kPiece ? left : kPiece;
      if (!is_wiped(at, piece)) {
        std::memset(at, 0, piece);
      }
      at += piece;
      left -= piece;
    }
  }
  // `bytes` is a multiple of 8.
  [[nodiscard]] static bool is_wiped(const void* memory, std::size_t bytes) {
    const auto* const words = static_cast<const std::uint64_t*>(memory);
    constexpr std::size_t kAtOnce = 64;
    std::uint64_t any = 0;
    for (std::size_t i = 0; i < bytes / 8;) {
      const std::size_t end = i + kAtOnce < bytes / 8 ? i + kAtOnce : bytes / 8;
      for (; i < end; ++i) {
        any |= words[i];
      }
      if (any != 0) {
        return false;
      }
    }
    return true;
  }

  // For orders: of carving, of quarantines.
  std::uint64_t random() {
    std::uint64_t value = __atomic_add_fetch(&random_, 0x9e3779b97f4a7c15U, __ATOMIC_RELAXED);
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31U);
  }
  std::size_t random_below(std::size_t limit) {
    return static_cast<std::size_t>((random() >> 32U) * limit >> 32U);
  }

 private:
  static constexpr std::size_t kLabelBytes = kMarkBytes - kEndBytes;
  static constexpr unsigned kOriginShift = 16;  // a slack is below it
  static_assert(kLargestClassBytes < 1U << kOriginShift);
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

  static std::uint64_t address_mask(const void* at) {
    return std::rotl(reinterpret_cast<std::uintptr_t>(at), 17);
  }
  // Its first byte is zero, so that a text that runs into it ends there and does not show the rest.
  static void write_canary(void* at, std::uint64_t value, std::size_t room = kEndBytes) {
    const std::uint32_t canary = static_cast<std::uint32_t>(value) << 8U;
    std::memcpy(at, &canary, room < kEndBytes ? room : kEndBytes);
  }
  static bool canary_intact(const void* at, std::uint64_t value, std::size_t room = kEndBytes) {
    const std::uint32_t canary = static_cast<std::uint32_t>(value) << 8U;
    return std::memcmp(at, &canary, room < kEndBytes ? room : kEndBytes) == 0;
  }

  Key links_;
  Key canaries_;
  std::uint64_t random_ = 0;
};

}  // namespace heapwright::alloc
