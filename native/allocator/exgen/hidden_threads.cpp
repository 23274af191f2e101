// Wraps the C library's functions that start threads internally, where wrapping pthread_create does
// not help.
//
// These are POSIX timers and message queues that notify by a thread, asynchronous input and output,
// and asynchronous name lookup. In the preloaded library each wrapper first makes exgen ready for
// threads. The archive has no wrappers: a static program has no second timer_create that they could
// call. There the next slow path notices such a thread (../entry/library.h).
#include <aio.h>
#include <dlfcn.h>
#include <mqueue.h>
#include <netdb.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "../include/exgen.h"

#define HEAPWRIGHT_WRAPPER __attribute__((visibility("default")))

namespace {

// Returns the C library's own function, or nullptr if it has none.
template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

template <class Function, class... Arguments>
int call_threaded(const char* name, Arguments... arguments) {
  const auto real = next<Function>(name);
  if (real == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  exgen_become_threaded();
  return real(arguments...);
}

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

HEAPWRIGHT_WRAPPER int timer_create(clockid_t clock, sigevent* event, timer_t* timer) noexcept {
  const auto real = next<decltype(&timer_create)>("timer_create");
  return by_thread(event) || real == nullptr
             ? call_threaded<decltype(&timer_create)>("timer_create", clock, event, timer)
             : real(clock, event, timer);
}

HEAPWRIGHT_WRAPPER int mq_notify(mqd_t queue, const sigevent* event) noexcept {
  const auto real = next<decltype(&mq_notify)>("mq_notify");
  return by_thread(event) || real == nullptr ? call_threaded<decltype(&mq_notify)>("mq_notify", queue, event)
                                             : real(queue, event);
}

HEAPWRIGHT_WRAPPER int aio_read(aiocb* request) noexcept {
  return call_threaded<int (*)(aiocb*)>("aio_read", request);
}
HEAPWRIGHT_WRAPPER int aio_write(aiocb* request) noexcept {
  return call_threaded<int (*)(aiocb*)>("aio_write", request);
}
HEAPWRIGHT_WRAPPER int aio_fsync(int operation, aiocb* request) noexcept {
  return call_threaded<int (*)(int, aiocb*)>("aio_fsync", operation, request);
}
HEAPWRIGHT_WRAPPER int lio_listio(int mode, aiocb* const* list, int count, sigevent* event) noexcept {
  return call_threaded<int (*)(int, aiocb* const*, int, sigevent*)>("lio_listio", mode, list, count, event);
}
HEAPWRIGHT_WRAPPER int aio_read64(aiocb64* request) noexcept {
  return call_threaded<int (*)(aiocb64*)>("aio_read64", request);
}
HEAPWRIGHT_WRAPPER int aio_write64(aiocb64* request) noexcept {
  return call_threaded<int (*)(aiocb64*)>("aio_write64", request);
}
HEAPWRIGHT_WRAPPER int aio_fsync64(int operation, aiocb64* request) noexcept {
  return call_threaded<int (*)(int, aiocb64*)>("aio_fsync64", operation, request);
}
HEAPWRIGHT_WRAPPER int lio_listio64(int mode, aiocb64* const* list, int count, sigevent* event) noexcept {
  return call_threaded<int (*)(int, aiocb64* const*, int, sigevent*)>("lio_listio64", mode, list, count,
                                                                      event);
}
HEAPWRIGHT_WRAPPER int getaddrinfo_a(int mode, gaicb* list[], int count, sigevent* event) {
  const auto real = next<decltype(&getaddrinfo_a)>("getaddrinfo_a");
  if (real == nullptr) {
    return EAI_SYSTEM;
  }
  exgen_become_threaded();
  return real(mode, list, count, event);
}
}
