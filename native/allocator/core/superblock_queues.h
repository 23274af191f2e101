// Queues a heap's superblocks by size class. Knows the one of each class that the heap allocates
// from, and the free bytes in all others.
//
// A superblock is queued exactly while its heap owns it (`queued`), except for a moment while it
// changes hands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "list.h"
#include "page_purger.h"
#include "size_classes.h"

namespace heapwright::alloc {

template <Configuration C>
class SuperblockQueues {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;

  constexpr explicit SuperblockQueues(Pool& pool) : purger_(pool) {}

  [[nodiscard]] Superblock* first(std::size_t class_number) const { return queues_[class_number].first; }
  [[nodiscard]] Superblock* last(std::size_t class_number) const { return queues_[class_number].last; }
  void push_front(Superblock* superblock) { queues_[superblock->size_class].push_front(superblock); }
  void remove(Superblock* superblock) {
    purger_.forget(superblock);
    queues_[superblock->size_class].remove(superblock);
  }
  // Calls f(superblock) for each queued superblock; f may remove that one.
  template <class F>
  void each(F f) {
    for (auto& queue : queues_) {
      for (Superblock* superblock = queue.first; superblock != nullptr;) {
        Superblock* const next = superblock->next;
        f(superblock);
        superblock = next;
      }
    }
  }

  // The superblock of a class that refills take blocks from, or nullptr. It stays in its queue.
  // Only the heap's thread reads and changes this: threads that reclaim leave a current superblock
  // alone, so one superblock a class is all that can strand here. They read `current` of the
  // superblock: without the lock as a hint, with it as the truth.
  [[nodiscard]] Superblock* current(std::size_t class_number) const { return current_[class_number]; }
  void make_current(Superblock* superblock) {
    purger_.forget(superblock);
    purger_.remove_idle(free_bytes(superblock));
    store_shared(superblock->current, true);
    current_[superblock->size_class] = superblock;
  }
  // Does nothing if the superblock is not current.
  void clear_current(Superblock* superblock) {
    if (superblock->current) {
      store_shared(superblock->current, false);
      current_[superblock->size_class] = nullptr;
      purger_.add_idle(free_bytes(superblock));
    }
  }
  // Moves a superblock that is not current to the queues of another heap: first remove_for_another()
  // here, then accept() there, before it is queued.
  void remove_for_another(Superblock* superblock) {
    purger_.remove_idle(free_bytes(superblock));
    remove(superblock);
  }
  void accept(Superblock* superblock) { purger_.add_idle(free_bytes(superblock)); }
  // Every change of an owned superblock's number of free blocks goes through here.
  void set_free_count(Superblock* superblock, std::uint32_t count) {
    if (!superblock->current) {
      purger_.add_idle((std::size_t{count} - superblock->free_count) * superblock->size);
    }
    store_shared(superblock->free_count, count);
  }
  [[nodiscard]] PagePurger<C>& purger() { return purger_; }
  [[nodiscard]] const PagePurger<C>& purger() const { return purger_; }

  void take_over(SuperblockQueues& other) {
    queues_ = other.queues_;
    current_ = other.current_;
    purger_ = other.purger_;
    other.queues_ = {};
    other.current_ = {};
    other.purger_.clear();
  }

 private:
  static std::size_t free_bytes(const Superblock* superblock) {
    return std::size_t{superblock->free_count} * superblock->size;
  }

  std::array<List<Superblock>, Classes::kCount> queues_{};
  std::array<Superblock*, Classes::kCount> current_{};
  PagePurger<C> purger_;
};

}  // namespace heapwright::alloc
