// Joins one configuration of the core, its pool and its threads to a whole allocator.
// entry/symbols.h exports its functions.
//
// C::kStartsSingleThreaded (exgen): as long as the process has one thread, `first_heap_` is the
// only heap. It is found without thread-local storage, and nothing is locked. Before the second
// thread starts, the contents of `first_heap_` move to a heap in ThreadHeaps. Its fast paths then
// fail a test that they make anyway, and the slow paths behind them use the thread's heap. If the C
// library starts a thread unseen, the next slow path notices it by glibc's flag. Otherwise
// (reaper), every thread has its heap from the beginning.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>

#include "../core/message.h"
#include "../core/options.h"
#include "../core/thread_heaps.h"
#include "../platform/c_library.h"

namespace heapwright::alloc {

template <Configuration C>
class Library {
  Heap<C> first_heap_{pool_};  // first member: the fast paths then need no offset to it

 public:
  static constexpr const char* kName = C::kName;

  constexpr Library() { pool_.threaded = !C::kStartsSingleThreaded; }

  HEAPWRIGHT_INLINE void* allocate(std::size_t bytes) { return fast().allocate(bytes); }
  // `freed_as`: what the caller says about the block; only hardened builds compare it.
  HEAPWRIGHT_INLINE void free(void* address, FreedAs freed_as = {}) {
    FreeResult freed{};
    if constexpr (C::kStartsSingleThreaded) {
      freed = first_heap_.free_single_threaded(address, freed_as);
    } else {
      freed = fast().free(address, freed_as);
    }
    if (freed != FreeResult::kDone) [[unlikely]] {
      finish_free(freed, address, freed_as);
    }
  }
  HEAPWRIGHT_INLINE std::size_t class_size(const void* address) {
    return (has_left_first_heap() ? ThreadHeaps<C>::current() : fast()).class_size(address);
  }
  static bool fits_in_place(std::size_t usable, std::size_t bytes) {
    return Heap<C>::fits_in_place(usable, bytes);
  }

  // The second path of malloc: it calls nothing. nullptr: call allocate_rest().
  HEAPWRIGHT_INLINE void* allocate_second(std::size_t bytes) {
    if (has_left_first_heap()) {
      Heap<C>& heap = ThreadHeaps<C>::current();
      void* const block = heap.allocate(bytes);
      return block != nullptr ? block : allocate_other(heap, bytes);
    }
    return allocate_other(bytes > kLargestClassBytes ? own_heap() : fast(), bytes);
  }
  void* allocate_slow(std::size_t bytes) {
    void* const found = allocate_second(bytes);
    return found != nullptr ? found : allocate_rest(bytes);
  }
  [[gnu::noinline]] void* allocate_rest(std::size_t bytes) {
    return with_heap([=, this](Heap<C>& heap) {
      void* block = nullptr;
      if (has_left_first_heap()) {  // a heap that the thread just got may have blocks
        block = heap.allocate(bytes);
      }
      return block != nullptr ? block : heap.allocate_slow(bytes);
    });
  }
  [[gnu::noinline]] void* allocate_aligned(std::size_t bytes, std::size_t alignment) {
    return with_heap([=](Heap<C>& heap) { return heap.allocate_aligned(bytes, alignment); });
  }
  void* allocate_zeroed(std::size_t bytes) {
    if (void* const freed = allocate_second(bytes); freed != nullptr) {
      return std::memset(freed, 0, bytes);
    }
    return with_heap([=](Heap<C>& heap) {
      void* const block = heap.allocate_slow(bytes);
      if (block == nullptr || heap.is_zero(block)) {
        return block;
      }
      if (bytes <= kLargestSpanBytes) {
        return std::memset(block, 0, bytes);
      }
      platform::clear(block, bytes);
      return block;
    });
  }
  std::size_t usable(const void* address) {
    return with_heap([=](Heap<C>& heap) { return heap.usable(address); });
  }
  // Hardened builds: records that one of C++'s operators allocated the block.
  void set_origin(void* address, Origin origin) {
    with_heap([=](Heap<C>& heap) {
      heap.set_origin(address, origin);
      return 0;
    });
  }
  void* resize(void* address, std::size_t bytes) {
    return with_heap([=](Heap<C>& heap) { return heap.resize(address, bytes); });
  }
  HEAPWRIGHT_COLD bool trim() {
    return with_heap([](Heap<C>& heap) { return heap.trim(true); });
  }
  HEAPWRIGHT_COLD Statistics statistics() {
    return with_heap([](Heap<C>& heap) { return heap.statistics(); });
  }
  int set_option(int what, int value) {
    if (what == M_TRIM_THRESHOLD && value >= 0) {
      pool_.region.settings.keep_bytes = static_cast<std::size_t>(value);
      pool_.region.forget_span_bounds();
    }
    return 1;
  }

  // Applies the options in `text`, the value of the variable; nullptr: none.
  HEAPWRIGHT_COLD void start(const char* variable, const char* text);
  // Called before another thread starts.
  HEAPWRIGHT_COLD void become_threaded();
  [[nodiscard]] bool prints_statistics() const { return prints_statistics_; }
  // Describes this heap for a reader in another process. `self`: where the result will lie.
  [[nodiscard]] constexpr HeapLayout layout(const HeapLayout* self) const;

 private:
  HEAPWRIGHT_INLINE Heap<C>& fast() {
    if constexpr (C::kStartsSingleThreaded) {
      return first_heap_;
    } else {
      return ThreadHeaps<C>::current();
    }
  }
  // Whether exgen's fast paths, which use first_heap_, fail because each thread has its own heap now.
  [[nodiscard]] HEAPWRIGHT_INLINE bool has_left_first_heap() const {
    return C::kStartsSingleThreaded && pool_.threaded;
  }
  // Takes a freed span, or a block of a size above the cache's table: the fast path has neither.
  static HEAPWRIGHT_INLINE void* allocate_other(Heap<C>& heap, std::size_t bytes) {
    return bytes > kLargestClassBytes ? heap.allocate_freed_span(bytes)
                                      : heap.allocate_class_from_list(bytes);
  }
  // The heap of the thread, if it has one already; else one whose fast paths fail.
  HEAPWRIGHT_INLINE Heap<C>& own_heap() {
    if (C::kStartsSingleThreaded && !pool_.threaded && platform::single_threaded()) {
      return first_heap_;
    }
    return ThreadHeaps<C>::current();
  }
  // Takes some 10 ms as soon as there are threads: so ask before.
  static void ask_to_order_threads() {
    if constexpr (!C::kSecure) {
      platform::may_order_all_threads();
    }
  }
  template <class F>
  auto with_heap(F f) {
    if (C::kStartsSingleThreaded && !pool_.threaded) {
      if (platform::single_threaded()) [[likely]] {
        return f(first_heap_);
      }
      become_threaded();
    }
    return threads_.with_heap(f);
  }
  // Cold, so that the fast path of free() saves no register for this call.
  HEAPWRIGHT_COLD void finish_free(FreeResult freed, void* address, FreedAs freed_as) {
    if (freed == FreeResult::kSlow && has_left_first_heap()) {
      freed = ThreadHeaps<C>::current().free(address, freed_as);
      if (freed == FreeResult::kDone) {
        return;
      }
    }
    free_on_second_path(freed, address, freed_as);
  }
  // Handles the other frequent cases: spans, full lists and blocks without a batch.
  [[gnu::noinline]] void free_on_second_path(FreeResult freed, void* address, FreedAs freed_as) {
    if (address == nullptr) {
      return;
    }
    if (!own_heap().finish_free_fast(freed, address)) {
      free_slow(freed, address, freed_as);
    }
  }
  HEAPWRIGHT_COLD void free_slow(FreeResult freed, void* address, FreedAs freed_as) {
    Fault fault{};
    if (!with_heap([&](Heap<C>& heap) { return heap.finish_free(freed, address, fault, freed_as); })) {
      report_fault(address, fault);
    }
  }
  HEAPWRIGHT_COLD static void report_fault(const void* address, Fault fault);

  Pool pool_;
  ThreadHeaps<C> threads_{pool_};
  bool prints_statistics_ = false;
  static constinit bool only_report_;
  static constinit Options::Mismatch mismatch_;
};

template <Configuration C>
constinit bool Library<C>::only_report_ = false;

template <Configuration C>
constinit Options::Mismatch Library<C>::mismatch_ = Options::Mismatch::kAbort;

template <Configuration C>
void Library<C>::report_fault(const void* address, Fault fault) {
  const bool mismatch = fault == Fault::kWrongOrigin || fault == Fault::kWrongSize;
  if (mismatch && mismatch_ == Options::Mismatch::kIgnore) {
    return;
  }
  static constexpr const char* kFaultText[] = {
      ", which is not a block of this allocator\n",
      ", which is inside a block or in memory that belongs to no block\n",
      ", which was free already\n",
      ", which was written beyond its end\n",
      " was written after it was freed\n",
      ", which was allocated by another kind of function (on_mismatch=report|ignore continues)\n",
      ", which has another size than the one given (on_mismatch=report|ignore continues)\n"};
  Message message;
  message << kName << (fault == Fault::kWriteAfterFree ? ": the block at " : ": free or realloc of ")
          << address << kFaultText[static_cast<std::size_t>(fault)];
  message.write();
  if (!only_report_ && !(mismatch && mismatch_ == Options::Mismatch::kReport)) {
    platform::abort_process();
  }
}

template <Configuration C>
void Library<C>::start(const char* variable, const char* text) {
  const Options options = read_options(variable, text, read_options(kBuiltInOptions, built_in_options()));
  Region::Settings& settings = pool_.region.settings;
  settings.limit_bytes = options.limit;
  settings.keep_bytes = options.keep;
  settings.delay_ms = options.purge_delay;
  pool_.region.forget_span_bounds();
  if (options.huge_pages != Options::Huge::kAuto) {
    settings.huge_pages = options.huge_pages == Options::Huge::kNever ? platform::HugePageMode::kNever
                                                                      : platform::HugePageMode::kAlways;
  }
  pool_.on_fault = report_fault;
  if (pool_.threaded) {
    ask_to_order_threads();
  }
  threads_.register_handlers();
  if (options.cache_bytes_per_class != 0) {
    threads_.cache_bytes_per_class = options.cache_bytes_per_class;
    with_heap([&](Heap<C>& heap) { heap.set_cache_bytes(options.cache_bytes_per_class); });
  }
  only_report_ = options.report;
  mismatch_ = options.mismatch;
  pool_.quarantine_bytes = options.quarantine;
  pool_.hardening.wipes = options.wipe;
  prints_statistics_ = options.statistics;
}

template <Configuration C>
constexpr HeapLayout Library<C>::layout(const HeapLayout* self) const {
  HeapLayout result;
  std::copy(std::begin(HeapLayout::kMagic), std::end(HeapLayout::kMagic), result.magic);
  result.bytes = sizeof result;
  result.self = self;
  for (std::size_t i = 0; i + 1 < sizeof result.name && kName[i] != '\0'; ++i) {
    result.name[i] = kName[i];
  }
  describe_superblocks(result);
  RemoteQueue::describe(result);
  if constexpr (!C::kSecure) {
    FreeBits::describe(result);
  }
  pool_.region.describe(result);
  pool_.region.large.describe(result);
  result.threaded = &pool_.threaded;
  first_heap_.describe(result);
  threads_.describe(result);
  if constexpr (C::kSecure) {
    Hardening::describe(result);
    result.span_quarantine_bytes = pool_.quarantined_spans.bytes_field();
  }
  return result;
}

template <Configuration C>
void Library<C>::become_threaded() {
  if (!pool_.threaded) {
    Heap<C>::become_threaded(pool_);
    threads_.adopt_first_heap(first_heap_);
    ask_to_order_threads();
  }
}

}  // namespace heapwright::alloc
