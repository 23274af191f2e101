// Counts the instructions that a malloc takes with threads, and the locked ones among them, exactly, by single steps.
//
//     gcc -O2 -fno-builtin -pthread tools/locked.c -o locked && ./locked libreaper.so
//
// Each locked instruction needs its cache line exclusively: one transfer if another core had it last, and no later
// instruction completes before it. So the number of locked instructions in an operation predicts contention on
// machines with more cores than this one. The program runs itself under ptrace with the library preloaded, and steps
// through the main thread between two int3. The other thread runs freely, and waits while the main thread is stepped.
//
//     local         random replacement of 1000 blocks of 16 to 512 bytes: one malloc and one free each
//     free, alike   8000 blocks of 64 bytes of the other thread, freed in the order they were allocated
//     free, mixed   8000 of 16 to 512 bytes, freed in random order
//     malloc        8000 blocks of 64 bytes, after the other thread has freed as many blocks of this thread (four times)
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBlocks = 8000, kSlots = 1000 };
static void* blocks[kBlocks];
static atomic_int turn;  // 0: the main thread runs; the other thread 1: allocates, 2: frees, 3: ends
static int mixed;
static uint32_t state = 1;

static uint32_t random_below(uint32_t n) { return (state = state * 1664525 + 1013904223) / 65536 % n; }
static size_t size(void) { return mixed ? 16 + random_below(497) : 64; }

static void* other(void* nothing) {
  for (;;) {
    while (atomic_load(&turn) == 0) {
      usleep(100);
    }
    if (atomic_load(&turn) == 3) {
      return nothing;
    }
    for (int i = 0; i < kBlocks; ++i) {
      if (atomic_load(&turn) == 1) {
        memset(blocks[i] = malloc(size()), 1, 16);
      } else {
        free(blocks[i]);
      }
    }
    atomic_store(&turn, 0);
  }
}

static void let_other(int what) {
  atomic_store(&turn, what);
  while (what != 3 && atomic_load(&turn) != 0) {
    usleep(100);
  }
}

static void shuffle(void) {
  for (uint32_t i = kBlocks; i > 1; --i) {
    uint32_t k = random_below(i);
    void* block = blocks[k];
    blocks[k] = blocks[i - 1];
    blocks[i - 1] = block;
  }
}

#define STEPPED(code)                    \
  __asm__ volatile("int3" ::: "memory"); \
  code;                                  \
  __asm__ volatile("int3" ::: "memory")

static void work(void) {
  pthread_t thread;
  static void* slots[kSlots];
  pthread_create(&thread, NULL, other, NULL);
  mixed = 1;
  for (int i = 0; i < 40 * kSlots; ++i) {  // warm
    uint32_t k = random_below(kSlots);
    free(slots[k]);
    slots[k] = malloc(size());
  }
  STEPPED(for (int i = 0; i < kBlocks; ++i) {
    uint32_t k = random_below(kSlots);
    free(slots[k]);
    slots[k] = malloc(size());
  });
  for (mixed = 0; mixed < 2; ++mixed) {
    let_other(1);
    if (mixed) {
      shuffle();
    }
    STEPPED(for (int i = 0; i < kBlocks; ++i) { free(blocks[i]); });
  }
  mixed = 0;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      blocks[i] = malloc(64);
    }
    let_other(2);
  }
  STEPPED(for (int i = 0; i < kBlocks; ++i) { blocks[i] = malloc(64); });
  let_other(3);
  pthread_join(thread, NULL);
}

// Whether an instruction is locked: it has the lock prefix, or it exchanges with memory.
static int is_locked(const unsigned char* code) {
  for (; strchr("\x66\xf2\xf3\x2e\x36\x3e\x26\x64\x65", *code) != NULL && *code != 0; ++code) {
  }
  if (*code == 0xf0) {
    return 1;
  }
  code += (*code & 0xf0) == 0x40;
  return (code[0] == 0x86 || code[0] == 0x87) && code[1] < 0xc0;
}

// Steps the process `pid` until the next int3. Prints the counts, divided by `operations`, in a line
// that begins with `name`.
static void step(pid_t pid, const char* name, int operations) {
  enum { kKnown = 1 << 16 };
  static struct {
    unsigned long at;
    unsigned char first, locked;
  } known[kKnown];
  unsigned long all = 0, locked = 0;
  int status = 0;
  for (;;) {
    const unsigned long at =
        (unsigned long)ptrace(PTRACE_PEEKUSER, pid, (void*)offsetof(struct user_regs_struct, rip), NULL);
    size_t place = at * 0x9e3779b97f4a7c15U >> 48;
    while (known[place].at != at && known[place].at != 0) {
      place = (place + 1) % kKnown;
    }
    if (known[place].at == 0) {
      long words[2] = {ptrace(PTRACE_PEEKTEXT, pid, (void*)at, NULL), 0};
      known[place].at = at;
      known[place].first = *(unsigned char*)words;
      known[place].locked = (unsigned char)is_locked((unsigned char*)words);
    }
    if (known[place].first == 0xcc) {
      break;
    }
    ++all;
    locked += known[place].locked;
    ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
      exit(1);
    }
  }
  printf("%-12s %8.1f instructions %8.4f locked\n", name, (double)all / operations,
         (double)locked / operations);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    work();
    return 0;
  }
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("LD_PRELOAD", argv[1], 1);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    execl("/proc/self/exe", "locked", (char*)NULL);
    _exit(1);
  }
  const char* names[] = {"local", "free, alike", "free, mixed", "malloc"};
  int status = 0;
  int seen = -1;  // the first stop is exec's
  while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
    const int trap = WSTOPSIG(status) == SIGTRAP;
    if (trap && seen >= 0 && seen % 2 == 0 && seen / 2 < 4) {
      step(pid, names[seen / 2], kBlocks);
    }
    seen += trap;
    ptrace(PTRACE_CONT, pid, NULL, (void*)(long)(trap ? 0 : WSTOPSIG(status)));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
