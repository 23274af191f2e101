// The depot: a heap's reserve of whole free lists, for each size class a stack of them.
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
// bound of its length. Nobody counts the blocks of a list: the fast paths do not, and a walk through
// each list takes 20 to 30 % of a burst's CPU time (docs/design-notes/exgen.md). So `bytes()` is an
// upper bound too.
//
// Hardened builds have no depot: the second word of their free blocks is wiped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "carving.h"
#include "size_classes.h"

namespace heapwright::alloc {

template <Configuration C>
class Depot {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;

  // Adds a list, whose `count` is an upper bound of its length, and neither 0 nor above 65,535.
  void push(std::size_t number, BlockChain list) {
    auto* const first = reinterpret_cast<FirstBlock*>(list.first);
    first->below = stacks_[number];
    stacks_[number] = pack(list);
    bytes_ += list.count * Classes::bytes(number);
  }
  // Takes the latest list of a class; an empty chain if there is none.
  BlockChain pop(std::size_t number) {
    const BlockChain list = unpack(stacks_[number]);
    if (list.first != nullptr) {
      stacks_[number] = reinterpret_cast<const FirstBlock*>(list.first)->below;
      bytes_ -= list.count * Classes::bytes(number);
    }
    return list;
  }
  // Keeps the latest lists of a class, those of at least half of its blocks, and calls f(list) for
  // each of the others.
  template <class F>
  void halve(std::size_t number, F f) {
    std::size_t count = 0;
    for (std::uint64_t at = stacks_[number]; at != 0; at = below(at)) {
      count += unpack(at).count;
    }
    std::uint64_t* end = &stacks_[number];
    for (std::size_t kept = 0; kept < count / 2;
         end = &reinterpret_cast<FirstBlock*>(unpack(*end).first)->below) {
      kept += unpack(*end).count;
    }
    for (std::uint64_t at = std::exchange(*end, 0); at != 0;) {
      const std::uint64_t next = below(at);
      bytes_ -= unpack(at).count * Classes::bytes(number);
      f(unpack(at));
      at = next;
    }
  }
  // An upper bound of the memory of all blocks here.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  void take_over(Depot& other) { *this = std::exchange(other, Depot{}); }
  // Tells a reader in another process where the stacks are.
  constexpr void describe(HeapLayout& layout) const { layout.first_depots = &stacks_; }
  // Calls f(class number, first block of a list) for each list.
  template <class F>
  void each(F f) const {
    for (std::size_t number = 1; number < Classes::kCount; ++number) {
      for (std::uint64_t at = stacks_[number]; at != 0; at = below(at)) {
        f(number, unpack(at).first);
      }
    }
  }

 private:
  struct FirstBlock {
    Block* next;
    std::uint64_t below;
  };
  static constexpr unsigned kCountShift = 48;
  static_assert(kAddresses == std::size_t{1} << kCountShift);

  static std::uint64_t pack(BlockChain list) {
    return std::uint64_t{list.count} << kCountShift | reinterpret_cast<std::uintptr_t>(list.first);
  }
  static BlockChain unpack(std::uint64_t reference) {
    return {reinterpret_cast<Block*>(reference % kAddresses), reference >> kCountShift};
  }
  static std::uint64_t below(std::uint64_t reference) {
    return reinterpret_cast<const FirstBlock*>(unpack(reference).first)->below;
  }

  std::array<std::uint64_t, Classes::kCount> stacks_{};
  std::size_t bytes_ = 0;
};

}  // namespace heapwright::alloc
