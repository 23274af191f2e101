#include "chosen_objects.h"

#include <sys/mman.h>

#include "real.h"

namespace heapwright::recorder {

std::atomic<std::uint64_t> chosen_filter[kFilterBits / kWordBits];

namespace {

constexpr std::uint8_t kFull = 255;
// For each bit of the filter, the number of chosen objects that set it.
std::atomic<std::uint8_t> counters[kFilterBits];

void set(std::size_t bit) {
  std::atomic<std::uint64_t>& word = chosen_filter[bit / kWordBits];
  std::uint64_t now = word.load(std::memory_order_relaxed);
  const std::uint64_t mask = std::uint64_t{1} << bit % kWordBits;
  constexpr std::uint64_t kOnce = std::uint64_t{1} << kWordBits;
  while (!word.compare_exchange_weak(now, (now | mask) + kOnce, std::memory_order_acq_rel)) {
  }
}

bool is_of_pool(std::size_t bit) { return (bit - filter_bit(pool)) % kFilterBits < kPoolBytes / 16; }

// Clears a bit, unless an object with it was added meanwhile.
void clear_if_unused(std::size_t bit) {
  std::atomic<std::uint64_t>& word = chosen_filter[bit / kWordBits];
  std::uint64_t now = word.load(std::memory_order_acquire);
  const std::uint64_t mask = std::uint64_t{1} << bit % kWordBits;
  while (
      counters[bit].load(std::memory_order_acquire) == 0 &&
      !word.compare_exchange_weak(now, now & ~mask, std::memory_order_acq_rel, std::memory_order_acquire)) {
  }
}

void count(const void* block, int step) {
  const std::size_t bit = filter_bit(block);
  std::uint8_t now = counters[bit].load(std::memory_order_relaxed);
  while (now != kFull && (step > 0 || now != 0) &&
         !counters[bit].compare_exchange_weak(now, static_cast<std::uint8_t>(now + step),
                                              std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
  if (step > 0) {
    set(bit);
  } else if (now == 1) {
    clear_if_unused(bit);
  }
}

}  // namespace

void fill_filter_of_pool() {
  for (std::size_t at = 0; at < kPoolBytes; at += 16) {
    const std::size_t bit = filter_bit(pool + at);
    counters[bit].store(kFull, std::memory_order_relaxed);
    set(bit);
  }
}

void clear_filter() {
  for (std::size_t bit = 0; bit < kFilterBits; ++bit) {
    if (counters[bit].load(std::memory_order_relaxed) != 0 && !is_of_pool(bit)) {
      counters[bit].store(0, std::memory_order_release);
      clear_if_unused(bit);
    }
  }
}

ChosenObjects::Slot* ChosenObjects::table_at(std::size_t number) {
  Slot* table = tables_[number].load(std::memory_order_acquire);
  if (table != nullptr) {
    return table;
  }
  const std::size_t bytes = slots(number) * sizeof(Slot) + slots(number) / kPartSlots / 8;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  madvise(memory, bytes, MADV_DONTFORK);
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  auto* const made = static_cast<Slot*>(memory);
  if (!tables_[number].compare_exchange_strong(table, made, std::memory_order_acq_rel)) {
    munmap(memory, bytes);
    return table;
  }
  return made;
}

void ChosenObjects::touch(Slot* table, std::size_t number, std::size_t slot) {
  const std::size_t part = slot / kPartSlots;
  auto* const bits = reinterpret_cast<std::atomic<std::uint8_t>*>(table + slots(number)) + part / 8;
  const auto mask = static_cast<std::uint8_t>(1U << part % 8);
  if ((bits->load(std::memory_order_relaxed) & mask) == 0 &&
      (bits->fetch_or(mask, std::memory_order_relaxed) & mask) == 0) {
    touched_.fetch_add(1, std::memory_order_relaxed);
  }
}

bool ChosenObjects::insert(const void* block, const ChosenObject& object) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  for (;;) {
    std::uint32_t number = newest_.load(std::memory_order_relaxed);
    Slot* const table = table_at(number);
    if (table == nullptr) {
      return false;
    }
    const std::size_t begin = first(address, number);
    for (std::size_t i = 0; i < kMaxProbes; ++i) {
      Slot& slot = table[(begin + i) & (slots(number) - 1)];
      std::uintptr_t key = slot.key.load(std::memory_order_relaxed);
      const bool unused = key == kFree;
      if (key <= kRemoved && slot.key.compare_exchange_strong(key, kBusy, std::memory_order_acq_rel)) {
        slot.object = object;
        slot.key.store(address, std::memory_order_release);
        if (unused) {
          touch(table, number, (begin + i) & (slots(number) - 1));
        }
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
    Slot* const table = tables_[number].load(std::memory_order_acquire);
    if (table == nullptr) {
      continue;
    }
    const std::size_t begin = first(address, number);
    for (std::size_t i = 0; i < kMaxProbes; ++i) {
      Slot& slot = table[(begin + i) & (slots(number) - 1)];
      std::uintptr_t key = slot.key.load(std::memory_order_acquire);
      if (key == address) {
        object = slot.object;
        if (slot.key.compare_exchange_strong(key, kRemoved, std::memory_order_acq_rel)) {
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
