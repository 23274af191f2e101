// exgen: the core for programs with one thread, and safe if there come more. Include once, after
// `heapwright::alloc::ExgenConfiguration` has been defined.
//
// Thread rules. As long as the process has one thread nothing is locked and nothing asks. pthread_create and
// thrd_create are wrapped: before the first other thread starts, the heap is hidden, which makes every fast
// path fail the test it has anyway, and from then on the slow paths run under one lock. Threads that come
// into being otherwise (inside the C library) are noticed by glibc's flag in the next slow path.
#pragma once

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <threads.h>

#include "../core/heap.h"
#include "../core/message.h"
#include "../core/options.h"
#include "../include/exgen.h"

namespace heapwright::alloc {

class Exgen {
  Heap<ExgenConfiguration> heap_;  // first: see Heap

 public:
  static constexpr const char* kName = ExgenConfiguration::kName;

  HEAPWRIGHT_INLINE void* allocate(std::size_t bytes) { return heap_.allocate(bytes); }
  HEAPWRIGHT_INLINE void free(void* address) { finish_free(heap_.free(address), address); }
  HEAPWRIGHT_INLINE std::size_t class_size(const void* address) const { return heap_.class_size(address); }
  static bool stays(std::size_t size, std::size_t bytes) { return Heap<ExgenConfiguration>::stays(size, bytes); }
  void* allocate_slow(std::size_t bytes) {
    const Guard guard(*this);
    return heap_.allocate_slow(bytes);
  }
  void* allocate_aligned(std::size_t bytes, std::size_t alignment) {
    const Guard guard(*this);
    return heap_.allocate_aligned(bytes, alignment);
  }
  void* allocate_zeroed(std::size_t bytes) {
    const Guard guard(*this);
    void* const block = heap_.allocate_slow(bytes);
    return block == nullptr || heap_.is_zero(block) ? block : std::memset(block, 0, bytes);
  }
  std::size_t usable(const void* address) {
    const Guard guard(*this);
    return heap_.usable(address);
  }
  void* resize(void* address, std::size_t bytes) {
    const Guard guard(*this);
    return heap_.resize(address, bytes);
  }
  bool trim() {
    const Guard guard(*this);
    return heap_.trim();
  }
  Statistics statistics() {
    const Guard guard(*this);
    return heap_.statistics();
  }
  int set_option(int what, int value) {
    if (what == M_TRIM_THRESHOLD && value >= 0) {
      heap_.region.settings.keep_bytes = static_cast<std::size_t>(value);
    }
    return 1;
  }

  void start(const char* options);
  void become_threaded();
  bool prints_statistics = false;

 private:
  class Guard {
   public:
    explicit Guard(Exgen& exgen) : exgen_(exgen) {
      if (!exgen.threaded_ && !platform::single_threaded()) [[unlikely]] {
        exgen.become_threaded();
      }
      held_ = exgen.threaded_;
      if (held_) {
        exgen.lock_.lock();
      }
    }
    ~Guard() {
      if (held_) {
        exgen_.lock_.unlock();
      }
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Exgen& exgen_;
    bool held_;
  };

  HEAPWRIGHT_INLINE void finish_free(Heap<ExgenConfiguration>::Freed freed, void* address) {
    if (freed == Heap<ExgenConfiguration>::Freed::kFull) [[unlikely]] {
      spill(address);
    } else if (freed == Heap<ExgenConfiguration>::Freed::kOdd) [[unlikely]] {
      free_odd(address);
    }
  }
  HEAPWRIGHT_COLD void spill(void* address) {
    const Guard guard(*this);
    heap_.spill(address);
  }
  HEAPWRIGHT_COLD void free_odd(void* address) {
    if (address == nullptr) {
      return;
    }
    Fault fault{};
    bool right = false;
    {
      const Guard guard(*this);
      right = heap_.free_slow(address, fault);
    }
    if (!right) {
      complain(address, fault);
    }
  }
  static void complain(const void* address, Fault fault);

  platform::Lock lock_;
  bool threaded_ = false;
  static bool only_report;
};

constinit Exgen library;
constinit bool Exgen::only_report = false;

void Exgen::complain(const void* address, Fault fault) {
  Message message;
  message << kName << ": free of " << address;
  switch (fault) {
    case Fault::kForeign:
      message << ", which is not a block of this allocator\n";
      break;
    case Fault::kInside:
      message << ", which is inside a block or in memory that is nobody's\n";
      break;
    case Fault::kTwice:
      message << ", which was free already\n";
      break;
    case Fault::kOverrun:
      message << ", which was written beyond its end\n";
      break;
    case Fault::kOverwritten:
      message << ": written after it was freed\n";
      break;
  }
  message.write();
  if (!only_report) {
    platform::abort_process();
  }
}

void Exgen::start(const char* text) {
  const Options options = read_options("EXGEN_OPTIONS", text);
  heap_.on_fault = complain;
  heap_.region.settings.limit_bytes = options.limit;
  heap_.region.settings.keep_bytes = options.keep;
  heap_.region.settings.delay_ms = options.purge_delay;
  if (options.front != 0) {
    heap_.set_front(options.front);
  }
  if (options.huge_pages != Options::Huge::kAuto) {
    heap_.region.settings.huge_pages = options.huge_pages == Options::Huge::kNever
                                           ? platform::HugePages::kNever
                                           : platform::HugePages::kAlways;
  }
  only_report = options.report;
  prints_statistics = options.statistics;
}

// Called while there is one thread, or as soon as more are seen.
void Exgen::become_threaded() {
  if (threaded_) {
    return;
  }
  heap_.hide();
  threaded_ = true;
  // A child of fork has one thread, which may have forked while another held the lock.
  pthread_atfork([] { library.lock_.lock(); }, [] { library.lock_.unlock(); }, [] { library.lock_.reset(); });
}

}  // namespace heapwright::alloc

#include "../entry/symbols.h"

namespace {

[[gnu::constructor(101)]] void start(int /*count*/, char** /*arguments*/, char** environment) {
  library.start(heapwright::alloc::platform::environment_value(environment, "EXGEN_OPTIONS"));
}

[[gnu::destructor(101)]] void end() {
  if (library.prints_statistics) {
    entry::print_statistics(library.kName, library.statistics());
  }
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

HEAPWRIGHT_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                     void* (*body)(void*), void* argument) noexcept {
  static const auto real = next<decltype(&pthread_create)>("pthread_create");
  library.become_threaded();
  return real(thread, attributes, body, argument);
}

HEAPWRIGHT_EXPORT int thrd_create(thrd_t* thread, thrd_start_t body, void* argument) {
  static const auto real = next<decltype(&thrd_create)>("thrd_create");
  library.become_threaded();
  return real(thread, body, argument);
}

HEAPWRIGHT_EXPORT void* exgen_malloc(std::size_t bytes) { return malloc(bytes); }
HEAPWRIGHT_EXPORT void* exgen_calloc(std::size_t count, std::size_t size) { return calloc(count, size); }
HEAPWRIGHT_EXPORT void* exgen_realloc(void* address, std::size_t bytes) { return realloc(address, bytes); }
HEAPWRIGHT_EXPORT void* exgen_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return aligned_alloc(alignment, bytes);
}
HEAPWRIGHT_EXPORT void exgen_free(void* address) { free(address); }
HEAPWRIGHT_EXPORT void exgen_free_sized(void* address, std::size_t bytes) { free_sized(address, bytes); }
HEAPWRIGHT_EXPORT std::size_t exgen_usable_size(const void* address) { return library.usable(address); }
HEAPWRIGHT_EXPORT int exgen_trim(void) { return library.trim() ? 1 : 0; }
HEAPWRIGHT_EXPORT void exgen_get_statistics(exgen_statistics* result) {
  const heapwright::alloc::Statistics s = library.statistics();
  *result = {s.live_bytes,         s.live_blocks,         s.large_bytes,        s.region.used_bytes,
             s.region.dirty_bytes, s.region.purged_bytes, s.region.region_bytes};
}
}
