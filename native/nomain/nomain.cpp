// Ends a program before its main: a library that heapwright preloads to ask the allocator that a
// program has linked in.
//
// Such an allocator prints its version and its settings while it starts, or when the process ends,
// if its verbose variable is set. Neither needs the program's main, which may run for hours or do
// harm. So this library provides __libc_start_main, and calls the C library's with a main that
// returns at once: constructors and exit handlers run. Only a program that is linked dynamically
// and imports __libc_start_main may be run with it (allocators/library_report.py).
#include <dlfcn.h>
#include <unistd.h>

namespace {

using Main = int (*)(int, char**, char**);
using Hook = void (*)();
using Start = int (*)(Main, int, char**, Hook, Hook, Hook, void*);

constexpr int kNoStart = 127;

int empty_main(int /*argc*/, char** /*argv*/, char** /*envp*/) { return 0; }

}  // namespace

extern "C" __attribute__((visibility("default"))) int
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming): the C library's
__libc_start_main(Main /*program*/, int argc, char** argv, Hook init, Hook fini, Hook loader_fini,
                  void* stack_end) {
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  if (start == nullptr) {
    _exit(kNoStart);
  }
  return start(empty_main, argc, argv, init, fini, loader_fini, stack_end);
}
