// Runs one fuzzing thread: chooses operations, updates the model and checks every result. It checks
// alignment, overlap with live blocks, usable size, contents, zeroes from calloc, errno across
// free, and that a refusal changes nothing.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <ctime>

#include "allocator_phases.h"
#include "allocator_ways.h"

namespace heapwright::shadow {

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t seconds = 5;
  std::uint64_t operations = ~std::uint64_t{0};
  std::uint64_t threads = 1;
  bool fork = false;
  bool plain = false;  // only functions of every malloc: nothing aligned, no malloc_usable_size, no absurd sizes
  std::uint64_t max_live = 256;
  std::uint64_t max_size = ~std::uint64_t{0};
  std::uint64_t max_align = std::uint64_t{4} << 20U;
};

inline Options options;
inline Shadow shadow;
inline double deadline = 0;
inline std::atomic<std::uint64_t> operations_done = 0;

inline double now() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Worker {
 public:
  explicit Worker(std::uint64_t seed)
      : random_(seed), phases_(random_), own_(static_cast<Block**>(map_pages(kMax * sizeof(Block*)))) {
    scene = {seed, 0, "start", false};
  }
  ~Worker() { munmap(static_cast<void*>(own_), kMax * sizeof(Block*)); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void run(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations; ++i) {
      if (i % 64 == 63 && now() > deadline && !scene.child) {
        break;
      }
      ++scene.operation;
      step();
      ++operations_done;
    }
  }

  void check_all() {
    scene.doing = "check all";
    for (std::size_t i = 0; i < count_; ++i) {
      check(*own_[i]);
    }
  }

  void leave_all() {
    while (count_ > 0) {
      shadow.leave(own_[--count_]);
    }
  }

  void free_all() {
    for (std::size_t i = 0; i < Shadow::kSlots; ++i) {
      if (Block* const block = shadow.exchange(i, nullptr); block != nullptr) {
        shadow.leave(block);
      }
    }
    while (count_ > 0) {
      give_back(own_[--count_]);
    }
    while (Block* const block = shadow.adopt()) {
      give_back(block);
    }
  }

  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  static constexpr std::size_t kMax = 40000;  // blocks of one thread

  void step() {
    phases_.step();
    if (shadow.live() > (options.max_live << 20U) || count_ + 1 >= kMax) {
      shrink();
      return;
    }
    const std::uint64_t dice = random_.below(1000);
    if (dice < 150) {
      change();
    } else if (dice < 250) {
      look();
    } else if (dice < 290 && options.threads > 1) {
      hand_over();
    } else if (dice == 290 && !options.plain) {
      too_much();
    } else if (dice == 291 && random_.once_in(2)) {
      scene.doing = "malloc_trim";
      const std::uint64_t kept = random_.below(2) * 65536;
#ifdef __GLIBC__
      malloc_trim(kept);
#else
      (void)kept;
#endif
    } else if (dice == 292 && random_.once_in(2) && options.fork && !scene.child) {
      try_fork();
    } else if (random_.below(100) < phases_.growth) {
      obtain();
    } else {
      shrink();
    }
  }

  void noted(const char* doing, std::size_t size) {
    scene.doing = doing;
    digest_ = (digest_ ^ size ^ static_cast<std::uint64_t>(doing[0])) * 0x100000001b3U;
  }

  void obtain() {
    const Way& way = kWays[random_.below(std::size(kWays))];
    if (options.plain && way.shape != Shape::kAny && way.shape != Shape::kCalloc) {
      return;
    }
    std::size_t size = std::min<std::size_t>(phases_.size(), options.max_size);
    std::size_t alignment = 0;
    if (way.shape == Shape::kAligned || way.shape == Shape::kAlignedMultiple) {
      const std::uint64_t bits = random_.once_in(32) ? 22 : 13;
      alignment = std::min<std::size_t>(std::size_t{1} << random_.between(3, bits), options.max_align);
    }
    if (way.shape == Shape::kAlignedMultiple) {
      size = (size + alignment - 1) & ~(alignment - 1);
    }
    noted(way.name, size);
    errno = 0;
    void* at = nullptr;
    try {
      at = way.call(size, alignment);
    } catch (const std::bad_alloc&) {
      at = nullptr;
    }
    if (at == nullptr) {
      broken("%zu bytes aligned to %zu refused with %zu MiB live, errno %d", size, alignment,
             shadow.live() >> 20U, errno);
    }
    const bool whole = way.shape == Shape::kPvalloc;
    const bool paged = whole || way.shape == Shape::kValloc;
    check_alignment(at, size, paged ? page_size() : alignment);
    Block block = fresh(at, size, whole ? (size + page_size() - 1) & ~(page_size() - 1) : size, way.family);
    block.alignment = alignment;
    if (way.shape == Shape::kCalloc) {
      check_zero(block);
    }
    own_[count_++] = keep(block);
  }

  Block fresh(void* at, std::size_t size, std::size_t least, Family family) {
    const std::size_t usable = options.plain ? size : malloc_usable_size(at);
    if (usable < least) {
      broken("block %p of %zu bytes has a usable size of %zu, not %zu", at, size, usable, least);
    }
    return {static_cast<unsigned char*>(at), size, usable, 0, family, random_() | 1U, nullptr};
  }

  static Block* keep(const Block& block) {
    Block* const kept = shadow.put(block);
    fill(block);
    return kept;
  }

  static void check_alignment(const void* at, std::size_t size, std::size_t asked) {
    const std::size_t alignment = std::max<std::size_t>(asked, size >= 16 ? 16 : 8);
    if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0) {
      broken("block %p of %zu bytes is not aligned to %zu", at, size, alignment);
    }
  }

  static void check_zero(const Block& block) {
    static constexpr unsigned char kZeroes[4096] = {};
    for (std::size_t i = 0; i < block.size; i += sizeof kZeroes) {
      const std::size_t bytes = std::min(sizeof kZeroes, block.size - i);
      if (std::memcmp(block.at + i, kZeroes, bytes) != 0) {
        broken("block %p of %zu bytes is not zero between offsets %zu and %zu", static_cast<void*>(block.at),
               block.size, i, i + bytes);
      }
    }
  }

  std::size_t pick() {
    switch (phases_.order) {
      case Order::kNewest:
        return count_ - 1;
      case Order::kSweep:
        return sweep_++ % count_;
      default:
        return random_.below(count_);
    }
  }

  Block* remove(std::size_t index) {
    Block* const block = own_[index];
    own_[index] = own_[--count_];
    return block;
  }

  void shrink() {
    if (Block* const orphan = options.threads > 1 ? shadow.adopt() : nullptr; orphan != nullptr) {
      if (random_.once_in(8) && count_ + 1 < kMax) {
        own_[count_++] = orphan;
      } else {
        give_back(orphan);
      }
    } else if (count_ > 0) {
      give_back(remove(pick()));
    }
  }

  void give_back(Block* known) {
    const WayBack& back = way_back(known->family, random_);
    noted(back.name, known->size);
    check(*known);
    const Block block = shadow.take(known);
    errno = ENOTTY;  // no allocator's own
    back.call(block.at, block.size, block.alignment);
    if (errno != ENOTTY) {
      broken("%s changed errno to %d", back.name, errno);
    }
  }

  // Calls realloc or reallocarray with a slightly or much larger or smaller size, the usable size,
  // or zero.
  void change() {
    const std::size_t index = count_ > 0 ? pick() : 0;
    if (count_ == 0 || !from_c(own_[index]->family)) {
      return;
    }
    const std::size_t size = std::min<std::size_t>(new_size(*own_[index]), options.max_size);
    const bool array = random_.once_in(4);
    noted(array ? "reallocarray" : "realloc", size);
    check(*own_[index]);
    const Block old = shadow.take(remove(index));
    void* const at = array ? reallocarray(old.at, size, 1) : realloc(old.at, size);
    if (at == nullptr) {
      if (size == 0) {
        return;  // freed, as in glibc
      }
      broken("%p of %zu bytes to %zu bytes refused with %zu MiB live, errno %d", static_cast<void*>(old.at),
             old.size, size, shadow.live() >> 20U, errno);
    }
    check_alignment(at, size, 0);
    const Block block = fresh(at, size, size, Family::kPlain);
    check(old, block.at, std::min(old.size, size));
    own_[count_++] = keep(block);
  }

  std::size_t new_size(const Block& block) {
    switch (random_.below(8)) {
      case 0:
        return phases_.size();
      case 1:
        return random_.once_in(4) ? 0 : block.size / 2;
      case 2:
        return block.size < (std::size_t{32} << 20U) ? block.size * 2 : block.size / 3;
      case 3:
        return class_end(block.size);
      case 4:
        return class_end(block.size) + 1;
      case 5:
        return block.size - std::min<std::size_t>(block.size, random_.below(64));
      default:
        return block.size + random_.below(block.size / 4 + 64);
    }
  }

  // Returns the possible end of the block's size class in glibc, or with four classes to a
  // doubling. It does not use malloc_usable_size, which depends on addresses in glibc: the
  // operations must depend only on the seed.
  std::size_t class_end(std::size_t size) {
    const std::size_t step = std::max<std::size_t>(16, std::bit_floor(size) / 4);
    return random_.once_in(2) ? ((size + 23) & ~std::size_t{15}) - 8 : (size + step - 1) / step * step;
  }

  void look() {
    if (count_ > 0) {
      const Block& block = *own_[random_.below(count_)];
      noted("malloc_usable_size", block.size);
      if (!options.plain && malloc_usable_size(block.at) < block.usable) {
        broken("the usable size of %p was %zu and is %zu", static_cast<void*>(block.at), block.usable,
               malloc_usable_size(block.at));
      }
      check(block);
    }
  }

  void hand_over() {
    scene.doing = "hand over";
    Block* const mine = count_ > 0 ? remove(random_.below(count_)) : nullptr;
    if (Block* const theirs = shadow.exchange(random_(), mine); theirs != nullptr) {
      check(*theirs);
      own_[count_++] = theirs;
    }
  }

  // Requests too much memory, and checks that the refusal changes nothing.
  void too_much() {
    volatile std::size_t size = std::size_t{PTRDIFF_MAX} - random_.below(4096) * random_.below(2);
    noted("too much", 0);
    Block* const block = count_ > 0 ? own_[random_.below(count_)] : nullptr;
    const bool again = block != nullptr && from_c(block->family);
    if (again ? realloc(block->at, size) != nullptr : malloc(size) != nullptr) {
      broken("%s of %zu bytes gave a block", again ? "realloc" : "malloc", static_cast<std::size_t>(size));
    }
    if (block != nullptr) {
      check(*block);
    }
  }

  void try_fork() {
    scene.doing = "fork";
    shadow.lock();  // so that the child's copy of the model is consistent
    const pid_t child = fork();
    shadow.unlock();
    if (child < 0) {
      broken("fork failed, errno %d", errno);
    }
    if (child == 0) {
      scene.child = true;
      alarm(60);  // ends a child that waits for a lock of a thread that does not exist there
      check_all();
      run(random_.between(50, 1000));
      check_all();
      free_all();
      _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) {
      broken("the child ended with wait status %d%s", status, status == SIGALRM ? ": it did not end" : "");
    }
  }

  Random random_;
  Phases phases_;
  Block** own_;
  std::size_t count_ = 0;
  std::size_t sweep_ = 0;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
};

}  // namespace heapwright::shadow
