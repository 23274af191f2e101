// Wraps glibc's own functions that start threads internally (hidden_threads.cpp): asynchronous name
// lookup, and the second names of asynchronous input and output.
#include <aio.h>
#include <netdb.h>

#include <csignal>

#include "hidden_threads.h"

using heapwright::alloc::hidden_threads::call_threaded;
using heapwright::alloc::hidden_threads::next;

extern "C" {

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
