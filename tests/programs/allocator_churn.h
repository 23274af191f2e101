// Allocates and frees blocks with checked contents, in threads, for allocator_threads.
#pragma once

#include <cstdlib>

#include "allocator_shadow.h"

namespace heapwright::shadow {

// A block with its size and the byte that fills it.
struct Known {
  unsigned char* at;
  std::size_t size;
};

inline Known take(Random& random, std::size_t most) {
  const std::size_t size = 16 + random.below(random.once_in(64) ? most * 32 : most);
  auto* const at = static_cast<unsigned char*>(malloc(size));
  if (at == nullptr) {
    broken("malloc(%zu) refused", size);
  }
  fill({at, size, size, 0, Family::kPlain, size, nullptr});
  return {at, size};
}

inline void give(Known& known) {
  if (known.at != nullptr) {
    check({known.at, known.size, known.size, 0, Family::kPlain, known.size, nullptr});
    free(known.at);
    known.at = nullptr;
  }
}

// Allocates and frees for a number of rounds.
inline void churn(std::uint64_t seed, int rounds) {
  Random random(seed);
  Known live[64] = {};
  for (int i = 0; i < rounds; ++i) {
    Known& one = live[random.below(std::size(live))];
    give(one);
    one = take(random, 2000);
  }
  for (Known& one : live) {
    give(one);
  }
}

inline pthread_t start(void* (*body)(void*), void* argument, bool detached = false) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
  pthread_attr_setstacksize(&attributes, std::size_t{256} << 10U);
  pthread_t thread = {};
  if (pthread_create(&thread, &attributes, body, argument) != 0) {
    broken("pthread_create failed");
  }
  pthread_attr_destroy(&attributes);
  return thread;
}

inline std::uint64_t number(void* argument) { return reinterpret_cast<std::uintptr_t>(argument); }
inline void* argument(std::uint64_t number) { return reinterpret_cast<void*>(number); }

inline std::size_t resident() {
  std::size_t pages = 0;
  char text[128] = {};
  if (std::FILE* const file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    if (std::fgets(text, sizeof text, file) != nullptr) {
      (void)std::sscanf(text, "%*s %zu", &pages);
    }
    (void)std::fclose(file);
  }
  return pages * page_size();
}

inline void* some_churn(void* raw) {
  churn(number(raw), 500);
  return nullptr;
}

inline void all_four(void* (*body)(void*)) {
  pthread_t threads[4] = {};
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads[i] = start(body, argument(i));
  }
  for (const pthread_t thread : threads) {
    pthread_join(thread, nullptr);
  }
}

}  // namespace heapwright::shadow
