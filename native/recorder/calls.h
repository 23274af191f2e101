// One call of the program each, around the real one: what the exported functions have in common.
#pragma once

#include <bit>

#include "record.h"
#include "system.h"

namespace heapwright::recorder {

// A block has been made: the parts of that which are rare.
[[gnu::noinline, gnu::cold]] inline void finish_alloc(ThreadState& self, const Call& call) {
  const sys::KeepErrno keep;
  if (call.block == nullptr) {
    count_failure();
  } else if (call.size >= kLarge && recording()) {
    session->large.insert(call.block, call.size);
  }
  self.last_block = call.block;
}

// Made in the real allocator (its own affair), or by a signal handler that interrupted the recorder.
template <class F>
[[gnu::noinline, gnu::cold]] void* on_alloc_slow(ThreadState& self, Call call, F real_call) {
  if (self.location == Location::kAllocator) {
    void* const block = real_call();
    if (block != nullptr && !in_pool(block)) {
      record_other(self, Other::kInternalBlock, reinterpret_cast<std::uint64_t>(block));
    }
    return block;
  }
  {
    const InAllocator in_allocator(self);
    call.block = real_call();
  }
  if (call.block != nullptr) {
    record_borrowed(self, call);
  }
  finish_alloc(self, call);
  return const_cast<void*>(call.block);
}

// malloc and calloc: `real_call` gives a block of `size` bytes.
template <class F>
[[gnu::always_inline]] inline void* on_alloc(Tag kind, std::size_t size, F real_call) {
  ThreadState& self = self_state;
  if (HEAPWRIGHT_UNLIKELY(self.location != Location::kProgram)) {
    return on_alloc_slow(self, Call{.kind = kind, .block = nullptr, .size = size}, real_call);
  }
  self.location = Location::kAllocator;
  compiler_barrier();
  void* const block = real_call();
  compiler_barrier();
  self.location = Location::kRecorder;
  compiler_barrier();
  if (HEAPWRIGHT_LIKELY(block != nullptr)) {
    record<true>(self, kind, block, size);
  }
  if (HEAPWRIGHT_UNLIKELY(block == nullptr || size >= kLarge)) {
    finish_alloc(self, Call{.kind = kind, .block = block, .size = size});
  }
  self.last_block = block;
  compiler_barrier();
  self.location = Location::kProgram;
  return block;
}

// The aligned ones.
template <class F>
[[gnu::always_inline]] inline void* on_aligned_alloc(std::size_t alignment, std::size_t size, F real_call) {
  ThreadState& self = self_state;
  Call call{.kind = Tag::kMalloc, .block = nullptr, .size = size};
  call.alignment_log2 = alignment <= 1 ? 0 : static_cast<int>(std::bit_width(alignment - 1));
  if (self.location != Location::kProgram) {
    return on_alloc_slow(self, call, real_call);
  }
  {
    const InAllocator in_allocator(self);
    call.block = real_call();
  }
  const InRecorder in_recorder(self);
  if (call.block != nullptr) {
    record_call(self, call);
  }
  finish_alloc(self, call);
  return const_cast<void*>(call.block);
}

// A block that may be large ends.
[[gnu::noinline, gnu::cold]] inline void record_large_free(ThreadState& self, Tag kind, const void* block,
                                                           bool borrow_writer) {
  const sys::KeepErrno keep;
  Call call{.kind = kind, .block = block};
  const std::size_t size = recording() ? session->large.remove(block) : 0;
  if (size != 0) {
    call.touched = resident_part(reinterpret_cast<std::uintptr_t>(block), size);
  }
  if (borrow_writer) {
    record_borrowed(self, call);
  } else {
    record_call(self, call);
  }
}

template <class F>
[[gnu::noinline, gnu::cold]] void on_free_slow(ThreadState& self, Tag kind, void* block, F real_call) {
  if (in_pool(block)) {
    return;
  }
  if (self.location == Location::kAllocator) {
    real_call();
    return;
  }
  record_large_free(self, kind, block, true);
  const InAllocator in_allocator(self);
  real_call();
}

// free and its kin: `real_call` frees `block`, which is not nullptr.
template <class F>
[[gnu::always_inline]] inline void on_free(Tag kind, void* block, F real_call) {
  ThreadState& self = self_state;
  if (HEAPWRIGHT_UNLIKELY(self.location != Location::kProgram || in_pool(block))) {
    on_free_slow(self, kind, block, real_call);
    return;
  }
  if (block == self.sized_delete) {
    kind = Tag::kFreeSized;  // the C++ runtime's sized delete called the plain one, or free
  }
  self.location = Location::kRecorder;
  compiler_barrier();
  if (HEAPWRIGHT_UNLIKELY(may_be_large(block))) {
    record_large_free(self, kind, block, false);
  } else {
    record<false>(self, kind, block, 0);
  }
  compiler_barrier();
  self.location = Location::kAllocator;
  compiler_barrier();
  real_call();
  compiler_barrier();
  self.location = Location::kProgram;
}

// realloc and reallocarray of a block. `borrow_writer`: see on_alloc_slow.
template <class F>
[[gnu::always_inline]] inline void* on_realloc(ThreadState& self, void* block, std::size_t size,
                                               bool borrow_writer, F real_call) {
  std::size_t large = 0;
  void* moved = nullptr;
  {
    const InRecorder in_recorder(self);
    if (HEAPWRIGHT_UNLIKELY(may_be_large(block)) && recording()) {
      large = session->large.remove(block);
    }
    if (HEAPWRIGHT_UNLIKELY(borrow_writer)) {
      record_borrowed(self, Call{.kind = Tag::kReallocBegin, .block = block});
    } else {
      record<false>(self, Tag::kReallocBegin, block, 0);
    }
  }
  {
    const InAllocator in_allocator(self);
    moved = real_call();
  }
  const InRecorder in_recorder(self);
  if (HEAPWRIGHT_LIKELY(moved != nullptr)) {
    if (HEAPWRIGHT_UNLIKELY(borrow_writer)) {
      record_borrowed(self, Call{.kind = Tag::kRealloc, .block = moved, .size = size});
    } else {
      record<true>(self, Tag::kRealloc, moved, size);
    }
    if (HEAPWRIGHT_UNLIKELY(size >= kLarge)) {
      finish_alloc(self, Call{.kind = Tag::kRealloc, .block = moved, .size = size});
    }
    return moved;
  }
  record_realloc_failed(self, size == 0, borrow_writer);
  if (size != 0) {
    count_failure();
    if (large != 0 && recording()) {
      session->large.insert(block, large);
    }
  }
  return nullptr;
}

}  // namespace heapwright::recorder
