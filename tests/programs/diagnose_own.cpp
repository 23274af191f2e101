// Allocates known blocks with a malloc that reports on itself, prints what that malloc and the
// program itself count, and waits. Usage: diagnose_own CASE
//
//   one      blocks of many sizes from one thread; nine tenths are freed at random
//   ended    the same from four threads, which free each other's blocks and end
//   idle     the same, but the threads stay
//   fork     the same as idle; then a child of fork allocates 5000 blocks, and counts
//   known    20000 blocks of 100 bytes, 15000 of them freed; 40 of 100000 bytes; 3 of 5000000 bytes
//   random   200000 blocks of 100 bytes, nine tenths of them freed in random order
//   empty    64 MiB in blocks of 1000 bytes, all freed
//   busy     two threads allocate and free for ever; the number of live bytes stays about the same
//
// After a line on stdin, it trims, prints a line, and waits again.
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

std::atomic<std::size_t> live_bytes{0};  // usable bytes of the program's own blocks
std::atomic<std::size_t> live_blocks{0};
std::string mode;
std::vector<void*> shared_blocks;
pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_barrier_t all_done;

void* take(std::size_t bytes) {
  void* const block = std::malloc(bytes);
  std::memset(block, 1, bytes < 100'000 ? bytes : 100);
  live_bytes += malloc_usable_size(block);
  ++live_blocks;
  return block;
}

void give(void* block) {
  live_bytes -= malloc_usable_size(block);
  --live_blocks;
  std::free(block);
}

std::size_t some_size(std::mt19937& random) {
  const auto dice = random() % 100;
  return dice < 90   ? random() % 2000
         : dice < 98 ? random() % 30000
         : dice < 99 ? random() % 300'000
                     : 1'500'000;
}

// Exchanges a block for one that another thread allocated.
void* exchange(void* block, std::mt19937& random) {
  pthread_mutex_lock(&shared_lock);
  shared_blocks.push_back(block);
  void* other = nullptr;
  if (shared_blocks.size() > 100) {
    std::swap(shared_blocks[random() % shared_blocks.size()], shared_blocks.back());
    other = shared_blocks.back();
    shared_blocks.pop_back();
  }
  pthread_mutex_unlock(&shared_lock);
  return other;
}

void* work(void* seed) {
  std::mt19937 random(static_cast<unsigned>(reinterpret_cast<std::size_t>(seed)));
  auto* const own = new std::vector<void*>;  // lives on with its blocks
  for (int i = 0; i < 40000; ++i) {
    own->push_back(take(some_size(random)));
    if (own->size() > 6000 || random() % 3 == 0) {
      std::swap((*own)[random() % own->size()], own->back());
      void* block = own->back();
      own->pop_back();
      if (mode != "one" && random() % 2 == 0) {
        block = exchange(block, random);
      }
      if (block != nullptr) {
        give(block);
      }
    }
  }
  for (std::size_t i = 0; i < own->size(); ++i) {
    if (i % 10 != 0) {
      give((*own)[i]);
    }
  }
  if (mode == "idle" || mode == "fork") {
    pthread_barrier_wait(&all_done);
    pthread_barrier_wait(&all_done);  // for ever
  }
  return nullptr;
}

void* churn(void* seed) {
  std::mt19937 random(static_cast<unsigned>(reinterpret_cast<std::size_t>(seed)));
  std::vector<void*> blocks(20000);
  for (void*& block : blocks) {
    block = take(500);
  }
  for (;;) {
    void*& block = blocks[random() % blocks.size()];
    std::free(block);
    block = std::malloc(400 + random() % 100);
  }
}

void allocate_known() {
  std::vector<void*> small(20000);
  for (void*& block : small) {
    block = take(100);
  }
  for (std::size_t i = 0; i < small.size(); ++i) {
    if (i % 4 != 0) {
      give(small[i]);
    }
  }
  for (int i = 0; i < 40; ++i) {
    take(100'000);
  }
  for (int i = 0; i < 3; ++i) {
    take(5'000'000);
  }
}

void free_at_random() {
  std::vector<void*> blocks(200'000);
  for (void*& block : blocks) {
    block = take(100);
  }
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(3));
  for (std::size_t i = 0; i < blocks.size() / 10 * 9; ++i) {
    give(blocks[i]);
  }
}

void allocate_and_free_all() {
  std::vector<void*> blocks(64 << 10);
  for (void*& block : blocks) {
    block = take(1000);
  }
  for (void* const block : blocks) {
    give(block);
  }
}

}  // namespace

int main(int count, char** words) {
  mode = count > 1 ? words[1] : "one";
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  std::setvbuf(stdin, nullptr, _IONBF, 0);
  std::array<pthread_t, 4> threads{};
  if (mode == "one") {
    work(reinterpret_cast<void*>(7));
  } else if (mode == "known") {
    allocate_known();
  } else if (mode == "random") {
    free_at_random();
  } else if (mode == "empty") {
    allocate_and_free_all();
  } else {
    pthread_barrier_init(&all_done, nullptr, threads.size() + 1);
    for (std::size_t i = 0; i < (mode == "busy" ? 2 : threads.size()); ++i) {
      pthread_create(&threads[i], nullptr, mode == "busy" ? churn : work, reinterpret_cast<void*>(i + 1));
    }
    for (const pthread_t thread : threads) {
      if (mode == "ended") {
        pthread_join(thread, nullptr);
      }
    }
    if (mode == "idle" || mode == "fork") {
      pthread_barrier_wait(&all_done);
    }
    if (mode == "fork") {
      if (fork() != 0) {
        pause();
      }
      for (int i = 0; i < 5000; ++i) {
        take(700);
      }
    }
    while (mode == "busy" && live_blocks < 40000) {
    }
  }
  const struct mallinfo2 own = mallinfo2();
  std::printf("%zu %zu %zu %zu %zu %zu %d\n", own.uordblks + own.hblkhd, own.hblks, own.hblkhd, own.keepcost,
              live_bytes.load(), live_blocks.load(), static_cast<int>(getpid()));
  while (std::getchar() == '\n') {
    malloc_trim(0);
    std::puts("trimmed");
  }
}
