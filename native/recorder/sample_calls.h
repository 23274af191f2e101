// Runs one call of the program in a recording of a sample: calls the real allocator, and counts. The
// exported functions (entry.cpp, operators.cpp) include this file in place of calls.h, and its
// functions have the same names.
//
// The fast paths are a few instructions and a jump to the real function:
//
//     malloc   count down; not zero, and less than 1 KiB: real malloc
//     free     a byte of the filter is 0: real free
#pragma once

#include <bit>

#include "sampling.h"
#include "system.h"

namespace heapwright::recorder {

template <class F>
[[gnu::noinline]] void* on_alloc_slow(Tag kind, std::size_t size, int alignment_log2, F real_call) {
  ThreadState& self = self_state;
  const int level = choose(sample_self, size);
  // In kAllocator the allocator calls for itself. In kRecorder a signal handler has interrupted the
  // recorder; its object is not chosen.
  if (level < 0 || self.location != Location::kProgram) {
    void* const block = real_call();
    if (block == nullptr) {
      const sys::KeepErrno keep;
      count_failure();
    }
    return block;
  }
  void* block = nullptr;
  {
    const InAllocator in_allocator(self);
    block = real_call();
  }
  const sys::KeepErrno keep;
  if (block == nullptr) {
    count_failure();
  } else if (!in_pool(block)) {
    const InRecorder in_recorder(self);
    on_chosen(self, kind, block, size, alignment_log2, level);
  }
  return block;
}

template <class F>
[[gnu::always_inline]] inline void* on_alloc(Tag kind, std::size_t size, F real_call) {
  if (HEAPWRIGHT_LIKELY(--sample_self.left >= 0 && size < kDrawBytes)) {
    return real_call();
  }
  return on_alloc_slow(kind, size, -1, real_call);
}

template <class F>
[[gnu::always_inline]] inline void* on_aligned_alloc(std::size_t alignment, std::size_t size, F real_call) {
  if (HEAPWRIGHT_LIKELY(--sample_self.left >= 0 && size < kDrawBytes)) {
    return real_call();
  }
  const int alignment_log2 = alignment <= 1 ? 0 : static_cast<int>(std::bit_width(alignment - 1));
  return on_alloc_slow(Tag::kMalloc, size, alignment_log2, real_call);
}

template <class F>
[[gnu::noinline]] void on_free_slow(Tag kind, void* block, F real_call) {
  if (in_pool(block)) {
    return;
  }
  ThreadState& self = self_state;
  on_possible_free(self, block == self.sized_delete ? Tag::kFreeSized : kind, block);
  real_call();
}

template <class F>
[[gnu::always_inline]] inline void on_free(Tag kind, void* block, F real_call) {
  if (HEAPWRIGHT_LIKELY(!may_be_chosen(block))) {
    return real_call();
  }
  on_free_slow(kind, block, real_call);
}

// A realloc has made a block larger that was not chosen.
[[gnu::noinline]] inline void on_growth(ThreadState& self, void* block, std::size_t before,
                                        std::size_t size) {
  const int level = choose_grown(sample_self, before, size);
  if (level >= 0 && self.location == Location::kProgram) {
    const sys::KeepErrno keep;
    const InRecorder in_recorder(self);
    on_chosen(self, Tag::kMalloc, block, size, -1, level);
  }
}

template <class F>
[[gnu::noinline]] void* on_realloc_chosen(void* block, std::size_t size, F real_call) {
  ThreadState& self = self_state;
  ChosenObject object;
  const bool chosen = may_be_chosen(block) && begin_realloc(self, block, object);
  const bool may_grow = !chosen && size >= kDrawBytes && real.malloc_usable_size != nullptr;
  const std::size_t before = may_grow ? real.malloc_usable_size(block) : size;
  void* const moved = real_call();
  if (chosen) {
    end_realloc(self, block, moved, size, object);
  }
  if (moved == nullptr) {
    if (size != 0) {
      count_failure();
    }
    return nullptr;
  }
  ++sample_self.ticks_at_zero;
  if (size / kDrawBytes > before / kDrawBytes) {
    on_growth(self, moved, before, size);
  }
  return moved;
}

template <class F>
[[gnu::always_inline]] inline void* on_realloc(ThreadState& /*self*/, void* block, std::size_t size,
                                               bool /*borrow_writer*/, F real_call) {
  if (HEAPWRIGHT_UNLIKELY(may_be_chosen(block) || size >= kDrawBytes)) {
    return on_realloc_chosen(block, size, real_call);
  }
  void* const moved = real_call();
  if (HEAPWRIGHT_LIKELY(moved != nullptr)) {
    ++sample_self.ticks_at_zero;
  } else if (size != 0) {
    count_failure();
  }
  return moved;
}

}  // namespace heapwright::recorder
