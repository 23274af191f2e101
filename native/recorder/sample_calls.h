// Runs one call of the program in a recording of a sample: calls the real allocator, and counts.
// The exported functions (entry.cpp, operators.cpp) include this file in place of calls.h, and its
// functions have the same names.
//
// The fast paths are a few instructions and a jump to the real function:
//
//     malloc   less than 1 KiB; count down, not below zero: real malloc
//     free     a bit of the filter is 0: real free
#pragma once

#include <bit>

#include "sampling.h"
#include "system.h"
#include "touched.h"

namespace heapwright::recorder {

// Whether the fast path may take a request; counts it if it is small.
[[gnu::always_inline]] inline bool is_fast(std::size_t size) {
  return size < kDrawBytes && --sample_self.left[size / kGroupBytes] >= 0;
}

// The slow path counts what is_fast() did not.
inline void count_large(std::size_t size) { sample_self.ticks_at_zero += size < kDrawBytes ? 0 : 1; }

// Tells whether malloc has counted the allocation of the block that another function of the
// allocator returns. A sample does not remember the last block, so any request that the function
// made of malloc counts as that of its block.
class MallocWatch {
 public:
  // Begins before that function is called.
  explicit MallocWatch(ThreadState& /*self*/) : ticks_(sample_self.ticks()) {}
  [[nodiscard]] bool has_recorded(const void* /*block*/, std::size_t /*size*/) const {
    return sample_self.ticks() != ticks_;
  }
  [[nodiscard]] bool has_recorded_at(const void* /*block*/) const { return true; }

 private:
  std::uint64_t ticks_;
};

template <bool kContent, class F>
[[gnu::noinline]] void* on_alloc_slow(Tag kind, std::size_t size, int alignment_log2, F real_call) {
  count_large(size);
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
    LargeBlock made{.size = size};
    if (!kContent && kind == Tag::kMalloc && size >= kLarge) {
      made.touching = begin_touching(block, size);
    }
    on_chosen(self, kind, block, made, alignment_log2, level);
  }
  return block;
}

template <bool kContent = false, class F>
[[gnu::always_inline]] inline void* on_alloc(Tag kind, std::size_t size, F real_call) {
  if (HEAPWRIGHT_LIKELY(is_fast(size))) {
    return real_call();
  }
  return on_alloc_slow<kContent>(kind, size, -1, real_call);
}

template <bool kContent = false, class F>
[[gnu::always_inline]] inline void* on_aligned_alloc(std::size_t alignment, std::size_t size, F real_call) {
  if (HEAPWRIGHT_LIKELY(is_fast(size))) {
    return real_call();
  }
  const int alignment_log2 = alignment <= 1 ? 0 : static_cast<int>(std::bit_width(alignment - 1));
  return on_alloc_slow<kContent>(Tag::kMalloc, size, alignment_log2, real_call);
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

// A realloc ends one object and begins another, which draws for itself (sampling.h).
template <class F>
[[gnu::noinline]] void* on_sampled_realloc(void* block, std::size_t size, F real_call) {
  count_large(size);
  ThreadState& self = self_state;
  const bool from_program = self.location == Location::kProgram;
  int level = size == 0 ? -1 : choose(sample_self, size);
  ChosenObject before;
  const bool was_chosen = may_be_chosen(block) && end_chosen(self, Tag::kFree, block, before);
  void* moved = nullptr;
  if (level < 0 || !from_program) {
    moved = real_call();
  } else {
    const InAllocator in_allocator(self);
    moved = real_call();
  }
  const sys::KeepErrno keep;
  if (size == 0 && moved != nullptr) {  // a block of size 0; other allocators only free
    level = is_fast(0) ? -1 : choose(sample_self, 0);
  }
  const InRecorder in_recorder(self);
  if (moved == nullptr && size != 0) {
    count_failure();
    if (was_chosen) {  // the object stays live: its free was recorded, so it begins again
      on_chosen(self, before.kind, block, {before.size}, before.alignment_log2, before.level);
    }
  } else if (moved != nullptr && level >= 0 && from_program && !in_pool(moved)) {
    on_chosen(self, Tag::kMalloc, moved, {size}, -1, level);
  }
  return moved;
}

template <class F>
[[gnu::always_inline]] inline void* on_realloc(ThreadState& /*self*/, void* block, std::size_t size,
                                               bool /*borrow_writer*/, F real_call) {
  if (HEAPWRIGHT_LIKELY(size != 0 && is_fast(size) && !may_be_chosen(block))) {
    return real_call();
  }
  return on_sampled_realloc(block, size, real_call);
}

}  // namespace heapwright::recorder
