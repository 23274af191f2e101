// Records one call; runs in every malloc and free of the program.
//
// Order: a free is stamped before the real call, an allocation after it. So if an address is freed
// and allocated again, the allocation has the later stamp, even if another thread makes it.
#pragma once

#include "real.h"
#include "session.h"

namespace heapwright::recorder {

#define HEAPWRIGHT_LIKELY(x) __builtin_expect(!!(x), 1)
#define HEAPWRIGHT_UNLIKELY(x) __builtin_expect(!!(x), 0)

// In the static TLS block: reading it calls no function and allocates nothing.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit ThreadState self_state;

// A call that may take more than one record.
struct Call {
  Tag kind;
  const void* block;
  std::size_t size = 0;
  int alignment_log2 = -1;                    // of kMalloc; -1: malloc, which takes no alignment
  bool is_new = false;                        // the block's content is undefined
  std::uint64_t touched = ~std::uint64_t{0};  // bytes, of a large block; all ones: not measured
  // Only in recordings of samples; all ones: not recorded.
  std::uint32_t level = kTopLevel;
  std::uint64_t ticks = ~std::uint64_t{0};  // of the thread before this call
  std::uint64_t born = ~std::uint64_t{0};   // rank by birth, of an object that the window finds live
};

// Records a call with its alignment and its touched bytes. record_borrowed does so through a
// borrowed writer.
void record_call(ThreadState& self, const Call& call);
void record_borrowed(ThreadState& self, const Call& call);
// Records a call of a chosen object at the time `now`, in units of the clock.
void record_at_level(ThreadState& self, const Call& call, std::uint64_t now);
// Records an object that was live when the window began.
//
// thread  that allocated it
// begin   of the window, in units of the clock
void record_born(const Call& call, std::uint32_t thread, std::uint64_t begin);
// Records something that is no allocation and no free. `value` is an address for kUsableSize and
// kInternalBlock.
void record_other(ThreadState& self, Other what, std::uint64_t value);
// Records a realloc that returned nullptr.
//
// freed          realloc to size 0 freed the block; else the block stays as it was
// borrow_writer  record through a borrowed writer, see on_alloc_slow
void record_realloc_failed(ThreadState& self, bool freed, bool borrow_writer);

// Sets the thread's location for a scope.
template <Location kLocation>
class InLocation {
 public:
  [[gnu::always_inline]] explicit InLocation(ThreadState& self) : self_(self), before_(self.location) {
    self.location = kLocation;
    compiler_barrier();
  }
  InLocation(const InLocation&) = delete;
  InLocation& operator=(const InLocation&) = delete;
  [[gnu::always_inline]] ~InLocation() {
    compiler_barrier();
    self_.location = before_;
  }

 private:
  ThreadState& self_;
  Location before_;
};
// So that a signal handler knows that it interrupts the recorder.
using InRecorder = InLocation<Location::kRecorder>;
using InAllocator = InLocation<Location::kAllocator>;

// Sets a writer's clock to `now`. After a pause of more than kPause it also records how long the
// thread waited for a processor.
[[gnu::always_inline]] inline void advance_clock(Writer& writer, std::uint64_t now) {
  const bool paused = now > writer.clock && now - writer.clock > kPause;
  put_clock(writer, now);
  if (HEAPWRIGHT_UNLIKELY(paused)) {
    record_waited(writer);
  }
}

// Writes one event into the thread's own raw block.
//
// has_size  the event has a size: kMalloc, kCalloc, kRealloc
// kind      the event
// block     its address
// size      bytes; unused without has_size
//
// The thread's location is kRecorder and was kProgram before.
template <bool has_size>
[[gnu::always_inline]] inline void record(ThreadState& self, Tag kind, const void* block, std::size_t size) {
  Writer* writer = self.writer;
  if (HEAPWRIGHT_UNLIKELY(writer->at >= writer->limit)) {
    writer = refill(self);
    if (writer == nullptr) {
      record_borrowed(self, Call{.kind = kind, .block = block, .size = size});
      return;
    }
  }
  const auto address = reinterpret_cast<std::uint64_t>(block);
  if (HEAPWRIGHT_LIKELY(writer->stamp_every_event.load(std::memory_order_relaxed) == 0)) {
    if (HEAPWRIGHT_UNLIKELY(--writer->countdown == 0)) {
      writer->countdown = kEventsPerStamp;
      const std::uint64_t now = clock_now<false>();
      advance_clock(*writer, now);
      if (now >= writer->read_memory_at) {
        read_resident(*writer, now);
      }
    }
    put_event<has_size>(*writer, kind, address, size);
    return;
  }
  const std::uint64_t now = clock_now<true>();
  if (HEAPWRIGHT_UNLIKELY(now - writer->clock > kPause)) {
    advance_clock(*writer, now);
  }
  if (HEAPWRIGHT_UNLIKELY(now >= writer->read_memory_at)) {
    put_clock(*writer, now);
    read_resident(*writer, now);
  }
  put_stamped<has_size>(*writer, kind, address, size, now);
}

}  // namespace heapwright::recorder
