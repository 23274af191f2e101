#include "heap_size.h"

#include <cstring>

#include "system.h"
#include "touched.h"

namespace heapwright::recorder {

namespace {

constexpr std::uintptr_t kArenaHeap = std::uintptr_t{64} << 20;  // glibc's HEAP_MAX_SIZE

// The beginning of a heap of an arena in glibc's malloc/arena.c (heap_info).
struct ArenaHeap {
  std::uintptr_t arena;
  std::uintptr_t previous;
  std::uintptr_t bytes;
};

// Returns the bytes of the arena's heap that begins at an address, 0 if none does.
std::uintptr_t arena_heap_bytes(int memory, std::uintptr_t address) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  ArenaHeap heap{};
  if (syscall(SYS_pread64, memory, &heap, sizeof(heap), address) != sizeof(heap)) {
    return 0;
  }
  // The arena itself lies just behind the header of its first heap.
  const std::uintptr_t offset = heap.arena % kArenaHeap;
  const bool valid = heap.arena >= kArenaHeap && heap.arena % 16 == 0 && offset >= 32 && offset <= 128 &&
                     heap.previous % kArenaHeap == 0 && heap.bytes >= page && heap.bytes <= kArenaHeap &&
                     heap.bytes % page == 0;
  return valid ? heap.bytes : 0;
}

// Reads a number in hexadecimal and moves `at` behind it.
std::uintptr_t hexadecimal(const char*& at) {
  std::uintptr_t number = 0;
  for (;; ++at) {
    const char c = *at;
    if (c >= '0' && c <= '9') {
      number = number * 16 + static_cast<std::uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      number = number * 16 + static_cast<std::uintptr_t>(c - 'a' + 10);
    } else {
      return number;
    }
  }
}

}  // namespace

bool HeapGauge::contains(std::uintptr_t address) const {
  for (unsigned i = 0; i < count_; ++i) {
    if (address >= heaps_[i].begin && address < heaps_[i].end) {
      return true;
    }
  }
  return false;
}

void HeapGauge::add(std::uintptr_t begin, std::uintptr_t end) {
  if (count_ < kHeaps) {
    heaps_[count_++] = {begin, end};
  }
}

// Adds the heaps in the mapping of a line of /proc/self/maps.
void HeapGauge::read_line(const char* line, int memory) {
  const char* at = line;
  const std::uintptr_t begin = hexadecimal(at);
  if (*at++ != '-') {
    return;
  }
  const std::uintptr_t end = hexadecimal(at);
  if (std::strncmp(at, " rw-p ", 6) != 0) {
    return;
  }
  at += 6;
  for (int field = 0; field < 3; ++field) {  // offset, device, inode
    while (*at != 0 && *at != ' ') {
      ++at;
    }
    at += *at == ' ' ? 1 : 0;
  }
  while (*at == ' ') {
    ++at;
  }
  if (std::strcmp(at, "[heap]") == 0) {
    add(begin, end);
    return;
  }
  if (*at != 0 && std::strncmp(at, "[anon", 5) != 0) {
    return;
  }
  for (std::uintptr_t heap = (begin + kArenaHeap - 1) / kArenaHeap * kArenaHeap; heap < end;
       heap += kArenaHeap) {
    const std::uintptr_t bytes = arena_heap_bytes(memory, heap);
    if (bytes != 0) {
      add(heap, heap + bytes < end ? heap + bytes : end);
    }
  }
}

bool HeapGauge::find_heaps() {
  count_ = 0;
  const int maps = sys::open_file("/proc/self/maps", O_RDONLY);
  const int memory = sys::open_file("/proc/self/mem", O_RDONLY);
  bool read = maps >= 0 && memory >= 0;
  std::size_t filled = 0;
  while (read) {
    const long more = sys::read_file(maps, text_ + filled, sizeof(text_) - 1 - filled);
    if (more <= 0) {
      read = more == 0;
      break;
    }
    filled += static_cast<std::size_t>(more);
    text_[filled] = 0;
    char* line = text_;
    for (char* end = nullptr; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = 0;
      read_line(line, memory);
    }
    filled = static_cast<std::size_t>(text_ + filled - line);
    if (filled == sizeof(text_) - 1) {
      filled = 0;  // a path longer than the buffer; its rest is no valid line
    }
    std::memmove(text_, line, filled);
  }
  sys::close_file(maps);
  sys::close_file(memory);
  return read;
}

bool HeapGauge::measure(const LargeBlocks& blocks, HeapSize& size) {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  const bool found = find_heaps();
  size = {};
  for (unsigned i = 0; i < count_; ++i) {
    size.resident += resident_part(heaps_[i].begin, heaps_[i].end - heaps_[i].begin);
  }
  blocks.each([&](std::uintptr_t address, LargeBlock large) {
    const std::size_t bytes = large.size;
    const std::size_t resident = resident_part(address, bytes);
    size.untouched += bytes - resident;
    if (!contains(address)) {
      size.resident += resident;
    }
  });
  busy_.store(false, std::memory_order_release);
  return found;
}

}  // namespace heapwright::recorder
