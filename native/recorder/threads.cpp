// Exports pthread_create, to record which thread starts which, and when.
//
// The creator numbers the new thread and records Other::kSpawn before the real call. What libc
// allocates during that call (the vector of thread-local storage) is an internal block: a replay
// starts a thread at this place, and its libc allocates the same.
#include <dlfcn.h>
#include <pthread.h>

#include "record.h"

namespace heapwright::recorder {
namespace {

// Takes a free entry of Session::starts; nullptr if there is none.
ThreadStart* take_start() {
  for (ThreadStart& start : session->starts) {
    if (start.taken.load(std::memory_order_relaxed) == 0 &&
        start.taken.exchange(1, std::memory_order_acquire) == 0) {
      return &start;
    }
  }
  return nullptr;
}

// Runs in the new thread.
void* run_thread(void* entry) {
  auto& start = *static_cast<ThreadStart*>(entry);
  const auto routine = start.routine;
  void* const argument = start.argument;
  adopt_number(self_state, start.thread, start.session);
  start.taken.store(0, std::memory_order_release);
  return routine(argument);
}

}  // namespace
}  // namespace heapwright::recorder

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): glibc's names are reserved
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* handle,
                                                             const pthread_attr_t* attributes,
                                                             void* (*routine)(void*), void* argument) {
  // NOLINTEND(readability-inconsistent-declaration-parameter-name)
  using namespace heapwright::recorder;  // NOLINT(google-build-using-namespace)
  if (!real_is_found()) {
    find_real();
  }
  ThreadState& self = self_state;
  if (real.pthread_create == nullptr) {  // libpthread of older C libraries may be loaded late
    const InAllocator in_allocator(self);
    real.pthread_create = reinterpret_cast<decltype(real.pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  }
  ThreadStart* const start =
      self.location == Location::kProgram && begin_thread(self) ? take_start() : nullptr;
  if (start == nullptr) {
    return real.pthread_create(handle, attributes, routine, argument);
  }
  start->routine = routine;
  start->argument = argument;
  start->session = self.session;
  start->thread = session->header->threads.fetch_add(1, std::memory_order_relaxed);
  record_other(self, Other::kSpawn, start->thread);
  const InAllocator in_allocator(self);
  const int status = real.pthread_create(handle, attributes, run_thread, start);
  if (status != 0) {
    start->taken.store(0, std::memory_order_release);
  }
  return status;
}
