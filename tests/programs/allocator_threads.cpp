// Tests a malloc in programs with threads and processes, one behaviour for each NAME:
// allocator_threads NAME [WORD].
//
//   storm          400 threads start and end in four rounds, and allocate again in thread_local and pthread-key
//                  destructors; the memory left is bounded (some allocators keep a heap for each thread)
//   detached       the same without join, and with the last blocks freed while the thread ends
//   orphans        other threads check and free the blocks of ended threads
//   fork           a process forks while its other threads allocate; the child allocates, frees, starts a thread
//   signals        a timer interrupts allocating threads all the time; the handler does not allocate
//   dlopen LIB     threads call malloc and free in a library that is opened at run time and then closed
//   vfork          vfork and exec, with blocks allocated before and after
//   limit [WORD [MIB]]
//                  runs /bin/true, and allocates until malloc fails, with 64 MiB of address space; with a WORD only
//                  allocates, without that limit: until malloc fails, or up to MIB for each size
//
// Status 0 and "ok" on success, 3 and one line on failure.
#include <dlfcn.h>

#include <algorithm>

#include "allocator_churn.h"
#include "allocator_processes.h"

namespace heapwright::shadow {
namespace {

// --- storm, detached
// -------------------------------------------------------------------------------------

pthread_key_t key;
std::atomic<int> destroyed = 0;

// A pthread-key destructor that registers itself again as often as glibc permits (four rounds), and
// allocates each time.
void destroy_key(void* raw) {
  auto* const rounds = static_cast<int*>(raw);
  churn(number(raw), 20);
  auto* const next = static_cast<int*>(malloc(sizeof(int)));
  *next = *rounds + 1;
  free(rounds);
  if (*next < 4) {
    pthread_setspecific(key, next);
  } else {
    free(next);
    ++destroyed;
  }
}

struct AtEnd {
  Known known[8] = {};
  AtEnd() {
    Random random(1);
    for (Known& one : known) {
      one = take(random, 500);
    }
  }
  ~AtEnd() {
    for (Known& one : known) {
      give(one);
    }
    churn(2, 20);
  }
};

void* short_life(void* raw) {
  thread_local AtEnd at_end;
  auto* const rounds = static_cast<int*>(malloc(sizeof(int)));
  *rounds = 0;
  pthread_setspecific(key, rounds);
  churn(number(raw) + at_end.known[0].size, 300);
  return nullptr;
}

void storm(bool detached) {
  constexpr std::uint64_t kThreads = 400;
  constexpr std::uint64_t kAtOnce = 8;
  constexpr std::size_t kBound = std::size_t{16} << 20U;
  pthread_key_create(&key, destroy_key);
  std::size_t early = 0;
  pthread_t threads[kAtOnce] = {};
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    if (!detached && i >= kAtOnce) {
      pthread_join(threads[i % kAtOnce], nullptr);
    }
    while (detached &&
           static_cast<int>(i) - destroyed >= static_cast<int>(kAtOnce)) {  // threads that are ending count too
      usleep(100);
    }
    threads[i % kAtOnce] = start(short_life, argument(i), detached);
    if (i <= 8 * kAtOnce) {  // on a busy machine, the first threads may have hardly begun at any one moment
      early = std::max(early, resident());
    }
  }
  for (const pthread_t thread : threads) {
    if (!detached) {
      pthread_join(thread, nullptr);
    }
  }
  for (int waited = 0; destroyed < static_cast<int>(kThreads) && waited < 20000; ++waited) {
    usleep(1000);
  }
  const std::size_t late = resident();
  if (destroyed != static_cast<int>(kThreads)) {
    broken("%d of %llu threads ended", destroyed.load(), static_cast<unsigned long long>(kThreads));
  }
  if (late > early + kBound) {
    broken("threads that ended left %zu KiB behind", (late - early) >> 10U);
  }
}

// --- orphans
// ---------------------------------------------------------------------------------------------

constexpr std::size_t kOrphans = 2000;
Known orphans[4][kOrphans];

void* bear(void* raw) {
  Random random(number(raw) + 1);
  for (Known& one : orphans[number(raw)]) {
    one = take(random, 3000);
  }
  return nullptr;
}

void* bury(void* raw) {
  const std::uint64_t stripe = number(raw);
  for (auto& row : orphans) {
    for (std::size_t i = stripe; i < kOrphans; i += 4) {
      give(row[i]);
    }
  }
  churn(stripe, 1000);
  return nullptr;
}

void orphan_rounds() {
  std::size_t first = 0;
  for (int round = 0; round < 40; ++round) {
    all_four(bear);
    all_four(bury);
    first = round == 4 ? resident() : first;
  }
  const std::size_t last = resident();
  if (last > first + (std::size_t{64} << 20U)) {
    broken("40 rounds of the same work grew from %zu to %zu KiB", first >> 10U, last >> 10U);
  }
}

// --- dlopen
// ----------------------------------------------------------------------------------------------

void* (*their_malloc)(std::size_t) = nullptr;
void (*their_free)(void*) = nullptr;

void* use_theirs(void* raw) {
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::size_t size = (i * 37 + number(raw)) % 5000 + 1;
    void* const block = their_malloc(size);
    if (block == nullptr) {
      broken("the library's malloc(%zu) refused", size);
    }
    std::memset(block, 1, size);
    their_free(block);
  }
  return nullptr;
}

std::atomic<int> closed = 0;

// A thread that ends after the library is closed: the exit handler that the library registered for
// it must still work.
void* outlive(void* raw) {
  use_theirs(raw);
  closed = 1;
  while (closed != 2) {
    usleep(1000);
  }
  return nullptr;
}

void open_library(const char* path) {
  for (int round = 0; round < 3; ++round) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      broken("dlopen: %s", dlerror());
    }
    their_malloc = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "malloc"));
    their_free = reinterpret_cast<void (*)(void*)>(dlsym(library, "free"));
    if (their_malloc == nullptr || their_free == nullptr) {
      broken("%s has no malloc", path);
    }
    use_theirs(nullptr);
    all_four(use_theirs);
    closed = 0;
    const pthread_t thread = start(outlive, nullptr);
    while (closed != 1) {
      usleep(1000);
    }
    dlclose(library);
    churn(1, 1000);
    closed = 2;
    pthread_join(thread, nullptr);
    all_four(some_churn);
  }
}

int run(int argc, char** argv) {
  const auto is = [&](const char* name) { return argc > 1 && std::strcmp(argv[1], name) == 0; };
  scene.doing = argc > 1 ? argv[1] : "";
  if (is("storm") || is("detached")) {
    storm(is("detached"));
  } else if (is("orphans")) {
    orphan_rounds();
  } else if (is("fork")) {
    forks();
  } else if (is("signals")) {
    signals();
  } else if (is("dlopen") && argc > 2) {
    open_library(argv[2]);
  } else if (is("vfork")) {
    vforks();
  } else if (is("limit")) {
    argc > 2 ? starve(argc > 3 ? std::strtoul(argv[3], nullptr, 10) << 20U : SIZE_MAX) : limited(argv[0]);
  } else {
    dprintf(STDERR_FILENO,
            "usage: allocator_threads storm|detached|orphans|fork|signals|dlopen LIB|vfork|limit\n");
    return 2;
  }
  return write(STDOUT_FILENO, "ok\n", 3) == 3 ? 0 : 1;
}

}  // namespace
}  // namespace heapwright::shadow

int main(int argc, char** argv) { return heapwright::shadow::run(argc, argv); }
