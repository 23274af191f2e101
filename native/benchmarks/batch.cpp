// Many blocks allocated, then freed in the order they came (FIFO), the reverse (LIFO), or at
// random; sizes all small, or growing. After allocbench's and rptest's simplest loops: shows how an
// allocator orders its free blocks.
#include <algorithm>

#include "bench.h"

namespace {

using namespace heapwright::bench;

struct Block {
  void* data;
  std::uint32_t size;
};

enum Order : std::uint8_t { kLifo, kFifo, kRandom };

void shuffle(Block* blocks, std::uint64_t count, Random& random) {
  for (std::uint64_t i = count - 1; i > 0; --i) {
    std::swap(blocks[i], blocks[random.below(i + 1)]);
  }
}

void round_of(Block* blocks, std::uint64_t count, Order order, bool growing, Random& random) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t size_range = growing ? 16 + i * 4096 / count : 256;
    blocks[i].size = static_cast<std::uint32_t>(16 + random.below(size_range));
    blocks[i].data = std::malloc(blocks[i].size);
    fill(blocks[i].data, blocks[i].size, static_cast<std::uint8_t>(blocks[i].size));
  }
  if (order == kRandom) {
    shuffle(blocks, count, random);
  } else if (order == kLifo) {
    std::reverse(blocks, blocks + count);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    check(blocks[i].data, blocks[i].size, static_cast<std::uint8_t>(blocks[i].size));
    std::free(blocks[i].data);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  const std::uint64_t count = options.get("blocks", 50000, 10000);
  const std::uint64_t rounds = options.get("rounds", 10, 3);
  Report report("batch", options);
  Section section;
  for (const bool growing : {false, true}) {
    for (const Order order : {kLifo, kFifo, kRandom}) {
      const double took = run_threads(section, options.threads, [&](std::uint64_t number) {
        Random random(options.seed * 1000 + number);
        Pages<Block> blocks(count);
        for (std::uint64_t round = 0; round < rounds; ++round) {
          round_of(blocks.data(), count, order, growing, random);
        }
      });
      static const char* const names[] = {"lifo", "fifo", "random"};
      const std::string key = std::string(growing ? "growing_" : "small_") + names[order] + "_ns";
      report.add(key, took * 1e9 / static_cast<double>(count * rounds));
    }
  }
  return report.finish(section, 6 * count * rounds * options.threads);
}
