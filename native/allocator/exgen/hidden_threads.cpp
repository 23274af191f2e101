// Wraps the C library's functions that start threads internally, where wrapping pthread_create does
// not help.
//
// These are POSIX timers and message queues that notify by a thread, and asynchronous input and
// output. hidden_threads_glibc.cpp has those that only glibc has. In the preloaded library each
// wrapper first makes exgen ready for threads; those of timers and message queues do so only if a
// thread is to be notified. The archive has no wrappers: a static program has no second
// timer_create that they could call. There the next slow path notices such a thread if the C
// library has a flag for it (../entry/library.h).
#include "hidden_threads.h"

#include <aio.h>
#include <dlfcn.h>
#include <mqueue.h>

#include <csignal>
#include <ctime>

#include "../platform/c_library.h"

using heapwright::alloc::hidden_threads::call_threaded;
using heapwright::alloc::hidden_threads::next;

namespace {

// If the program opened this library at run time, its pthread_create is not ours and does not tell
// us about threads. Then there may be threads from the beginning.
[[gnu::constructor(102)]] void become_threaded_if_not_interposed() {
  Dl_info asked{};
  Dl_info here{};
  void* const found = dlsym(RTLD_DEFAULT, "pthread_create");
  if (found == nullptr || dladdr(found, &asked) == 0 ||
      dladdr(reinterpret_cast<void*>(&become_threaded_if_not_interposed), &here) == 0 ||
      asked.dli_fbase != here.dli_fbase) {
    exgen_become_threaded();
  }
}

bool by_thread(const sigevent* event) { return event != nullptr && event->sigev_notify == SIGEV_THREAD; }

}  // namespace

extern "C" {

HEAPWRIGHT_WRAPPER int timer_create(clockid_t clock, sigevent* event, timer_t* timer) HEAPWRIGHT_NOTHROW {
  const auto real = next<decltype(&timer_create)>("timer_create");
  return by_thread(event) || real == nullptr
             ? call_threaded<decltype(&timer_create)>("timer_create", clock, event, timer)
             : real(clock, event, timer);
}

HEAPWRIGHT_WRAPPER int mq_notify(mqd_t queue, const sigevent* event) HEAPWRIGHT_NOTHROW {
  const auto real = next<decltype(&mq_notify)>("mq_notify");
  return by_thread(event) || real == nullptr ? call_threaded<decltype(&mq_notify)>("mq_notify", queue, event)
                                             : real(queue, event);
}

HEAPWRIGHT_WRAPPER int aio_read(aiocb* request) HEAPWRIGHT_NOTHROW {
  return call_threaded<int (*)(aiocb*)>("aio_read", request);
}
HEAPWRIGHT_WRAPPER int aio_write(aiocb* request) HEAPWRIGHT_NOTHROW {
  return call_threaded<int (*)(aiocb*)>("aio_write", request);
}
HEAPWRIGHT_WRAPPER int aio_fsync(int operation, aiocb* request) HEAPWRIGHT_NOTHROW {
  return call_threaded<int (*)(int, aiocb*)>("aio_fsync", operation, request);
}
HEAPWRIGHT_WRAPPER int lio_listio(int mode, AioList list, int count, sigevent* event) HEAPWRIGHT_NOTHROW {
  return call_threaded<int (*)(int, AioList, int, sigevent*)>("lio_listio", mode, list, count, event);
}
}
