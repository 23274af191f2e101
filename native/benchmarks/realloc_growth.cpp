// Buffers that grow by realloc: some by doubling as vectors do, some by a little as strings and
// readers of files do, one to a gibibyte. After rptest's and glibc's realloc cases: an allocator
// that moves large blocks pays for every byte.
#include "bench.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const std::uint64_t largest = options.get("mib", 1024, 64) << 20U;
  const std::uint64_t buffers = options.get("buffers", 20000, 2000);
  std::uint64_t operations = 0;
  const auto grow = [&](std::uint64_t limit, auto next) {
    std::uint64_t size = 16;
    auto* block = static_cast<unsigned char*>(std::malloc(size));
    fill(block, size, 7);
    while (size < limit) {
      const std::uint64_t before = size;
      size = next(size);
      auto* const moved = static_cast<unsigned char*>(std::realloc(block, size));
      ++operations;
      if (moved == nullptr) {
        std::_Exit(1);
      }
      block = moved;
      if (block[0] != 7 || block[before - 1] != 7) {
        corrupt(block, size);
      }
      fill(block + before, size - before, 7);
    }
    check(block, size, 7);
    std::free(block);
  };
  Report report("realloc-growth", options);
  Section section;
  section.begin();
  const double began = now();
  Random random(options.seed);
  for (std::uint64_t i = 0; i < buffers; ++i) {
    grow(64 + random.below(8192), [](std::uint64_t size) { return size * 2; });
    grow(64 + random.below(2048), [](std::uint64_t size) { return size + 24; });
  }
  const double small = now();
  grow(largest, [](std::uint64_t size) { return size * 2; });
  const double doubled = now();
  grow(largest / 4, [](std::uint64_t size) { return size + (1U << 20U); });
  const double ended = now();
  section.end(ended - began);
  report.add("small_s", small - began);
  report.add("doubling_s", doubled - small);
  report.add("by_mib_s", ended - doubled);
  return report.finish(section, operations);
}
