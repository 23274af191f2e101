// Runs one call of the program: calls the real allocator and records the call. The exported
// functions (entry.cpp, operators.cpp) differ only in the real function, which they pass as
// `real_call`.
//
// One malloc, step by step (on_alloc):
//   1. The thread's location is read. If it is not kProgram, the call is reentrant and takes the
//      slow path.
//   2. The location becomes kAllocator and the real malloc runs. Calls that the real allocator
//      makes meanwhile are its own.
//   3. The location becomes kRecorder. record() appends a few bytes to the thread's raw block,
//      which is mapped from the raw file.
//   4. A large block also enters Session::large. A failed call is counted in the file's header.
//   5. The location becomes kProgram again.
// free runs in the opposite order: it is recorded first and then executed (record.h says why).
#pragma once

#include <bit>

#include "filling.h"
#include "real.h"
#include "record.h"
#include "system.h"
#include "touched.h"

namespace heapwright::recorder {

// Tells whether malloc has recorded the block that another function of the allocator returns.
class MallocWatch {
 public:
  // Begins before that function is called.
  explicit MallocWatch(ThreadState& self) : self_(self) { self_.last_block = nullptr; }
  [[nodiscard]] bool has_recorded_at(const void* block) const { return self_.last_block == block; }
  // The function may return an address in malloc's block, behind a header of its own.
  [[nodiscard]] bool has_recorded(const void* block, std::size_t size) const {
    if (self_.last_block == nullptr) {
      return false;
    }
    if (has_recorded_at(block)) {
      return true;
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(self_.last_block);
    const auto at = reinterpret_cast<std::uintptr_t>(block);
    return at > begin && real.malloc_usable_size != nullptr &&
           at + size <= begin + real.malloc_usable_size(const_cast<void*>(self_.last_block));
  }

 private:
  ThreadState& self_;
};

// Records how far the thread's newest large blocks are filled.
[[gnu::noinline, gnu::cold]] inline void record_filling(ThreadState& self) {
  const sys::KeepErrno keep;
  if (!kSampling && recording() && observes_filling() && self.writer->at < self.writer->limit) {
    put_clock(*self.writer, clock_now<true>());
    put_filling(*self.writer);
  }
}

// Completes a recorded allocation: counts a failed call, remembers a large block.
[[gnu::noinline, gnu::cold]] inline void finish_alloc(ThreadState& self, const Call& call) {
  const sys::KeepErrno keep;
  if (call.block == nullptr) {
    count_failure();
  } else if (call.size >= kLarge && recording()) {
    LargeBlock large{.size = call.size};
    if (call.is_new) {
      large.touching = begin_touching(const_cast<void*>(call.block), call.size);
    }
    session->large.insert(call.block, large);
    if (!kSampling && large.touching == Touching::kMeasured && call.size >= kFilling) {
      begin_filling(call.block, call.size);
    }
  }
  self.last_block = call.block;
}

// An allocation outside kProgram. In kAllocator the real allocator calls malloc for itself: the
// block is recorded as an internal one, because the program may still free it. In kRecorder a
// signal handler has interrupted the recorder, which may be in the middle of a record, so the call
// is recorded through a borrowed writer.
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

// malloc and calloc.
//
// kContent   the block may have content although `kind` is kMalloc
// kind       kMalloc or kCalloc
// size       bytes the program asks for; for calloc the product
// real_call  calls the real function, and returns the block or nullptr
template <bool kContent = false, class F>
[[gnu::always_inline]] inline void* on_alloc(Tag kind, std::size_t size, F real_call) {
  ThreadState& self = self_state;
  const bool is_new = !kContent && kind == Tag::kMalloc;
  if (HEAPWRIGHT_UNLIKELY(self.location != Location::kProgram)) {
    return on_alloc_slow(self, Call{.kind = kind, .block = nullptr, .size = size, .is_new = is_new},
                         real_call);
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
    record_filling(self);
    finish_alloc(self, Call{.kind = kind, .block = block, .size = size, .is_new = is_new});
  }
  self.last_block = block;
  compiler_barrier();
  self.location = Location::kProgram;
  return block;
}

// memalign and its variants, and aligned operator new.
//
// kContent   as for on_alloc()
// alignment  bytes, as the caller gave it
// size       bytes the program asks for
// real_call  calls the real function, and returns the block or nullptr
template <bool kContent = false, class F>
[[gnu::always_inline]] inline void* on_aligned_alloc(std::size_t alignment, std::size_t size, F real_call) {
  ThreadState& self = self_state;
  Call call{.kind = Tag::kMalloc, .block = nullptr, .size = size, .is_new = !kContent};
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

// Records the free of a block that may be large, with the number of its bytes that were touched.
//
// kind           kFree or kFreeSized
// block          the block, not yet freed
// borrow_writer  record through a borrowed writer, see on_alloc_slow
[[gnu::noinline, gnu::cold]] inline void record_large_free(ThreadState& self, Tag kind, const void* block,
                                                           bool borrow_writer) {
  const sys::KeepErrno keep;
  Call call{.kind = kind, .block = block};
  const LargeBlock large = recording() ? session->large.find(block) : LargeBlock{};
  if (large.size != 0) {
    call.touched = end_touching(reinterpret_cast<std::uintptr_t>(block), large.size, large.touching);
  }
  if (borrow_writer) {
    record_borrowed(self, call);
  } else {
    record_call(self, call);
  }
  if (large.size != 0) {  // only now: a reading of memory before the free counts the block as malloc's
    session->large.remove(block);
    if (!borrow_writer) {
      record_filling(self);
    }
  }
}

// A free outside kProgram, or of a block from the bootstrap pool, which is never given back.
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

// free, free_sized, free_aligned_sized and operator delete.
//
// kind       kFree, or kFreeSized if the caller gives a size
// block      the block, not nullptr
// real_call  calls the real function
template <class F>
[[gnu::always_inline]] inline void on_free(Tag kind, void* block, F real_call) {
  ThreadState& self = self_state;
  if (HEAPWRIGHT_UNLIKELY(self.location != Location::kProgram || in_pool(block))) {
    on_free_slow(self, kind, block, real_call);
    return;
  }
  if (block == self.sized_delete) {
    kind = Tag::kFreeSized;  // sized delete of the C++ runtime has called plain delete or free
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

// realloc and reallocarray of a block. Two records, one before and one after the real call, because
// the old address becomes free and the new one becomes used somewhere between.
//
// block          the block, not nullptr
// size           its new size in bytes
// borrow_writer  record through a borrowed writer, see on_alloc_slow
// real_call      calls the real function, and returns the new address or nullptr
template <class F>
[[gnu::always_inline]] inline void* on_realloc(ThreadState& self, void* block, std::size_t size,
                                               bool borrow_writer, F real_call) {
  LargeBlock large;
  void* moved = nullptr;
  {
    const InRecorder in_recorder(self);
    if (HEAPWRIGHT_UNLIKELY(may_be_large(block)) && recording()) {
      large = session->large.find(block);
    }
    if (HEAPWRIGHT_UNLIKELY(borrow_writer)) {
      record_borrowed(self, Call{.kind = Tag::kReallocBegin, .block = block});
    } else {
      record<false>(self, Tag::kReallocBegin, block, 0);
    }
    if (HEAPWRIGHT_UNLIKELY(large.size != 0)) {
      session->large.remove(block);
    }
  }
  {
    const InAllocator in_allocator(self);
    moved = real_call();
  }
  const InRecorder in_recorder(self);
  if (HEAPWRIGHT_LIKELY(moved != nullptr)) {
    if (HEAPWRIGHT_UNLIKELY(size >= kLarge)) {  // first: a reading of memory counts the block as malloc's
      finish_alloc(self, Call{.kind = Tag::kRealloc, .block = moved, .size = size});
    }
    if (HEAPWRIGHT_UNLIKELY(borrow_writer)) {
      record_borrowed(self, Call{.kind = Tag::kRealloc, .block = moved, .size = size});
    } else {
      record<true>(self, Tag::kRealloc, moved, size);
    }
    return moved;
  }
  record_realloc_failed(self, size == 0, borrow_writer);
  if (size != 0) {
    count_failure();
    if (large.size != 0 && recording()) {
      session->large.insert(block, large);
    }
  }
  return nullptr;
}

}  // namespace heapwright::recorder
