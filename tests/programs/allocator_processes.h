// The behaviours of allocator_threads that concern processes: fork, vfork, signals, limits.
#pragma once

#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>

#include "allocator_churn.h"

namespace heapwright::shadow {

inline std::atomic<bool> stop = false;

inline void* restless(void* raw) {
  for (std::uint64_t i = 0; !stop; ++i) {
    churn(number(raw) * 1000 + i, 100);
  }
  return nullptr;
}

inline void await(pid_t child, const char* who) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  if (status != 0) {
    broken("%s ended with wait status %d%s", who, status, status == SIGALRM ? ": it hangs" : "");
  }
}

inline void forks() {
  pthread_t threads[3] = {};
  for (std::uint64_t i = 0; i < std::size(threads); ++i) {
    threads[i] = start(restless, argument(i));
  }
  Random random(5);
  Known inherited[100] = {};
  for (Known& one : inherited) {
    one = take(random, 5000);
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      scene.child = true;
      alarm(30);
      churn(i, 500);
      for (Known& one : inherited) {
        give(one);
      }
      pthread_join(start(some_churn, argument(i)), nullptr);
      if (i % 4 == 0) {
        exit(0);  // with destructors
      }
      _exit(0);
    }
    churn(i, 50);
    await(child, "the forked child");
  }
  stop = true;
  for (const pthread_t thread : threads) {
    pthread_join(thread, nullptr);
  }
  for (Known& one : inherited) {
    give(one);
  }
}

// A separate function, so that the second return of vfork finds its variables unchanged.
__attribute__((noinline)) inline pid_t begin_true() {
  static char name[] = "true";
  static char* const words[] = {name, nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    execv("/bin/true", words);
    _exit(127);
  }
  return child;
}

inline void vforks() {
  Random random(6);
  for (int i = 0; i < 50; ++i) {
    Known before = take(random, 1 << 16);
    const pid_t child = begin_true();
    churn(7, 100);
    give(before);
    await(child, "/bin/true");
  }
}

inline std::atomic<int> ticks = 0;

inline void signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { ++ticks; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &often, nullptr);
  pthread_t threads[2] = {};
  for (std::uint64_t i = 0; i < std::size(threads); ++i) {
    threads[i] = start(restless, argument(i));
  }
  for (std::uint64_t i = 0; ticks < 2000; ++i) {
    churn(i, 1000);
  }
  stop = true;
  for (const pthread_t thread : threads) {
    pthread_join(thread, nullptr);
  }
}

// Allocates until malloc fails or `most` bytes are allocated. Freed memory must then be available
// again.
inline void starve(std::size_t most) {
  struct Link {
    Link* next;
  };
  for (const std::size_t size :
       {std::size_t{48}, std::size_t{3000}, std::size_t{100000}, std::size_t{3} << 20U}) {
    Link* all = nullptr;
    std::size_t total = 0;
    errno = 0;
    while (total < most) {
      auto* const link = static_cast<Link*>(malloc(size));
      if (link == nullptr) {
        break;
      }
      std::memset(link, 1, size);
      link->next = all;
      all = link;
      total += size;
    }
    if (total < most && errno != ENOMEM) {
      broken("malloc(%zu) refused with errno %d", size, errno);
    }
    if (total < std::size_t{24} << 20U) {
      broken("of 64 MiB only %zu KiB could be had in blocks of %zu", total >> 10U, size);
    }
    if (total < most && (realloc(nullptr, std::size_t{128} << 20U) != nullptr ||
                         calloc(128, std::size_t{1} << 20U) != nullptr)) {
      broken("128 MiB in 64");
    }
    while (all != nullptr) {
      Link* const next = all->next;
      free(all);
      all = next;
    }
    churn(size, 2000);
  }
}

inline void limited(const char* self) {
  const char* const commands[][4] = {{"/bin/true"}, {"/bin/ls", "-d", "/"}, {self, "limit", "starve"}};
  for (const auto& words : commands) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit = {std::size_t{64} << 20U, std::size_t{64} << 20U};
      setrlimit(RLIMIT_AS, &limit);
      execv(words[0], const_cast<char* const*>(words));
      _exit(127);
    }
    await(child, words[0]);
  }
}

}  // namespace heapwright::shadow
