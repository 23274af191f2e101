// Recording one call: what runs in every malloc and free of the program.
//
// Order: a block's end is stamped before the real call and its making after it, so whoever gets the same address next has a later
// stamp, whichever threads they are.
#pragma once

#include "real.h"
#include "session.h"

namespace heapwright::recorder {

#define HEAPWRIGHT_LIKELY(x) __builtin_expect(!!(x), 1)
#define HEAPWRIGHT_UNLIKELY(x) __builtin_expect(!!(x), 0)

// In the thread's static block: reading it calls nothing and allocates nothing.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit ThreadState self_state;

// A call as it is recorded where it takes more than one record.
struct Call {
  Tag kind;
  const void* block;
  std::size_t size = 0;
  int alignment_log2 = -1;  // of kMalloc; -1: none was asked for
  std::uint64_t touched = ~std::uint64_t{0};
};

// The slow ways. record_call leaves alignment and what was touched in front; record_borrowed does it in a borrowed writer.
void record_call(ThreadState& self, const Call& call);
void record_borrowed(ThreadState& self, const Call& call);
// What is no call: `value` is an address for kUsableSize and kInner.
void record_other(ThreadState& self, Other what, std::uint64_t value);
// A realloc that gave nothing: it freed the block, or left it as it was.
void record_realloc_failed(ThreadState& self, bool freed, bool borrow_writer);

// Enters and leaves the recorder's own code; a signal handler that comes between sees where it is.
class InRecorder {
 public:
  [[gnu::always_inline]] explicit InRecorder(ThreadState& self) : self_(self), before_(self.location) {
    self.location = Location::kRecorder;
    compiler_barrier();
  }
  InRecorder(const InRecorder&) = delete;
  InRecorder& operator=(const InRecorder&) = delete;
  [[gnu::always_inline]] ~InRecorder() {
    compiler_barrier();
    self_.location = before_;
  }

 private:
  ThreadState& self_;
  Location before_;
};

// The same for the real allocator.
class InAllocator {
 public:
  [[gnu::always_inline]] explicit InAllocator(ThreadState& self) : self_(self), before_(self.location) {
    self.location = Location::kAllocator;
    compiler_barrier();
  }
  InAllocator(const InAllocator&) = delete;
  InAllocator& operator=(const InAllocator&) = delete;
  [[gnu::always_inline]] ~InAllocator() {
    compiler_barrier();
    self_.location = before_;
  }

 private:
  ThreadState& self_;
  Location before_;
};

// Brings a writer's clock to now, and tells what of a pause its thread was kept waiting for a processor.
[[gnu::always_inline]] inline void advance_clock(Writer& writer, std::uint64_t now) {
  const bool paused = now > writer.clock && now - writer.clock > kPause;
  put_clock(writer, now);
  if (HEAPWRIGHT_UNLIKELY(paused)) {
    record_waited(writer);
  }
}

// Writes one event, with its size or without. The thread must be in Writing, and was Outside before.
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
      if (now >= writer->sample_at) {
        sample_resident(*writer, now);
      }
    }
    put_event<has_size>(*writer, kind, address, size);
    return;
  }
  const std::uint64_t now = clock_now<true>();
  if (HEAPWRIGHT_UNLIKELY(now - writer->clock > kPause)) {
    advance_clock(*writer, now);
  }
  if (HEAPWRIGHT_UNLIKELY(now >= writer->sample_at)) {
    put_clock(*writer, now);
    sample_resident(*writer, now);
  }
  put_stamped<has_size>(*writer, kind, address, size, now);
}

}  // namespace heapwright::recorder
