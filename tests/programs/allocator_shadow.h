// Models every live block for the allocator tests, in memory that the malloc under test cannot
// spoil.
//
// A block is filled with words of its own seed. The tests check its contents before it is freed,
// moved, or handed to another thread. Shadow knows the interval of each live block, [address,
// address + usable size), and ends the program (status 3) when two of them overlap. A block is
// registered after malloc has returned it and before it is filled; it is withdrawn before the call
// of free. All of this lives in memory from mmap, so that the malloc under test sees only the
// test's own operations.
#pragma once

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>

namespace heapwright::shadow {

constexpr int kBroken = 3;

// What this thread is doing, for the line that a failure prints.
struct Scene {
  std::uint64_t seed = 0;
  std::uint64_t operation = 0;
  const char* doing = "start";
  bool child = false;
};
inline thread_local Scene scene;

// Prints one line without malloc.
__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
  char line[512];
  const int head = std::snprintf(
      line, sizeof line, "seed %llu, operation %llu (%s)%s: ", static_cast<unsigned long long>(scene.seed),
      static_cast<unsigned long long>(scene.operation), scene.doing,
      scene.child ? ", in a forked child" : "");
  const std::size_t used = std::min(static_cast<std::size_t>(std::max(head, 0)), sizeof line - 2);
  va_list values;
  va_start(values, format);
  const int tail = std::vsnprintf(line + used, sizeof line - 1 - used, format, values);
  va_end(values);
  std::size_t end = std::min(used + static_cast<std::size_t>(std::max(tail, 0)), sizeof line - 2);
  line[end++] = '\n';
  if (write(STDERR_FILENO, line, end) < 0) {
    _exit(kBroken);
  }
}

template <class... Values>
[[noreturn]] void broken(const char* format, Values... values) {
  say(format, values...);  // NOLINT: every caller gives a literal
  _exit(kBroken);
}

// A random number generator: splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t below(std::uint64_t limit) { return (*this)() % limit; }
  std::uint64_t between(std::uint64_t least, std::uint64_t most) { return least + below(most - least + 1); }
  bool once_in(std::uint64_t times) { return below(times) == 0; }

 private:
  std::uint64_t state_;
};

inline std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

inline void* map_pages(std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (memory == MAP_FAILED) {
    broken("the test's own mmap of %zu bytes failed", bytes);
  }
  return memory;
}

// Allocates nodes for std::map from mmap. Users of the map hold its lock.
template <class T>
struct PageAllocator {
  using value_type = T;
  PageAllocator() = default;
  template <class U>
  explicit PageAllocator(const PageAllocator<U>& /*other*/) {}
  T* allocate(std::size_t /*one*/) {
    if (unused == nullptr) {
      constexpr std::size_t kNodes = 16384;
      auto* const nodes = static_cast<Node*>(map_pages(kNodes * sizeof(Node)));
      for (std::size_t i = 0; i < kNodes; ++i) {
        nodes[i].next = unused;
        unused = &nodes[i];
      }
    }
    Node* const node = unused;
    unused = node->next;
    return reinterpret_cast<T*>(node->room);
  }
  void deallocate(T* value, std::size_t /*one*/) {
    auto* const node = reinterpret_cast<Node*>(value);
    node->next = unused;
    unused = node;
  }
  bool operator==(const PageAllocator& /*other*/) const { return true; }

 private:
  union Node {
    Node* next;
    alignas(T) unsigned char room[sizeof(T)];
  };
  static inline Node* unused = nullptr;
};

// Says which functions may free a block.
enum class Family { kPlain, kStdAligned, kOldAligned, kNew, kNewArray, kNewAligned, kNewArrayAligned };

struct Block {
  unsigned char* at = nullptr;
  std::size_t size = 0;    // as asked for
  std::size_t usable = 0;  // as malloc_usable_size says; the test fills all of it
  std::size_t alignment = 0;
  Family family = Family::kPlain;
  std::uint64_t seed = 0;
  Block* next = nullptr;  // among orphans
};

// Calls visit(offset) for every word that fill writes: all of a small block; of a larger one both
// ends and a word in each page, so that 64 MiB cost no more than touching them does.
template <class Visit>
void each_word(std::size_t bytes, Visit visit) {
  constexpr std::size_t kWhole = 16384;
  constexpr std::size_t kEnd = 2048;
  const std::size_t head = bytes <= kWhole ? bytes : kEnd;
  for (std::size_t i = 0; i < head; i += 8) {
    visit(i);
  }
  if (bytes > kWhole) {
    for (std::size_t i = 4096 + 8 * (bytes % 509); i < bytes - kEnd; i += 4096) {
      visit(i);
    }
    for (std::size_t i = (bytes - kEnd) & ~std::size_t{7}; i < bytes; i += 8) {
      visit(i);
    }
  }
}

inline std::uint64_t word_at(std::uint64_t seed, std::size_t offset) {
  return seed + offset * 0x9e3779b97f4a7c15U;
}

inline void fill(const Block& block) {
  each_word(block.usable, [&](std::size_t i) {
    const std::uint64_t word = word_at(block.seed, i);
    std::memcpy(block.at + i, &word, std::min<std::size_t>(8, block.usable - i));
  });
  asm volatile("" : : "r"(block.at) : "memory");
}

// Checks that the first `limit` bytes at `at` are those that were written to `block` (realloc keeps
// a prefix, and may move it).
inline void check(const Block& block, const unsigned char* at, std::size_t limit) {
  each_word(block.usable, [&](std::size_t i) {
    if (i < limit) {
      const std::uint64_t word = word_at(block.seed, i);
      if (std::memcmp(at + i, &word, std::min({std::size_t{8}, limit - i, block.usable - i})) != 0) {
        broken("block %p of %zu bytes (usable %zu): offset %zu does not hold what was written there",
               static_cast<const void*>(at), block.size, block.usable, i);
      }
    }
  });
}

inline void check(const Block& block) { check(block, block.at, block.usable); }

class Shadow {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

  // Registers a block that malloc has just returned.
  Block* put(const Block& block) {
    lock();
    const auto after = blocks_.upper_bound(block.at);
    if (after != blocks_.end() && after->first < block.at + std::max<std::size_t>(block.usable, 1)) {
      overlap(block, after->second);
    }
    if (after != blocks_.begin()) {
      const Block& before = std::prev(after)->second;
      if (before.at + std::max<std::size_t>(before.usable, 1) > block.at) {
        overlap(block, before);
      }
    }
    Block* const kept = &blocks_.emplace_hint(after, block.at, block)->second;
    unlock();
    live_ += block.size;
    return kept;
  }

  // Withdraws a block that is about to be freed or moved.
  Block take(Block* block) {
    lock();
    const Block copy = *block;
    blocks_.erase(copy.at);
    unlock();
    live_ -= copy.size;
    return copy;
  }

  // Makes a block of an ending thread an orphan, for other threads to adopt.
  void leave(Block* block) {
    lock();
    block->next = orphans_;
    orphans_ = block;
    unlock();
  }
  Block* adopt() {
    lock();
    Block* const block = orphans_;
    orphans_ = block == nullptr ? nullptr : block->next;
    unlock();
    return block;
  }

  // Requested bytes of all live blocks.
  [[nodiscard]] std::size_t live() const { return live_; }
  // Exchanges a block, or null, for the block that another thread left in the slot, which may be
  // null.
  Block* exchange(std::size_t slot, Block* block) { return mail_[slot % kSlots].exchange(block); }
  static constexpr std::size_t kSlots = 64;

 private:
  [[noreturn]] static void overlap(const Block& fresh, const Block& old) {
    broken("block %p of %zu bytes (usable %zu) overlaps live block %p of %zu bytes (usable %zu)",
           static_cast<void*>(fresh.at), fresh.size, fresh.usable, static_cast<void*>(old.at), old.size,
           old.usable);
  }

  using Node = std::pair<unsigned char* const, Block>;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::map<unsigned char*, Block, std::less<>, PageAllocator<Node>> blocks_;
  Block* orphans_ = nullptr;
  std::atomic<Block*> mail_[kSlots] = {};
  std::atomic<std::size_t> live_ = 0;
};

}  // namespace heapwright::shadow
