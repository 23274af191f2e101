// A heap: size classes over superblocks, with a short list in front of each class.
//
//     malloc ──► front list of the class ──(empty)──► refill: half a list from the first superblock in the
//     queue free   ──► front list of the class ──(full)───► spill: all but the newest half, each to its
//     superblock
//
// The front list is what makes both fast and the cache happy: what was freed last is handed out next,
// whichever superblock it is of, and neither touches a superblock's description. It is short (kFrontBytes,
// kFrontBlocks), so superblocks become empty, and go back to the region, all but as early as without it.
//
//     Hot (one cache line for four classes)
//     ┌──────┬──────┬─┐┌──────┬──────┬─┐     ┌─────────────────────┐┌──────┬───────┐
//     │ head │ room │ ││ head │ room │ │ ... │ offset of a size's  ││ base │ limit │
//     └──────┴──────┴─┘└──────┴──────┴─┘     │ front (65 × 16 bit) ││      │       │
//       front 0          front 1             └─────────────────────┘└──────┴───────┘
//                                                                     the region
//
// `room` counts frees down to the next look at a list, not its length: malloc need not write it. Front 0
// belongs to no class; its room is 0, so that freeing a span or nonsense, whose tag is 0, ends in the slow
// path by the test that a full list needs anyway. Likewise `limit`: NULL, foreign pointers and large blocks
// fail the compare 'is it in the region', and a process with threads sets it to 0, so that every free fails
// it.
//
// Threads: none. Who shares a heap hides it (hide) and locks around the slow paths.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "config.h"
#include "hardening.h"
#include "large.h"
#include "list.h"
#include "region.h"
#include "size_classes.h"
#include "statistics.h"
#include "superblock.h"

#define HEAPWRIGHT_INLINE __attribute__((always_inline)) inline
#define HEAPWRIGHT_COLD __attribute__((noinline, cold))

namespace heapwright::alloc {

// What was wrong with a pointer that was given to free or realloc.
enum class Fault : std::uint8_t { kForeign, kInside, kTwice, kOverrun, kOverwritten };

template <Configuration C>
class Heap {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;
  static constexpr std::size_t kSmall = 1024;  // sizes whose class comes from a table
  static constexpr std::size_t kExtra =
      C::kSecure ? Hardening::kCanaryBytes : 0;  // of each block, not the program's

  struct Front {
    Block* head;
    std::int32_t room;
    std::uint32_t unused;
  };

  struct Hot {
    std::array<Front, Classes::kCount> fronts{};  // first: a tag is an offset from here
    std::array<std::uint16_t, kSmall / Classes::kGranule + 1> offsets{};
    std::uintptr_t base = 0;
    std::size_t limit = 0;
  };

 private:
  Hot hot_;  // the first member, so that it begins where the heap and the library do

 public:
  constexpr Heap() {
    for (std::size_t i = 0; i < hot_.offsets.size(); ++i) {
      hot_.offsets[i] = static_cast<std::uint16_t>(Classes::of(i * Classes::kGranule) * sizeof(Front));
    }
    for (std::size_t i = 1; i < Classes::kCount; ++i) {
      hot_.fronts[i].room = most_in_front(i);
    }
    region.settings.guards = C::kSecure;
    large_.guards = C::kSecure;
  }

  // The fast path; nullptr: ask allocate_slow.
  HEAPWRIGHT_INLINE void* allocate(std::size_t bytes) {
    if (bytes <= kSmall - kExtra) [[likely]] {
      const std::size_t granules = (bytes + kExtra + Classes::kGranule - 1) / Classes::kGranule;
      std::size_t offset = hot_.offsets[granules];
      Block* const block = front_at(hot_.fronts.data(), offset).head;
      if (block != nullptr) [[likely]] {
        platform::forget(offset);  // or the sum is kept in a register: an instruction more
        front_at(hot_.fronts.data(), offset).head = next_of(block);
        return hand_out(block);
      }
    }
    return nullptr;
  }

  enum class Freed : std::uint8_t { kDone, kFull, kOdd };
  // The fast path: kFull wants spill(), kOdd wants free_slow().
  HEAPWRIGHT_INLINE Freed free(void* address) {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - hot_.base;
    if (offset >= hot_.limit) [[unlikely]] {
      return Freed::kOdd;
    }
    const auto number = ~static_cast<std::ptrdiff_t>(offset >> kSuperblockShift);
    const std::uint32_t tag = reinterpret_cast<const std::uint32_t*>(hot_.base)[number];
    if constexpr (C::kSecure) {
      if (tag == 0 || !take_back(address)) {
        return tag == 0 ? Freed::kOdd : Freed::kDone;
      }
    }
    return push(front_at(hot_.fronts.data(), tag), address) ? Freed::kDone : Freed::kFull;
  }
  // The size of a block with a size class, or 0: ask usable().
  [[nodiscard]] HEAPWRIGHT_INLINE std::size_t class_size(const void* address) const {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - hot_.base;
    if (offset >= hot_.limit) [[unlikely]] {
      return 0;
    }
    const auto number = ~static_cast<std::ptrdiff_t>(offset >> kSuperblockShift);
    return kUsable[reinterpret_cast<const std::uint32_t*>(hot_.base)[number] / sizeof(Front)];
  }
  // Whether a block with so many usable bytes may stay for `bytes`: not too small, and not half empty.
  static HEAPWRIGHT_INLINE bool stays(std::size_t usable, std::size_t bytes) {
    return bytes <= usable && (bytes >= usable / 2 || usable <= Classes::kGranule);
  }

  // Any size; nullptr: out of memory.
  void* allocate_slow(std::size_t bytes);
  // At a multiple of `alignment`, a power of two.
  void* allocate_aligned(std::size_t bytes, std::size_t alignment);
  // Whether the block's memory reads as zero already; for calloc, of the block allocate_slow just gave.
  [[nodiscard]] bool is_zero(const void* block) const { return fresh_ == block; }
  // After free() said kFull: `address` has been pushed to its front.
  void spill(void* address);
  // Any address. False: not a block; `fault` says what it is.
  bool free_slow(void* address, Fault& fault);
  // Usable bytes of a block, or 0.
  [[nodiscard]] std::size_t usable(const void* address) const;
  // More or less bytes where the block stands (or, for a large one, elsewhere); nullptr: must be copied.
  void* resize(void* address, std::size_t bytes);

  // What a front list may hold from now on; the lists are emptied.
  void set_front(std::size_t bytes);
  // From now on the fast paths find nothing: another thread may run them.
  void hide();
  // Everything that is nobody's goes back to the kernel; whether anything did.
  bool trim();
  [[nodiscard]] Statistics statistics() const;

  Region region;
  // What to do about a wrong pointer.
  void (*on_fault)(const void* address, Fault fault) = nullptr;

 private:
  struct Nothing {};
  static constexpr auto kUsable = [] {
    std::array<std::uint32_t, Classes::kCount> sizes{};
    for (std::size_t i = 1; i < Classes::kCount; ++i) {
      sizes[i] = static_cast<std::uint32_t>(Classes::bytes(i) - kExtra);
    }
    return sizes;
  }();

  // Links between free blocks; with hardening they are encoded, and a broken one ends the list.
  [[nodiscard]] HEAPWRIGHT_INLINE Block* next_of(const Block* block) const {
    if constexpr (C::kSecure) {
      Block* const next = hardening_.decode(block);
      if (next != nullptr && (!region.contains(next) || reinterpret_cast<std::uintptr_t>(next) % 16 != 0))
          [[unlikely]] {
        report(block, Fault::kOverwritten);
        return nullptr;
      }
      return next;
    } else {
      return block->next;
    }
  }
  HEAPWRIGHT_INLINE void set_next(Block* block, Block* next) const {
    if constexpr (C::kSecure) {
      next = hardening_.encode(block, next);
    }
    block->next = next;
  }
  // A block goes to the program, or comes from it; false: it must not, which has been reported.
  HEAPWRIGHT_INLINE void* hand_out(Block* block) const {
    if constexpr (C::kSecure) {
      std::uint64_t mask = 0;
      Hardening::word(block, mask) |= mask;
      hardening_.write_canary(block, superblock_of(block)->size);
    }
    return block;
  }
  bool take_back(void* address) const;

  // What a front may hold before it is looked at.
  [[nodiscard]] constexpr std::int32_t most_in_front(std::size_t number) const {
    const std::size_t fit = front_bytes_ / Classes::bytes(number);
    return static_cast<std::int32_t>(std::clamp(fit, std::size_t{2}, C::kFrontBlocks));
  }
  static HEAPWRIGHT_INLINE Front& front_at(Front* fronts, std::size_t offset) {
    return *reinterpret_cast<Front*>(reinterpret_cast<char*>(fronts) + offset);
  }
  // False: the front is full.
  HEAPWRIGHT_INLINE bool push(Front& front, void* address) const {
    auto* const block = static_cast<Block*>(address);
    set_next(block, front.head);
    front.head = block;
    return --front.room >= 0;
  }

  void* allocate_class(std::size_t number);
  void* allocate_span(std::size_t bytes);
  void* allocate_large(std::size_t bytes, std::size_t alignment);
  Block* refill(std::size_t number);
  Superblock* start_superblock(std::size_t number);
  Block* carve(Superblock* superblock, std::size_t most, std::size_t& count);
  Block* carve_shuffled(char* first, std::size_t size, std::size_t count);
  Block* cut(Superblock* superblock, std::size_t most, std::size_t& count);
  void trim_front(std::size_t number, std::int32_t keep);
  const Block* repeated(const Block* first) const;
  // Whether a superblock's block begins here. With r = ⌈2³²/size⌉, the low half of offset·r is below 2¹⁶ for
  // a multiple of the size and at least r > 2¹⁶ for everything else.
  static bool begins_block(const Block* block, std::uint32_t reciprocal) {
    const auto offset =
        static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(block) % kSuperblockBytes);
    return offset * reciprocal < kSuperblockBytes;
  }
  void give_back(Block* block);
  void release(Superblock* superblock);
  void look_at_region();
  void report(const void* address, Fault fault) const {
    if (on_fault != nullptr) {
      on_fault(address, fault);
    }
  }

  std::array<List<Superblock>, Classes::kCount> queues_{};  // superblocks with a block to hand out
  std::array<Front, Classes::kCount> hidden_{};             // the fronts once the fast paths are closed
  bool is_hidden_ = false;
  std::size_t front_bytes_ = C::kFrontBytes;
  Large large_;
  const void* fresh_ = nullptr;
  [[no_unique_address]] std::conditional_t<C::kSecure, Hardening, Nothing> hardening_;

  Front* fronts() { return is_hidden_ ? hidden_.data() : hot_.fronts.data(); }
  [[nodiscard]] const Front* fronts() const { return is_hidden_ ? hidden_.data() : hot_.fronts.data(); }
};

}  // namespace heapwright::alloc

#include "heap_slow.h"
