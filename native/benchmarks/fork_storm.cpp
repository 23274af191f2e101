// A process with a heap forks again and again while its threads allocate; each child allocates,
// frees and ends. After the fork deadlocks in the trackers of jemalloc, gperftools and tcmalloc: a
// lock held by another thread at the moment of fork is held for ever in the child.
#include <sys/wait.h>

#include "bench.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const std::uint64_t forks = options.get("forks", 400, 60);
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  const auto churn = [](Random& random, int steps) {
    for (int i = 0; i < steps; ++i) {
      const std::size_t size = 16 + random.below(2000);
      void* const block = std::malloc(size);
      fill(block, size, 5);
      check(block, size, 5);
      std::free(block);
    }
  };
  Section section;
  run_threads(section, options.threads + 1, [&](std::uint64_t number) {
    Random random(options.seed * 1000 + number);
    if (number != 0) {
      while (!stop.load(std::memory_order_relaxed)) {
        churn(random, 100);
      }
      return;
    }
    for (std::uint64_t i = 0; i < forks; ++i) {
      churn(random, 100);
      const pid_t child = fork();
      if (child == 0) {
        churn(random, 500);
        std::_Exit(0);
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        failed = true;
      }
    }
    stop = true;
  });
  if (failed) {
    (void)std::fprintf(stderr, "a child failed\n");
    return kCorrupt;
  }
  return Report("fork-storm", options).finish(section, forks);
}
