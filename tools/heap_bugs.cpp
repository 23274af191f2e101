// Makes heap bugs, each in its own process, and prints for each kind how many the malloc noticed, and of how many.
// A bug counts as noticed if it ends the process, if malloc writes a message, or if the bug does not succeed.
// tools/heap_bugs.py runs this program under one malloc after another.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

constexpr unsigned char kOther = 0x55;
constexpr int kShows = 7;  // exit status of a child whose bug succeeded

char* hidden(void* address) {  // hides the address from the compiler, which would remove a bug
  asm volatile("" : "+r"(address) : : "memory");
  return static_cast<char*>(address);
}
char* take(std::size_t size) { return hidden(std::malloc(size)); }

// Allocates and frees many blocks of a size, so that a malloc that checks blocks when it reuses them checks each.
void churn(std::size_t size) {
  std::vector<char*> all(size <= 1024 ? 1500 : size <= 32768 ? 300 : 100);
  for (int round = 0; round < 2; ++round) {
    for (char*& block : all) {
      block = take(size);
    }
    for (char* const block : all) {
      std::free(block);
    }
  }
}

int made = 0;
int noticed = 0;

template <class F>
void attempt(F bug) {
  ++made;
  (void)std::fflush(stdout);
  const int said = memfd_create("said", 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(said, STDOUT_FILENO);
    dup2(said, STDERR_FILENO);
    alarm(20);
    bug();
    _exit(kShows);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const bool silent = lseek(said, 0, SEEK_END) == 0;
  noticed += WIFEXITED(status) && WEXITSTATUS(status) == kShows && silent ? 0 : 1;
  close(said);
}

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all;
  for (std::size_t size = 1; size <= 64; ++size) {
    all.push_back(size);
  }
  for (std::size_t size = 64; size <= 32768; size += size / 4) {
    for (const std::size_t less : {0U, 1U, 8U, 9U}) {
      all.push_back(size - less);
    }
  }
  for (const std::size_t size : {40000U, 65536U, 100000U, 300001U, 1U << 20U, 3000000U}) {
    all.push_back(size);
  }
  return all;
}

template <class F>
void each(F bug) {
  for (const std::size_t size : sizes()) {
    attempt([=] { bug(size); });
  }
}

void overflow() {
  each([](std::size_t size) {
    char* const block = take(size);
    block[size] ^= kOther;
    std::free(block);
    churn(size);
  });
}

void long_overflow() {
  each([](std::size_t size) {
    char* const block = take(size);
    std::memset(block + size, kOther, 32);
    std::free(block);
    churn(size);
  });
}

void underflow() {
  each([](std::size_t size) {
    std::vector<char*> all(size <= 32768 ? 64 : 4);
    for (char*& block : all) {
      block = take(size);
    }
    all[all.size() / 2][-1] ^= kOther;
    for (char* const block : all) {
      std::free(block);
    }
    churn(size);
  });
}

void late() {
  for (const std::size_t size : {16U, 100U, 1000U, 5000U, 20000U, 32000U, 100000U, 1U << 20U}) {
    for (std::size_t part = 0; part < 16; ++part) {
      attempt([=] {
        char* const block = take(size);
        std::memset(block, 1, size);
        std::free(block);
        block[(size - 1) * part / 15] ^= kOther;
        churn(size);
      });
    }
  }
}

void twice() {
  each([](std::size_t size) {
    char* const block = take(size);
    std::free(block);
    std::free(block);
    churn(size);
  });
}

void twice_later() {
  each([](std::size_t size) {
    char* const block = take(size);
    char* others[3];
    for (char*& other : others) {
      other = take(size);
    }
    std::free(block);
    for (char* const other : others) {
      std::free(other);
    }
    std::free(block);
    churn(size);
  });
}

void inside() {
  for (const std::size_t size : sizes()) {
    if (size > 32) {
      attempt([=] {
        char* const block = take(size);
        std::free(block + 16);
        churn(size);
      });
    }
  }
}

void mismatch() {
  for (const std::size_t size : {8U, 100U, 5000U, 100000U, 3000000U}) {
    attempt([=] { std::free(hidden(::operator new(size))); });
    attempt([=] { std::free(hidden(::operator new[](size))); });
    attempt([=] { ::operator delete(take(size)); });
    attempt([=] { ::operator delete(hidden(::operator new[](size))); });
    attempt([=] { ::operator delete[](take(size)); });
    attempt([=] { ::operator delete[](hidden(::operator new(size))); });
  }
}

void wrong_size() {
  for (const std::size_t size : {8U, 100U, 5000U, 100000U, 3000000U}) {
    attempt([=] { ::operator delete(hidden(::operator new(size)), size + 1); });
    attempt([=] { ::operator delete(hidden(::operator new(size)), size * 2); });
  }
}

// malloc returns a freed block at the next call.
void reuse() {
  each([](std::size_t size) {
    char* const block = take(size);
    std::free(block);
    if (take(size) != block) {
      _exit(0);
    }
  });
}

// A program can read the content of a block after its free.
void stale() {
  for (const std::size_t size : {100U, 1000U, 5000U, 20000U, 100000U, 1U << 20U}) {
    attempt([=] {
      char* const block = take(size);
      std::memset(block, kOther, size);
      std::free(block);
      if (block[size / 2] != kOther) {
        _exit(0);
      }
    });
  }
}

// A program can read the content of a freed block in a block allocated later.
void leftover() {
  for (const std::size_t size : {100U, 1000U, 5000U, 20000U, 100000U, 1U << 20U}) {
    attempt([=] {
      std::vector<char*> all(size <= 32768 ? 600 : 8);
      for (char*& block : all) {
        block = take(size);
        std::memset(block, kOther, size);
      }
      for (char* const block : all) {
        std::free(block);
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (take(size)[size / 2] == kOther) {
          return;
        }
      }
      _exit(0);
    });
  }
}

}  // namespace

int main() {
  const struct {
    const char* name;
    void (*run)();
  } kinds[] = {{"one byte beyond the end", overflow},
               {"32 bytes beyond the end", long_overflow},
               {"one byte before the beginning", underflow},
               {"one byte after the free, at 16 offsets", late},
               {"freed twice in a row", twice},
               {"freed twice, others between", twice_later},
               {"freed inside", inside},
               {"new, new[] and malloc mixed up", mismatch},
               {"delete of another size", wrong_size},
               {"handed out again at once", reuse},
               {"read after the free", stale},
               {"read in a later block", leftover}};
  for (const auto& kind : kinds) {
    made = noticed = 0;
    kind.run();
    std::printf("%s\t%d\t%d\n", kind.name, noticed, made);
  }
}
