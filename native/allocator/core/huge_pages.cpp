// Asks the kernel for huge pages, refuses them, and collapses full halves. See huge_pages.h.
#include "huge_pages.h"

#include <algorithm>
#include <bit>

namespace heapwright::alloc {

namespace {

constexpr std::size_t kInHalf = kSuperblocksInChunk / 2;

// The superblocks of a half; the first half's superblock 0 is not in its chunk's masks.
constexpr std::uint64_t mask_of_half(std::size_t half) {
  return half == 0 ? 0xffff'fffeU : HugePages::kSecondHalf;
}

char* begin_of(Chunk* chunk, std::size_t half) {
  return reinterpret_cast<char*>(chunk) + half * HugePages::kHalfBytes;
}

// Whether one of the superblocks from `from` to `to` − 1 is in use and may have free bits.
bool may_have_free_bits(Chunk* chunk, std::size_t from, std::size_t to) {
  auto* const superblocks = reinterpret_cast<Superblock*>(chunk);
  for (std::size_t i = std::max(from, std::size_t{1}); i < std::min(to, kSuperblocksInChunk); ++i) {
    if ((chunk->free >> i & 1U) == 0 && superblocks[i].kind == Kind::kBlocks &&
        superblocks[i].size < kMinPurgedBytes) {
      return true;
    }
  }
  return false;
}

}  // namespace

void HugePages::ask(Chunk* chunk, std::size_t used, bool fresh, std::uint64_t run_ms) {
  platform::advise_huge_pages(chunk, kChunkBytes, platform::HugePageMode::kAlways);
  const std::uint64_t began = cpu_us();
  if (fresh) {
    // An access to the first page makes the last one resident exactly if the page is huge.
    *reinterpret_cast<volatile char*>(chunk) = 0;
    const std::size_t page = platform::page_size();
    given_ = platform::resident_pages(begin_of(chunk, 1) - page, page) == 1;
  } else {
    given_ = given_ && platform::collapse(chunk, kHalfBytes);
  }
  const auto took = static_cast<std::int64_t>(cpu_us() - began);
  spend(access_us_, given_ ? took - kPageFaultsUs : took, run_ms);
  chunk->huge = kBothHalves;
  if (!given_) {
    refuse(chunk, kBothHalves);
    ask_from_ = used + used / 8;
  }
}

void HugePages::begin_second_half(Chunk* chunk, std::uint64_t run_ms) {
  if (!may_ask(run_ms)) {
    refuse(chunk, 2);
    return;
  }
  const std::uint64_t began = cpu_us();
  *reinterpret_cast<volatile char*>(begin_of(chunk, 1)) = 0;
  spend(access_us_, static_cast<std::int64_t>(cpu_us() - began) - kPageFaultsUs, run_ms);
}

void HugePages::refuse(Chunk* chunk, std::uint8_t halves) {
  for (std::size_t half = 0; half < 2; ++half) {
    if ((chunk->huge & halves & 1U << half) != 0) {
      platform::advise_huge_pages(begin_of(chunk, half), kHalfBytes, platform::HugePageMode::kNever);
    }
  }
  chunk->huge &= static_cast<std::uint8_t>(~halves);
}

void HugePages::break_up(Chunk* chunk, std::size_t half) {
  const auto bit = static_cast<std::uint8_t>(1U << half);
  if ((chunk->huge & bit) == 0) {
    return;
  }
  refuse(chunk, bit);
  // The huge page has made unused superblocks resident: purge them.
  for (std::uint64_t unused = chunk->free & ~chunk->dirty & mask_of_half(half); unused != 0;) {
    const auto first = static_cast<std::size_t>(std::countr_zero(unused));
    const auto run = static_cast<std::size_t>(std::countr_one(unused >> first));
    platform::purge(reinterpret_cast<char*>(chunk) + first * kSuperblockBytes, run * kSuperblockBytes);
    unused &= unused + (std::uint64_t{1} << first);
  }
  if (half == 0) {
    // Of superblock 0, the descriptions, the remote queues and the bits of superblocks in use are
    // used.
    auto* const begin = reinterpret_cast<char*>(chunk);
    const std::size_t page = platform::page_size();
    purge_free_bits(chunk);
    const std::size_t bits = round_up(kBitsEnd, page);
    const std::size_t queues = kQueuesBegin / page * page;
    const std::size_t end = round_up(kQueuesBegin + kQueuesBytes, page);
    if (bits < queues) {
      platform::purge(begin + bits, queues - bits);
    }
    if (end < kSuperblockBytes) {
      platform::purge(begin + end, kSuperblockBytes - end);
    }
  }
}

void HugePages::purge_free_bits(Chunk* chunk) {
  const std::size_t page = platform::page_size();
  const auto is_needed = [&](std::size_t at) {
    const std::size_t first = (at - kBitsBegin) / kBitBytesPerSuperblock;
    return may_have_free_bits(chunk, first, first + page / kBitBytesPerSuperblock);
  };
  chunk->bits_resident = false;
  std::size_t unused = round_up(kBitsBegin, page);  // where pages begin that can be purged
  std::size_t at = unused;
  const auto purge_unused = [&] {
    if (unused < at) {
      platform::purge(reinterpret_cast<char*>(chunk) + unused, at - unused);
    }
  };
  for (; at + page <= kBitsEnd; at += page) {
    if (is_needed(at)) {
      purge_unused();
      unused = at + page;
      chunk->bits_resident = true;
    }
  }
  purge_unused();
}

void HugePages::before_purge(Chunk* chunk, std::size_t from, std::size_t to) {
  if (from < kInHalf) {
    break_up(chunk, 0);
  }
  // A huge page that is purged as a whole need not be broken up.
  const bool whole = from <= kInHalf && to == kSuperblocksInChunk;
  if (to > kInHalf && !whole) {
    break_up(chunk, 1);
  }
}

bool HugePages::look(Chunk* chunk, std::uint64_t run_ms) {
  if (!given_ || collapse_us_ > share(run_ms)) {
    return false;
  }
  bool any = false;
  for (std::size_t half = 0; half < 2; ++half) {
    const auto bit = static_cast<std::uint8_t>(1U << half);
    const bool was_full = (chunk->full & bit) != 0;
    const bool is_full = (chunk->free & mask_of_half(half)) == 0;
    chunk->full = static_cast<std::uint8_t>((chunk->full & ~bit) | (is_full && !was_full ? bit : 0));
    if (is_full && was_full && (chunk->huge & bit) == 0) {
      any = collapse(chunk, half, run_ms) || any;
    }
  }
  return any;
}

bool HugePages::collapse(Chunk* chunk, std::size_t half, std::uint64_t run_ms) {
  const std::uint64_t began = cpu_us();
  const std::size_t first = half == 0 ? kSuperblockBytes : 0;
  const std::size_t pages = (kHalfBytes - first) / platform::page_size();
  char* const begin = begin_of(chunk, half);
  bool done = false;
  if (platform::resident_pages(begin + first, kHalfBytes - first) >= pages - pages / kResidentParts) {
    platform::advise_huge_pages(begin, kHalfBytes, platform::HugePageMode::kAlways);
    done = platform::collapse(begin, kHalfBytes);
    if (done) {
      chunk->huge |= static_cast<std::uint8_t>(1U << half);
      ++collapses_;
    } else {
      platform::advise_huge_pages(begin, kHalfBytes, platform::HugePageMode::kNever);
    }
  }
  spend(collapse_us_, static_cast<std::int64_t>((cpu_us() - began) * (done ? 1 : kFailedCollapseWeight)),
        run_ms);
  return done;
}

}  // namespace heapwright::alloc
