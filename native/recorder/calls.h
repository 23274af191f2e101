// One call of the program each, around the real one: what the exported functions have in common.
#pragma once

#include <bit>

#include "record.h"
#include "system.h"

namespace heapwright::recorder {

// A block has been made: the parts of that which are rare.
[[gnu::noinline, gnu::cold]] inline void make_rest(ThreadState& self, const Call& call) {
  const sys::KeepErrno keep;
  if (call.block == nullptr) {
    count_failure();
  } else if (call.size >= kLarge && recording()) {
    session->large.made(call.block, call.size);
  }
  self.last_made = call.block;
}

// Made in the real allocator (its own affair), or by a signal handler that interrupted the recorder.
template <class F>
[[gnu::noinline, gnu::cold]] void* make_oddly(ThreadState& self, Call call, F real_call) {
  if (self.place == Place::kInside) {
    void* const block = real_call();
    if (block != nullptr && !in_pool(block)) {
      record_other(self, Other::kInner, reinterpret_cast<std::uint64_t>(block));
    }
    return block;
  }
  {
    const Inside inside(self);
    call.block = real_call();
  }
  if (call.block != nullptr) {
    record_spare(self, call);
  }
  make_rest(self, call);
  return const_cast<void*>(call.block);
}

// malloc and calloc: `real_call` gives a block of `size` bytes.
template <class F>
[[gnu::always_inline]] inline void* make(Tag kind, std::size_t size, F real_call) {
  ThreadState& self = self_state;
  if (HEAPWRIGHT_UNLIKELY(self.place != Place::kOutside)) {
    return make_oddly(self, Call{.kind = kind, .block = nullptr, .size = size}, real_call);
  }
  self.place = Place::kInside;
  compiler_barrier();
  void* const block = real_call();
  compiler_barrier();
  self.place = Place::kWriting;
  compiler_barrier();
  if (HEAPWRIGHT_LIKELY(block != nullptr)) {
    record<true>(self, kind, block, size);
  }
  if (HEAPWRIGHT_UNLIKELY(block == nullptr || size >= kLarge)) {
    make_rest(self, Call{.kind = kind, .block = block, .size = size});
  }
  self.last_made = block;
  compiler_barrier();
  self.place = Place::kOutside;
  return block;
}

// The aligned ones.
template <class F>
[[gnu::always_inline]] inline void* make_aligned(std::size_t alignment, std::size_t size, F real_call) {
  ThreadState& self = self_state;
  Call call{.kind = Tag::kMalloc, .block = nullptr, .size = size};
  call.alignment_log2 = alignment <= 1 ? 0 : static_cast<int>(std::bit_width(alignment - 1));
  if (self.place != Place::kOutside) {
    return make_oddly(self, call, real_call);
  }
  {
    const Inside inside(self);
    call.block = real_call();
  }
  const Writing writing(self);
  if (call.block != nullptr) {
    record_call(self, call);
  }
  make_rest(self, call);
  return const_cast<void*>(call.block);
}

// A block that may be large ends.
[[gnu::noinline, gnu::cold]] inline void end_large(ThreadState& self, Tag kind, const void* block,
                                                   bool spare) {
  const sys::KeepErrno keep;
  Call call{.kind = kind, .block = block};
  const std::size_t size = recording() ? session->large.ended(block) : 0;
  if (size != 0) {
    call.touched = resident_part(reinterpret_cast<std::uintptr_t>(block), size);
  }
  if (spare) {
    record_spare(self, call);
  } else {
    record_call(self, call);
  }
}

template <class F>
[[gnu::noinline, gnu::cold]] void end_oddly(ThreadState& self, Tag kind, void* block, F real_call) {
  if (in_pool(block)) {
    return;
  }
  if (self.place == Place::kInside) {
    real_call();
    return;
  }
  end_large(self, kind, block, true);
  const Inside inside(self);
  real_call();
}

// free and its kin: `real_call` frees `block`, which is not nullptr.
template <class F>
[[gnu::always_inline]] inline void end(Tag kind, void* block, F real_call) {
  ThreadState& self = self_state;
  if (HEAPWRIGHT_UNLIKELY(self.place != Place::kOutside || in_pool(block))) {
    end_oddly(self, kind, block, real_call);
    return;
  }
  if (block == self.sized) {
    kind = Tag::kFreeSized;  // the C++ runtime's sized delete called the plain one, or free
  }
  self.place = Place::kWriting;
  compiler_barrier();
  if (HEAPWRIGHT_UNLIKELY(may_be_large(block))) {
    end_large(self, kind, block, false);
  } else {
    record<false>(self, kind, block, 0);
  }
  compiler_barrier();
  self.place = Place::kInside;
  compiler_barrier();
  real_call();
  compiler_barrier();
  self.place = Place::kOutside;
}

// realloc and reallocarray of a block. `spare`: see make_oddly.
template <class F>
[[gnu::always_inline]] inline void* change(ThreadState& self, void* block, std::size_t size, bool spare,
                                           F real_call) {
  std::size_t large = 0;
  void* moved = nullptr;
  {
    const Writing writing(self);
    if (HEAPWRIGHT_UNLIKELY(may_be_large(block)) && recording()) {
      large = session->large.ended(block);
    }
    if (HEAPWRIGHT_UNLIKELY(spare)) {
      record_spare(self, Call{.kind = Tag::kRelease, .block = block});
    } else {
      record<false>(self, Tag::kRelease, block, 0);
    }
  }
  {
    const Inside inside(self);
    moved = real_call();
  }
  const Writing writing(self);
  if (HEAPWRIGHT_LIKELY(moved != nullptr)) {
    if (HEAPWRIGHT_UNLIKELY(spare)) {
      record_spare(self, Call{.kind = Tag::kRealloc, .block = moved, .size = size});
    } else {
      record<true>(self, Tag::kRealloc, moved, size);
    }
    if (HEAPWRIGHT_UNLIKELY(size >= kLarge)) {
      make_rest(self, Call{.kind = Tag::kRealloc, .block = moved, .size = size});
    }
    return moved;
  }
  record_change_failed(self, size == 0, spare);
  if (size != 0) {
    count_failure();
    if (large != 0 && recording()) {
      session->large.made(block, large);
    }
  }
  return nullptr;
}

}  // namespace heapwright::recorder
