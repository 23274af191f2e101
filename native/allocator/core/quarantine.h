// Where a hardened heap's freed blocks wait before they can be handed out again. Which of them leaves is chosen at random
// when another comes, so that nobody knows how many frees it takes until an address is used again. Bounded in blocks and
// in bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "superblock.h"

namespace heapwright::alloc {

class Quarantine {
 public:
  static constexpr std::size_t kBlocks = 256;

  [[nodiscard]] bool is_seeded() const { return random_ != 0; }
  void seed(std::uint64_t random) { random_ = random | 1U; }
  // A block that leaves for the one that comes, or nullptr.
  Block* put(Block* block) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    Block*& place = blocks_[random_ >> 33U & (kBlocks - 1)];
    Block* const old = place;
    place = block;
    bytes_ += size_of(block) - (old == nullptr ? 0 : size_of(old));
    return old;
  }
  // One that must leave, because there are more than so many bytes; or nullptr.
  Block* leave(std::size_t most) {
    while (bytes_ > most) {
      Block* const old = blocks_[next_];
      blocks_[next_] = nullptr;
      next_ = (next_ + 1) % kBlocks;
      if (old != nullptr) {
        bytes_ -= size_of(old);
        return old;
      }
    }
    return nullptr;
  }
  template <class F>
  void each(F f) const {
    for (const Block* const block : blocks_) {
      if (block != nullptr) {
        f(superblock_of(block)->size);
      }
    }
  }

 private:
  static std::size_t size_of(const Block* block) { return superblock_of(block)->size; }

  std::array<Block*, kBlocks> blocks_{};
  std::size_t bytes_ = 0;
  std::size_t next_ = 0;
  std::uint64_t random_ = 0;
};

}  // namespace heapwright::alloc
