// Memory that ramps up, stays, and falls to a tenth, again and again, with other sizes each time.
// Shows how much memory an allocator keeps: resident memory after each fall, at once and after an
// idle second (allocators that purge lazily need the time).
#include "bench.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const std::uint64_t bytes = options.get("mib", 128, 16) << 20U;
  const std::uint64_t cycles = options.get("cycles", 4, 3);
  const useconds_t idle = options.get("idle_ms", 1000, 50) * 1000;
  struct Block {
    void* data;
    std::uint32_t size;
  };
  Report report("phases", options);
  Pages<Block> blocks(bytes / 32);
  Random random(options.seed);
  Section section;
  std::uint64_t operations = 0;
  std::uint64_t count = 0;
  std::uint64_t live = 0;
  for (std::uint64_t cycle = 0; cycle < cycles; ++cycle) {
    section.begin();
    const double began = now();
    const std::uint64_t size_range = 64U << (2 * (cycle % 4));  // 64, 256, 1024, 4096
    while (live < bytes && count < bytes / 32) {
      Block& block = blocks[count++];
      block.size = static_cast<std::uint32_t>(32 + random.below(size_range));
      block.data = std::malloc(block.size);
      fill(block.data, block.size, static_cast<std::uint8_t>(block.size));
      live += block.size;
      ++operations;
    }
    for (std::uint64_t step = 0; step < count / 2; ++step) {  // the plateau
      Block& block = blocks[random.below(count)];
      check(block.data, block.size, static_cast<std::uint8_t>(block.size));
      std::free(block.data);
      block.data = std::malloc(block.size);
      fill(block.data, block.size, static_cast<std::uint8_t>(block.size));
      ++operations;
    }
    const std::uint64_t left = count / 10;
    while (count > left) {  // at random, so that what stays is spread over all of the heap
      const std::uint64_t at = random.below(count);
      check(blocks[at].data, blocks[at].size, static_cast<std::uint8_t>(blocks[at].size));
      std::free(blocks[at].data);
      live -= blocks[at].size;
      blocks[at] = blocks[--count];
    }
    section.end(now() - began);
    const std::string name = "fall" + std::to_string(cycle + 1);
    report.add(name + "_live_bytes", live);
    report.add(name + "_rss_bytes", status("VmRSS"));
    usleep(idle);
    std::free(std::malloc(64));  // some allocators purge only when they are called
    report.add(name + "_idle_rss_bytes", status("VmRSS"));
  }
  while (count > 0) {
    std::free(blocks[--count].data);
  }
  return report.finish(section, operations);
}
