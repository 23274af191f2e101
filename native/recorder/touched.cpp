#include "touched.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace heapwright::recorder {
namespace {

constexpr std::size_t kMarkedPages = 32;
constexpr std::size_t kLineWords = 8;

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Calls f(address) for each resident page of a range, until a part of it is not mapped.
template <class F>
void each_resident_page(std::uintptr_t address, std::size_t size, std::size_t page, F f) {
  std::uintptr_t at = address & ~(page - 1);
  const std::uintptr_t end = address + size;
  while (at < end) {
    unsigned char in[1024];
    const std::size_t count = std::min<std::size_t>(sizeof(in), (end - at + page - 1) / page);
    if (mincore(reinterpret_cast<void*>(at), count * page, in) != 0) {
      break;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if ((in[i] & 1U) != 0) {
        f(at + i * page);
      }
    }
    at += count * page;
  }
}

// Tells which pages of a block have marks: those whose number is a multiple of a power of two, so
// that a test costs no division, without the first and the last page.
class MarkedPages {
 public:
  MarkedPages(std::uintptr_t address, std::size_t size, std::size_t page)
      : begin_((address + page - 1) & ~(page - 1)), end_((address + size) & ~(page - 1)), page_(page) {
    for (std::size_t step = page; begin_ < end_ && (end_ - begin_) / step > kMarkedPages; step *= 2) {
      mask_ = step * 2 - 1;
    }
  }
  bool contains(std::uintptr_t at) const {
    return at >= begin_ && at < end_ && ((at - begin_) & mask_ & ~(page_ - 1)) == 0;
  }

 private:
  std::uintptr_t begin_;
  std::uintptr_t end_;
  std::size_t page_;
  std::size_t mask_ = 0;
};

// A value that no pointer of a program has, so that a garbage collector which scans new memory
// takes no mark for a reference.
std::uint64_t mark_of(const std::uint64_t* word) {
  return (reinterpret_cast<std::uintptr_t>(word) * 0x9e3779b97f4a7c15U) | 0x4000'0000'0000'0001U;
}

// Calls f(word) for each word of a page that may be a mark: those of two cache lines.
template <class F>
void each_marked_word(std::uintptr_t page_address, std::size_t page, F f) {
  for (const std::size_t offset : {page / 8 * 3, page / 8 * 7}) {
    auto* const line = reinterpret_cast<std::uint64_t*>(page_address + offset);
    for (std::size_t i = 0; i < kLineWords; ++i) {
      f(line + i);
    }
  }
}

// Returns whether a marked page is as mark_resident_pages() left it.
bool is_untouched(std::uintptr_t page_address, std::size_t page) {
  bool marked = false;
  bool changed = false;
  each_marked_word(page_address, page, [&](const std::uint64_t* word) {
    const bool is_mark = *word == mark_of(word);
    marked = marked || is_mark;
    changed = changed || (!is_mark && *word != 0);
  });
  return marked && !changed;
}

// For each size, how many marked blocks in a row the program has filled. From kFilled on, one of
// kFilled blocks is marked: marks cost a system call, and say nothing where all blocks are filled.
constexpr unsigned kFilled = 16;
constexpr std::size_t kSizes = 1024;
std::atomic<std::uint8_t> filled_in_a_row[kSizes];
std::atomic<unsigned> unmarked;  // of all threads; that one is lost now and then does no harm

std::atomic<std::uint8_t>& filled_count(std::size_t size) {
  return filled_in_a_row[size * 0x9e3779b97f4a7c15U >> 54];
}

bool is_worth_marking(std::size_t size) {
  if (filled_count(size).load(std::memory_order_relaxed) < kFilled) {
    return true;
  }
  const unsigned count = unmarked.load(std::memory_order_relaxed) + 1;
  unmarked.store(count % kFilled, std::memory_order_relaxed);
  return count == kFilled;
}

void note_filled(std::size_t size, bool filled) {
  std::atomic<std::uint8_t>& count = filled_count(size);
  const unsigned before = count.load(std::memory_order_relaxed);
  const unsigned after = filled ? std::min(before + 1, kFilled) : 0;
  if (after != before) {
    count.store(static_cast<std::uint8_t>(after), std::memory_order_relaxed);
  }
}

}  // namespace

void mark_resident_pages(void* block, std::size_t size) {
  if (!is_worth_marking(size)) {
    return;
  }
  const std::size_t page = page_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const MarkedPages marked(address, size, page);
  each_resident_page(address, size, page, [&](std::uintptr_t at) {
    if (marked.contains(at)) {
      each_marked_word(at, page, [](std::uint64_t* word) {
        if (*word != 0) {
          *word = mark_of(word);
        }
      });
    }
  });
}

std::size_t resident_part(std::uintptr_t address, std::size_t size) {
  const std::size_t page = page_bytes();
  std::size_t pages = 0;
  each_resident_page(address, size, page, [&](std::uintptr_t) { ++pages; });
  return std::min(pages * page, size);
}

std::size_t touched_part(std::uintptr_t address, std::size_t size) {
  const std::size_t page = page_bytes();
  const MarkedPages marked(address, size, page);
  std::size_t resident = 0;
  std::size_t seen = 0;
  std::size_t untouched = 0;
  each_resident_page(address, size, page, [&](std::uintptr_t at) {
    ++resident;
    if (marked.contains(at)) {
      ++seen;
      untouched += is_untouched(at, page) ? 1 : 0;
    }
  });
  note_filled(size, untouched == 0);
  if (seen != 0) {
    resident -= resident * untouched / seen;
  }
  return std::min(resident * page, size);
}

}  // namespace heapwright::recorder
