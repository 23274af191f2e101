// An operation-sequence fuzzer that judges any malloc it runs under (LD_PRELOAD) against a shadow
// model.
//
// usage: allocator_fuzz [--seed N] [--seconds N] [--operations N] [--threads N] [--fork] [--plain]
//                       [--max-live MiB] [--max-size BYTES] [--max-align BYTES]
//
// Random operations, checked at every step (allocator_worker.h). With threads, blocks are handed
// over through a mailbox, and threads end and start all the time and leave their blocks to the
// others. With --fork, children continue with the blocks that they inherit. With one thread, the
// operations depend only on the seed (the digest at the end is of the operations). The first fault
// ends the program with status 3 and one line.
#include <signal.h>

#include "allocator_worker.h"

namespace heapwright::shadow {
namespace {

struct Slot {
  pthread_t thread;
  std::uint64_t seed;
  bool begun;
  std::atomic<bool> ended;
};

// Runs one short-lived thread, and leaves its remaining blocks to the others.
void* live(void* raw) {
  auto* const slot = static_cast<Slot*>(raw);
  {
    Worker worker(slot->seed);
    worker.run(Random(slot->seed).between(100, 20000));
    worker.check_all();
    worker.leave_all();
  }
  slot->ended = true;
  return nullptr;
}

// Keeps options.threads threads alive until the time is up, replacing each that ends. Returns how
// many there were.
std::uint64_t run_threads() {
  auto* const slots = static_cast<Slot*>(map_pages(options.threads * sizeof(Slot)));
  std::uint64_t begun = 0;
  for (std::uint64_t running = options.threads; running > 0;) {
    running = 0;
    for (std::uint64_t i = 0; i < options.threads; ++i) {
      Slot& slot = slots[i];
      if (slot.begun && slot.ended) {
        pthread_join(slot.thread, nullptr);
        slot.begun = false;
      }
      if (!slot.begun && now() < deadline) {
        slot.seed = options.seed * 1000003 + begun++;
        slot.ended = false;
        slot.begun = true;
        if (pthread_create(&slot.thread, nullptr, live, &slot) != 0) {
          broken("pthread_create failed");
        }
      }
      running += slot.begun ? 1 : 0;
    }
    usleep(500);
  }
  return begun;
}

void on_signal(int number) { say("signal %d", number); }

bool parse(int argc, char** argv) {
  const struct {
    const char* name;
    std::uint64_t* value;
  } known[] = {{"--seed", &options.seed},
               {"--seconds", &options.seconds},
               {"--operations", &options.operations},
               {"--threads", &options.threads},
               {"--max-live", &options.max_live},
               {"--max-size", &options.max_size},
               {"--max-align", &options.max_align}};
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--fork") == 0 || std::strcmp(argv[i], "--plain") == 0) {
      (argv[i][2] == 'f' ? options.fork : options.plain) = true;
      continue;
    }
    const auto* const found = std::find_if(std::begin(known), std::end(known),
                                           [&](const auto& k) { return std::strcmp(argv[i], k.name) == 0; });
    char* end = nullptr;
    if (found == std::end(known) || i + 1 == argc) {
      return false;
    }
    *found->value = std::strtoull(argv[++i], &end, 10);
    if (end == argv[i] || *end != '\0') {
      return false;
    }
  }
  return options.threads >= 1 && options.max_align >= 8;
}

int run(int argc, char** argv) {
  if (!parse(argc, argv)) {
    dprintf(STDERR_FILENO,
            "usage: allocator_fuzz [--seed N] [--seconds N] [--operations N] [--threads N] [--fork] [--plain]"
            " [--max-live MiB] [--max-size BYTES] [--max-align BYTES]\n");
    return 2;
  }
  struct sigaction action = {};
  action.sa_handler = on_signal;
  // The handler prints a line; then the signal ends the program as without a handler.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    sigaction(number, &action, nullptr);
  }
  deadline = now() + static_cast<double>(options.seconds);
  const std::uint64_t threads = options.threads > 1 ? run_threads() : 0;
  Worker worker(options.seed);
  if (options.threads == 1) {
    worker.run(options.operations);
  }
  worker.check_all();
  const std::uint64_t digest = worker.digest();
  worker.free_all();
  dprintf(STDOUT_FILENO, "seed %llu: %llu threads, %llu operations, digest %llx\n",
          static_cast<unsigned long long>(options.seed), static_cast<unsigned long long>(threads),
          static_cast<unsigned long long>(operations_done.load()), static_cast<unsigned long long>(digest));
  return 0;
}

}  // namespace
}  // namespace heapwright::shadow

int main(int argc, char** argv) { return heapwright::shadow::run(argc, argv); }
