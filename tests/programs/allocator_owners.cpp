// Measures memory that one thread allocates and another frees, one behaviour for each NAME:
// allocator_owners NAME [WORD].
//
//   lines            two threads in steady state: how many of a thousand blocks of one thread share a cache line with
//                    a block of the other
//   passive          two workers free blocks of main: the same figure for the next blocks of the workers, and for the
//                    remaining blocks of main
//   sleeper SHARE    a thread allocates 64 MiB in small blocks, frees SHARE per cent of them and sleeps; another
//                    thread frees the rest: resident memory at its peak, and at the end
//   exchange N       a producer, and N consumers that free its blocks: peak memory in 64 rounds of 16 MiB
//   region           four workers free a third of main's blocks, main frees the rest: the same figure
//   many             100 threads alive at once, three times: memory after the second and the third time, less that
//                    after the first
//   fork             a process with busy threads forks; the child allocates, starts threads and forks again: "ok"
//
// Prints figures, in bytes unless said otherwise. The test knows their bounds.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string_view>

#include "allocator_crew.h"

namespace heapwright::shadow {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kMebibyte = std::size_t{1} << 20U;

// Pointers to blocks, kept in memory from mmap, so that the malloc under test allocates only the
// blocks themselves.
class Blocks {
 public:
  Blocks(std::size_t bytes, std::size_t size)
      : count_(bytes / size), size_(size), at_(static_cast<void**>(map_pages(count_ * sizeof(void*)))) {
    std::memset(at_, 0, count_ * sizeof(void*));
  }
  ~Blocks() { munmap(at_, count_ * sizeof(void*)); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  void take() {
    for (std::size_t i = 0; i < count_; ++i) {
      at_[i] = std::memset(malloc(size_), 1, size_);
    }
  }
  // Frees the blocks whose index `which` accepts.
  void give(const std::function<bool(std::size_t)>& which) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (at_[i] != nullptr && which(i)) {
        free(at_[i]);
        at_[i] = nullptr;
      }
    }
  }
  void give() {
    give([](std::size_t) { return true; });
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  void*& operator[](std::size_t i) { return at_[i]; }

 private:
  std::size_t count_;
  std::size_t size_;
  void** at_;
};

void steady(Blocks& mine, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < 20 * mine.count(); ++i) {
    void*& one = mine[random.below(mine.count())];
    free(one);
    one = malloc(16);
  }
}

std::uintptr_t line_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address) / kLine; }

// Returns how many blocks of `mine`, per thousand, share a cache line with a block of `theirs`.
std::size_t shared_lines(Blocks& mine, Blocks& theirs) {
  std::size_t shared = 0;
  auto* const lines = static_cast<std::uintptr_t*>(map_pages(theirs.count() * sizeof(std::uintptr_t)));
  for (std::size_t i = 0; i < theirs.count(); ++i) {
    lines[i] = line_of(theirs[i]);
  }
  std::sort(lines, lines + theirs.count());
  for (std::size_t i = 0; i < mine.count(); ++i) {
    shared += std::binary_search(lines, lines + theirs.count(), line_of(mine[i])) ? 1 : 0;
  }
  return shared * 1000 / mine.count();
}

void lines() {
  Worker workers[2];
  Blocks first(64'000, 16);
  Blocks second(64'000, 16);
  Blocks* const both[] = {&first, &second};
  together(workers, 2, [&](std::size_t i) {
    both[i]->take();
    steady(*both[i], i);
  });
  std::printf("%zu\n", shared_lines(first, second));
  together(workers, 2, [&](std::size_t i) { both[i]->give(); });
}

void passive() {
  Worker workers[2];
  Blocks handed(64'000, 16);
  Blocks one(64'000, 16);
  Blocks two(64'000, 16);
  Blocks* const both[] = {&one, &two};
  handed.take();
  std::size_t again = 0;
  // As in Hoard's cache-thrash and cache-scratch, each worker frees a few objects of main and then
  // allocates its own.
  together(workers, 2, [&](std::size_t i) {
    for (std::size_t k = i; k < 16; k += 2) {
      free(handed[k * 3]);
      handed[k * 3] = nullptr;
    }
    both[i]->take();
  });
  again = shared_lines(one, two) + shared_lines(one, handed) + shared_lines(two, handed);
  std::printf("%zu\n", again);
  handed.give();
  one.give();
  two.give();
}

void sleeper(std::size_t share) {
  Worker owner;
  Worker other;
  Blocks blocks(64 * kMebibyte, 112);
  owner.run([] { free(malloc(112)); });
  other.run([] { free(malloc(112)); });
  const std::size_t before = resident();
  owner.run([&] { blocks.take(); });
  const std::size_t most = resident();
  owner.run([&] { blocks.give([share](std::size_t i) { return i * 7919 % 100 < share; }); });
  other.run([&] {
    blocks.give();
    malloc_trim(0);  // memory that is not returned to the kernel now is stranded
  });
  std::printf("%zu %zu\n", most - before, resident() - std::min(before, resident()));
}

// Runs rounds of 16 MiB. Prints the largest resident memory at the end of a round, less that before
// the rounds.
//
//   workers     the threads
//   count       their number
//   by_workers  accepts the index of a block that a worker frees; main frees the others
//   concurrent  main and the workers free at the same time
void rounds(Worker* workers, std::size_t count, const std::function<bool(std::size_t)>& by_workers,
            bool concurrent) {
  const std::size_t before = resident();
  std::size_t most = 0;
  for (int round = 0; round < 64; ++round) {
    Blocks blocks(16 * kMebibyte, 48 + static_cast<std::size_t>(round % 3) * 64);
    blocks.take();
    const auto free_some = [&](std::size_t worker) {
      blocks.give([&](std::size_t i) { return by_workers(i) && i % count == worker; });
    };
    if (concurrent) {
      together(workers, count, free_some);
    } else {
      for (std::size_t worker = 0; worker < count; ++worker) {
        workers[worker].run([&] { free_some(worker); });
      }
    }
    most = std::max(most, resident());
    blocks.give();
  }
  std::printf("%zu\n", most - before);
}

void many() {
  std::size_t ends[3] = {};
  for (std::size_t& end : ends) {
    {
      std::deque<Worker> workers(100);
      for (std::size_t i = 0; i < workers.size(); ++i) {
        workers[i].run([i] { churn(i, 200); });
      }
    }
    malloc_trim(0);
    end = resident();
  }
  std::printf("%zu %zu\n", ends[1] - std::min(ends[0], ends[1]), ends[2] - std::min(ends[0], ends[2]));
}

// Runs in the child: starts threads, and forks a child of its own while they work.
void beget(int generation) {
  std::atomic<bool> stop = false;
  std::function<void()> work = [&stop] {
    for (std::uint64_t i = 0; !stop; ++i) {
      churn(i, 50);
    }
  };
  std::deque<Worker> workers(3);
  for (Worker& worker : workers) {
    worker.begin(&work);
  }
  Blocks inherited(kMebibyte, 100);
  for (int i = 0; i < 5; ++i) {
    inherited.take();
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      inherited.give();
      churn(7, 500);
      if (generation > 0) {
        beget(generation - 1);
      }
      _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) {
      broken("a child of generation %d ended with wait status %d", generation, status);
    }
    inherited.give();
  }
  stop = true;
  for (Worker& worker : workers) {
    worker.await();
  }
}

int run(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const std::size_t word = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (name == "lines") {
    lines();
  } else if (name == "passive") {
    passive();
  } else if (name == "sleeper") {
    sleeper(word);
  } else if (name == "exchange") {
    Worker workers[8];
    rounds(workers, word, [](std::size_t) { return true; }, true);
  } else if (name == "region") {
    Worker workers[4];
    rounds(workers, 4, [](std::size_t i) { return i % 12 < 4; }, false);
  } else if (name == "many") {
    many();
  } else if (name == "fork") {
    beget(2);
    std::puts("ok");
  } else {
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace heapwright::shadow

int main(int argc, char** argv) { return heapwright::shadow::run(argc, argv); }
