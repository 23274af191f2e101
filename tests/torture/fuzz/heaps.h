// Interprets a byte string as operations on the heaps of a process, and checks them against a
// shadow of the live blocks.
//
// There are up to four heaps over one pool, as four threads would have them. One thread drives all
// heaps, one operation at a time, so an input always gives the same history. Blocks move from heap
// to heap and come back as remote frees. Threads end and others get their heaps. The process starts
// its second thread midway (exgen), forks, reaches its limit, waits.
// (tests/native/allocator/remote_model_test.cpp and the thread tests check the orders of steps
// within an operation.)
//
// Checked at every step: a block is aligned, overlaps no other block and is as large as requested.
// It keeps its contents until it is freed, and is zero after calloc. No correct operation is
// reported as a fault. A refused request changes nothing. At the end, when all blocks are freed and
// all threads have ended, no memory is in use.
//
//   first byte   bit 0: hardened; bit 1: limit of 24 MiB; bit 2: keep_bytes is 0
//   then         operations: a byte (low 5 bits: the kind; high 3 bits: the heap, modulo their number) and its
// arguments
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "core/heap_slow_paths.h"
#include "input.h"

namespace heapwright::fuzz {

using namespace heapwright::alloc;

inline std::uint64_t now_ms = 0;
inline std::uint64_t faults = 0;

template <bool kIsSecure, bool kAlone>
struct Configured {
  static constexpr const char* kName = "fuzz";
  static constexpr std::size_t kClassesPerDoubling = 8;
  static constexpr std::size_t kCacheBytesPerClass = kIsSecure ? 8 * 1024 : 16 * 1024;
  static constexpr std::size_t kCacheBlocksPerClass = kIsSecure ? 64 : 128;
  static constexpr bool kSecure = kIsSecure;
  static constexpr bool kStartsSingleThreaded = kAlone;
};

template <Configuration C>
class Heaps {
 public:
  explicit Heaps(unsigned flags) : limited_((flags & 2) != 0) {
    now_ms = 1'000'000;
    faults = 0;
    pool_.on_fault = [](const void*, Fault) { ++faults; };
    Region::Settings& settings = pool_.region.settings;
    settings.clock = [] { return now_ms; };
    settings.huge_pages = platform::HugePageMode::kNever;
    settings.limit_bytes = limited_ ? std::size_t{24} << 20U : SIZE_MAX;
    settings.keep_bytes = (flags & 4) != 0 ? 0 : settings.keep_bytes;
    pool_.threaded = !C::kStartsSingleThreaded;
    heaps_[0] = make(0);
  }

  void run(Input in) {
    // Reserve the region before the limit can keep it from growing in place. Then its end is known,
    // and abandon() can unmap it.
    take(1, *heaps_[0]);
    give(blocks_.begin(), *heaps_[0]);
    while (!in.empty()) {
      step(in);
    }
    while (!blocks_.empty()) {
      give(blocks_.begin(), *heaps_[blocks_.size() % count_]);
    }
    // Twice: a heap that exits late may return the last blocks that an earlier heap waits for.
    for (int twice = 0; twice < 2; ++twice) {
      for (std::size_t i = 0; i < count_; ++i) {
        if (!C::kStartsSingleThreaded || pool_.threaded) {
          heaps_[i]->on_thread_exit();
        }
      }
    }
    heaps_[0]->trim();
    PROMISE(faults == 0);
    const Statistics s = heaps_[0]->statistics();
    PROMISE(s.large_count == 0 && s.large_bytes == 0);
    if (!forked_) {
      PROMISE(s.live_blocks == 0 && s.region.used_bytes == 0 && s.region.dirty_bytes == 0);
    }
    abandon();
  }

 private:
  static constexpr std::size_t kMaxLeftBytes = std::size_t{2} << 20U;  // as in thread_heaps.h

  struct Live {
    std::size_t usable;
    unsigned char fill;
  };
  using Blocks = std::map<unsigned char*, Live>;

  std::unique_ptr<Heap<C>> make(std::uint32_t number) {
    auto heap = std::make_unique<Heap<C>>(pool_, number);
    heap->keep_in_child();
    return heap;
  }
  // Unmaps the region. The heaps never do this, because a process keeps its region until it ends.
  void abandon() {
    constexpr std::size_t kTags = 512 * 1024;
    const Region& region = pool_.region;
    PROMISE(region.base() != 0 && region.base() < 0x6000'0000'0000);
    munmap(reinterpret_cast<void*>(region.base() - kTags), kTags + region.bytes() + 16 * kChunkBytes);
  }
  bool alone() const { return C::kStartsSingleThreaded && !pool_.threaded; }

  static std::size_t some_size(Input& in) {
    const unsigned kind = in.byte();
    if (kind < 0xA0) {
      return std::size_t{in.byte()} * (1 + kind % 8);
    }
    return kind < 0xE0 ? in.number<std::uint16_t>() : in.number<std::uint32_t>() & 0x3FFFFF;
  }
  static std::size_t ends_of(std::size_t bytes) { return std::min<std::size_t>(bytes, 96); }
  static void paint(unsigned char* block, const Live& live) {
    std::memset(block, live.fill, ends_of(live.usable));
    std::memset(block + live.usable - ends_of(live.usable), live.fill, ends_of(live.usable));
  }
  static bool holds(const unsigned char* block, std::size_t bytes, unsigned char what) {
    return std::all_of(block, block + bytes, [what](unsigned char c) { return c == what; });
  }
  void add(void* address, std::size_t bytes, std::size_t alignment, Heap<C>& heap) {
    if (address == nullptr) {
      PROMISE(limited_ || bytes > std::size_t{1} << 40);
      return;
    }
    auto* const block = static_cast<unsigned char*>(address);
    PROMISE(reinterpret_cast<std::uintptr_t>(block) % std::max<std::size_t>(alignment, 16) == 0);
    const Live live{heap.usable(block), ++fill_};
    PROMISE(live.usable >= bytes);
    const auto next = blocks_.lower_bound(block);
    PROMISE(next == blocks_.end() || block + live.usable <= next->first);
    PROMISE(next == blocks_.begin() || std::prev(next)->first + std::prev(next)->second.usable <= block);
    paint(block, live);
    blocks_.emplace(block, live);
    total_ += live.usable;
  }
  typename Blocks::iterator pick(Input& in) {
    const std::size_t at = in.number<std::uint16_t>() % blocks_.size();
    return std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(at));
  }
  void take_out(typename Blocks::iterator one) {
    const auto [block, live] = *one;
    PROMISE(holds(block, ends_of(live.usable), live.fill));
    PROMISE(holds(block + live.usable - ends_of(live.usable), ends_of(live.usable), live.fill));
    total_ -= live.usable;
    blocks_.erase(one);
  }
  // Frees a block as entry/library.h does.
  void give(typename Blocks::iterator one, Heap<C>& heap) {
    void* const block = one->first;
    take_out(one);
    Fault fault{};
    const auto freed = alone() ? heap.free_single_threaded(block) : heap.free(block);
    PROMISE(freed == FreeResult::kDone || heap.finish_free_fast(freed, block) ||
            heap.finish_free(freed, block, fault));
  }
  void resize(typename Blocks::iterator one, std::size_t bytes, Heap<C>& heap) {
    const auto [block, live] = *one;
    const std::size_t usable = heap.class_size(block);
    if (Heap<C>::fits_in_place(usable, bytes)) {
      return;
    }
    if (usable == 0) {
      void* const same = heap.resize(block, bytes);
      if (same != nullptr) {
        total_ -= live.usable;
        blocks_.erase(one);
        const std::size_t kept = std::min(ends_of(live.usable), heap.usable(same));
        PROMISE(holds(static_cast<unsigned char*>(same), kept, live.fill));
        add(same, bytes, 1, heap);
        return;
      }
      PROMISE(heap.usable(block) == live.usable);
    }
    take(bytes, heap);
    give(one, heap);
  }
  // The paths of malloc that entry/library.h tries before the slow one.
  static void* take_freed(std::size_t bytes, Heap<C>& heap) {
    void* const block = heap.allocate(bytes);
    return block != nullptr             ? block
           : bytes > kLargestClassBytes ? heap.allocate_freed_span(bytes)
                                        : heap.allocate_class_from_list(bytes);
  }
  void take(std::size_t bytes, Heap<C>& heap) {
    void* const block = take_freed(bytes, heap);
    add(block != nullptr ? block : heap.allocate_slow(bytes), bytes, 1, heap);
  }
  void take_zeroed(std::size_t bytes, Heap<C>& heap) {
    if (void* const freed = take_freed(bytes, heap); freed != nullptr) {
      return add(freed, bytes, 1, heap);
    }
    void* const block = heap.allocate_slow(bytes);
    if (block != nullptr && heap.is_zero(block)) {
      PROMISE(holds(static_cast<unsigned char*>(block), std::min<std::size_t>(bytes, 100'000), 0));
    }
    add(block, bytes, 1, heap);
  }
  void become_threaded() {
    if (alone()) {
      Heap<C>::become_threaded(pool_);
      auto first = make(0);
      first->take_over(*heaps_[0]);
      before_threads_ = std::exchange(heaps_[0], std::move(first));
    }
  }

  void step(Input& in) {
    constexpr std::size_t kMaxBytes = std::size_t{192} << 20U;
    const unsigned what = in.byte();
    Heap<C>& heap = *heaps_[what / 32 % count_];
    switch (what % 32) {
      default:  // 0 to 8
        if (total_ < kMaxBytes) {
          take(some_size(in), heap);
        }
        return;
      case 9:  // many blocks of one size
        for (std::size_t n = in.byte(), size = some_size(in) % 40'000; n > 0 && total_ < kMaxBytes; --n) {
          take(size, heap);
        }
        return;
      case 10:
        if (total_ < kMaxBytes) {
          take_zeroed(some_size(in), heap);
        }
        return;
      case 11:
        if (total_ < kMaxBytes) {
          const std::size_t alignment = std::size_t{1} << in.byte() % 23;
          const std::size_t size = some_size(in);
          add(heap.allocate_aligned(size, alignment), size, alignment, heap);
        }
        return;
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
      case 17:
        if (!blocks_.empty()) {
          give(pick(in), heap);
        }
        return;
      case 18:  // neighbouring blocks
        for (std::size_t n = in.byte(); n > 0 && !blocks_.empty(); --n) {
          auto one = blocks_.lower_bound(last_);
          one = one == blocks_.end() ? blocks_.begin() : one;
          last_ = one->first;
          give(one, heap);
        }
        return;
      case 19:
        if (!blocks_.empty()) {
          last_ = pick(in)->first;
        }
        return;
      case 20:
      case 21:
        if (!blocks_.empty() && total_ < kMaxBytes) {
          const auto one = pick(in);
          resize(one, std::max<std::size_t>(some_size(in), 1), heap);
        }
        return;
      case 22:
        heap.trim();
        return;
      case 23:
        now_ms += in.any() % 10'000;
        return;
      case 24:
        become_threaded();
        if (count_ < heaps_.size() && !forked_) {
          heaps_[count_] = make(static_cast<std::uint32_t>(count_));
          ++count_;
        }
        return;
      case 25:  // the thread ends, and perhaps leaves its lists; the next thread gets its heap
        if (!alone()) {
          heap.on_thread_exit(in.byte() % 2 != 0 && heap.bytes_to_leave() <= kMaxLeftBytes);
        }
        return;
      case 26:
        heap.drain_remote();
        return;
      case 27:
        heap.flush_cache();
        return;
      case 28:
        heap.set_cache_bytes(in.number<std::uint16_t>());
        return;
      case 29: {  // an address that is not a block
        Fault fault{};
        int foreign = 0;
        PROMISE(!heap.free_slow(&foreign, fault) && fault == Fault::kForeign);
        PROMISE(heap.usable(&foreign) == 0);
        return;
      }
      case 30:  // more than any address space holds
        PROMISE(heap.allocate_slow(SIZE_MAX / 2 - in.any() % 5000) == nullptr);
        PROMISE(heap.allocate_aligned(SIZE_MAX - in.any() % 5000, 64) == nullptr);
        return;
      case 31:  // fork: the child has only this thread; the heaps of the other threads stay as they are
        if (!alone() && count_ > 1) {
          pool_.forget_other_heaps();
          forked_ = true;
          std::swap(heaps_[0], heaps_[what / 32 % count_]);
          heaps_[0]->lock().reset();
          heaps_[0]->keep_in_child();
          for (; count_ > 1; --count_) {
            left_[lost_++ % left_.size()] = std::move(heaps_[count_ - 1]);
          }
        }
        return;
    }
  }

  Pool pool_;
  std::array<std::unique_ptr<Heap<C>>, 4> heaps_;
  std::unique_ptr<Heap<C>> before_threads_;        // full superblocks still name it, as in a process
  std::array<std::unique_ptr<Heap<C>>, 64> left_;  // heaps of threads that a fork left behind
  std::size_t count_ = 1;
  std::size_t lost_ = 0;
  Blocks blocks_;
  unsigned char* last_ = nullptr;
  std::size_t total_ = 0;
  unsigned char fill_ = 0;
  bool limited_;
  bool forked_ = false;
};

template <bool kAlone>
int fuzz_heaps(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  const unsigned flags = in.byte();
  if ((flags & 1) != 0) {
    auto heaps = std::make_unique<Heaps<Configured<true, kAlone>>>(flags);
    heaps->run(in);
  } else {
    auto heaps = std::make_unique<Heaps<Configured<false, kAlone>>>(flags);
    heaps->run(in);
  }
  return 0;
}

}  // namespace heapwright::fuzz
