#include "thread_caches.h"

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>

namespace heapwright::diagnose {
namespace {

constexpr std::size_t kSizes = 64;
constexpr std::uint64_t kFlags = 7;
constexpr std::uint64_t kOfThreadArena = 4;
constexpr std::size_t kStepsToClock = 1024;  // between two looks at the clock
constexpr int kAttempts = 4;

// tcache_perthread_struct
struct Cache {
  std::array<std::uint16_t, kSizes> counts;
  std::array<std::uint64_t, kSizes> blocks;
};
constexpr std::uint64_t kCacheChunk = sizeof(Cache) + 16;

// The word before a cached block, which holds its size, and the block's first two words.
struct CachedBlock {
  std::uint64_t head;
  std::uint64_t next;
  std::uint64_t key;
};

bool fits(std::uint16_t count, std::uint64_t block) {
  return (count == 0) == (block == 0) && block % 16 == 0;
}

}  // namespace

void ThreadCaches::add_if_cache(Segment& segment, std::uint64_t chunk, std::uint64_t size) {
  // malloc does not split 16 bytes off a free chunk.
  if (size != kCacheChunk && size != kCacheChunk + 16) {
    return;
  }
  const std::uint64_t at = chunk + 16;
  bool holds_blocks = false;
  for (std::size_t i = 0; i < kSizes; ++i) {
    const auto counts = segment.word(at + offsetof(Cache, counts) + i / 4 * 8);
    const auto block = segment.word(at + offsetof(Cache, blocks) + i * 8);
    if (!counts || !block || !fits(static_cast<std::uint16_t>(*counts >> (i % 4 * 16)), *block)) {
      return;
    }
    holds_blocks = holds_blocks || *block != 0;
  }
  if (holds_blocks) {
    chunks_.insert(chunk);
  }
}

ThreadCaches::Found ThreadCaches::count(const Memory& memory, const std::function<bool()>& late) const {
  Found found;
  std::size_t steps = 0;

  const auto arena_of = [this](std::uint64_t block, std::uint64_t head) -> std::optional<std::uint64_t> {
    if ((head & kOfThreadArena) == 0) {
      return 0;
    }
    const auto after = heaps_.upper_bound(block);
    if (after == heaps_.begin() || block >= std::prev(after)->second.end) {
      return std::nullopt;
    }
    return std::prev(after)->second.arena;
  };
  // Links are stored as pointer ^ (address of the link >> 12) since 2.32, and plainly before.
  const auto read = [&](std::uint64_t chunk, bool mangled) -> std::optional<Found> {
    Cache cache{};
    Found sum;
    std::optional<std::uint64_t> key;
    if (!memory.read(chunk + 16, &cache, sizeof cache)) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < kSizes; ++i) {
      const std::uint64_t size = (i + 2) * 16;
      std::uint64_t block = cache.blocks[i];
      for (unsigned left = cache.counts[i]; left != 0; --left) {
        CachedBlock one{};
        if (!fits(cache.counts[i], block) || !memory.read(block - 8, &one, sizeof one) ||
            (one.head & ~kFlags) != size || key.value_or(one.key) != one.key) {
          return std::nullopt;
        }
        key = one.key;
        const auto arena = arena_of(block, one.head);
        if (!arena) {
          return std::nullopt;
        }
        sum.by_arena[*arena] += size;
        block = mangled ? one.next ^ (block >> 12) : one.next;
        if (++steps % kStepsToClock == 0 && late()) {
          found.complete = false;
          return std::nullopt;
        }
      }
      if (block != 0) {
        return std::nullopt;
      }
    }
    return sum;
  };

  for (const std::uint64_t chunk : chunks_) {
    std::optional<Found> cache;
    for (int attempt = 0; attempt < 2 * kAttempts && !cache && found.complete; ++attempt) {
      cache = read(chunk, attempt % 2 == 0);
    }
    if (cache) {
      ++found.caches;
      for (const auto& [arena, bytes] : cache->by_arena) {
        found.by_arena[arena] += bytes;
      }
    }
  }
  return found;
}

}  // namespace heapwright::diagnose
