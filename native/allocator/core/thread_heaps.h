// Gives each thread its heap, and takes the heap back when the thread ends.
//
//     current_ ──► empty_heap_     before the first allocation, and after the thread's destructors
//              ──► its own heap    each in its own mapping, so that two heaps share no cache line
//
// One pointer in initial-exec thread-local storage leads to a thread's heap. `empty_heap_` has no
// memory and its fast paths fail, so the fast path need not ask whether the thread has a heap. When
// a thread ends, its heap is flushed and kept, with its partly used superblocks, for the next new
// thread.
//
// Left lists. Flushing a heap and filling its lists again takes tens of thousands of instructions
// (docs/design-notes/reaper.md has counts), perhaps more than all that a thread does for one request.
// So a thread that did little leaves the lists of its thread cache and its depot as they are, and the
// next thread begins with them. All left lists together count at most kMaxLeftBytes (see
// Heap::bytes_to_leave()), and at most what free superblocks may hold. They are flushed when the process
// trims, runs out of memory, or counts its memory. A thread that did more flushes its heap, because
// each of its last freed blocks may be all that keeps a superblock in use.
//
// A thread may still allocate after its heap was taken back: in destructors of other libraries or in
// libc's thread teardown. Such allocations come from one heap that all ending threads share under a
// lock, so they strand nothing.
//
// fork: the child has one thread, whose heap goes on. The heaps of the other threads stay as they
// are, perhaps in the middle of a change, and are not used again. Their blocks can be freed as
// usual, but the superblocks that they own, also those that they have taken from the heap that goes
// on, do not return memory in the child. See platform::Forking.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "heap_slow_paths.h"
#include "inlining.h"

namespace heapwright::alloc {

template <Configuration C>
class ThreadHeaps {
 public:
  constexpr explicit ThreadHeaps(Pool& pool) : pool_(pool) {}

  static HEAPWRIGHT_INLINE Heap<C>& current() { return *current_; }

  // Calls f with this thread's heap; a thread without one gets one.
  template <class F>
  auto with_heap(F f) {
    Heap<C>* const heap = current_ != &empty_heap_ ? current_ : attach();
    if (heap != nullptr) {
      return f(*heap);
    }
    const SharedGuard guard(*this);
    return f(shared_);
  }
  // Makes a heap for the first thread of the process and moves everything from `other` into it.
  void adopt_first_heap(Heap<C>& other);
  // Registers handlers for the end of threads and for forks, at the latest before there is a second
  // thread. The earlier the better: the handler registered first runs last before a fork, when no
  // other handler can wait for a lock any more. May allocate.
  void register_handlers();

  // Tells a reader in another process where the heaps are.
  constexpr void describe(HeapLayout& layout) const {
    layout.shared_heap = &shared_;
    layout.created = static_cast<const void*>(&created_);
  }

  std::size_t cache_bytes_per_class = 0;  // 0: as configured

 private:
  class SharedGuard {
   public:
    explicit SharedGuard(ThreadHeaps& heaps) : heaps_(heaps) { heaps.shared_lock_.lock(); }
    ~SharedGuard() { heaps_.shared_lock_.unlock(); }
    SharedGuard(const SharedGuard&) = delete;
    SharedGuard& operator=(const SharedGuard&) = delete;

   private:
    ThreadHeaps& heaps_;
  };
  static constexpr std::uint32_t kMaxHeaps = 1U << 15U;
  static constexpr std::uint32_t kSharedNumber = kMaxHeaps;
  static constexpr std::size_t kMaxLeftBytes = 2 * 1024 * 1024;

  HEAPWRIGHT_COLD Heap<C>* attach();
  void count_heaps(int change) {
    __atomic_fetch_add(&pool_.region.heaps, static_cast<std::size_t>(change), __ATOMIC_RELAXED);
  }
  // Returns the new number of bytes in left lists.
  std::size_t count_left(std::size_t change) {
    return __atomic_add_fetch(&left_bytes_, change, __ATOMIC_RELAXED);
  }
  Heap<C>* create_heap(std::uint32_t number);
  Heap<C>* construct_heap(void* memory, std::uint32_t number);
  // Whether the lists of an ending thread's heap may stay; if so, counts their bytes.
  HEAPWRIGHT_COLD bool may_leave_lists(Heap<C>& heap);
  // Flushes all lists that ended threads have left.
  HEAPWRIGHT_COLD void flush_left_lists();
  static void push(Heap<C>*& list, Heap<C>* heap) {
    heap->next_idle = list;
    list = heap;
  }
  static Heap<C>* pop(Heap<C>*& list) {
    return list != nullptr ? std::exchange(list, list->next_idle) : nullptr;
  }
  // Has on_thread_exit() called when this thread ends. Without a key its heap stays as it is then.
  // May allocate.
  void expect_exit(Heap<C>* heap) {
    if (has_key_) {
      pthread_setspecific(key_, heap);
    }
  }
  static void on_thread_exit(void* heap);
  // Calls f with each heap that the child of a fork can use.
  template <class F>
  void each_heap_of_child(F f) {
    f(shared_);
    if (current_ != &empty_heap_) {
      f(*current_);
    }
    for (Heap<C>* const list : {idle_, with_lists_}) {
      for (Heap<C>* heap = list; heap != nullptr; heap = heap->next_idle) {
        f(*heap);
      }
    }
  }
  // Calls f with each lock that a fork keeps, in the order in which locks are taken. Heaps' locks
  // are among them because no thread may be reclaiming blocks into a heap that the child uses.
  template <class F>
  void each_lock(F f) {
    f(shared_lock_);
    f(lock_);
    each_heap_of_child([&](Heap<C>& heap) { f(heap.lock()); });
    f(pool_.lock);
  }
  HEAPWRIGHT_COLD void before_fork();
  HEAPWRIGHT_COLD void after_fork(bool child);

  static constinit Pool empty_pool_;
  static constinit Heap<C> empty_heap_;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local Heap<C>* current_;
  // Whether the thread's end has begun, and whether its heap is gone.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local bool thread_exits_;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local bool thread_exited_;
  static constinit ThreadHeaps* instance_;
  // Memory for the first thread's heap: adopt_first_heap() must work even when the kernel has no
  // page left.
  alignas(64) static constinit std::array<std::byte, sizeof(Heap<C>)> first_heap_storage_;

  Pool& pool_;
  Heap<C> shared_{pool_, kSharedNumber};
  platform::Lock shared_lock_;
  platform::Lock lock_;  // guards the members below
  // Heaps of ended threads, linked by Heap::next_idle: those that have been flushed, and those with
  // the lists that their thread has left.
  Heap<C>* idle_ = nullptr;
  Heap<C>* with_lists_ = nullptr;
  std::size_t left_bytes_ = 0;  // in left lists, an upper bound; atomic, because changes take no lock
  Heap<C>* created_ = nullptr;  // all heaps of threads, linked by Heap::next_created
  std::uint32_t count_ = 0;     // heap numbers given out
  bool registered_ = false;
  bool has_key_ = false;  // false if the program has used up pthread's keys
  pthread_key_t key_ = 0;
};

template <Configuration C>
constinit Pool ThreadHeaps<C>::empty_pool_{};
template <Configuration C>
constinit Heap<C> ThreadHeaps<C>::empty_heap_{empty_pool_};
template <Configuration C>
constinit thread_local Heap<C>* ThreadHeaps<C>::current_ = &empty_heap_;
template <Configuration C>
constinit thread_local bool ThreadHeaps<C>::thread_exits_ = false;
template <Configuration C>
constinit thread_local bool ThreadHeaps<C>::thread_exited_ = false;
template <Configuration C>
constinit ThreadHeaps<C>* ThreadHeaps<C>::instance_ = nullptr;
template <Configuration C>
alignas(64) constinit std::array<std::byte, sizeof(Heap<C>)> ThreadHeaps<C>::first_heap_storage_{};

// Gives the thread a heap; nullptr: the thread is ending, or there can be no more heaps.
template <Configuration C>
Heap<C>* ThreadHeaps<C>::attach() {
  if (thread_exited_) {
    return nullptr;
  }
  register_handlers();
  if (current_ != &empty_heap_) {  // registering has allocated
    return current_;
  }
  Heap<C>* heap = nullptr;
  {
    lock_.lock();
    heap = pop(with_lists_);
    if (heap == nullptr) {
      heap = pop(idle_);
    }
    if (heap == nullptr && count_ < kMaxHeaps) {
      heap = create_heap(count_);
      count_ += heap != nullptr ? 1 : 0;  // without memory no number is used up
    }
    count_left(heap != nullptr ? -std::exchange(heap->left_bytes, 0) : 0);
    count_heaps(heap != nullptr ? 1 : 0);
    lock_.unlock();
  }
  if (heap == nullptr) {
    return nullptr;
  }
  current_ = heap;  // from here on this thread may allocate
  expect_exit(heap);
  return heap;
}

template <Configuration C>
Heap<C>* ThreadHeaps<C>::create_heap(std::uint32_t number) {
  void* const memory = platform::map(round_up(sizeof(Heap<C>), platform::page_size()));
  return memory == nullptr ? nullptr : construct_heap(memory, number);
}

template <Configuration C>
Heap<C>* ThreadHeaps<C>::construct_heap(void* memory, std::uint32_t number) {
  auto* const heap = new (memory) Heap<C>(pool_, number);
  heap->keep_in_child();
  if (cache_bytes_per_class != 0) {
    heap->set_cache_bytes(cache_bytes_per_class);
  }
  heap->next_created = created_;
  __atomic_store_n(&created_, heap, __ATOMIC_RELEASE);  // another process may read the list
  return heap;
}

template <Configuration C>
void ThreadHeaps<C>::adopt_first_heap(Heap<C>& other) {
  Heap<C>* const heap = construct_heap(first_heap_storage_.data(), count_++);
  heap->take_over(other);
  count_heaps(1);
  current_ = heap;
  register_handlers();
  expect_exit(heap);
}

template <Configuration C>
void ThreadHeaps<C>::register_handlers() {
  if (__atomic_exchange_n(&registered_, true, __ATOMIC_ACQ_REL)) {
    return;
  }
  instance_ = this;
  pool_.flush_left_lists = [] { instance_->flush_left_lists(); };
  has_key_ = pthread_key_create(&key_, on_thread_exit) == 0;
  pthread_atfork([] { instance_->before_fork(); }, [] { instance_->after_fork(false); },
                 [] { instance_->after_fork(true); });
}

// Called by pthread when a thread that has a heap ends. The first time it asks for a further round,
// because its key is one of the first: destructors of other keys free what their thread had, and
// would do so in the shared heap.
template <Configuration C>
void ThreadHeaps<C>::on_thread_exit(void* pointer) {
  auto* const heap = static_cast<Heap<C>*>(pointer);
  if (!thread_exits_) {
    thread_exits_ = true;
    if (pthread_setspecific(instance_->key_, heap) == 0) {
      return;
    }
  }
  current_ = &empty_heap_;
  thread_exited_ = true;
  const bool leaves_lists = instance_->may_leave_lists(*heap);
  heap->on_thread_exit(leaves_lists);
  instance_->lock_.lock();
  push(heap->left_bytes != 0 ? instance_->with_lists_ : instance_->idle_, heap);
  instance_->count_heaps(-1);
  instance_->lock_.unlock();
}

template <Configuration C>
bool ThreadHeaps<C>::may_leave_lists(Heap<C>& heap) {
  const std::size_t bytes = heap.bytes_to_leave();
  if (bytes > kMaxLeftBytes) {
    return false;
  }
  std::size_t most = 0;
  {
    const Pool::Guard guard(pool_);
    most = std::min(kMaxLeftBytes, pool_.region.allowance() * kSuperblockBytes);
  }
  if (count_left(bytes) > most) {
    count_left(-bytes);
    return false;
  }
  heap.left_bytes = bytes;
  return true;
}

template <Configuration C>
void ThreadHeaps<C>::flush_left_lists() {
  lock_.lock();  // until the end: a fork waits, and the child can use all heaps
  while (Heap<C>* const heap = pop(with_lists_)) {
    heap->flush_cache();
    heap->drain_remote();
    count_left(-std::exchange(heap->left_bytes, 0));
    push(idle_, heap);
  }
  lock_.unlock();
}

template <Configuration C>
void ThreadHeaps<C>::before_fork() {
  if (platform::may_have_threads(pool_.threaded) && platform::Forking::begin()) {
    each_lock([](platform::Lock& lock) { lock.keep_across_fork(); });
  }
}

template <Configuration C>
void ThreadHeaps<C>::after_fork(bool child) {
  if (!platform::Forking::underway()) {  // there was one thread
    return;
  }
  const bool ended = platform::Forking::end(child);
  if (child) {
    each_lock([](platform::Lock& lock) { lock.reset(); });
    pool_.region.heaps = 1;
    left_bytes_ = 0;  // again: a thread may have been between counting lists and leaving them
    for (const Heap<C>* heap = with_lists_; heap != nullptr; heap = heap->next_idle) {
      left_bytes_ += heap->left_bytes;
    }
    pool_.forget_other_heaps();
    each_heap_of_child([](Heap<C>& heap) { heap.keep_in_child(); });
  } else if (ended) {
    pool_.lock.release_kept();  // in reverse order
    each_heap_of_child([](Heap<C>& heap) { heap.lock().release_kept(); });
    lock_.release_kept();
    shared_lock_.release_kept();
    platform::Forking::leave();
  }
}

}  // namespace heapwright::alloc
