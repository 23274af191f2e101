// The cursor that goes through the region's superblocks to find those that nobody uses
// (idle_memory.h), and its pace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "region.h"

namespace heapwright::alloc {

class StillCursor {
 public:
  // A superblock is still when its number of free blocks has hardly changed for so long.
  static constexpr std::uint32_t kStillMs = 2000;
  // A look for free pages counts as so much purged memory.
  static constexpr std::size_t kBytesOfLook = 32 * 1024;

  // How far a call may move the cursor, and how much it may purge.
  struct Step {
    std::size_t superblocks = 0;
    std::size_t bytes = 0;
    std::uint64_t now = 0;  // milliseconds
  };
  // Begins a call. It may do as much as the time since the last call allows. The caller holds the pool's
  // lock.
  Step begin(const Region& region) {
    const std::uint64_t now = region.settings.clock();
    moved_ms_ = moved_ms_ == 0 ? now : moved_ms_;
    if (now < moved_ms_ + kMinMs) {
      return {};
    }
    const std::uint64_t passed = std::min(now - moved_ms_, kRoundMs);
    const std::size_t superblocks = region.used_superblocks() * passed / kRoundMs;
    if (superblocks == 0 || !region.may_purge()) {
      return {};
    }
    moved_ms_ = now;
    return {std::min(superblocks, kMaxSuperblocks), std::min(passed * kBytesPerMs, kMaxBytes), now};
  }
  // A call has purged `bytes` too many: the next calls purge so much less. The caller holds the pool's lock.
  void owe(std::size_t bytes) { moved_ms_ += bytes / kBytesPerMs; }
  // Returns the next superblock in use; nullptr: the end, then the next call begins anew. The caller
  // holds the pool's lock.
  Superblock* next(const Region& region) {
    last_ = region.next_used(last_);
    return last_;
  }

 private:
  static constexpr std::uint64_t kRoundMs = 2000;  // one round through all superblocks takes at least so long
  static constexpr std::size_t kBytesPerMs = 16 * 1024;
  static constexpr std::uint64_t kMinMs = 16;  // between two calls that do something
  // Of one call: so that it takes a few milliseconds at most.
  static constexpr std::size_t kMaxSuperblocks = 1024;
  static constexpr std::size_t kMaxBytes = std::size_t{4} << 20U;

  // When it moved last. Later than now while it owes.
  std::uint64_t moved_ms_ = 0;
  // The chunk may have been unmapped, so only Region::next_used() uses this.
  Superblock* last_ = nullptr;
};

}  // namespace heapwright::alloc
