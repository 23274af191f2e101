// Allocates blocks in some threads and frees them in others. After xmalloc-test and Hoard's blow-up
// argument: an allocator that never returns freed memory to the threads that allocate grows without
// bound.
//
// producers=P of the threads produce, the others consume. If both are equally many (the default for
// an even number of threads), they form pairs, each with its own queue; otherwise all share one
// queue. A single thread produces and consumes in turn. bounded=N: at most N blocks are in a queue;
// 0: no limit.
#include <memory>

#include "bench.h"

namespace {

using namespace heapwright::bench;

struct Block {
  void* data;
  std::uint32_t size;
};

// Many to many, bounded; a turn counter in each cell (Vyukov's queue).
class Queue {
 public:
  explicit Queue(std::uint64_t size) : cells_(size), size_(size) {
    for (std::uint64_t i = 0; i < size; ++i) {
      cells_[i].turn.store(i, std::memory_order_relaxed);
    }
  }
  bool put(const Block& block) {
    for (std::uint64_t at = in_.load(std::memory_order_relaxed);;) {
      Cell& cell = cells_[at % size_];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == at && in_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.block = block;
        cell.turn.store(at + 1, std::memory_order_release);
        return true;
      }
      if (turn < at) {
        return false;
      }
      at = in_.load(std::memory_order_relaxed);
    }
  }
  bool take(Block& block) {
    for (std::uint64_t at = out_.load(std::memory_order_relaxed);;) {
      Cell& cell = cells_[at % size_];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == at + 1 && out_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        block = cell.block;
        cell.turn.store(at + size_, std::memory_order_release);
        return true;
      }
      if (turn < at + 1) {
        return false;
      }
      at = out_.load(std::memory_order_relaxed);
    }
  }

  alignas(64) std::atomic<std::uint64_t> done{0};

 private:
  struct Cell {
    std::atomic<std::uint64_t> turn;
    Block block;
  };
  alignas(64) std::atomic<std::uint64_t> in_{0};
  alignas(64) std::atomic<std::uint64_t> out_{0};
  alignas(64) Pages<Cell> cells_;
  std::uint64_t size_;
};

void produce(Queue& queue, std::uint64_t count, Random& random) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Block block{};
    block.size = static_cast<std::uint32_t>(16 + random.below(1000));
    block.data = std::malloc(block.size);
    fill(block.data, block.size, static_cast<std::uint8_t>(block.size));
    while (!queue.put(block)) {
      sched_yield();
    }
  }
}

// Frees blocks from the queue until all its consumers together have freed `all`.
void consume(Queue& queue, std::uint64_t all) {
  while (queue.done.load(std::memory_order_relaxed) < all) {
    Block block{};
    if (queue.take(block)) {
      check(block.data, block.size, static_cast<std::uint8_t>(block.size));
      std::free(block.data);
      queue.done.fetch_add(1, std::memory_order_relaxed);
    } else {
      sched_yield();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  const bool alone = options.threads == 1;
  const std::uint64_t half = (options.threads + 1) / 2;
  const std::uint64_t producers = options.get("producers", half, half);
  if (producers == 0 || (producers >= options.threads && !alone)) {
    (void)std::fprintf(stderr, "producers must be from 1 to one less than the number of threads\n");
    return 2;
  }
  const std::uint64_t each = options.get("blocks", 800000, 100000) / producers;
  const std::uint64_t bounded = options.get("bounded", 1024, 1024);
  const std::uint64_t queues = !alone && producers * 2 == options.threads ? producers : 1;
  const std::uint64_t through = each * producers / queues;  // blocks, each queue
  std::vector<std::unique_ptr<Queue>> queue;
  queue.reserve(queues);
  for (std::uint64_t i = 0; i < queues; ++i) {
    queue.push_back(std::make_unique<Queue>(bounded == 0 ? through : bounded));
  }
  Section section;
  run_threads(section, options.threads, [&](std::uint64_t number) {
    Random random(options.seed * 1000 + number);
    Queue& mine = *queue[number % queues];
    if (alone) {
      const std::uint64_t turn = bounded == 0 ? through : bounded;
      for (std::uint64_t from = 0; from < through; from += turn) {
        const std::uint64_t until = from + turn < through ? from + turn : through;
        produce(mine, until - from, random);
        consume(mine, until);
      }
    } else if (number < producers) {
      produce(mine, each, random);
    } else {
      consume(mine, through);
    }
  });
  Report report("producer-consumer", options);
  report.add("producers", producers);
  report.add("bounded", bounded);
  return report.finish(section, each * producers);
}
