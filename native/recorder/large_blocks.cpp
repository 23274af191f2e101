#include "large_blocks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace heapwright::recorder {

std::atomic<std::uint16_t> large_filter[kFilterCounters];

namespace {

std::atomic<std::uint16_t>& filter_counter(std::uintptr_t address) {
  return large_filter[(address >> 12) % kFilterCounters];
}

}  // namespace

void LargeBlocks::insert(const void* block, std::size_t size) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::size_t begin = first(address);
  for (std::size_t i = 0; i < kMaxProbes; ++i) {
    Entry& entry = entries_[(begin + i) % kEntries];
    std::uintptr_t there = entry.address.load(std::memory_order_relaxed);
    if (there <= kRemoved &&
        entry.address.compare_exchange_strong(there, address, std::memory_order_acq_rel)) {
      entry.size.store(size, std::memory_order_relaxed);
      std::size_t probes = probes_.load(std::memory_order_relaxed);
      while (probes <= i && !probes_.compare_exchange_weak(probes, i + 1, std::memory_order_relaxed)) {
      }
      filter_counter(address).fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
}

std::size_t LargeBlocks::remove(const void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::size_t begin = first(address);
  const std::size_t count = probes();
  for (std::size_t i = 0; i < count; ++i) {
    Entry& entry = entries_[(begin + i) % kEntries];
    const std::uintptr_t there = entry.address.load(std::memory_order_acquire);
    if (there == kFree) {
      break;
    }
    if (there == address) {
      const std::size_t size = entry.size.load(std::memory_order_relaxed);
      entry.address.store(kRemoved, std::memory_order_release);
      filter_counter(address).fetch_sub(1, std::memory_order_relaxed);
      return size;
    }
  }
  return 0;
}

std::size_t resident_part(std::uintptr_t address, std::size_t size) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::uintptr_t at = address & ~(page - 1);
  const std::uintptr_t end = address + size;
  std::size_t pages = 0;
  while (at < end) {
    unsigned char in[1024];
    const std::size_t count = std::min<std::size_t>(sizeof(in), (end - at + page - 1) / page);
    if (mincore(reinterpret_cast<void*>(at), count * page, in) != 0) {
      break;  // a part of it is no longer mapped
    }
    for (std::size_t i = 0; i < count; ++i) {
      pages += in[i] & 1U;
    }
    at += count * page;
  }
  return std::min(pages * page, size);
}

}  // namespace heapwright::recorder
