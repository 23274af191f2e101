// Runs random work like that of real programs, and subtracts the cost of the test itself.
//
// After "Testing Memory Allocators: ptmalloc2 vs tcmalloc vs hoard vs jemalloc While Trying to
// Simulate Real-World Loads": slots; each step picks one, and fills it if it is empty and empties
// it if it is full. Sizes have p ~ 1/size. Slots are picked 80/20: 80% of the steps meet 20% of
// the slots, and again within these (F(x) = x^a with a = ln 0.8 / ln 0.2). All of a block is
// written once after malloc and read once before free. The memory that is live is fixed, and split
// over the threads.
//
// --void runs the same steps with an allocator that does nothing, as in the paper: every block of a
// thread is the same small buffer, which stays in the thread's cache. What remains of the
// difference is the allocator, and the cache and TLB misses caused by where it puts blocks.
//
// Beyond the paper: handover=P hands P per cent of the blocks to the next thread, which frees them;
// realloc=P resizes P per cent in place of freeing them.
#include <cmath>

#include "bench.h"

namespace {

using namespace heapwright::bench;

constexpr double kSmallest = 16;
constexpr double kOctaves = 12;
constexpr std::size_t kLargest = 65536;  // 2^12 times the smallest
constexpr std::size_t kMailbox = 1024;

struct Slot {
  void* block;
  std::uint32_t size;
  std::uint8_t tag;
};

// Blocks on their way to the thread that frees them: one writer, one reader.
struct Mailbox {
  std::atomic<std::uint64_t> written;
  char apart[120];
  std::atomic<std::uint64_t> read;
  std::atomic<std::uint64_t> freed;  // bytes, by the reader
  Slot slots[kMailbox];

  bool put(const Slot& slot) {
    const std::uint64_t at = written.load(std::memory_order_relaxed);
    if (at - read.load(std::memory_order_acquire) == kMailbox) {
      return false;
    }
    slots[at % kMailbox] = slot;
    written.store(at + 1, std::memory_order_release);
    return true;
  }
  bool take(Slot& slot) {
    const std::uint64_t at = read.load(std::memory_order_relaxed);
    if (at == written.load(std::memory_order_acquire)) {
      return false;
    }
    slot = slots[at % kMailbox];
    read.store(at + 1, std::memory_order_release);
    return true;
  }
};

struct WorkerOptions {
  std::uint64_t bytes;  // live in each thread
  std::uint64_t slots;
  std::uint64_t steps;
  std::uint64_t handover;
  std::uint64_t resize;
  bool empty;
};

class Worker {
 public:
  Worker(const WorkerOptions& options, std::uint64_t seed, Mailbox& in, Mailbox& out)
      : options_(options), random_(seed), slots_(options.slots), in_(in), out_(out), buffer_(kLargest) {
    std::memset(buffer_.data(), 1, kLargest);
    for (std::uint64_t i = 0; i < options.slots; i += 2) {  // half of the slots are full on average: begin so
      allocate(slots_[i]);
    }
    pairs = 0;
  }

  void run() {
    static const double exponent = std::log(0.2) / std::log(0.8);
    for (std::uint64_t step = 0; step < options_.steps; ++step) {
      const auto at = static_cast<std::uint64_t>(static_cast<double>(options_.slots) *
                                                 std::pow(random_.unit(), exponent));
      Slot& slot = slots_[at < options_.slots ? at : options_.slots - 1];
      slot.block == nullptr ? allocate(slot) : release(slot);
      if (options_.handover != 0) {
        empty_mailbox();
      }
    }
  }

  void finish() {
    empty_mailbox();
    for (std::uint64_t i = 0; i < options_.slots; ++i) {
      if (slots_[i].block != nullptr) {
        give_back(slots_[i]);
      }
    }
  }

  std::uint64_t pairs = 0;  // frees, each with its malloc
  std::uint64_t live = 0;
  std::uint64_t peak_live = 0;

 private:
  std::size_t size() { return static_cast<std::size_t>(kSmallest * std::exp2(random_.unit() * kOctaves)); }

  void allocate(Slot& slot) {
    slot.size = static_cast<std::uint32_t>(size());
    slot.tag = static_cast<std::uint8_t>(random_());
    slot.block = options_.empty ? buffer_.data() : std::malloc(slot.size);
    fill(slot.block, slot.size, slot.tag);
    live += slot.size;
    note_peak(0);
  }

  // Blocks under way to another thread are live too.
  void note_peak(std::uint64_t under_way) {
    peak_live = live + under_way > peak_live ? live + under_way : peak_live;
  }

  void release(Slot& slot) {
    live -= slot.size;
    const std::uint64_t dice = random_.below(100);
    if (dice < options_.resize) {
      check_if_real(slot);
      slot.size = static_cast<std::uint32_t>(size());
      slot.block = options_.empty ? buffer_.data() : std::realloc(slot.block, slot.size);
      fill(slot.block, slot.size, slot.tag);
      live += slot.size;
      note_peak(0);
      ++pairs;
      return;
    }
    if (dice >= options_.resize + options_.handover || !out_.put(slot)) {
      give_back(slot);
    } else {
      sent_ += slot.size;
      note_peak(sent_ - out_.freed.load(std::memory_order_relaxed));
    }
    slot.block = nullptr;
  }

  void give_back(const Slot& slot) {
    check_if_real(slot);
    if (!options_.empty) {
      std::free(slot.block);
    }
    ++pairs;
  }

  // The void allocator's blocks are one: read, but nothing to check.
  void check_if_real(const Slot& slot) {
    if (options_.empty) {
      const auto* const bytes = reinterpret_cast<const unsigned char*>(buffer_.data());
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i + 8 <= slot.size; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + i, 8);
        sum |= word;
      }
      asm volatile("" : : "r"(sum));
    } else {
      check(slot.block, slot.size, slot.tag);
    }
  }

  void empty_mailbox() {
    Slot slot{};
    while (in_.take(slot)) {
      give_back(slot);
      in_.freed.fetch_add(slot.size, std::memory_order_relaxed);
    }
  }

  const WorkerOptions& options_;
  Random random_;
  Pages<Slot> slots_;
  Mailbox& in_;
  Mailbox& out_;
  Pages<char> buffer_;      // the void allocator's only block
  std::uint64_t sent_ = 0;  // bytes
};

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  const std::uint64_t memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * 4096;
  const std::uint64_t wanted = options.get("mib", 1331, 32) << 20U;  // the paper's 1.3 GiB
  const std::uint64_t bytes = wanted < memory / 3 ? wanted : memory / 3;
  WorkerOptions worker_options{};
  worker_options.bytes = bytes / options.threads;
  const double mean = kSmallest * (std::exp2(kOctaves) - 1) / (kOctaves * std::log(2.0));
  worker_options.slots = static_cast<std::uint64_t>(2 * static_cast<double>(worker_options.bytes) / mean) + 2;
  worker_options.steps = options.get("steps", 3000000, 400000) / options.threads;
  worker_options.handover = options.threads > 1 ? options.get("handover", 0, 0) : 0;
  worker_options.resize = options.get("realloc", 0, 0);
  worker_options.empty = options.empty;
  Pages<Mailbox> boxes(options.threads);
  std::atomic<std::uint64_t> pairs{0};
  std::atomic<std::uint64_t> live{0};
  std::barrier ready(static_cast<std::ptrdiff_t>(options.threads));
  std::atomic<double> longest{0};
  Section section;
  run_threads(options.threads, [&](std::uint64_t number) {
    Worker worker(worker_options, options.seed * 1000 + number, boxes[number],
                  boxes[(number + 1) % options.threads]);
    ready.arrive_and_wait();
    if (number == 0) {
      section.begin();
    }
    ready.arrive_and_wait();
    const double began = now();
    worker.run();
    const double took = now() - began;
    for (double seen = longest; took > seen && !longest.compare_exchange_weak(seen, took);) {
    }
    ready.arrive_and_wait();  // no thread puts a block into a mailbox any more
    if (number == 0) {
      section.end(longest);
    }
    pairs += worker.pairs;
    live += worker.peak_live;
    worker.finish();
  });
  Report report("realistic", options);
  report.add("live_bytes", live.load());
  report.add("handover_percent", worker_options.handover);
  report.add("realloc_percent", worker_options.resize);
  return report.finish(section, pairs);
}
