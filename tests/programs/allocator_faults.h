// The scenarios of allocator_faults: they accept that malloc fails, and check that it fails
// correctly.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <new>

#include "allocator_processes.h"
#include "fail_calls.h"

namespace heapwright::shadow {

// Counts that a process of an experiment shares with its parent.
struct Figures {
  unsigned long calls;    // memory calls
  unsigned long failed;   // memory calls that failed
  unsigned long refused;  // requests that malloc refused
};
inline Figures* figures = nullptr;
inline bool limited_otherwise = false;  // by a limit other than fail_calls

// Counts a NULL from malloc or a similar function, and checks that it was justified.
inline void refused(const char* who, std::size_t size) {
  if (errno != ENOMEM) {
    broken("%s of %zu bytes refused with errno %d", who, size, errno);
  }
  if (!limited_otherwise && faults(FAULTS_FAILED, 0, 0, 0) <= 0) {
    broken("%s of %zu bytes refused, and the kernel has refused nothing", who, size);
  }
  __atomic_add_fetch(&figures->refused, 1, __ATOMIC_RELAXED);
}

inline void check_zero(const unsigned char* at, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (at[i] != 0) {
      broken("calloc of %zu bytes is not zero at offset %zu", size, i);
    }
  }
}

// Holds blocks, each filled with words of its own seed.
class Blocks {
 public:
  static constexpr std::size_t kMax = 256;

  explicit Blocks(std::uint64_t seed) : random_(seed) {}

  // Chooses a size such that most blocks are small, but most memory is in large ones.
  std::size_t some_size() {
    const std::uint64_t dice = random_.below(100);
    return 1 + random_.below(dice < 70 ? 2000 : dice < 90 ? 32 << 10U : dice < 98 ? 300 << 10U : 3 << 20U);
  }

  void step() {
    Block& one = all_[random_.below(kMax)];
    if (one.at == nullptr) {
      take(one, some_size());
    } else if (random_.once_in(4)) {
      change(one, some_size());
    } else if (random_.once_in(2)) {
      give(one);
    } else {
      check(one);
    }
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      step();
    }
  }
  void give_all() {
    for (Block& one : all_) {
      give(one);
    }
  }
  void check_all() const {
    for (const Block& one : all_) {
      if (one.at != nullptr) {
        check(one);
      }
    }
  }
  // Removes a block for another thread; it may be null.
  Block part() {
    Block& one = all_[random_.below(kMax)];
    const Block given = one;
    one.at = nullptr;
    return given;
  }
  static void give(Block& one) {
    if (one.at != nullptr) {
      check(one);
      errno = ENOTTY;
      if (one.family == Family::kNew) {
        ::operator delete(one.at);
      } else {
        free(one.at);
      }
      if (errno != ENOTTY) {
        broken("free changed errno to %d", errno);
      }
      one.at = nullptr;
    }
  }

  void take(Block& one, std::size_t size) {
    errno = 0;
    const std::size_t alignment = std::size_t{16} << random_.below(random_.once_in(16) ? 19 : 9);
    void* at = nullptr;
    const char* who = "malloc";
    Family family = Family::kPlain;
    switch (random_.below(8)) {
      case 0:
        who = "calloc";
        at = calloc(1, size);
        if (at != nullptr) {
          check_zero(static_cast<unsigned char*>(at), size);
        }
        break;
      case 1:
        who = "aligned_alloc";
        at = aligned_alloc(alignment, size);
        break;
      case 2:
        who = "posix_memalign";
        if (const int error = posix_memalign(&at, alignment, size); error != 0) {
          at = nullptr;
          errno = error;  // posix_memalign returns its error
        }
        break;
      case 3:
        who = "operator new";
        family = Family::kNew;
        try {
          at = ::operator new(size);
        } catch (const std::bad_alloc&) {
          errno = ENOMEM;  // C++ does not specify errno here
        }
        break;
      case 4:
        who = "realloc";
        at = realloc(nullptr, size);
        break;
      default:
        at = malloc(size);
    }
    if (at == nullptr) {
      refused(who, size);
      return;
    }
    have(one, at, size, family);
  }

  // Resizes a block; a refusal must leave it unchanged.
  void change(Block& one, std::size_t size) {
    check(one);
    if (one.family == Family::kNew) {  // a hardened build reports realloc of a block from new
      return;
    }
    errno = 0;
    void* const at = realloc(one.at, size);
    if (at == nullptr) {
      refused("realloc", size);
      check(one);
      return;
    }
    check(one, static_cast<unsigned char*>(at), std::min(one.size, size));
    have(one, at, size, Family::kPlain);
  }

 private:
  void have(Block& one, void* at, std::size_t size, Family family) {
    one = {static_cast<unsigned char*>(at), size, size, 0, family, random_() | 1U, nullptr};
    fill(one);
  }

  Random random_;
  Block all_[kMax] = {};
};

inline void mixed(std::uint64_t seed) {
  Blocks blocks(seed);
  blocks.steps(1500);
  blocks.give_all();
  static unsigned char* spans[60] = {};  // purged memory must read as zero
  for (unsigned char*& span : spans) {
    constexpr std::size_t kSize = 200'000;
    errno = 0;
    span = static_cast<unsigned char*>(calloc(1, kSize));
    span == nullptr ? refused("calloc", kSize) : check_zero(span, kSize);
  }
  for (unsigned char*& span : spans) {
    free(span);
    span = nullptr;
  }
  malloc_trim(0);
  Block one = {};
  blocks.take(one, 1000);
  for (std::size_t size = 1000; one.at != nullptr && size < std::size_t{20} << 20U; size *= 2) {
    blocks.change(one, size);
  }
  for (std::size_t size = std::size_t{20} << 20U; one.at != nullptr && size > 1000; size /= 3) {
    blocks.change(one, size);
  }
  Blocks::give(one);
  blocks.steps(500);
  blocks.check_all();
  blocks.give_all();
}

// Slots where threads leave blocks for other threads.
inline std::atomic<Block*> handed[16] = {};

inline void* short_of_memory(void* raw) {
  static Block places[192];
  static std::atomic<std::size_t> used = 0;
  Blocks blocks(number(raw));
  Random random(number(raw));
  for (int i = 0; i < 300; ++i) {
    blocks.step();
    if (i % 25 == 0) {
      Block& mine = places[used++ % std::size(places)];
      mine = blocks.part();
      if (Block* const theirs = handed[random.below(std::size(handed))].exchange(&mine); theirs != nullptr) {
        Blocks::give(*theirs);
      }
    }
  }
  blocks.check_all();
  blocks.give_all();
  return nullptr;
}

// Starts a thread; returns false if the kernel refused its stack.
inline bool try_start(pthread_t& thread, void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{256} << 10U);
  const int error = pthread_create(&thread, &attributes, body, argument);
  pthread_attr_destroy(&attributes);
  if (error != 0 && error != EAGAIN && error != ENOMEM) {
    broken("pthread_create failed with %d", error);
  }
  return error == 0;
}

inline void threads(std::uint64_t seed) {
  for (std::uint64_t generation = 0; generation < 3; ++generation) {
    pthread_t all[4] = {};
    bool runs[4] = {};
    for (std::uint64_t i = 0; i < std::size(all); ++i) {
      runs[i] = try_start(all[i], short_of_memory, argument(seed + generation * 4 + i));
    }
    Blocks blocks(seed + generation);
    blocks.steps(200);
    for (std::size_t i = 0; i < std::size(all); ++i) {
      if (runs[i]) {
        pthread_join(all[i], nullptr);
      }
    }
    blocks.give_all();
  }
  for (auto& place : handed) {
    if (Block* const left = place.exchange(nullptr); left != nullptr) {
      Blocks::give(*left);
    }
  }
}

// Memory calls succeed again: malloc must succeed for every size, and for more memory than ever
// before.
inline void afterwards() {
  const unsigned long before = figures->refused;
  limited_otherwise = true;
  Blocks blocks(1);
  blocks.steps(300);
  struct Link {
    Link* next;
  };
  for (const std::size_t size :
       {std::size_t{40}, std::size_t{4000}, std::size_t{100'000}, std::size_t{2'000'000}}) {
    Link* all = nullptr;
    for (std::size_t total = 0; total < std::size_t{24} << 20U; total += std::max(size, std::size_t{4000})) {
      auto* const link = static_cast<Link*>(malloc(size));
      if (link == nullptr) {
        refused("malloc", size);
        break;
      }
      link->next = all;
      all = link;
    }
    while (all != nullptr) {
      Link* const next = all->next;
      free(all);
      all = next;
    }
  }
  blocks.give_all();
  pthread_t thread = {};
  if (!try_start(thread, some_churn, argument(1))) {
    broken("no thread can be started");
  }
  pthread_join(thread, nullptr);
  if (figures->refused != before) {
    broken("%lu allocations refused after the fault had ended", figures->refused - before);
  }
}

}  // namespace heapwright::shadow
