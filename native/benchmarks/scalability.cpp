// Independent threads allocate and free blocks of one size (512 bytes), a million times each. After
// Reaper's scalability experiment (itself after Hoard's `threadtest`): without contention the time
// does not depend on the number of threads.
#include "openmp.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const std::uint64_t iterations = options.get("iterations", 1000000, 300000);
  const std::size_t size = options.get("size", 512, 512);
  const std::uint64_t held = options.get("held", 64, 64);
  Section section;
  run_openmp(section, options.threads, [&](std::uint64_t number) {
    const auto tag = static_cast<std::uint8_t>(number + 1);
    Pages<void*> blocks(held);
    for (std::uint64_t i = 0; i < iterations; ++i) {
      void*& block = blocks[i % held];
      if (block != nullptr) {
        check(block, size, tag);
        std::free(block);
      }
      block = std::malloc(size);
      fill(block, size, tag);
    }
    for (std::uint64_t i = 0; i < held; ++i) {
      std::free(blocks[i]);
    }
  });
  return Report("scalability", options).finish(section, iterations * options.threads);
}
