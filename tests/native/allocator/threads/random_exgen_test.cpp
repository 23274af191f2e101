// Runs random threads on exgen, which learns of them by its pthread_create. See random_threads.h and random_spans.h.
#include "include/exgen.h"
#include "random_spans.h"
#include "random_threads.h"

extern "C" int exgen_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                                    void* argument);

namespace {

struct Exgen {
  static void* malloc(std::size_t bytes) { return exgen_malloc(bytes); }
  static void* calloc(std::size_t count, std::size_t size) { return exgen_calloc(count, size); }
  static void* realloc(void* block, std::size_t bytes) { return exgen_realloc(block, bytes); }
  static void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    return exgen_aligned_alloc(alignment, bytes);
  }
  static void free(void* block) { exgen_free(block); }
  static void free_sized(void* block, std::size_t bytes) { exgen_free_sized(block, bytes); }
  static std::size_t usable_size(const void* block) { return exgen_usable_size(block); }
  static void trim() { (void)exgen_trim(); }
  static std::size_t live() {
    exgen_statistics found{};
    exgen_get_statistics(&found);
    return found.live;
  }
  static int start(pthread_t* thread, void* (*body)(void*), void* argument) {
    return exgen_pthread_create(thread, nullptr, body, argument);
  }
};

using heapwright::alloc::threads::Membarrier;
using heapwright::alloc::threads::play_with_spans;

TEST(ExgenThreads, AtRandom) { heapwright::alloc::threads::play_at_random<Exgen>(); }

TEST(ExgenThreads, SpansAtRandom) { play_with_spans<Exgen>(Membarrier::kAsIs); }

TEST(ExgenThreads, SpansAtRandomWithoutMembarrier) { play_with_spans<Exgen>(Membarrier::kRefused); }

TEST(ExgenThreads, SpansAtRandomWhereMembarrierEnds) { play_with_spans<Exgen>(Membarrier::kRefusedLater); }

}  // namespace
