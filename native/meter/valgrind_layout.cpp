// Implements the policy of valgrind_layout.h.
#include "valgrind_layout.h"

#include <algorithm>
#include <iterator>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;
constexpr std::uint64_t kFirst = 0x4000000;  // below it Valgrind places only what has a fixed address
// massif-amd64-linux of Debian's valgrind 3.19: its segments with the zero-initialised data.
constexpr std::uint64_t kTool = 0x58000000;
constexpr std::uint64_t kToolEnd = 0x58c2d000;
constexpr std::uint64_t kPreloadedBytes = 0x5000;  // vgpreload_core-amd64-linux.so

}  // namespace

void ValgrindLayout::start(std::uint64_t loader_bytes, std::uint64_t program_end, std::uint64_t data_limit) {
  used_.clear();
  preloaded_ = loader_bytes == 0;
  occupy(kTool, kToolEnd - kTool);
  const std::uint64_t data_bytes = up(std::clamp(data_limit, kMiB, 8 * kMiB));
  if (program_end > kFirst && program_end < kTool) {  // linked to addresses above kFirst: it keeps them
    occupy(kFirst, program_end - kFirst);
  }
  occupy(place(loader_bytes), loader_bytes);
  occupy(place(data_bytes), data_bytes);
  brk_bytes_ = data_bytes - page_;  // Valgrind never gives the last page
}

void ValgrindLayout::preload() {
  preloaded_ = true;
  occupy(place(kPreloadedBytes), kPreloadedBytes);
}

std::uint64_t ValgrindLayout::place(std::uint64_t length) const {
  std::uint64_t at = kFirst;
  for (const auto& [first, end] : used_) {
    if (first >= at && first - at >= up(length)) {
      break;
    }
    at = std::max(at, end);
  }
  return at;
}

bool ValgrindLayout::is_free(std::uint64_t address, std::uint64_t length) const {
  const auto after = used_.lower_bound(address + up(length));
  return after == used_.begin() || std::prev(after)->second <= address;
}

void ValgrindLayout::occupy(std::uint64_t address, std::uint64_t length) {
  std::uint64_t end = address + up(length);
  if (length == 0 || end <= kFirst || end < address) {
    return;
  }
  address = std::max(address, kFirst);
  auto next = used_.upper_bound(address);
  if (next != used_.begin() && std::prev(next)->second >= address) {
    --next;
    address = next->first;
  }
  while (next != used_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = used_.erase(next);
  }
  used_.emplace_hint(next, address, end);
}

void ValgrindLayout::release(std::uint64_t address, std::uint64_t length) {
  const std::uint64_t end = address + up(length);
  auto next = used_.upper_bound(address);
  if (next != used_.begin() && std::prev(next)->second > address) {
    --next;
  }
  while (next != used_.end() && next->first < end) {
    const auto [first, last] = *next;
    next = used_.erase(next);
    if (first < address) {
      used_.emplace_hint(next, first, address);
    }
    if (last > end) {
      used_.emplace_hint(next, end, last);
    }
  }
}

}  // namespace heapwright::meter
