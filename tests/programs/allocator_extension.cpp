// A C++ library for allocator_dlopen.c: brings the C++ runtime into a C program.
#include <cstddef>
#include <new>

namespace {

int handled = 0;

void handler() {
  if (++handled == 2) {
    std::set_new_handler(nullptr);
  }
}

}  // namespace

// Asks for more memory than there is, by a throwing and a nothrow operator. Says what happened.
extern "C" const char* request_too_much() {
  const volatile std::size_t bytes = std::size_t{1} << 60;
  try {
    delete[] new char[bytes];
    return "a block";
  } catch (const std::bad_alloc&) {
  }
  std::set_new_handler(handler);
  if (new (std::nothrow) char[bytes] != nullptr) {
    return "a block from nothrow";
  }
  return handled == 2 ? "bad_alloc" : "the new-handler was not called";
}
