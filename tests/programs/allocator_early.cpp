// A library whose constructor starts a thread before the constructors of libraries preloaded in
// front of it have run. Its destructor waits for the thread and prints "early" if no check failed.
#include <unistd.h>

#include "allocator_churn.h"

namespace heapwright::shadow {
namespace {

pthread_t thread;

[[gnu::constructor]] void begin() { thread = start(some_churn, argument(3)); }

[[gnu::destructor]] void end() {
  pthread_join(thread, nullptr);
  if (write(STDOUT_FILENO, "early\n", 6) != 6) {
    _exit(3);
  }
}

}  // namespace
}  // namespace heapwright::shadow
