// Models one superblock, the word of its remote queue, and the steps of heaps that use it, for
// remote_model_test.cpp. It mirrors core/owned_superblocks.h.
#pragma once

#include <sys/mman.h>

#include <array>
#include <bit>
#include <string>
#include <utility>

#include "core/remote_queue.h"
#include "schedule.h"

namespace heapwright::alloc::model {

using test::Scheduler;
using test::Shared;
using test::Word;
using RemoteQueue = BasicRemoteQueue<Word>;

enum class Broken : std::uint8_t {
  kNothing,
  kQueuedFalseAfterLeaving,  // the order in leave()
  kQueuedTrueBeforeOwner,    // the order in become_owner()
  kOwnsByQueued,             // owns() without the owner
  kReturnsUnasked,           // own_again() without the word
  kNoLock,                   // reclaim() without the owner's lock
  kNoSecondLook,             // send() without reading the owner's free_count
  kLookBeforePush,           // the order in send()
  kNoTakeArrived,            // requeue_or_release() without a look at the word
  kNoLookWhenNew,            // requeue_or_release() by a new owner without reading the queue
  kLooksOnce,                // requeue_or_release() without another look after one that found something
  kNoTakeAfterLeaving,       // leave() though there are blocks to take
  kTakesWithoutLock,         // take_from() without the lock of the heap that gives
  kStaysQueued,              // take_from() without queued = false
};

constexpr int kNobody = -1;
constexpr std::size_t kHeaps = 3;
constexpr std::uint32_t kBlocks = 8;
constexpr std::uint32_t kClaimThreshold = 2;

class World {
 public:
  World() {
    void* const memory = mmap(nullptr, 2 * kChunkBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory_ = memory;
    const auto chunk = round_up(reinterpret_cast<std::uintptr_t>(memory), kChunkBytes);
    superblock_ = reinterpret_cast<Superblock*>(chunk) + 1;
  }
  ~World() { munmap(memory_, 2 * kChunkBytes); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // All blocks have been handed out but for `left`, and heap 0 has it.
  void begin(std::uint32_t capacity, std::uint32_t left) {
    capacity_ = capacity;
    raw() = 0;
    queued.value = true;
    owner.value = 0;
    free_ = nullptr;
    for (std::uint32_t i = 0; i < left; ++i) {
      link(block(i), free_);
      free_ = block(i);
    }
    free_count.value = left;
    in_queue_ = 0;
    released_ = 0;
    inside_ = kNobody;
    locked_.fill(false);
  }

  // The operations of a thread, whose heap is `me`.
  Block* allocate_the_rest(int me) {
    Block* rest = nullptr;
    lock(me);
    if (owns(me)) {
      enter();
      rest = std::exchange(free_, nullptr);
      free_count.set(0);
      disown(me);
    }
    unlock(me);
    return rest;
  }
  // Returns the blocks of a list: OwnedSuperblocks::return_blocks().
  void return_blocks(int me, Block* chain) {
    if (chain == nullptr) {
      return;
    }
    std::uint32_t count = 1;
    Block* last = chain;
    for (; last->next != nullptr; last = last->next) {
      ++count;
    }
    lock(me);
    if (owns(me) || own_again()) {
      enter();
      link(last, free_);
      free_ = chain;
      free_count.set(free_count.value + count);
      requeue_or_release(me);
      go_out();
      unlock(me);
      return;
    }
    unlock(me);
    send(me, chain, last, count);
  }
  void return_blocks(int me, std::uint32_t first, std::uint32_t count) {
    return_blocks(me, chain_of(first, count));
  }
  // Takes the superblock from heap `from` if its queue holds it and enough blocks are free:
  // OwnedSuperblocks::take_from_another_heap().
  void take_from(int from, int me) {
    if (broken != Broken::kTakesWithoutLock) {
      lock(from);
    }
    const bool gives = in_queue_ == from && free_count.value >= kClaimThreshold;
    if (gives) {
      enter();
      enqueue(kNobody, from);
      if (broken != Broken::kStaysQueued) {
        queued.set(false);
      }
    }
    if (broken != Broken::kTakesWithoutLock) {
      unlock(from);
    }
    if (gives) {
      lock(me);
      requeue_or_release(me);
      go_out();
      unlock(me);
    }
  }
  // Frees `count` blocks from number `first` on as one batch: OwnedSuperblocks::send().
  void send(int me, std::uint32_t first, std::uint32_t count) {
    send(me, chain_of(first, count), block(first + count - 1), count);
  }
  void send(int me, Block* chain, Block* last, std::uint32_t count) {
    RemoteQueue::Taken taken;
    std::uint32_t theirs = 0;
    if (broken == Broken::kLookBeforePush) {
      theirs = free_count.get();
    }
    const bool mine = word().push(superblock_, chain, last, count, kClaimThreshold, link, taken);
    const std::uint32_t arrived = count + taken.count;
    if (mine) {
      lock(me);
      enter();
      free_ = chain;
      free_count.set(arrived);
      requeue_or_release(me);
      go_out();
      unlock(me);
      return;
    }
    if (arrived < kClaimThreshold && broken == Broken::kNoSecondLook) {
      return;
    }
    if (arrived < kClaimThreshold && broken != Broken::kLookBeforePush) {
      theirs = free_count.get();
    }
    if (arrived >= kClaimThreshold || arrived + theirs >= capacity_) {
      reclaim();
    }
  }

  [[nodiscard]] std::uint64_t digest() const {
    std::uint64_t sum = Scheduler::mix(raw(), queued.value ? 1 : 0);
    sum = Scheduler::mix(sum, static_cast<std::uint64_t>(owner.value + 1));
    sum = Scheduler::mix(sum, free_count.value);
    sum = Scheduler::mix(sum, number(free_));
    for (std::uint32_t i = 0; i < capacity_; ++i) {
      sum = Scheduler::mix(sum, number(block(i)->next));
    }
    for (const bool one : locked_) {
      sum = Scheduler::mix(sum, one ? 1 : 0);
    }
    return Scheduler::mix(sum, static_cast<std::uint64_t>((in_queue_ + 1) * 8 + released_) * 8 +
                                   static_cast<std::uint64_t>(inside_ + 1));
  }
  // When all is done and `live` blocks are with the program.
  [[nodiscard]] std::string verdict(std::uint32_t live) const {
    std::uint32_t places = 0;
    const bool full = (raw() & RemoteQueue::kUnowned) != 0;
    if (live == 0) {
      return released_ == 1 ? "" : "all blocks are free, and the superblock was not released once";
    }
    if (released_ != 0) {
      return "released though blocks are live";
    }
    if (full == (in_queue_ != kNobody) || queued.value != (in_queue_ != kNobody)) {
      return "neither owned nor free to be taken, or both";
    }
    const std::uint32_t owned = full ? 0 : length(free_, places);
    const std::uint32_t arrived = (raw() & ~RemoteQueue::kUnowned) == 0 ? 0 : length(first_come(), places);
    if (owned + arrived + live != capacity_ || std::popcount(places) != static_cast<int>(owned + arrived)) {
      return "a block is lost, or in two places";
    }
    return owned == (full ? 0 : free_count.value) ? "" : "the count is not that of the list";
  }

  Broken broken = Broken::kNothing;
  Shared<bool> queued;
  Shared<int> owner;
  Shared<std::uint32_t> free_count;

 private:
  // The code between enter() and go_out() belongs to the owner alone.
  void enter() {
    if (inside_ != kNobody) {
      Scheduler::fail("two heaps change a superblock at once");
    }
    inside_ = static_cast<int>(Scheduler::running());
  }
  void go_out() { inside_ = kNobody; }

  void lock(int heap) {
    Scheduler::wait_until([this, heap] { return !locked_[static_cast<std::size_t>(heap)]; });
    locked_[static_cast<std::size_t>(heap)] = true;
  }
  void unlock(int heap) {
    Scheduler::step();
    locked_[static_cast<std::size_t>(heap)] = false;
  }
  bool owns(int me) {
    if (!queued.get()) {
      return false;
    }
    return broken == Broken::kOwnsByQueued || owner.get() == me;
  }
  bool own_again() {
    if (broken == Broken::kReturnsUnasked) {
      return true;
    }
    RemoteQueue::Taken taken;
    if (!word().own_again(superblock_, taken)) {
      return false;
    }
    enter();
    free_ = taken.first;
    free_count.set(taken.count);
    go_out();
    return true;
  }
  void become_owner(int me) {
    if (broken == Broken::kQueuedTrueBeforeOwner) {
      queued.set(true);
      owner.set(me);
      return;
    }
    owner.set(me);
    queued.set(true);
  }
  void disown(int me) {
    enqueue(kNobody, me);
    if (broken != Broken::kQueuedFalseAfterLeaving) {
      queued.set(false);
    }
    go_out();  // from the next step on, if that succeeds
    if (!word().disown()) {
      enter();
      if (broken != Broken::kNoTakeAfterLeaving) {
        add_taken(word().take(superblock_));
        enqueue(me, kNobody);
        become_owner(me);
      }
      go_out();
    } else if (broken == Broken::kQueuedFalseAfterLeaving) {
      queued.set(false);
    }
  }
  void add_taken(const RemoteQueue::Taken& taken) {
    if (taken.first == nullptr) {
      return;
    }
    Block* last = taken.first;
    for (std::uint32_t i = 0; last->next != nullptr && i < capacity_; ++i) {
      last = last->next;
    }
    link(last, free_);
    free_ = taken.first;
    free_count.set(free_count.value + taken.count);
  }
  void requeue_or_release(int me) {
    bool mine = !queued.value;
    if (mine && free_count.value < capacity_) {
      enqueue(me, kNobody);
      become_owner(me);
    }
    while (free_count.value < capacity_ && take_arrived(mine)) {
      if (broken == Broken::kLooksOnce) {
        break;
      }
      mine = false;
    }
    if (free_count.value >= capacity_) {
      if (queued.value) {
        enqueue(kNobody, me);
        queued.set(false);
      }
      Scheduler::step();
      if (++released_ > 1) {
        Scheduler::fail("released twice");
      }
    }
  }
  bool take_arrived(bool mine) {
    const std::uint32_t free = free_count.value;
    if (broken == Broken::kNoTakeArrived || (broken == Broken::kNoLookWhenNew && mine) ||
        (!mine && free + kClaimThreshold < capacity_)) {
      return false;
    }
    free_count.set(free);
    const std::uint32_t arrived = word().count();
    if (arrived == 0 || (arrived < kClaimThreshold && free + arrived < capacity_)) {
      return false;
    }
    add_taken(word().take(superblock_));
    return true;
  }
  void reclaim() {
    const int heap = owner.get();
    if (broken != Broken::kNoLock) {
      lock(heap);
    }
    if (owns(heap)) {
      enter();
      add_taken(word().take(superblock_));
      requeue_or_release(heap);
      go_out();
    }
    if (broken != Broken::kNoLock) {
      unlock(heap);
    }
  }
  void enqueue(int heap, int from) {
    if (in_queue_ != from) {
      Scheduler::fail("the superblock is in another queue than it should be");
    }
    in_queue_ = heap;
  }

  static void link(Block* last, Block* next) { last->next = next; }
  Block* chain_of(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      link(block(first + i), i + 1 < count ? block(first + i + 1) : nullptr);
    }
    return block(first);
  }
  [[nodiscard]] Block* block(std::uint32_t i) const {
    return reinterpret_cast<Block*>(memory_of(superblock_) + std::size_t{i} * 16);
  }
  [[nodiscard]] std::uint64_t number(const Block* at) const {
    return at == nullptr
               ? 0
               : static_cast<std::uint64_t>(reinterpret_cast<const char*>(at) - memory_of(superblock_)) / 16 +
                     1;
  }
  [[nodiscard]] Block* first_come() const { return block((raw() & ((1U << 17U) - 1)) - 1); }
  // How long a list is; `places` gets a bit for each block.
  [[nodiscard]] std::uint32_t length(const Block* at, std::uint32_t& places) const {
    std::uint32_t count = 0;
    for (; at != nullptr && count <= capacity_; at = at->next, ++count) {
      places |= 1U << (number(at) - 1);
    }
    return count;
  }
  [[nodiscard]] RemoteQueue& word() const { return RemoteQueue::of(superblock_); }
  // The value of the word, read without a step.
  [[nodiscard]] std::uint32_t& raw() const { return reinterpret_cast<Word&>(word()).value_; }

  void* memory_;
  Superblock* superblock_;
  std::uint32_t capacity_ = kBlocks;
  Block* free_ = nullptr;
  int in_queue_ = 0;
  int released_ = 0;
  int inside_ = kNobody;
  std::array<bool, kHeaps> locked_{};
};

}  // namespace heapwright::alloc::model
