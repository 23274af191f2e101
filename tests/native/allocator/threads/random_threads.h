// Runs random operations of real threads on an allocator that is linked with hidden names, for the
// sanitizers. A seed fixes the operations of each thread, but not the order between threads.
// Threads pass blocks to each other, singly and in lists; threads end and others start; the process
// forks meanwhile; some requests are too large for the memory.
//
// Every block holds its own byte at both ends. The tests compare it when the block changes hands,
// moves or is freed. There is no lock and no table over all threads: either would order them, and
// ThreadSanitizer would not see races in the allocator. So only its bytes show that two threads
// have the same block. (tests/programs/allocator_fuzz.cpp knows the address of every block and runs
// under any malloc, but not under a sanitizer; tests/torture/fuzz/heaps.h has one thread, driven by
// coverage.)
//
//   HEAPWRIGHT_FUZZ_SECONDS   run for this time, with seeds from the clock, instead of one play
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): SIGALRM
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace heapwright::alloc::threads {

struct Block {
  unsigned char* address = nullptr;
  std::size_t bytes = 0;
  unsigned char fill = 0;
};
using Heap = std::vector<Block>;

[[noreturn]] inline void broken(const char* what, unsigned seed) {
  (void)std::fprintf(stderr, "not so: %s (a thread of seed %u)\n", what, seed);
  std::_Exit(3);
}

// The argument of a thread of a play: the play, and a seed for this thread.
template <class Player>
struct Job {
  Player* play;
  unsigned seed;
};

// Runs `live`, with a Job<Player>, in four threads, and waits for their ends.
template <class Api, class Player>
void run_generation(Player* play, void* (*live)(void*), unsigned seed, unsigned generation) {
  std::array<pthread_t, 4> threads{};
  std::array<Job<Player>, 4> jobs{};
  for (unsigned i = 0; i < threads.size(); ++i) {
    jobs[i] = {play, seed * 1000 + generation * 10 + i};
    if (Api::start(&threads[i], live, &jobs[i]) != 0) {
      broken("a thread starts", seed);
    }
  }
  for (const pthread_t thread : threads) {
    pthread_join(thread, nullptr);
  }
}

// Calls play(seed) once, or as long as HEAPWRIGHT_FUZZ_SECONDS says, until it returns false.
template <class F>
void play_for_the_time(F play) {
  const char* const seconds = std::getenv("HEAPWRIGHT_FUZZ_SECONDS");
  if (seconds == nullptr) {
    play(1U);
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(std::strtol(seconds, nullptr, 10));
  auto seed = static_cast<unsigned>(Clock::now().time_since_epoch().count() / 1000 % 1'000'000);
  unsigned plays = 0;
  for (; Clock::now() < end && play(seed); ++seed, ++plays) {
  }
  (void)std::fprintf(stderr, "%u plays, the last of seed %u\n", plays, seed - 1);
}

// `Api`: the allocator's functions, and what starts a thread.
template <class Api>
class Play {
 public:
  explicit Play(unsigned seed) : seed_(seed) {}

  void run() {
    constexpr unsigned kGenerations = 4;
    for (unsigned generation = 0; generation < kGenerations; ++generation) {
      run_generation<Api>(this, live, seed_, generation);
    }
    for (auto& place : mail_) {
      const std::unique_ptr<Heap> left(place.exchange(nullptr));
      for (std::size_t i = 0; left && i < left->size(); ++i) {
        give((*left)[i], seed_);
      }
    }
    Api::trim();
    if (Api::live() != 0) {
      broken("nothing is left", seed_);
    }
  }

 private:
  static constexpr std::size_t kEnds = 64;

  static void* live(void* raw) {
    const auto& job = *static_cast<Job<Play>*>(raw);
    job.play->work(job.seed, 1500 + job.seed % 1500);
    return nullptr;
  }

  void work(unsigned seed, unsigned operations) {
    std::mt19937 random(seed);
    Heap own;
    for (unsigned i = 0; i < operations; ++i) {
      step(random, own, seed);
    }
    hand_over(random, own);  // blocks still in a slot are for another thread
    for (const Block& block : own) {
      give(block, seed);
    }
  }

  void step(std::mt19937& random, Heap& own, unsigned seed) {
    const auto dice = random() % 1000;
    if (dice < 420) {
      own.push_back(take(random, some_size(random), seed));
    } else if (dice < 760) {
      if (!own.empty()) {
        std::swap(own[dice % 3 == 0 ? random() % own.size() : own.size() - 1], own.back());
        give(own.back(), seed);
        own.pop_back();
      }
    } else if (dice < 850) {
      if (!own.empty()) {
        resize(own[random() % own.size()], some_size(random), seed);
      }
    } else if (dice < 900) {
      look(own, random, seed);
    } else if (dice < 970) {
      hand_over(random, own);
    } else if (dice < 980) {  // many of one size: whole superblocks come and go
      const std::size_t size = 1 + random() % 2000;
      for (auto n = random() % 300; n > 0; --n) {
        own.push_back(take(random, size, seed));
      }
    } else if (dice < 985) {
      if (Api::malloc(SIZE_MAX / 2 - dice) != nullptr || Api::calloc(SIZE_MAX / 2, 3) != nullptr) {
        broken("a request that is too large is refused", seed);
      }
    } else if (dice < 990) {
      Api::trim();
    } else if (dice < 995) {
      (void)Api::live();
    } else if (dice == 995) {
      fork_now(seed, static_cast<unsigned>(random()), own);
    }
  }

  static std::size_t some_size(std::mt19937& random) {
    const auto kind = random() % 256;
    return kind < 230 ? 1 + random() % 700 : kind < 253 ? random() % 50'000 : random() % 3'000'000;
  }
  static Block take(std::mt19937& random, std::size_t bytes, unsigned seed) {
    Block block{nullptr, bytes, static_cast<unsigned char>(random() | 1)};
    const auto how = random() % 16;
    if (how == 0) {
      block.address = static_cast<unsigned char*>(Api::calloc(1, bytes));
      if (block.address != nullptr && !holds(block.address, bytes, 0)) {
        broken("calloc's memory is zero", seed);
      }
    } else if (how == 1) {
      const std::size_t alignment = std::size_t{16} << random() % 9;
      block.fill |= 2;  // free_sized is not for these
      block.address = static_cast<unsigned char*>(Api::aligned_alloc(alignment, bytes));
      if (reinterpret_cast<std::uintptr_t>(block.address) % alignment != 0) {
        broken("a block is aligned as was asked", seed);
      }
    } else {
      block.address = static_cast<unsigned char*>(Api::malloc(bytes));
    }
    if (block.address == nullptr || Api::usable_size(block.address) < bytes) {
      broken("a block is there, and as large as was asked", seed);
    }
    paint(block);
    return block;
  }
  static std::size_t end_of(std::size_t bytes) { return std::min(bytes, kEnds); }
  static bool holds(const unsigned char* at, std::size_t bytes, unsigned char fill) {
    return std::all_of(at, at + end_of(bytes), [fill](unsigned char c) { return c == fill; }) &&
           std::all_of(at + bytes - end_of(bytes), at + bytes, [fill](unsigned char c) { return c == fill; });
  }
  static void paint(const Block& block) {
    std::memset(block.address, block.fill, end_of(block.bytes));
    std::memset(block.address + block.bytes - end_of(block.bytes), block.fill, end_of(block.bytes));
  }
  static void check(const Block& block, unsigned seed) {
    if (!holds(block.address, block.bytes, block.fill)) {
      broken("a block keeps its bytes", seed);
    }
  }
  static void give(const Block& block, unsigned seed) {
    check(block, seed);
    if (block.fill % 4 == 1) {
      Api::free_sized(block.address, block.bytes);
    } else {
      Api::free(block.address);
    }
  }
  static void resize(Block& block, std::size_t bytes, unsigned seed) {
    check(block, seed);
    auto* const moved =
        static_cast<unsigned char*>(Api::realloc(block.address, std::max<std::size_t>(bytes, 1)));
    if (moved == nullptr) {
      broken("a block can be resized", seed);
    }
    const std::size_t kept = std::min(end_of(block.bytes), bytes);
    if (!std::all_of(moved, moved + kept, [&](unsigned char c) { return c == block.fill; })) {
      broken("a resized block begins as it did", seed);
    }
    block = {moved, std::max<std::size_t>(bytes, 1), block.fill};
    paint(block);
  }
  static void look(const Heap& own, std::mt19937& random, unsigned seed) {
    if (!own.empty()) {
      const Block& block = own[random() % own.size()];
      check(block, seed);
      if (Api::usable_size(block.address) < block.bytes) {
        broken("a block stays as large as it was", seed);
      }
    }
  }
  // All that one has, or half of it, for what another has left there.
  void hand_over(std::mt19937& random, Heap& own) {
    auto mine = std::make_unique<Heap>();
    const std::size_t kept = random() % 2 == 0 ? 0 : own.size() / 2;
    mine->assign(own.begin() + static_cast<std::ptrdiff_t>(kept), own.end());
    own.resize(kept);
    const std::unique_ptr<Heap> theirs(
        mail_[random() % mail_.size()].exchange(mine.release(), std::memory_order_acq_rel));
    if (theirs) {
      own.insert(own.end(), theirs->begin(), theirs->end());
    }
  }
  // The child has only this thread and its blocks. Operations of the other threads stay unfinished,
  // also in the sanitizer's own malloc: so no vector may grow here.
  void fork_now(unsigned seed, unsigned child_seed, const Heap& own) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      std::mt19937 random(child_seed);
      std::array<Block, 64> some{};
      for (std::size_t i = 0; i < 2000; ++i) {
        Block& block = some[random() % some.size()];
        if (block.address != nullptr) {
          give(block, seed);
        } else if (i < own.size()) {
          give(own[i], seed);
        }
        block = take(random, some_size(random), seed);
      }
      std::_Exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      broken(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "a child ends" : "all is well in a child",
             seed);
    }
  }

  unsigned seed_;
  std::array<std::atomic<Heap*>, 6> mail_{};
};

// One play, or as many as there is time for.
template <class Api>
void play_at_random() {
  play_for_the_time([](unsigned seed) {
    Play<Api>(seed).run();
    return true;
  });
}

}  // namespace heapwright::alloc::threads
