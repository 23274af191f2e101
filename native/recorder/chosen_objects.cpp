#include "chosen_objects.h"

#include <sys/mman.h>

#include "real.h"

namespace heapwright::recorder {

std::atomic<std::uint8_t> chosen_filter[kFilterBytes];

namespace {

constexpr std::uint8_t kFull = 255;

void count(const void* block, int step) {
  std::atomic<std::uint8_t>& byte = filter_byte(block);
  std::uint8_t now = byte.load(std::memory_order_relaxed);
  while (now != kFull && (step > 0 || now != 0) &&
         !byte.compare_exchange_weak(now, static_cast<std::uint8_t>(now + step), std::memory_order_relaxed)) {
  }
}

}  // namespace

void fill_filter_of_pool() {
  for (std::size_t at = 0; at < kPoolBytes; at += 16) {
    filter_byte(pool + at).store(kFull, std::memory_order_relaxed);
  }
}

void clear_filter() {
  for (auto& byte : chosen_filter) {
    if (byte.load(std::memory_order_relaxed) != 0) {  // untouched pages stay untouched
      byte.store(0, std::memory_order_relaxed);
    }
  }
  fill_filter_of_pool();
}

ChosenObjects::Table* ChosenObjects::table_at(std::size_t number) {
  Table* table = tables_[number].load(std::memory_order_acquire);
  if (table != nullptr) {
    return table;
  }
  const std::size_t bytes = slots(number) * (sizeof(std::uintptr_t) + sizeof(ChosenObject));
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  madvise(memory, bytes, MADV_DONTFORK);
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  auto* const made = static_cast<Table*>(memory);
  if (!tables_[number].compare_exchange_strong(table, made, std::memory_order_acq_rel)) {
    munmap(memory, bytes);
    return table;
  }
  return made;
}

bool ChosenObjects::insert(const void* block, const ChosenObject& object) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  for (;;) {
    std::uint32_t number = newest_.load(std::memory_order_relaxed);
    Table* const table = table_at(number);
    if (table == nullptr) {
      return false;
    }
    const std::size_t begin = first(address, number);
    for (std::size_t i = 0; i < kMaxProbes; ++i) {
      const std::size_t at = (begin + i) % slots(number);
      std::uintptr_t key = table->keys()[at].load(std::memory_order_relaxed);
      if (key <= kRemoved &&
          table->keys()[at].compare_exchange_strong(key, kBusy, std::memory_order_acq_rel)) {
        table->values(slots(number))[at] = object;
        table->keys()[at].store(address, std::memory_order_release);
        count(block, 1);
        return true;
      }
    }
    if (number + 1 == kTables) {
      return false;
    }
    newest_.compare_exchange_strong(number, number + 1, std::memory_order_relaxed);
  }
}

bool ChosenObjects::remove(const void* block, ChosenObject& object) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  for (std::size_t number = newest_.load(std::memory_order_relaxed) + 1; number-- > 0;) {
    Table* const table = tables_[number].load(std::memory_order_acquire);
    if (table == nullptr) {
      continue;
    }
    const std::size_t begin = first(address, number);
    for (std::size_t i = 0; i < kMaxProbes; ++i) {
      const std::size_t at = (begin + i) % slots(number);
      std::uintptr_t key = table->keys()[at].load(std::memory_order_acquire);
      if (key == address) {
        object = table->values(slots(number))[at];
        if (table->keys()[at].compare_exchange_strong(key, kRemoved, std::memory_order_acq_rel)) {
          count(block, -1);
          return true;
        }
      } else if (key == kFree) {
        break;
      }
    }
  }
  return false;
}

}  // namespace heapwright::recorder
