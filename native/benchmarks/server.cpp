// Threads that replace random blocks of their state, and hand the whole state over to a successor
// when they end. After Larson and Krishnan (ISMM 1998): blocks outlive the thread that made them,
// as in servers with a thread a request.
#include "bench.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const std::uint64_t blocks = options.get("blocks", 1000, 500);
  const std::uint64_t steps = options.get("steps", 100000, 50000);
  const std::uint64_t generations = options.get("generations", 20, 8);
  struct Block {
    void* data;
    std::uint32_t size;
  };
  Pages<Block> states(blocks * options.threads);
  Section section;
  for (std::uint64_t generation = 0; generation < generations; ++generation) {
    run_threads(section, options.threads, [&](std::uint64_t number) {
      Random random(options.seed * 1000 + generation * 100 + number);
      // The state of another thread of the generation before.
      Block* const mine = states.data() + ((number + generation) % options.threads) * blocks;
      for (std::uint64_t step = 0; step < steps; ++step) {
        Block& block = mine[random.below(blocks)];
        if (block.data != nullptr) {
          check(block.data, block.size, static_cast<std::uint8_t>(block.size));
          std::free(block.data);
        }
        block.size = static_cast<std::uint32_t>(10 + random.below(490));
        block.data = std::malloc(block.size);
        fill(block.data, block.size, static_cast<std::uint8_t>(block.size));
      }
    });
  }
  for (std::uint64_t i = 0; i < blocks * options.threads; ++i) {
    std::free(states[i].data);
  }
  return Report("server", options).finish(section, steps * generations * options.threads);
}
