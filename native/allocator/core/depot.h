// Keeps a heap's reserve of free memory, its depot: for each size class a stack of whole free lists,
// and for each length a stack of freed spans.
//
// After Bonwick and Adams, "Magazines and Vmem" (USENIX 2001). A list of the thread cache that has
// grown long moves to the depot as a unit, and comes back as a unit when the list is empty. So a
// block of a burst costs two fast paths and a share of two O(1) operations. Without a depot each
// block would be read and linked again twice: when it returns to its superblock, and when its list
// is refilled.
//
//     stacks_[class] ──► first block of the latest list ──► next ──► next
//                        │ second word: the list below
//                        ▼
//                        first block of the list below ──► next ──► next
//
// A reference to a list holds the address of its first block in 48 bits, and in 16 bits an upper
// bound of its length. The exact length is not counted: the fast paths do not count, and a
// walk through each list takes 20 to 30% of a burst's CPU time (docs/design-notes/bursts.md). So
// `bytes()` is an upper bound too.
//
// span_stacks.h describes the stacks of spans.
//
// Sharing. A thread that sleeps would strand its depot. So with several threads a heap keeps only
// `kPrivateBytes` of lists to itself; further lists go to stacks that other threads can empty. Each
// shared stack is one word that is either whole or 0:
//
//   the heap's thread   takes the word by an exchange with 0, changes the stack, and stores the new
//                       word. Only this thread ever makes the word another value than 0. So where
//                       it reads 0, or has taken the word, a plain store suffices.
//   other threads       take the word by an exchange with 0, and own the whole stack then.
//
// No thread reads a list before it has taken the word that leads to it. So no thread reads
// what another thread may return, purge or unmap, and a word that changes and changes back does no
// harm (no ABA problem). The store releases the blocks' words, which the heap's thread wrote, and
// the exchange acquires them. A thread that is stopped between the two steps delays no other.
// The heap's thread writes `DepotRecord::pushed_bytes_` (pool.h), all threads `taken_bytes_`.
//
// Hardened builds have no depot: the second word of their free blocks is wiped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "carving.h"
#include "size_classes.h"
#include "span_stacks.h"

namespace heapwright::alloc {

template <Configuration C>
class OwnedSuperblocks;

template <Configuration C>
class Depot : public SpanStacks {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;
  static constexpr std::size_t kPrivateBytes = 256 * 1024;

  // `superblocks`: of the heap that has the depot.
  constexpr Depot(Pool& pool, OwnedSuperblocks<C>& superblocks)
      : SpanStacks(pool, superblocks.freed_by_others().bytes_field()), superblocks_(&superblocks) {}

  // Adds a list, whose `count` is an upper bound of its length, and neither 0 nor above 65,535.
  // `shares`: other threads may take it, unless the private stacks have room.
  void push(std::size_t number, BlockChain list, bool shares = false) {
    const std::size_t bytes = list.count * Classes::bytes(number);
    auto* const first = reinterpret_cast<FirstBlock*>(list.first);
    count_move();
    if (!shares || private_bytes_ + bytes <= kPrivateBytes) {
      first->below = private_stack(number);
      private_stack(number) = pack(list);
      private_bytes_ += bytes;
    } else {
      first->below = take_shared(number);
      add_pushed(bytes);  // before the list can be taken: `taken_bytes` is never larger
      put_shared(number, pack(list));
    }
  }
  // Takes the latest list of a class; an empty chain if there is none.
  BlockChain pop(std::size_t number) {
    if (const std::uint64_t shared = take_shared(number); shared != 0) {
      const BlockChain list = unpack(shared);
      put_shared(number, below(shared));
      add_pushed(-(list.count * Classes::bytes(number)));
      count_move();
      return list;
    }
    const BlockChain list = unpack(private_stack(number));
    if (list.first != nullptr) {
      private_stack(number) = reinterpret_cast<const FirstBlock*>(list.first)->below;
      private_bytes_ -= list.count * Classes::bytes(number);
      count_move();
    }
    return list;
  }
  // Keeps the latest lists of a class, of both stacks those of at least half of the blocks, and
  // calls f(list) for each of the others.
  template <class F>
  void halve(std::size_t number, F f) {
    std::uint64_t shared = take_shared(number);
    const std::uint64_t older_shared = cut(shared);
    put_shared(number, shared);
    const std::uint64_t older_private = cut(private_stack(number));
    each_list(older_shared, [&](BlockChain list) {
      add_pushed(-(list.count * Classes::bytes(number)));
      f(list);
    });
    each_list(older_private, [&](BlockChain list) {
      private_bytes_ -= list.count * Classes::bytes(number);
      f(list);
    });
  }
  // Any thread: takes all shared lists, and calls f(list) for each.
  template <class F>
  void take_all_shared(F f) {
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      const std::uint64_t stack = take_shared(number);
      std::size_t bytes = 0;
      each_list(stack, [&](BlockChain list) { bytes += list.count * Classes::bytes(number); });
      add_taken(bytes);
      each_list(stack, f);
    }
  }
  // In the child of a fork: another thread may have been taking lists that it will not count.
  void count_again() {
    reset_bytes();
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      each_list(stacks_[Classes::kCount + number],
                [&](BlockChain list) { add_pushed(list.count * Classes::bytes(number)); });
    }
    count_spans_again();
  }
  [[nodiscard]] OwnedSuperblocks<C>& superblocks() const { return *superblocks_; }
  // An upper bound of the memory of all blocks here.
  [[nodiscard]] std::size_t bytes() const { return private_bytes_ + shared_bytes(); }

  // Takes over all lists of the depot of a heap that was alone, and so shared nothing. Other
  // threads can take them from now on, because the heap's thread may sleep from now on.
  void take_over(Depot& other) {
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      put_shared(number, std::exchange(other.private_stack(number), 0));
    }
    add_pushed(std::exchange(other.private_bytes_, 0));
  }
  // Tells a reader in another process where the stacks are.
  constexpr void describe(HeapLayout& layout) const {
    layout.first_depots = &stacks_;
    layout.depots = 2 * Classes::kCount;
  }
  // Calls f(class number, list) for each private list.
  template <class F>
  void each_private(F f) {
    if (private_bytes_ != 0) {
      for (std::size_t number = 1; number < Classes::kCount; ++number) {
        each_list(private_stack(number), [&](BlockChain list) { f(number, list); });
      }
    }
  }
  // Calls f(class number, first block of a list) for each list.
  template <class F>
  void each(F f) {
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      const std::uint64_t shared = take_shared(number);  // so that no other thread frees these blocks
      each_list(shared, [&](BlockChain list) { f(number, list.first); });
      put_shared(number, shared);
      each_list(private_stack(number), [&](BlockChain list) { f(number, list.first); });
    }
  }

 private:
  struct FirstBlock {
    Block* next;
    std::uint64_t below;
  };
  static std::uint64_t& below(std::uint64_t reference) {
    return reinterpret_cast<FirstBlock*>(unpack(reference).first)->below;
  }
  // Calls f(list) for each list of a stack; f may use the blocks for something else.
  template <class F>
  static void each_list(std::uint64_t stack, F f) {
    while (stack != 0) {
      const std::uint64_t next = below(stack);
      f(unpack(stack));
      stack = next;
    }
  }
  // Shortens a stack to its latest lists, those of at least half of its blocks. Returns the others.
  static std::uint64_t cut(std::uint64_t& stack) {
    std::size_t count = 0;
    each_list(stack, [&](BlockChain list) { count += list.count; });
    std::uint64_t* end = &stack;
    for (std::size_t kept = 0; kept < count / 2; end = &below(*end)) {
      kept += unpack(*end).count;
    }
    return std::exchange(*end, 0);
  }

  std::uint64_t& private_stack(std::size_t number) { return stacks_[number]; }
  // Takes a shared stack. No other thread reads or changes it then.
  std::uint64_t take_shared(std::size_t number) {
    std::uint64_t& word = stacks_[Classes::kCount + number];
    return __atomic_load_n(&word, __ATOMIC_RELAXED) == 0 ? 0
                                                         : __atomic_exchange_n(&word, 0, __ATOMIC_ACQUIRE);
  }
  // Only the heap's thread, after it has taken the stack.
  void put_shared(std::size_t number, std::uint64_t stack) {
    if (stack != 0) {
      __atomic_store_n(&stacks_[Classes::kCount + number], stack, __ATOMIC_RELEASE);
    }
  }

  std::array<std::uint64_t, 2 * Classes::kCount> stacks_{};  // the private ones, then the shared ones
  std::size_t private_bytes_ = 0;
  OwnedSuperblocks<C>* superblocks_;
};

}  // namespace heapwright::alloc
