// Memory that one kind of block after another uses: small blocks, pages, buffers, and large blocks.
// All blocks of a kind are freed before the next kind is allocated, as in compilers and solvers,
// whose phases use other data structures. Shows whether blocks of one kind use the memory of
// another.
#include <array>

#include "bench.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  constexpr std::array<std::uint64_t, 5> kSizes = {64, 4000, 200'000, 1'500'000, 3'000'000};
  const Options options(argc, argv);
  const std::uint64_t bytes = (options.get("mib", 64, 8) << 20U) / options.threads;
  const std::uint64_t cycles = options.get("cycles", 6, 2);
  std::uint64_t operations = 0;
  for (const std::uint64_t size : kSizes) {
    operations += bytes / size * cycles * options.threads;
  }
  Section section;
  run_threads(section, options.threads, [&](std::uint64_t) {
    Pages<void*> blocks(bytes / kSizes[0]);
    for (std::uint64_t cycle = 0; cycle < cycles; ++cycle) {
      for (const std::uint64_t size : kSizes) {
        const std::uint64_t count = bytes / size;
        for (std::uint64_t i = 0; i < count; ++i) {
          blocks[i] = std::malloc(size);
          fill(blocks[i], size, static_cast<std::uint8_t>(i));
        }
        for (std::uint64_t i = 0; i < count; ++i) {
          check(blocks[i], size, static_cast<std::uint8_t>(i));
          std::free(blocks[i]);
        }
      }
    }
  });
  return Report("kinds", options).finish(section, operations);
}
