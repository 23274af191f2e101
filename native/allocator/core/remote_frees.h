// Frees blocks of superblocks that another heap owns: collects them in batches and sends each batch
// by one compare-and-swap.
//
// Sending each block alone would cost one locked instruction a block and would move the cache line
// of the superblock's queue between processors each time. A batch also copies the two fields of the
// description that free() must know. The owner keeps writing to that cache line; this thread reads
// it once for each batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "owned_superblocks.h"

namespace heapwright::alloc {

template <Configuration C>
class RemoteFrees {
 public:
  static constexpr std::size_t kBatches = 64;
  static constexpr std::uint32_t kMaxBytes = 4 * 1024;  // a batch with so many bytes is sent

  // `owned`: this heap's superblocks, which send batches.
  constexpr RemoteFrees(Pool& pool, OwnedSuperblocks<C>& owned) : pool_(&pool), owned_(&owned) {}

  // Frees a block of a superblock that another heap owns, or nobody.
  HEAPWRIGHT_INLINE void free(Superblock* superblock, Block* block) {
    RemoteFreeBatch& batch = batch_of(superblock);
    if (batch.superblock != superblock || !begins_block(batch.reciprocal, block)) [[unlikely]] {
      free_slow(superblock, block);
    } else if (add(batch, block)) {
      send(batch);
    }
  }
  // The same where the batch may belong to another superblock, and the block may be none, which is
  // reported.
  void free_slow(Superblock* superblock, Block* block);
  // Sends all batches.
  void send_all() {
    for (RemoteFreeBatch& batch : batches_) {
      send(batch);
    }
  }
  // Calls f(batch) for each batch that has blocks.
  template <class F>
  void each(F f) const {
    for (const RemoteFreeBatch& batch : batches_) {
      if (batch.superblock != nullptr) {
        f(batch);
      }
    }
  }
  // Tells a reader in another process where the batches are.
  constexpr void describe(HeapLayout& layout) const {
    layout.first_batches = &batches_;
    layout.batches = kBatches;
    layout.batch_bytes = sizeof(RemoteFreeBatch);
    layout.batch_superblock = offsetof(RemoteFreeBatch, superblock);
    layout.batch_first = offsetof(RemoteFreeBatch, first);
    layout.batch_count = offsetof(RemoteFreeBatch, count);
  }
  void take_over(RemoteFrees& other) {
    batches_ = other.batches_;
    other.batches_ = {};
  }

 private:
  // The batch that a superblock's blocks go to. Superblocks share the 64 batches, so it may hold
  // another's blocks now.
  HEAPWRIGHT_INLINE RemoteFreeBatch& batch_of(const Superblock* superblock) {
    return batches_[reinterpret_cast<std::uintptr_t>(superblock) / sizeof(Superblock) % kBatches];
  }
  // Adds a block. Returns true if the batch is full.
  HEAPWRIGHT_INLINE bool add(RemoteFreeBatch& batch, Block* block) const {
    set_next<C>(*pool_, block, batch.first);
    batch.first = block;
    ++batch.count;
    return (batch.bytes += batch.size) >= kMaxBytes;
  }
  void send(RemoteFreeBatch& batch) {
    if (batch.superblock != nullptr) {
      owned_->send(std::exchange(batch, RemoteFreeBatch{}));
    }
  }

  std::array<RemoteFreeBatch, kBatches> batches_{};
  Pool* pool_;
  OwnedSuperblocks<C>* owned_;
};

template <Configuration C>
void RemoteFrees<C>::free_slow(Superblock* superblock, Block* block) {
  if (!begins_block(superblock->reciprocal, block)) [[unlikely]] {
    pool_->report(block, Fault::kInterior);
    return;
  }
  RemoteFreeBatch& batch = batch_of(superblock);
  if (batch.superblock != superblock) {
    send(batch);
    batch = {superblock, nullptr, block, 0, 0, superblock->size, superblock->reciprocal};
  }
  if (add(batch, block)) {
    send(batch);
  }
}

}  // namespace heapwright::alloc
