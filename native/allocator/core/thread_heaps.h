// Which heap a thread has.
//
//     current ──► nobody          before the first allocation, and after the thread's destructors have run
//             ──► its own heap    one mapping each, so that no two threads' heaps share a cache line
//
// A thread's heap is found by one pointer in initial-exec TLS. `nobody` is a heap without memory, whose fast
// paths fail, so that the fast path need not ask whether there is a heap. When a thread ends, its heap is
// emptied and kept whole, with its partly used superblocks, for the next thread that comes.
//
// What a thread allocates after that (in destructors of other libraries, in libc's own) comes from one heap
// that all such threads share under a lock: nothing is left behind, however often that happens.
//
// fork: the child has one thread. Its heap goes on; those of the others stay as they are, perhaps in the
// middle of something, and are not used again; blocks of theirs can be freed as ever. See platform::Forking.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

#include "heap_slow_paths.h"

namespace heapwright::alloc {

template <Configuration C>
class ThreadHeaps {
 public:
  constexpr explicit ThreadHeaps(Pool& pool) : pool_(pool) {}

  static HEAPWRIGHT_INLINE Heap<C>& current() { return *current_; }

  // Calls f with this thread's heap, which it gets if it has none.
  template <class F>
  auto with_heap(F f) {
    Heap<C>* const heap = current_ != &empty_heap_ ? current_ : attach();
    if (heap != nullptr) {
      return f(*heap);
    }
    const SharedGuard guard(*this);
    return f(shared_);
  }
  // The first thread's heap, made before: `other` is emptied into it.
  void adopt_first_heap(Heap<C>& other);
  // Asks to be told of threads that end, and of forks; at the latest before there is a second thread. The earlier, the
  // better: what asks first is told last of a fork, when nobody else's handler is left to wait for anything. May allocate.
  void register_handlers();

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

  Heap<C>* attach();
  Heap<C>* create_heap(std::uint32_t number);
  Heap<C>* construct_heap(void* memory, std::uint32_t number);
  static void on_thread_exit(void* heap);
  // The heaps that the child of a fork has.
  template <class F>
  void each_heap_of_child(F f) {
    f(shared_);
    if (current_ != &empty_heap_) {
      f(*current_);
    }
    for (Heap<C>* heap = idle_; heap != nullptr; heap = heap->next_idle) {
      f(*heap);
    }
  }
  // What a fork keeps, in the order in which locks are taken; of heaps because nobody must be bringing anything home to
  // those that the child has.
  template <class F>
  void each_lock(F f) {
    f(lock_);
    f(shared_lock_);
    each_heap_of_child([&](Heap<C>& heap) { f(heap.lock()); });
    f(pool_.lock);
  }
  void before_fork();
  void after_fork(bool child);

  static constinit Pool empty_pool_;
  static constinit Heap<C> empty_heap_;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local Heap<C>* current_;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local bool thread_exited_;
  static constinit ThreadHeaps* instance_;
  // The first thread's heap, where `adopt_first_heap` makes it: a process gets its second thread also when not a page is left.
  alignas(64) static constinit std::array<std::byte, sizeof(Heap<C>)> first_heap_storage_;

  Pool& pool_;
  Heap<C> shared_{pool_, kSharedNumber};
  platform::Lock shared_lock_;
  platform::Lock lock_;      // of what follows
  Heap<C>* idle_ = nullptr;  // of threads that have ended, linked by Heap::next
  std::uint32_t count_ = 0;  // numbers given
  bool registered_ = false;
  pthread_key_t key_ = 0;
};

template <Configuration C>
constinit Pool ThreadHeaps<C>::empty_pool_{};
template <Configuration C>
constinit Heap<C> ThreadHeaps<C>::empty_heap_{empty_pool_};
template <Configuration C>
constinit thread_local Heap<C>* ThreadHeaps<C>::current_ = &empty_heap_;
template <Configuration C>
constinit thread_local bool ThreadHeaps<C>::thread_exited_ = false;
template <Configuration C>
constinit ThreadHeaps<C>* ThreadHeaps<C>::instance_ = nullptr;
template <Configuration C>
alignas(64) constinit std::array<std::byte, sizeof(Heap<C>)> ThreadHeaps<C>::first_heap_storage_{};

// nullptr: the thread is ending, or there can be no more heaps.
template <Configuration C>
Heap<C>* ThreadHeaps<C>::attach() {
  if (thread_exited_) {
    return nullptr;
  }
  register_handlers();
  Heap<C>* heap = nullptr;
  {
    lock_.lock();
    heap = idle_;
    if (heap != nullptr) {
      idle_ = heap->next_idle;
    } else if (count_ < kMaxHeaps) {
      heap = create_heap(count_);
      count_ += heap != nullptr ? 1 : 0;  // where there is no memory, no number is used up
    }
    lock_.unlock();
  }
  if (heap == nullptr) {
    return nullptr;
  }
  current_ = heap;                  // from here on this thread may allocate
  pthread_setspecific(key_, heap);  // which this may do
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
  return heap;
}

template <Configuration C>
void ThreadHeaps<C>::adopt_first_heap(Heap<C>& other) {
  Heap<C>* const heap = construct_heap(first_heap_storage_.data(), count_++);
  heap->take_over(other);
  current_ = heap;
  register_handlers();
  pthread_setspecific(key_, heap);
}

template <Configuration C>
void ThreadHeaps<C>::register_handlers() {
  if (__atomic_exchange_n(&registered_, true, __ATOMIC_ACQ_REL)) {
    return;
  }
  instance_ = this;
  pthread_key_create(&key_, on_thread_exit);
  pthread_atfork([] { instance_->before_fork(); }, [] { instance_->after_fork(false); },
                 [] { instance_->after_fork(true); });
}

// The thread ends.
template <Configuration C>
void ThreadHeaps<C>::on_thread_exit(void* pointer) {
  auto* const heap = static_cast<Heap<C>*>(pointer);
  current_ = &empty_heap_;
  thread_exited_ = true;
  heap->on_thread_exit();
  instance_->lock_.lock();
  heap->next_idle = instance_->idle_;
  instance_->idle_ = heap;
  instance_->lock_.unlock();
}

template <Configuration C>
void ThreadHeaps<C>::before_fork() {
  if (!platform::single_threaded() && platform::Forking::begin()) {
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
    ++pool_.forks;
    each_lock([](platform::Lock& lock) { lock.reset(); });
    each_heap_of_child([](Heap<C>& heap) { heap.keep_in_child(); });
  } else if (ended) {
    pool_.lock.release_kept();  // the other way round
    each_heap_of_child([](Heap<C>& heap) { heap.lock().release_kept(); });
    shared_lock_.release_kept();
    lock_.release_kept();
    platform::Forking::leave();
  }
}

}  // namespace heapwright::alloc
