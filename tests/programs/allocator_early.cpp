// A library whose constructor starts a thread, before those of what is preloaded in front of it have run; its
// destructor waits for the thread and says "early" if all went well.
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
