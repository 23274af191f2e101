// False sharing, active and passive. After Reaper's and Hoard's cache-thrash and cache-scratch.
//
// Active (thrash): each thread allocates a small block, writes it many times, frees it. An
// allocator that gives two threads parts of one cache line makes them fight for it. Passive
// (scratch, passive=1): the blocks were allocated side by side by one thread and handed to the
// others, which free them first; the next blocks that they get should lie elsewhere.
#include "openmp.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const bool passive = options.get("passive", 0, 0) != 0;
  const std::size_t size = options.get("size", 8, 8);
  const std::uint64_t rounds = options.get("rounds", 2000, 500) / options.threads + 1;
  const std::uint64_t writes = options.get("writes", 50000, 50000);
  Pages<void*> handed(options.threads);
  for (std::uint64_t i = 0; passive && i < options.threads; ++i) {
    handed[i] = std::malloc(size);
    fill(handed[i], size, 1);
  }
  Section section;
  run_openmp(section, options.threads, [&](std::uint64_t number) {
    std::free(handed[number]);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      auto* const block = static_cast<volatile unsigned char*>(std::malloc(size));
      fill(const_cast<unsigned char*>(block), size, 0);
      for (std::uint64_t i = 0; i < writes; ++i) {
        block[i % size] = static_cast<unsigned char>(block[i % size] + 1);
      }
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < size; ++i) {
        const std::uint64_t times = writes / size + (i < writes % size ? 1 : 0);
        sum |= block[i] ^ (times & 0xffU);
      }
      if (sum != 0) {
        corrupt(const_cast<unsigned char*>(block), size);
      }
      std::free(const_cast<unsigned char*>(block));
    }
  });
  return Report(passive ? "cache-scratch" : "cache-thrash", options)
      .finish(section, rounds * options.threads * writes);
}
