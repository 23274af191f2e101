// Defines the constants in which exgen, reaper and their hardened builds differ, and the sizes that
// all share.
//
// The core tests them with `if constexpr`: there are no macros and no second copy of the code.
#pragma once

#include <concepts>
#include <cstddef>

namespace heapwright::alloc {

template <class C>
concept Configuration = requires {
  // The name in messages and in the name of the options variable, such as "exgen".
  { C::kName } -> std::convertible_to<const char*>;
  // Size classes in each doubling of the size: a power of two. Fewer classes reuse blocks better,
  // more waste less.
  { C::kClassesPerDoubling } -> std::convertible_to<std::size_t>;
  // How much the thread cache's list of a class may hold when it is checked: bytes, and blocks of
  // whatever size. A longer list moves to the depot as a whole.
  { C::kCacheBytesPerClass } -> std::convertible_to<std::size_t>;
  { C::kCacheBlocksPerClass } -> std::convertible_to<std::size_t>;
  // A hardened build: encoded links, checks of every freed block, guard pages, blocks carved in
  // random order.
  { C::kSecure } -> std::convertible_to<bool>;
  // True: the process has one heap, found without thread-local storage, until it starts a second
  // thread. False: each thread has its own heap from the beginning.
  { C::kStartsSingleThreaded } -> std::convertible_to<bool>;
};

// All blocks up to kLargestSpanBytes are managed in superblocks. 64 of them are a chunk; the first
// describes the other 63.
inline constexpr std::size_t kSuperblockBytes = 64 * 1024;
inline constexpr std::size_t kSuperblockShift = 16;
inline constexpr std::size_t kSuperblocksInChunk = 64;
inline constexpr std::size_t kChunkBytes = kSuperblockBytes * kSuperblocksInChunk;

// The largest block that has a size class. Larger blocks are spans of whole superblocks. Those
// above kLargestSpanBytes have mappings of their own, unless free superblocks that hold memory
// suffice.
inline constexpr std::size_t kLargestClassBytes = 32 * 1024;
inline constexpr std::size_t kLargestSpanBytes = 1024 * 1024;

static_assert(kLargestClassBytes <= kSuperblockBytes);

inline constexpr std::size_t kCacheLineBytes = 64;

// Pages of superblocks are purged if their blocks have at least this size: among smaller blocks
// hardly any page is ever wholly free. Smaller ones have free bits instead.
inline constexpr std::size_t kMinPurgedBytes = 256;

// A chunk's first superblock holds the descriptions; then a bit for each granule of 16 bytes (free
// bits, or marks of allocated blocks in hardened builds); then the remote queues.
inline constexpr std::size_t kBitsBegin = kSuperblocksInChunk * 64;
inline constexpr std::size_t kBitBytesPerSuperblock = kSuperblockBytes / 16 / 8;
inline constexpr std::size_t kBitsEnd = kBitsBegin + kSuperblocksInChunk * kBitBytesPerSuperblock;
inline constexpr std::size_t kQueuesBegin = 40 * 1024;
inline constexpr std::size_t kQueuesBytes = kSuperblocksInChunk * 64;
static_assert(kBitsEnd <= kQueuesBegin);

// An upper bound of the addresses that a process gets without asking for higher ones.
inline constexpr std::size_t kAddressLimit = std::size_t{1} << 48U;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) & ~(unit - 1);
}

}  // namespace heapwright::alloc
