// Keeps a heap's freed spans, in a stack for each length, for the next spans of the same length.
//
// Without them, each thread of a program that allocates buffers would wait for the pool's lock all the
// time. The spans are linked by their descriptions (Superblock::next), so their memory is not touched. A
// span here is of kind kHeldBack: a second free() of it is noticed, and statistics count it as free; the
// region has lent it (region.h). As long as the library knows of one thread only, as exgen does, the
// region keeps all freed spans.
//
// A thread that sleeps would strand its spans. So other threads can take all of them at any time, under
// the pool's lock. A locked instruction for each push and pop, to be safe from them, would take half of
// the time. So the stacks are biased towards the heap's thread, like a biased lock:
//
//   kBiased   The heap's thread changes the stacks by plain loads and stores. It sets `changing_`, then
//             reads `bias_`, and clears `changing_` in the end.
//   kEnding   Another thread wants the spans. It has set this, and has the kernel execute a memory
//             barrier in all threads. After that either the heap's thread sees kEnding, or the other
//             thread sees `changing_`, and leaves these spans alone this time.
//   kShared   Each thread takes a stack by an exchange with nullptr, and owns all of it then. Only the
//             heap's thread ever makes the word another value than nullptr. So where it reads nullptr,
//             or has taken the word, a plain store suffices. No thread reads a span before it has taken
//             the word that leads to it, so a word that changes and changes back does no harm (no ABA
//             problem).
//
// The heap's thread may go from kEnding to kShared, too, when it sees it. It goes back to kBiased under
// the pool's lock, but not soon after a bias was ended: so barriers take little time. Where the kernel
// has no such barrier, the stacks stay kShared.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "inlining.h"
#include "pool.h"

namespace heapwright::alloc {

class SpanStacks : public DepotRecord {
 public:
  static constexpr std::size_t kLongestSpan = FreedSpans::kLongest;  // that is kept, in superblocks
  // In superblocks, see Region::lent. While the fast paths find spans, a rise is reported at once, a fall
  // only later: so a burst that recurs reports nothing.
  static constexpr std::int64_t kReported = 16;
  static constexpr std::int64_t kReportedFall = 48;

  constexpr SpanStacks(Pool& pool, const std::size_t* freed_by_others)
      : DepotRecord(freed_by_others), pool_(&pool) {}

  // The fast paths. They do nothing, and return false or nullptr, if the stacks are not biased or if the
  // number of superblocks would leave the bounds. Then call push_span() or pop_span().
  HEAPWRIGHT_INLINE bool push_quickly(Superblock* span) {
    const std::size_t length = span->length;
    const std::size_t pushed = pushed_spans() + length;
    if (length > kLongestSpan || static_cast<std::int64_t>(pushed) > max_pushed_) {
      return false;
    }
    if (!begin_change()) [[unlikely]] {
      end_change();
      return false;
    }
    set_kind(span, Kind::kHeldBack);
    span->next = spans_[length];
    store(length, span);
    set_pushed_spans(pushed);
    end_change();
    return true;
  }
  // `length`: at most kLongestSpan.
  HEAPWRIGHT_INLINE Superblock* pop_quickly(std::size_t length) {
    const auto pushed = static_cast<std::int64_t>(pushed_spans() - length);
    if (pushed < min_pushed_) {
      return nullptr;
    }
    if (!begin_change()) [[unlikely]] {
      end_change();
      return nullptr;
    }
    Superblock* const span = spans_[length];
    if (span != nullptr) {
      store(length, span->next);
      set_pushed_spans(static_cast<std::size_t>(pushed));
    }
    end_change();
    return span;
  }

  // Adds a span of at most kLongestSpan superblocks, of kind kHeldBack.
  void push_span(Superblock* span) {
    const std::size_t length = span->length;
    const bool biased = begin_change_if_biased();
    set_pushed_spans(pushed_spans() + length);  // before the span can be taken
    span->next = biased ? spans_[length] : take(length);
    store(length, span);
    if (biased) {
      end_change();
    }
    report_spans();
  }
  // Takes the latest span of `length` superblocks; nullptr: there is none.
  Superblock* pop_span(std::size_t length) {
    if (length > kLongestSpan) {
      return nullptr;
    }
    const bool biased = begin_change_if_biased();
    Superblock* const span = biased ? spans_[length] : take(length);
    if (span != nullptr) {
      store(length, span->next);
      set_pushed_spans(pushed_spans() - length);
    }
    if (biased) {
      end_change();
    }
    report_spans();
    return span;
  }
  // The heap's thread takes all spans. Returns them linked.
  Superblock* take_all_own_spans() {
    report_spans(1);
    close_bounds();
    return take_all_spans();
  }
  // The heap's thread, or another thread after Pool::may_take_spans(): takes all spans. Returns them
  // linked.
  Superblock* take_all_spans() {
    if (span_superblocks() == 0) {
      return nullptr;
    }
    Superblock* all = nullptr;
    std::size_t superblocks = 0;
    for (std::size_t length = 1; length <= kLongestSpan; ++length) {
      for (Superblock* span = take(length); span != nullptr;) {
        Superblock* const next = std::exchange(span->next, all);
        all = span;
        superblocks += length;
        span = next;
      }
    }
    if (all != nullptr) {
      add_taken_spans(superblocks);
      lend(-static_cast<std::int64_t>(superblocks));
    }
    return all;
  }
  // The heap's thread has allocated so many superblocks from the region. Below 0: it has freed some that
  // do not come here.
  void add_obtained(std::int64_t superblocks) { obtained_ += superblocks; }
  // Whether the heap's thread has allocated so many superblocks more than it has freed.
  [[nodiscard]] bool has_allocated(std::size_t superblocks) const {
    return static_cast<std::int64_t>(pushed_spans() + superblocks) <= obtained_;
  }
  // Lets the fast paths work while the spans have at least `least` and at most `most` superblocks, and
  // while there is nothing to report to the region.
  void set_bounds(std::size_t least, std::size_t most) {
    if (!is_biased()) {
      close_bounds();
      return;
    }
    const std::size_t taken = taken_spans();
    const auto reported = static_cast<std::int64_t>(reported_spans_);
    min_pushed_ = std::max(reported - kReportedFall + 1, static_cast<std::int64_t>(taken + least));
    max_pushed_ = std::min({reported + kReported - 1, static_cast<std::int64_t>(taken + most), obtained_});
  }
  // Until the next set_bounds() the fast paths do nothing.
  void close_bounds() {
    min_pushed_ = INT64_MAX;
    max_pushed_ = -1;
  }
  // In the child of a fork, after Pool::forget_other_heaps() has reset Region::lent: another thread
  // may have been taking spans that it will not count.
  void count_spans_again() {
    obtained_ -= static_cast<std::int64_t>(pushed_spans());
    reset_spans();
    for (std::size_t length = 1; length <= kLongestSpan; ++length) {
      for (const Superblock* span = spans_[length]; span != nullptr; span = span->next) {
        set_pushed_spans(pushed_spans() + length);
      }
    }
    obtained_ += static_cast<std::int64_t>(pushed_spans());
    reported_spans_ = 0;
    report_spans();
    close_bounds();
  }

 private:
  // Returns whether the stacks are biased; if not, there is nothing to end.
  bool begin_change_if_biased() {
    if (is_biased() && begin_change()) {
      return true;
    }
    end_change();
    accept_end_of_bias();
    return false;
  }
  // Takes a stack. No other thread reads or changes it then.
  Superblock* take(std::size_t length) {
    Superblock*& word = spans_[length];
    return __atomic_load_n(&word, __ATOMIC_RELAXED) == nullptr
               ? nullptr
               : __atomic_exchange_n(&word, nullptr, __ATOMIC_ACQUIRE);
  }
  HEAPWRIGHT_INLINE void store(std::size_t length, Superblock* stack) {
    __atomic_store_n(&spans_[length], stack, __ATOMIC_RELEASE);
  }
  // Tells the region how many superblocks the spans have, if they have changed by `least`.
  void report_spans(std::int64_t least = kReported) {
    const auto change = static_cast<std::int64_t>(pushed_spans() - reported_spans_);
    if (change >= least || change <= -least) {
      reported_spans_ = pushed_spans();
      lend(change);
    }
  }
  void lend(std::int64_t superblocks) const {
    __atomic_fetch_add(&pool_->region.lent.superblocks, superblocks, __ATOMIC_RELAXED);
  }

  std::int64_t min_pushed_ = INT64_MAX;  // bounds of pushed_spans() for the fast paths
  std::int64_t max_pushed_ = -1;
  std::array<Superblock*, kLongestSpan + 1> spans_{};  // by length
  std::size_t reported_spans_ = 0;                     // pushed_spans() at the last report
  // Superblocks that the heap's thread has allocated, less those that it has freed elsewhere. So a thread
  // that only frees keeps no spans.
  std::int64_t obtained_ = 0;
  Pool* pool_;
};

}  // namespace heapwright::alloc
