// Keeps a heap's blocks that other threads have freed until the heap hands them out again: one list
// for each class of more than 4 KiB.
//
// A batch (remote_frees.h) holds at most two such blocks, and a superblock at most fourteen. So
// without these lists nearly each block would be sent alone, and each superblock would pass through
// the region, under its lock, after a few blocks. With them a thread that allocates buffers for
// another gets the same buffers back.
//
//     free() in any thread                    refill() in the heap's thread
//     adds a block by compare-and-swap ──►    takes the whole list by an exchange with 0
//
// Each list is one word (pack() in carving.h). Only add() and put_back() add blocks, and taking
// removes all of them. So if the word has changed and changed back between a read and the
// compare-and-swap, its first block is again the first, and the link to it is right (no ABA
// problem).
//
// A thread that sleeps strands the blocks in its lists. So the lists of all heaps together hold some 4
// MiB, and other threads empty them together with the depot. If a heap lacks blocks of a class that its
// full lists have refused, they may hold four times as much for the purge delay. A heap's lists are
// open from the first time that its thread needs such blocks until the thread ends. (Those of the heap
// that ending threads share stay open.) The thread closes its lists before it empties them for the last
// time; a thread that adds a block reads afterwards whether they are open. All four accesses are
// sequentially consistent, so at least one of the two threads sees the block there and takes it.
//
// Hardened builds do not use the lists.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "carving.h"

namespace heapwright::alloc {

template <Configuration C>
class FreedByOthers {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;
  static constexpr std::size_t kFirstClass = Classes::of(4 * 1024) + 1;  // that has a list

  // The heap's thread expects blocks.
  void open(const Pool& pool) { __atomic_store_n(&open_, pool.forks + 1, __ATOMIC_SEQ_CST); }
  // From now on no thread adds a block and leaves it here.
  void close() {
    __atomic_store_n(&open_, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&raised_until_ms_, 0, __ATOMIC_RELAXED);
    for (std::uint64_t& refused_ms : refused_ms_) {
      __atomic_store_n(&refused_ms, 0, __ATOMIC_RELAXED);
    }
  }
  [[nodiscard]] bool is_open(const Pool& pool) const {
    return __atomic_load_n(&open_, __ATOMIC_SEQ_CST) == pool.forks + 1;
  }

  // The bytes that the lists of one heap may hold as a rule.
  static std::size_t usual_limit(const Pool& pool) { return std::min(kAllBytes / pool.heaps(), kMaxBytes); }
  // Must be called by the heap's thread when it lacks blocks of a class and its list is empty: if the
  // lists have refused such blocks within the purge delay, they may hold more for the purge delay.
  void after_miss(const Pool& pool, std::size_t number) {
    std::uint64_t& refused_ms = refused_ms_[number - kFirstClass];
    const std::uint64_t refused = __atomic_load_n(&refused_ms, __ATOMIC_RELAXED);
    if (refused != 0) {
      __atomic_store_n(&refused_ms, 0, __ATOMIC_RELAXED);
      const std::uint64_t now = pool.region.settings.clock();
      const std::uint64_t delay = pool.region.settings.delay_ms;
      if (now - refused < delay) {
        __atomic_store_n(&raised_until_ms_, now + delay, __ATOMIC_RELAXED);
      }
    }
  }
  // Any thread: adds a block of class `number`. Returns false if the lists are full; each thread
  // that adds at the same moment may exceed the limit by a block. Afterwards the caller takes all
  // lists if they are not open any more.
  bool add(const Pool& pool, std::size_t number, Block* block) {
    const std::size_t size = Classes::bytes(number);
    const std::size_t bytes = __atomic_load_n(&bytes_, __ATOMIC_RELAXED) + size;
    if (bytes > usual_limit(pool)) [[unlikely]] {
      const std::uint64_t now = pool.region.settings.clock();
      if (bytes > kRaise * usual_limit(pool) || now >= __atomic_load_n(&raised_until_ms_, __ATOMIC_RELAXED)) {
        __atomic_store_n(&refused_ms_[number - kFirstClass], now, __ATOMIC_RELAXED);
        return false;
      }
    }
    __atomic_add_fetch(&bytes_, size, __ATOMIC_RELAXED);
    push(number, {block, 1}, block);
    return true;
  }
  // Any thread: takes all blocks of a class.
  BlockChain take(std::size_t number) {
    std::uint64_t& word = words_[number - kFirstClass];
    if (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) {
      return {};
    }
    const BlockChain taken = unpack(__atomic_exchange_n(&word, 0, __ATOMIC_SEQ_CST));
    __atomic_sub_fetch(&bytes_, taken.count * Classes::bytes(number), __ATOMIC_RELAXED);
    return taken;
  }
  // The heap's thread: takes all blocks of a class because it needs them.
  BlockChain take_for_use(std::size_t number) {
    used_[number - kFirstClass] = true;
    return take(number);
  }
  // The heap's thread: takes the lists of all classes that it has not needed since the last call, and
  // calls f(list) for each.
  template <class F>
  void take_unused(F f) {
    for (std::size_t number = kFirstClass; number < Classes::kCount; ++number) {
      if (!std::exchange(used_[number - kFirstClass], false)) {
        if (const BlockChain list = take(number); list.first != nullptr) {
          f(list);
        }
      }
    }
  }
  // Any thread: takes all lists, and calls f(list) for each.
  template <class F>
  void take_all(F f) {
    for (std::size_t number = kFirstClass; number < Classes::kCount; ++number) {
      if (const BlockChain list = take(number); list.first != nullptr) {
        f(list);
      }
    }
  }
  // Calls f(class number, first block of a list) for each list.
  template <class F>
  void each(F f) {
    for (std::size_t number = kFirstClass; number < Classes::kCount; ++number) {
      if (const BlockChain list = take(number); list.first != nullptr) {  // so that no other thread does
        f(number, list.first);
        put_back(number, list);
      }
    }
  }
  // The bytes of all lists.
  [[nodiscard]] std::size_t bytes() const { return __atomic_load_n(&bytes_, __ATOMIC_RELAXED); }
  // Where they are counted. Atomic.
  [[nodiscard]] constexpr const std::size_t* bytes_field() const { return &bytes_; }
  // In the child of a fork: another thread may have been between a change of a list and its count.
  void count_again() {
    std::size_t bytes = 0;
    for (std::size_t number = kFirstClass; number < Classes::kCount; ++number) {
      const std::uint64_t word = __atomic_load_n(&words_[number - kFirstClass], __ATOMIC_RELAXED);
      bytes += unpack(word).count * Classes::bytes(number);
    }
    __atomic_store_n(&bytes_, bytes, __ATOMIC_RELAXED);
  }
  // Tells a reader in another process where the lists are.
  constexpr void describe(HeapLayout& layout) const {
    layout.first_freed_by_others = &words_;
    layout.freed_by_others = static_cast<std::uint16_t>(words_.size());
  }

 private:
  static constexpr std::size_t kAllBytes = 4 * 1024 * 1024;  // of all heaps
  static constexpr std::size_t kMaxBytes = 2 * 1024 * 1024;  // of one heap
  static constexpr std::size_t kRaise = 4;                   // a raised limit, in usual ones

  // Adds linked blocks, from `list.first` to `last`.
  void push(std::size_t number, BlockChain list, Block* last) {
    std::uint64_t& word = words_[number - kFirstClass];
    std::uint64_t seen = __atomic_load_n(&word, __ATOMIC_RELAXED);
    std::uint64_t wanted = 0;
    do {
      const BlockChain before = unpack(seen);
      last->next = before.first;
      wanted = pack({list.first, before.count + list.count});
    } while (!__atomic_compare_exchange_n(&word, &seen, wanted, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  }
  void put_back(std::size_t number, BlockChain list) {
    Block* last = list.first;
    while (last->next != nullptr) {
      last = last->next;
    }
    __atomic_add_fetch(&bytes_, list.count * Classes::bytes(number), __ATOMIC_RELAXED);
    push(number, list, last);
  }

  // On cache lines of their own, because other threads write to them.
  alignas(64) std::array<std::uint64_t, Classes::kCount - kFirstClass> words_{};
  std::size_t bytes_ = 0;              // of all lists, and of blocks that are about to be added
  std::uint32_t open_ = 0;             // Pool::forks + 1 while the lists are open
  std::uint64_t raised_until_ms_ = 0;  // when the limit falls again; only the heap's thread raises it
  // For each class: when a block was refused last, or 0 if the heap's thread has lacked one since then.
  std::array<std::uint64_t, Classes::kCount - kFirstClass> refused_ms_{};
  std::array<bool, Classes::kCount - kFirstClass> used_{};  // see take_unused()
};

}  // namespace heapwright::alloc
