// Implements the protections of hardened builds. All are checked when a block is allocated or
// freed:
//
// - Links between free blocks are stored scrambled, with a key and their own address. An
//   overwritten link decodes to an address that is no block of the region (except once in some 2²⁰
//   cases), and the process ends before it follows the link.
// - One bit for each block tells whether it is allocated. Freeing a block twice, or an address
//   inside a block, ends the process at once, whatever happened in between.
// - A block carries a mark of eight bytes: half of it directly behind the requested bytes, half at
//   the end of its slot:
//
//       ├── requested bytes ──┤ 0, 3 bytes of canary ├─ slack ─┤ slack, origin: 4 bytes, encoded ┤
//
//   Both halves depend on the block's address. free() detects a write behind the requested bytes, a
//   `delete` with another size, and a `delete` that does not fit how the block was allocated
//   (`Origin`).
// - A freed block is wiped. It must still read as zero when it is allocated again: so a write after
//   free is detected. It first waits in a quarantine (quarantine.h).
// - Blocks are carved in random order. An inaccessible page follows the descriptions of superblocks
//   and each large block.
//
// Links, canaries and the order have separate keys, each from the kernel. An attacker who reads
// canaries learns nothing about links, and neither key is related to the stack protector's value. A
// cipher would cost more than the allocator itself. Stored values instead go through two
// multiplications by secret odd numbers, with the bytes reversed between them, so that no key is
// the xor of a stored and a known value.
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
#include "heap_layout.h"
#include "superblock.h"

namespace heapwright::alloc {

// How a block was allocated, which decides how it must be freed.
enum class Origin : std::uint8_t { kMalloc, kNew, kNewArray };

// The claims of a free function's caller about the block.
struct FreedAs {
  Origin origin = Origin::kMalloc;
  std::size_t bytes = SIZE_MAX;  // SIZE_MAX: the caller names no size
};

class Hardening {
 public:
  static constexpr std::size_t kMarkBytes = 8;

  bool wipes = true;                           // whether freed blocks are wiped, and checked at reuse
  static constexpr std::size_t kEndBytes = 4;  // the half of the mark behind the requested bytes

  // Chooses the keys. Called before the first block exists.
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

  // Set or clear a block's bit, and return its old value. `single_threaded`: without a locked
  // instruction.
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

  // Returns the word that holds a block's bit, and the bit in `mask`. Each granule of 16 bytes of a
  // superblock has a bit; a block's bit is that of its first granule.
  static std::uint64_t& bit_word(const void* block, std::uint64_t& mask) {
    const std::size_t number = reinterpret_cast<std::uintptr_t>(block) % kSuperblockBytes / 16;
    mask = std::uint64_t{1} << number % 64;
    char* const bits = reinterpret_cast<char*>(chunk_of(block)) + kBitsBegin +
                       index_in_chunk(superblock_of(block)) * kBitBytesPerSuperblock;
    return reinterpret_cast<std::uint64_t*>(bits)[number / 64];
  }

  // Tells a reader in another process where the bits are.
  static constexpr void describe(HeapLayout& layout) {
    layout.marks_begin = kBitsBegin;
    layout.marks_bytes = kBitBytesPerSuperblock;
  }

  // The contents of a block's mark.
  struct Mark {
    std::size_t bytes;  // requested by the program
    Origin origin;
    bool intact;  // false: the mark is damaged and the rest is meaningless
  };
  // `size`: bytes of the slot. `bytes`: those that the program asked for.
  void write_mark(void* block, std::size_t size, std::size_t bytes, Origin origin) const {
    const std::uint64_t value = canaries_.scramble(address_mask(block));
    const auto slack = static_cast<std::uint32_t>(size - kMarkBytes - bytes);
    const std::uint32_t label = (slack | static_cast<std::uint32_t>(origin) << kOriginShift) ^
                                static_cast<std::uint32_t>(value >> 32U);
    store(static_cast<char*>(block) + bytes, canary_of(value));
    store(static_cast<char*>(block) + size - kLabelBytes, label);
  }
  [[nodiscard]] Mark read_mark(const void* block, std::size_t size) const {
    const std::uint64_t value = canaries_.scramble(address_mask(block));
    const std::uint32_t label =
        load(static_cast<const char*>(block) + size - kLabelBytes) ^ static_cast<std::uint32_t>(value >> 32U);
    const std::size_t slack = label % (1U << kOriginShift);
    const std::uint32_t origin = label >> kOriginShift;
    if (origin > static_cast<std::uint32_t>(Origin::kNewArray) || slack > size - kMarkBytes) {
      return {0, Origin::kMalloc, false};
    }
    const std::size_t bytes = size - kMarkBytes - slack;
    return {bytes, static_cast<Origin>(origin),
            load(static_cast<const char*>(block) + bytes) == canary_of(value)};
  }
  // Changes the origin in the mark of a block that has just been allocated, from kMalloc.
  static void set_origin(void* block, std::size_t size, Origin origin) {
    char* const label = static_cast<char*>(block) + size - kLabelBytes;
    store(label, load(label) ^ static_cast<std::uint32_t>(origin) << kOriginShift);
  }
  // Write and check only the half behind the requested bytes, for a block whose description holds
  // the rest. Only the first `room` bytes of the half are used.
  void write_end(void* block, std::size_t bytes, std::size_t room = kEndBytes) const {
    const std::uint32_t canary = canary_of(canaries_.scramble(address_mask(block)));
    std::memcpy(static_cast<char*>(block) + bytes, &canary, room < kEndBytes ? room : kEndBytes);
  }
  [[nodiscard]] bool end_intact(const void* block, std::size_t bytes, std::size_t room = kEndBytes) const {
    const std::uint32_t canary = canary_of(canaries_.scramble(address_mask(block)));
    return std::memcmp(static_cast<const char*>(block) + bytes, &canary,
                       room < kEndBytes ? room : kEndBytes) == 0;
  }

  // Makes memory read as zero. Pages that already do, such as untouched ones, are only read.
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

  // Random numbers for the order of carving and for quarantines.
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
  static constexpr unsigned kOriginShift = 16;  // a slack has fewer bits
  static_assert(kLargestClassBytes < 1U << kOriginShift);

  // A permutation of 64-bit values, chosen by three numbers.
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
    // Inverts an odd number modulo 2⁶⁴. The number itself has three correct bits; each step doubles
    // them.
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
  // The first byte is zero: a string that runs into the canary ends there and does not reveal the
  // rest.
  static std::uint32_t canary_of(std::uint64_t value) { return static_cast<std::uint32_t>(value) << 8U; }
  // Access four bytes at any address. std::memcpy would be a call, because the allocator is compiled
  // with -fno-builtin.
  static std::uint32_t load(const char* at) {
    std::uint32_t value = 0;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
  }
  static void store(char* at, std::uint32_t value) { __builtin_memcpy(at, &value, sizeof value); }

  Key links_;
  Key canaries_;
  std::uint64_t random_ = 0;
};

}  // namespace heapwright::alloc
