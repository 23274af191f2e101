// Three hundred short threads, one after the other, whose thread-local destructors still allocate
// and free. After bug reports to jemalloc, mimalloc and tcmalloc: heaps of threads that have gone
// must be used again, and the last calls of a dying thread must work.
#include "bench.h"

namespace {

using namespace heapwright::bench;

// Made by each thread late, so that it is torn down early or late depending on the C library;
// allocates either way.
struct Last {
  void* block = nullptr;
  ~Last() {
    std::free(block);
    void* const more = std::malloc(5000);
    fill(more, 5000, 9);
    check(more, 5000, 9);
    std::free(more);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  const std::uint64_t threads = options.get("count", 300, 60);
  const std::uint64_t blocks = options.get("blocks", 2000, 500);
  Report report("thread-exit", options);
  Section section;
  for (std::uint64_t i = 0; i < threads; ++i) {
    run_threads(section, options.threads, [&](std::uint64_t number) {
      thread_local Last last;
      last.block = std::malloc(1000);
      Random random(options.seed * 1000 + i * 10 + number);
      Pages<void*> mine(blocks);
      for (std::uint64_t k = 0; k < blocks; ++k) {
        mine[k] = std::malloc(16 + random.below(500));
        fill(mine[k], 16, 3);
      }
      for (std::uint64_t k = 0; k < blocks; ++k) {
        check(mine[k], 16, 3);
        std::free(mine[k]);
      }
    });
  }
  return report.finish(section, threads * options.threads * blocks);
}
