#include "touched.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace heapwright::recorder {
namespace {

// Of the blocks of a size, the first kFirst give back pages, and then one of kOneOf; one of
// kOneOfFilled where the program fills them, because there each page that is given back costs a
// page fault.
constexpr unsigned kFirst = 8;
constexpr unsigned kOneOf = 64;
constexpr unsigned kOneOfFilled = 512;
constexpr std::size_t kAllowedBytes = std::size_t{32} << 20;  // to give back, besides a share of 1 / kOneOf
constexpr std::size_t kPagesAtOnce = 1024;
constexpr std::uint32_t kWhole = 1U << 16;  // a share of 1
constexpr std::uint32_t kFilled = kWhole - kWhole / 32;
constexpr std::uint32_t kRemembered = 8;

// The blocks of one size. Threads share an entry without a lock: a lost update does no harm.
struct Size {
  std::atomic<std::size_t> bytes;       // 0: not in use
  std::atomic<std::uint32_t> begun;     // blocks
  std::atomic<std::uint32_t> measured;  // blocks, at most kRemembered
  // The mean touched share of the measured blocks, of kWhole; from kRemembered on a moving mean.
  std::atomic<std::uint32_t> share;
};

constexpr std::size_t kSizes = 1024;
Size sizes[kSizes];
std::atomic<std::size_t> begun_bytes;
std::atomic<std::size_t> given_back_bytes;

Size& entry_of(std::size_t bytes) { return sizes[bytes * 0x9e3779b97f4a7c15U >> 54]; }

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Counts the resident pages among `count` pages, at most kPagesAtOnce; none if a part is not
// mapped.
std::size_t resident_pages(std::uintptr_t begin, std::size_t count, std::size_t page) {
  unsigned char in[kPagesAtOnce];
  if (mincore(reinterpret_cast<void*>(begin), count * page, in) != 0) {
    return 0;
  }
  std::size_t resident = 0;
  for (std::size_t i = 0; i < count; ++i) {
    resident += in[i] & 1U;
  }
  return resident;
}

// Gives the pages of a new block back, unless too many bytes were given back already. Returns
// whether it did.
bool give_back(std::uintptr_t begin, std::size_t bytes) {
  const std::size_t allowed = kAllowedBytes + begun_bytes.load(std::memory_order_relaxed) / kOneOf;
  if (given_back_bytes.load(std::memory_order_relaxed) + bytes > allowed ||
      madvise(reinterpret_cast<void*>(begin), bytes, MADV_DONTNEED) != 0) {  // fails for locked memory
    return false;
  }
  given_back_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

}  // namespace

Touching begin_touching(void* block, std::size_t size) {
  Size& same = entry_of(size);
  if (same.bytes.load(std::memory_order_relaxed) != size) {
    same.bytes.store(size, std::memory_order_relaxed);
    same.begun.store(0, std::memory_order_relaxed);
    same.measured.store(0, std::memory_order_relaxed);
    same.share.store(kWhole, std::memory_order_relaxed);
  }
  const std::uint32_t number = same.begun.load(std::memory_order_relaxed);
  same.begun.store(number + 1, std::memory_order_relaxed);
  begun_bytes.fetch_add(size, std::memory_order_relaxed);
  const bool filled = same.measured.load(std::memory_order_relaxed) != 0 &&
                      same.share.load(std::memory_order_relaxed) >= kFilled;
  const bool chosen = number < kFirst || number % (filled ? kOneOfFilled : kOneOf) == 0;
  if (filled && !chosen) {
    return Touching::kEstimated;  // saves a system call
  }
  const std::size_t page = page_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::uintptr_t begin = (address + page - 1) & ~(page - 1);
  const std::uintptr_t end = (address + size) & ~(page - 1);
  if (begin >= end) {
    return Touching::kUnknown;
  }
  // The first pages are enough: memory is reused from its beginning.
  if (resident_pages(begin, std::min((end - begin) / page, kPagesAtOnce), page) == 0) {
    return Touching::kMeasured;
  }
  // With memory tagging, the pages of a tagged address would lose the tags that malloc has set.
  const bool tagged = address >> 56 != 0;
  return chosen && !tagged && give_back(begin, end - begin) ? Touching::kMeasured : Touching::kEstimated;
}

std::size_t end_touching(std::uintptr_t address, std::size_t size, Touching touching) {
  const std::size_t resident = resident_part(address, size);
  Size& same = entry_of(size);
  if (touching == Touching::kUnknown || same.bytes.load(std::memory_order_relaxed) != size) {
    return resident;
  }
  const double share = same.share.load(std::memory_order_relaxed) / static_cast<double>(kWhole);
  if (touching == Touching::kEstimated) {
    return std::min(resident, static_cast<std::size_t>(share * static_cast<double>(size)));
  }
  const std::uint32_t measured = std::min(same.measured.load(std::memory_order_relaxed) + 1, kRemembered);
  const double now = static_cast<double>(resident) / static_cast<double>(size);
  same.measured.store(measured, std::memory_order_relaxed);
  same.share.store(static_cast<std::uint32_t>((share + (now - share) / measured) * kWhole),
                   std::memory_order_relaxed);
  return resident;
}

std::size_t resident_part(std::uintptr_t address, std::size_t size) {
  const std::size_t page = page_bytes();
  std::uintptr_t at = address & ~(page - 1);
  const std::uintptr_t end = address + size;
  std::size_t pages = 0;
  while (at < end) {
    const std::size_t count = std::min(kPagesAtOnce, (end - at + page - 1) / page);
    pages += resident_pages(at, count, page);
    at += count * page;
  }
  return std::min(pages * page, size);
}

}  // namespace heapwright::recorder
