// Runs random threads on reaper. See random_threads.h and random_spans.h.
#include "include/reaper.h"
#include "random_spans.h"
#include "random_threads.h"

namespace {

struct Reaper {
  static void* malloc(std::size_t bytes) { return reaper_malloc(bytes); }
  static void* calloc(std::size_t count, std::size_t size) { return reaper_calloc(count, size); }
  static void* realloc(void* block, std::size_t bytes) { return reaper_realloc(block, bytes); }
  static void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    return reaper_aligned_alloc(alignment, bytes);
  }
  static void free(void* block) { reaper_free(block); }
  static void free_sized(void* block, std::size_t bytes) { reaper_free_sized(block, bytes); }
  static std::size_t usable_size(const void* block) { return reaper_usable_size(block); }
  static void trim() { (void)reaper_trim(); }
  static std::size_t live() {
    reaper_statistics found{};
    reaper_get_statistics(&found);
    return found.live;
  }
  static int start(pthread_t* thread, void* (*body)(void*), void* argument) {
    return pthread_create(thread, nullptr, body, argument);
  }
};

using heapwright::alloc::threads::Membarrier;
using heapwright::alloc::threads::play_with_spans;

TEST(ReaperThreads, AtRandom) { heapwright::alloc::threads::play_at_random<Reaper>(); }

TEST(ReaperThreads, SpansAtRandom) { play_with_spans<Reaper>(Membarrier::kAsIs); }

TEST(ReaperThreads, SpansAtRandomWithoutMembarrier) { play_with_spans<Reaper>(Membarrier::kRefused); }

TEST(ReaperThreads, SpansAtRandomWhereMembarrierEnds) { play_with_spans<Reaper>(Membarrier::kRefusedLater); }

}  // namespace
