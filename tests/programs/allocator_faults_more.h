// More scenarios of allocator_faults: fork in the middle of a call, no mappings left, signals, no
// stack left.
#pragma once

#include <sys/syscall.h>

#include "allocator_faults.h"

namespace heapwright::shadow {

// --- early: until here, the plan from fail_calls' command line holds
// ---------------------------------------

inline int early() {
  const long calls = faults(FAULTS_END, 0, 0, 0);
  const long failed = faults(FAULTS_FAILED, 0, 0, 0);
  afterwards();
  dprintf(STDOUT_FILENO, "%ld calls, %ld failed\n", calls, failed);
  return 0;
}

// --- forks: fork while another thread is in its n-th memory call
// -------------------------------------------

inline std::atomic<bool> go = false;

inline void* busy(void* raw) {
  while (!go) {
    usleep(50);
  }
  Blocks blocks(number(raw));
  blocks.steps(400);
  blocks.give_all();
  return nullptr;
}

// Forks while another thread is in memory call n, and counts memory calls in figures->calls; with n
// = 0 it only counts.
inline void fork_held(unsigned long n) {
  Random random(3);
  Known inherited[50] = {};
  for (Known& one : inherited) {
    one = take(random, 5000);
  }
  const pthread_t thread = start(busy, argument(11));
  faults(FAULTS_HOLD, n, 1, n == 0 ? 0 : 1);
  go = true;
  if (n != 0 && faults(FAULTS_WAIT, 0, 0, 0) == 1) {
    const pid_t child = fork();
    if (child == 0) {
      scene.child = true;
      alarm(20);
      churn(n, 300);
      for (Known& one : inherited) {
        give(one);
      }
      pthread_join(start(some_churn, argument(n)), nullptr);
      exit(0);  // with destructors
    }
    ++figures->failed;
    await(child, "the child forked in the middle of a memory call");
  }
  pthread_join(thread, nullptr);
  figures->calls = static_cast<unsigned long>(faults(FAULTS_END, 0, 0, 0));
  for (Known& one : inherited) {
    give(one);
  }
}

inline int forks_held(unsigned long most) {
  unsigned long calls = 0;
  unsigned long held = 0;
  unsigned long processes = 0;
  for (unsigned long i = 0; processes <= std::min(calls, most); ++processes) {
    *figures = {};
    const pid_t child = fork();
    if (child == 0) {
      scene = {i, 0, "forks", true};
      alarm(60);
      fork_held(i);
      _exit(0);
    }
    await(child, "the process that forks");
    calls = processes == 0 ? figures->calls : calls;
    held += figures->failed;
    i = most >= calls ? i + 1 : 1 + processes * calls / most;
  }
  dprintf(STDOUT_FILENO, "%lu calls, %lu processes, %lu forked in the middle of one\n", calls, processes,
          held);
  return 0;
}

// --- maps: as many mappings as the system permits
// -----------------------------------------------------------

// Makes every second page of a reservation a mapping of its own until the kernel refuses, at most
// `most` pages.
inline std::size_t use_up_mappings(unsigned char* pages, std::size_t most) {
  for (std::size_t i = 0; i < most; ++i) {
    if (mprotect(pages + 2 * i * page_size(), page_size(), PROT_READ) != 0) {
      return i;
    }
  }
  broken("%zu mappings, and there could be more", 2 * most);
}

inline int maps() {
  constexpr std::size_t kMax = std::size_t{1} << 19U;
  limited_otherwise = true;
  std::size_t had = 0;
  auto* const pages = static_cast<unsigned char*>(
      mmap(nullptr, kMax * 2 * page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  for (const std::size_t spare : {0, 1, 3, 10}) {
    const pid_t child = fork();
    if (child == 0) {
      scene = {spare, 0, "maps", true};
      alarm(60);
      had = use_up_mappings(pages, kMax);
      for (std::size_t i = 0; i < spare; ++i) {
        mprotect(pages + 2 * (had - 1 - i) * page_size(), page_size(), PROT_NONE);
      }
      mixed(7);
      threads(7);
      figures->failed = had;
      munmap(pages, kMax * 2 * page_size());
      scene.doing = "afterwards";
      afterwards();
      _exit(0);
    }
    await(child, "with no mappings left");
  }
  dprintf(STDOUT_FILENO, "%lu mappings, %lu refused\n", 2 * figures->failed, figures->refused);
  return 0;
}

// --- signals
// -----------------------------------------------------------------------------------------------

struct Targets {
  std::atomic<int> threads[4];
  std::atomic<bool> stop;
  std::atomic<unsigned long> came;
};
inline Targets* targets = nullptr;

inline void* restless_target(void* raw) {
  targets->threads[number(raw)] = static_cast<int>(syscall(SYS_gettid));
  for (std::uint64_t i = 0; !targets->stop; ++i) {
    churn(number(raw) * 1000 + i, 100);
  }
  targets->threads[number(raw)] = 0;
  return nullptr;
}

inline int random_signals() {
  constexpr int kSent = 20000;
  constexpr int kKinds[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGHUP,  SIGINT,    SIGTERM, SIGQUIT, SIGCHLD,
                            SIGURG,  SIGIO,   SIGPROF, SIGPIPE, SIGVTALRM, SIGXCPU, SIGTRAP, SIGTSTP};
  targets = static_cast<Targets*>(
      mmap(nullptr, sizeof(Targets), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action = {};
    action.sa_handler = [](int) { targets->came++; };
    for (const int kind : kKinds) {
      sigaction(kind, &action, nullptr);  // without SA_RESTART
    }
    pthread_t all[3] = {};
    for (std::uint64_t i = 0; i < std::size(all); ++i) {
      all[i] = start(restless_target, argument(i + 1));
    }
    restless_target(nullptr);
    for (const pthread_t thread : all) {
      pthread_join(thread, nullptr);
    }
    _exit(0);
  }
  Random random(4);
  for (int sent = 0; sent < kSent;) {
    const int thread = targets->threads[random.below(4)];
    if (thread == 0) {
      usleep(100);
      continue;
    }
    const int kind = random.once_in(50) ? SIGSTOP : kKinds[random.below(std::size(kKinds))];
    syscall(SYS_tgkill, child, thread, kind);
    if (kind == SIGSTOP) {
      kill(child, SIGCONT);
    }
    if (++sent % 16 == 0) {
      usleep(20);
    }
  }
  targets->stop = true;
  await(child, "the process that gets signals");
  dprintf(STDOUT_FILENO, "%d signals sent, %lu handled\n", kSent, targets->came.load());
  return 0;
}

// --- stack
// -------------------------------------------------------------------------------------------------

// Makes calls of every kind and nothing else, so that malloc takes nearly all of the stack in use.
inline void every_call() {
  static constexpr std::size_t kSizes[] = {1, 100, 1000, 5000, 30'000, 70'000, 300'000, 1'500'000, 5'000'000};
  static void* blocks[std::size(kSizes) * 100];  // one caller at a time
  for (std::size_t i = 0; i < std::size(blocks); ++i) {
    const std::size_t size = kSizes[i / 100];
    if (size > 100'000 && i % 100 > 4) {
      continue;
    }
    void* block = i % 3 == 0 ? calloc(1, size) : i % 3 == 1 ? memalign(256, size) : malloc(size);
    block = block == nullptr ? nullptr : realloc(block, size + size / 3);
    if (block == nullptr) {
      broken("%zu bytes refused", size);
    }
    blocks[i] = block;
  }
  free(memalign(std::size_t{1} << 22U, 1 << 20));
  malloc_trim(0);
  for (void*& block : blocks) {
    free(block);
    block = nullptr;
  }
  malloc_trim(0);
}

inline void* nothing(void* /*raw*/) { return nullptr; }
inline void* everything(void* /*raw*/) {
  every_call();
  return nullptr;  // then the thread exits, which also runs the heap's on_thread_exit
}

// Returns how many bytes of its stack a thread uses that runs `body`.
inline std::size_t depth(void* (*body)(void*)) {
  constexpr std::size_t kBytes = std::size_t{256} << 10U;
  constexpr unsigned char kPaint = 0xa5;
  auto* const memory = static_cast<unsigned char*>(map_pages(kBytes));
  std::memset(memory, kPaint, kBytes);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, memory, kBytes);
  pthread_t thread = {};
  if (pthread_create(&thread, &attributes, body, nullptr) != 0) {
    broken("pthread_create failed");
  }
  pthread_join(thread, nullptr);
  const std::size_t untouched = static_cast<std::size_t>(
      std::find_if(memory, memory + kBytes, [](auto byte) { return byte != kPaint; }) - memory);
  munmap(memory, kBytes);
  return kBytes - untouched;
}

inline int stack() {
  const std::size_t first =
      depth(everything);  // makes the heap, and registers what fork and thread ends need
  const std::size_t idle = depth(nothing);
  const std::size_t taken = std::max(first, depth(everything)) - idle;

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(sysconf(_SC_THREAD_STACK_MIN)));
  pthread_t thread = {};
  if (pthread_create(&thread, &attributes, everything, nullptr) != 0) {
    broken("pthread_create failed");
  }
  pthread_join(thread, nullptr);

  const std::size_t room = static_cast<std::size_t>(sysconf(_SC_MINSIGSTKSZ)) + 4096;
  const stack_t place = {map_pages(room), 0, room};
  sigaltstack(&place, nullptr);
  struct sigaction action = {};
  action.sa_handler = [](int) { every_call(); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  raise(SIGUSR1);
  dprintf(STDOUT_FILENO, "%zu bytes of the stack\n", taken);
  return 0;
}

}  // namespace heapwright::shadow
