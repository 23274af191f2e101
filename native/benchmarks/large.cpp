// Random blocks from `min` to `max` KiB (64 KiB to 32 MiB), each touched page by page, as solvers
// and numerical libraries have them, servers for their buffers, and databases. Shows how often
// memory goes to the kernel and comes back as page faults. With zeroed=1 the blocks come from
// calloc.
#include <cmath>

#include "bench.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const std::uint64_t steps = options.get("steps", 2000, 200) / options.threads;
  const std::uint64_t held = options.get("held", 16, 8) / options.threads + 1;
  const std::uint64_t smallest = options.get("min", 64, 64) * 1024;
  const bool zeroed = options.get("zeroed", 0, 0) != 0;
  const double doublings =
      std::log2(static_cast<double>(options.get("max", 32768, 32768) * 1024) / static_cast<double>(smallest));
  Section section;
  run_threads(section, options.threads, [&](std::uint64_t number) {
    struct Block {
      unsigned char* data;
      std::uint64_t size;
    };
    Random random(options.seed * 1000 + number);
    Pages<Block> blocks(held);
    const auto release = [](Block& block) {
      for (std::uint64_t at = 0; block.data != nullptr && at < block.size; at += 4096) {
        if (block.data[at] != static_cast<unsigned char>(at >> 12U)) {
          corrupt(block.data, block.size);
        }
      }
      std::free(block.data);
    };
    for (std::uint64_t step = 0; step < steps; ++step) {
      Block& block = blocks[random.below(held)];
      release(block);
      block.size =
          static_cast<std::uint64_t>(static_cast<double>(smallest) * std::exp2(random.unit() * doublings));
      block.data = static_cast<unsigned char*>(zeroed ? std::calloc(1, block.size) : std::malloc(block.size));
      if (block.data == nullptr) {
        std::_Exit(1);
      }
      for (std::uint64_t at = 0; at < block.size; at += 4096) {
        block.data[at] = static_cast<unsigned char>(at >> 12U);
      }
    }
    for (std::uint64_t i = 0; i < held; ++i) {
      release(blocks[i]);
    }
  });
  return Report("large", options).finish(section, steps * options.threads);
}
