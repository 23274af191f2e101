// What exgen and reaper, and their hardened builds, may differ in. The core asks its configuration with
// `if constexpr`; there are no macros and no copies.
#pragma once

#include <concepts>
#include <cstddef>

namespace heapwright::alloc {

template <class C>
concept Configuration = requires {
  // The name in messages and of the options variable, as "exgen".
  { C::kName } -> std::convertible_to<const char*>;
  // Size classes in each doubling: a power of two. Coarser ones reuse better, finer ones waste less.
  { C::kClassesPerDoubling } -> std::convertible_to<std::size_t>;
  // What the list in front of a class may hold before the older half goes back to its superblocks: bytes, and
  // blocks whatever their size.
  { C::kCacheBytesPerClass } -> std::convertible_to<std::size_t>;
  { C::kCacheBlocksPerClass } -> std::convertible_to<std::size_t>;
  // Encoded links, checks of every block given back, guard pages, blocks carved in random order.
  { C::kSecure } -> std::convertible_to<bool>;
  // One heap, found without TLS, until there is a second thread; or a heap for each thread from the
  // beginning.
  { C::kStartsSingleThreaded } -> std::convertible_to<bool>;
};

// A superblock, the unit of everything; and a chunk, 64 of them, the first of which holds what describes the
// rest.
inline constexpr std::size_t kSuperblockBytes = 64 * 1024;
inline constexpr std::size_t kSuperblockShift = 16;
inline constexpr std::size_t kSuperblocksInChunk = 64;
inline constexpr std::size_t kChunkBytes = kSuperblockBytes * kSuperblocksInChunk;

// The largest block that has a size class. Above: whole superblocks, then mappings of their own.
inline constexpr std::size_t kLargestClassBytes = 32 * 1024;
inline constexpr std::size_t kLargestSpanBytes = 1024 * 1024;

static_assert(kLargestClassBytes <= kSuperblockBytes);

// More than the addresses that any process gets without asking for high ones.
inline constexpr std::size_t kAddresses = std::size_t{1} << 48U;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) & ~(unit - 1);
}

}  // namespace heapwright::alloc
