// Holds freed blocks of a hardened build back for a time, in quarantine, before they can be reused.
//
// When a block comes, a random slot decides which other block leaves. So an attacker cannot know
// how many frees it takes until an address is reused. A quarantine is bounded in number and in
// bytes. Each heap has one for blocks with a size class; the process has one for spans (pool.h) and
// one for mappings (large.h).
//
//     slots_  │ b │   │ b │ b │ … │ b │      kSlots; b: a block, otherwise empty
//
//     put(x)            x goes to a random slot; the block that was there leaves
//     evict(max_bytes)  takes blocks from the slots in turn, one a call, while they hold more than
//                       max_bytes
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heapwright::alloc {

// `kBytesOf` returns an item's size in bytes; it is 0 for Item{}, which stands for no item.
template <class Item, std::size_t kSlots, std::size_t (*kBytesOf)(const Item&)>
class Quarantine {
 public:
  static_assert((kSlots & (kSlots - 1)) == 0);

  [[nodiscard]] bool is_seeded() const { return random_ != 0; }
  void seed(std::uint64_t random) { random_ = random | 1U; }
  // Puts an item in; returns the item that leaves for it, or none.
  Item put(Item item) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    newest_ = random_ >> 33U & (kSlots - 1);
    const Item old = slots_[newest_];
    slots_[newest_] = item;
    bytes_ += kBytesOf(item) - kBytesOf(old);
    return old;
  }
  // Removes an item if there are more than `max_bytes`; returns it, or none. The newest item leaves
  // last.
  Item evict(std::size_t max_bytes) {
    while (bytes_ > max_bytes) {
      Item& slot = slots_[next_];
      const bool newest = next_ == newest_;
      next_ = (next_ + 1) % kSlots;
      const std::size_t bytes = kBytesOf(slot);
      if (bytes != 0 && (!newest || bytes == bytes_)) {
        const Item old = slot;
        slot = {};
        bytes_ -= bytes;
        return old;
      }
    }
    return {};
  }
  // Puts an item in, and calls f(item) for each item that leaves so that at most `max_bytes`
  // remain.
  template <class F>
  void add(Item item, std::size_t max_bytes, F f) {
    if (const Item old = put(item); kBytesOf(old) != 0) {
      f(old);
    }
    evict_all(max_bytes, f);
  }
  // Calls f(item) for each item that leaves so that at most `max_bytes` remain.
  template <class F>
  void evict_all(std::size_t max_bytes, F f) {
    for (Item old = evict(max_bytes); kBytesOf(old) != 0; old = evict(max_bytes)) {
      f(old);
    }
  }
  // The field that counts the bytes, for a reader in another process.
  [[nodiscard]] constexpr const std::size_t* bytes_field() const { return &bytes_; }
  // Calls f(item) for each item.
  template <class F>
  void each(F f) const {
    for (const Item& item : slots_) {
      if (kBytesOf(item) != 0) {
        f(item);
      }
    }
  }

 private:
  std::array<Item, kSlots> slots_{};
  std::size_t bytes_ = 0;
  std::size_t next_ = 0;
  std::size_t newest_ = 0;
  std::uint64_t random_ = 0;
};

}  // namespace heapwright::alloc
