#include "large_blocks.h"

namespace heapwright::recorder {

std::atomic<std::uint16_t> large_filter[kFilterCounters];

namespace {

std::atomic<std::uint16_t>& filter_counter(std::uintptr_t address) {
  return large_filter[(address >> 12) % kFilterCounters];
}

}  // namespace

void LargeBlocks::insert(const void* block, LargeBlock large) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::size_t begin = first(address);
  for (std::size_t i = 0; i < kMaxProbes; ++i) {
    Entry& entry = entries_[(begin + i) % kEntries];
    std::uintptr_t there = entry.address.load(std::memory_order_relaxed);
    if (there <= kRemoved &&
        entry.address.compare_exchange_strong(there, address, std::memory_order_acq_rel)) {
      entry.packed.store(pack(large), std::memory_order_relaxed);
      std::size_t probes = probes_.load(std::memory_order_relaxed);
      while (probes <= i && !probes_.compare_exchange_weak(probes, i + 1, std::memory_order_relaxed)) {
      }
      filter_counter(address).fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
}

std::size_t LargeBlocks::index_of(std::uintptr_t address) const {
  const std::size_t begin = first(address);
  const std::size_t count = probes();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = (begin + i) % kEntries;
    const std::uintptr_t there = entries_[index].address.load(std::memory_order_acquire);
    if (there == address) {
      return index;
    }
    if (there == kFree) {
      break;
    }
  }
  return kEntries;
}

LargeBlock LargeBlocks::remove(const void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const std::size_t index = index_of(address);
  if (index == kEntries) {
    return {};
  }
  Entry& entry = entries_[index];
  const LargeBlock large = unpack(entry.packed.load(std::memory_order_relaxed));
  entry.address.store(kRemoved, std::memory_order_release);
  filter_counter(address).fetch_sub(1, std::memory_order_relaxed);
  return large;
}

LargeBlock LargeBlocks::find(const void* block) const {
  const std::size_t index = index_of(reinterpret_cast<std::uintptr_t>(block));
  return index == kEntries ? LargeBlock{} : unpack(entries_[index].packed.load(std::memory_order_relaxed));
}

}  // namespace heapwright::recorder
