// Bursts: many blocks allocated, then freed together, again and again. After the simplest loops of
// allocbench, rptest and mimalloc-bench: compilers' passes, requests and parsers allocate so. A
// burst outgrows every cache of free blocks, so this shows the cost of a block beyond the fast
// paths.
//
// blocks=N        blocks in a burst, for each thread
// ladder=1        sizes from 16 to 1,008 bytes in turn; otherwise all blocks have `size` bytes
// order=O         freed in the order of allocation (0), in reverse (1), or in random order (2)
// keep=K          every K-th block of a burst stays until the next burst has ended; 0: none
// handover=H      each thread frees its own blocks (0), those of its neighbour (1), or a share of
//                 those of each thread (2)
// ring=1          a quarter of the blocks is freed in order and allocated again, then a half in
//                 reverse, then three quarters, then all
#include "bench.h"

namespace {

using namespace heapwright::bench;

struct Burst {
  std::uint64_t blocks;
  std::uint64_t size;
  bool ladder;
  std::uint64_t order;
  std::uint64_t keep;
  std::uint64_t handover;
  bool ring;
  bool empty;
};

class Worker {
 public:
  Worker(const Burst& burst, Pages<void*>& slots, std::uint64_t number, std::uint64_t threads,
         std::uint64_t seed)
      : burst_(burst),
        slots_(slots),
        number_(number),
        threads_(threads),
        order_(burst.blocks),
        kept_(burst.blocks),
        empty_block_(256) {
    Random random(seed);
    for (std::uint64_t i = 0; i < burst.blocks; ++i) {
      order_[i] = static_cast<std::uint32_t>(burst.order == 1 ? burst.blocks - 1 - i : i);
    }
    for (std::uint64_t i = burst.blocks - 1; burst.order == 2 && i > 0; --i) {
      std::swap(order_[i], order_[random.below(i + 1)]);
    }
  }

  void allocate_all() {
    for (std::uint64_t i = 0; i < burst_.blocks; ++i) {
      allocate(i);
    }
  }
  void free_all() {
    for (std::uint64_t k = 0; k < burst_.blocks; ++k) {
      const std::uint64_t i = order_[k];
      void*& place = slots_[owner_of(i) * burst_.blocks + i];
      if (burst_.keep != 0 && i % burst_.keep == 0) {
        std::swap(place, kept_[i]);
      }
      release(place, i);
    }
  }
  void free_kept() {
    for (std::uint64_t i = 0; i < burst_.blocks; ++i) {
      release(kept_[i], i);
    }
  }
  // Returns how many blocks it has allocated.
  std::uint64_t empty_by_parts() {
    std::uint64_t allocated = 0;
    for (std::uint64_t quarter = 1; quarter <= 4; ++quarter) {
      const std::uint64_t count = burst_.blocks * quarter / 4;
      for (std::uint64_t k = 0; k < count; ++k) {
        const std::uint64_t i = (quarter % 2 != 0 ? k : count - 1 - k);
        release(slots_[number_ * burst_.blocks + i], i);
      }
      for (std::uint64_t i = 0; quarter < 4 && i < count; ++i, ++allocated) {
        allocate(i);
      }
    }
    return allocated;
  }

 private:
  // The thread that allocated block i of those that this thread frees.
  [[nodiscard]] std::uint64_t owner_of(std::uint64_t i) const {
    switch (burst_.handover) {
      case 0:
        return number_;
      case 1:
        return (number_ + 1) % threads_;
      default:
        return (number_ + i) % threads_;
    }
  }
  [[nodiscard]] std::uint64_t size_of(std::uint64_t i) const {
    return burst_.ladder ? 16 + i * 16 % 992 : burst_.size;
  }
  void allocate(std::uint64_t i) {
    void* const block = burst_.empty ? empty_block_.data() : std::malloc(size_of(i));
    if (block == nullptr) {
      fill(block, 0, 0);
    }
    *static_cast<std::uint64_t*>(block) = i;
    slots_[number_ * burst_.blocks + i] = block;
  }
  void release(void*& place, std::uint64_t i) {
    void* const block = place;
    if (block == nullptr) {
      return;
    }
    place = nullptr;
    if (!burst_.empty) {
      if (*static_cast<std::uint64_t*>(block) != i) {
        corrupt(block, size_of(i));
      }
      std::free(block);
    }
  }

  const Burst& burst_;
  Pages<void*>& slots_;
  std::uint64_t number_;
  std::uint64_t threads_;
  Pages<std::uint32_t> order_;
  Pages<void*> kept_;
  Pages<std::uint64_t> empty_block_;  // the void allocator's only block
};

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  const Burst burst{options.get("blocks", 10000, 10000), options.get("size", 64, 64),
                    options.get("ladder", 0, 0) != 0,    options.get("order", 0, 0),
                    options.get("keep", 0, 0),           options.get("handover", 0, 0),
                    options.get("ring", 0, 0) != 0,      options.empty};
  if (burst.blocks == 0 || burst.order > 2 || burst.handover > 2 || burst.size < 8 ||
      (burst.ring && burst.handover != 0)) {
    (void)std::fprintf(stderr,
                       "bench-burst: blocks from 1, size from 8, order and handover up to 2, "
                       "ring without handover\n");
    return 2;
  }
  const std::uint64_t wanted = options.get("operations", 4000000, 400000) / options.threads;
  const std::uint64_t rounds = wanted / burst.blocks > 2 ? wanted / burst.blocks : 2;
  Pages<void*> slots(burst.blocks * options.threads);
  Section section;
  std::barrier gate(static_cast<std::ptrdiff_t>(options.threads));
  const auto wait = [&] {
    if (burst.handover != 0) {
      gate.arrive_and_wait();
    }
  };
  std::atomic<std::uint64_t> pairs{0};
  const auto work = [&](std::uint64_t number) {
    Worker worker(burst, slots, number, options.threads, options.seed * 1000 + number);
    std::uint64_t allocated = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      worker.allocate_all();
      allocated += burst.blocks;
      wait();
      if (burst.ring) {
        allocated += worker.empty_by_parts();
      } else {
        worker.free_all();
      }
      wait();
    }
    worker.free_kept();
    pairs.fetch_add(allocated);
  };
  if (options.threads == 1) {  // in the first thread: the process stays single-threaded
    section.begin();
    const double began = now();
    work(0);
    section.end(now() - began);
  } else {
    run_threads(section, options.threads, work);
  }
  return Report("burst", options).finish(section, pairs);
}
