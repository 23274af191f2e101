// Runs threads that allocate and free spans at random, for the sanitizers: as random_threads.h, but
// with few other blocks, so that a thread's depot holds spans nearly always, and with threads that
// trim, fork and end meanwhile. So other threads end the bias of the depots all the time
// (core/span_stacks.h).
//
// A seccomp filter may refuse membarrier from the beginning, or from some time on: then the threads
// themselves must end the bias. These plays run in a child process, because a filter stays.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

#include "random_threads.h"

namespace heapwright::alloc::threads {

enum class Membarrier : std::uint8_t { kAsIs, kRefused, kRefusedLater };

// Refuses membarrier to all threads of this process, with `error`.
inline bool refuse_membarrier(unsigned error) {
  std::array<sock_filter, 4> rules{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter = {rules.size(), rules.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

// Whether refuse_membarrier() works here: an emulator may have no seccomp.
inline bool can_refuse_membarrier() {
  const pid_t child = fork();
  if (child == 0) {
    std::_Exit(refuse_membarrier(EPERM) ? 0 : 1);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// `Api`: as in random_threads.h.
template <class Api>
class SpanPlay {
 public:
  SpanPlay(unsigned seed, Membarrier membarrier) : seed_(seed), membarrier_(membarrier) {}

  void run() {
    constexpr unsigned kGenerations = 6;
    if (membarrier_ == Membarrier::kRefused && !refuse_membarrier(ENOSYS)) {
      broken("membarrier can be refused", seed_);
    }
    for (unsigned generation = 0; generation < kGenerations; ++generation) {
      if (membarrier_ == Membarrier::kRefusedLater && generation == kGenerations / 2) {
        refuse_soon_ = true;
      }
      run_generation<Api>(this, live, seed_, generation);
    }
    for (auto& place : mail_) {
      give(place.exchange(0), seed_);
    }
    Api::trim();
    if (Api::live() != 0) {
      broken("nothing is left", seed_);
    }
  }

 private:
  static constexpr std::size_t kPart = 64 * 1024;  // a word is written in each part of a span
  // A span: its address, a multiple of 64, plus the number of its parts. 0: none.
  using Span = std::uintptr_t;
  static constexpr Span kPartsMask = 63;

  static void* live(void* raw) {
    const auto& job = *static_cast<Job<SpanPlay>*>(raw);
    job.play->work(job.seed, 400 + job.seed % 400);
    return nullptr;
  }
  void work(unsigned seed, unsigned steps) {
    std::mt19937 random(seed);
    std::array<Span, 24> own{};
    for (unsigned i = 0; i < steps; ++i) {
      step(random, own, seed);
    }
    if (random() % 2 == 0) {  // else another thread must free them: the heap of this one has ended
      for (const Span span : own) {
        give(span, seed);
      }
      return;
    }
    for (const Span span : own) {
      give(mail_[random() % mail_.size()].exchange(span, std::memory_order_acq_rel), seed);
    }
  }
  void step(std::mt19937& random, std::array<Span, 24>& own, unsigned seed) {
    const auto dice = random() % 1000;
    if (dice < 600) {  // the fast paths: a few lengths, the latest first
      const std::size_t parts = 1 + random() % 4;
      const std::size_t first = random() % own.size();
      const std::size_t end = std::min(own.size(), first + random() % 6);
      for (std::size_t i = first; i < end; ++i) {
        give(std::exchange(own[i], take(parts, random, seed)), seed);
      }
      for (std::size_t i = first; i < end && dice < 300; ++i) {
        give(std::exchange(own[i], 0), seed);
      }
    } else if (dice < 750) {
      Span& span = own[random() % own.size()];
      give(std::exchange(span, take(1 + random() % 15, random, seed)), seed);
    } else if (dice < 900) {
      Span& span = own[random() % own.size()];
      span = mail_[random() % mail_.size()].exchange(span, std::memory_order_acq_rel);
    } else if (dice < 950) {
      for (int i = 0; i < 50; ++i) {  // small blocks take superblocks that spans had
        Api::free(Api::malloc(1 + random() % 20'000));
      }
    } else if (dice < 985) {
      Api::trim();
    } else if (dice < 995) {
      (void)Api::live();
    } else if (dice == 995) {
      fork_now(seed, static_cast<unsigned>(random()), own);
    } else if (refuse_soon_.exchange(false)) {
      if (!refuse_membarrier(EPERM)) {
        broken("membarrier can be refused", seed);
      }
    }
  }
  static Span take(std::size_t parts, std::mt19937& random, unsigned seed) {
    const std::size_t bytes = parts * kPart - random() % (kPart / 4);
    auto* const address = static_cast<unsigned char*>(Api::malloc(bytes));
    if (address == nullptr || Api::usable_size(address) < bytes) {
      broken("a span is there, and as large as was asked", seed);
    }
    const Span span = reinterpret_cast<std::uintptr_t>(address);
    if ((span & kPartsMask) != 0) {
      broken("a span is aligned", seed);
    }
    return mark(span, parts);
  }
  static std::uintptr_t& word(std::uintptr_t address, std::size_t part) {
    return *reinterpret_cast<std::uintptr_t*>(address + part * kPart);
  }
  static Span mark(std::uintptr_t address, std::size_t parts) {
    for (std::size_t i = 0; i < parts; ++i) {
      word(address, i) = ~(address + i);
    }
    return address | parts;
  }
  static void give(Span span, unsigned seed) {
    if (span == 0) {
      return;
    }
    const std::uintptr_t address = span & ~kPartsMask;
    for (std::size_t i = 0; i < (span & kPartsMask); ++i) {
      if (std::exchange(word(address, i), 0) != ~(address + i)) {
        broken("a span keeps its bytes", seed);
      }
    }
    Api::free(reinterpret_cast<void*>(address));
  }
  // The child has only this thread, and the depots of all others are lost.
  static void fork_now(unsigned seed, unsigned child_seed, std::array<Span, 24>& own) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      std::mt19937 random(child_seed);
      for (int i = 0; i < 500; ++i) {
        Span& span = own[random() % own.size()];
        give(std::exchange(span, random() % 3 == 0 ? 0 : take(1 + random() % 6, random, seed)), seed);
        if (i % 100 == 0) {
          Api::trim();
        }
      }
      std::_Exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      broken("all is well in a child", seed);
    }
  }

  unsigned seed_;
  Membarrier membarrier_;
  std::atomic<bool> refuse_soon_ = false;
  std::array<std::atomic<Span>, 16> mail_{};
};

// The same with spans, each play in a process of its own.
template <class Api>
void play_with_spans(Membarrier membarrier) {
  if (membarrier != Membarrier::kAsIs && !can_refuse_membarrier()) {
    GTEST_SKIP() << "a filter of seccomp refuses membarrier";
  }
  play_for_the_time([membarrier](unsigned seed) {
    const pid_t child = fork();
    if (child == 0) {
      SpanPlay<Api>(seed, membarrier).run();
      std::_Exit(0);
    }
    int status = 1;
    const bool ended = waitpid(child, &status, 0) == child;
    EXPECT_TRUE(ended && status == 0) << "seed " << seed;
    return ended && status == 0;
  });
}

}  // namespace heapwright::alloc::threads
