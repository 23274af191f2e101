// Frees blocks of superblocks that another heap owns: collects them in batches and sends each batch
// by one compare-and-swap.
//
// Sending each block alone would cost one locked instruction a block and would move the cache line
// of the superblock's queue between processors each time. Adding a block to its batch touches
// only the batch and the block, not the superblock's description, which its owner writes to.
//
// A batch holds blocks that the program has freed, so its superblock cannot be released: a block
// whose tag stands at the batch's `tag_index` is one of that superblock's.
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
  static constexpr std::uint32_t kMaxBytes = 8 * 1024;  // a batch with so many bytes is sent

  // `owned`: this heap's superblocks, which send batches.
  constexpr RemoteFrees(Pool& pool, OwnedSuperblocks<C>& owned) : pool_(&pool), owned_(&owned) {}

  // Adds a block to the batch of its superblock, whose tag stands at `tag_index`. If the result is
  // kBatchFull, call send_batch_of(); if it is kNoBatch, the superblock has none: call free(). It
  // does not notice addresses inside blocks or double frees.
  HEAPWRIGHT_INLINE FreeResult add(std::ptrdiff_t tag_index, Block* block) {
    RemoteFreeBatch& batch = batches_[static_cast<std::size_t>(tag_index) % kBatches];
    if (batch.tag_index != static_cast<std::int32_t>(tag_index)) [[unlikely]] {
      return FreeResult::kNoBatch;
    }
    set_next<C>(*pool_, block, batch.first);
    batch.first = block;
    return --batch.blocks_left != 0 ? FreeResult::kDone : FreeResult::kBatchFull;
  }
  // Like add(), but the batch may belong to another superblock. Sends a full batch. Reports `block`
  // if no block begins there.
  void free(Superblock* superblock, Block* block);
  // Sends the batch of a superblock, which has one.
  void send_batch_of(Superblock* superblock) { send(batch_at(tag_index_of(superblock))); }
  // Sends all batches.
  void send_all() {
    for (RemoteFreeBatch& batch : batches_) {
      if (batch.superblock != nullptr) {
        send(batch);
      }
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
    layout.batch_first = offsetof(RemoteFreeBatch, first);
  }
  void take_over(RemoteFrees& other) {
    batches_ = other.batches_;
    other.batches_ = {};
  }

 private:
  // A batch is checked when it is sent: the first kBatchesChecked ones, then one in
  // kBatchesPerCheck.
  static constexpr std::uint32_t kBatchesChecked = 64;
  static constexpr std::uint32_t kBatchesPerCheck = 16;

  // The batch that a superblock's blocks go to. Superblocks share the batches, so it may hold
  // another's blocks now.
  RemoteFreeBatch& batch_at(std::ptrdiff_t tag_index) {
    return batches_[static_cast<std::size_t>(tag_index) % kBatches];
  }
  [[nodiscard]] std::ptrdiff_t tag_index_of(const Superblock* superblock) const {
    return Region::tag_index(reinterpret_cast<std::uintptr_t>(memory_of(superblock)) - pool_->region.base());
  }
  void send(RemoteFreeBatch& batch);
  bool check(RemoteFreeBatch& batch) const;

  std::array<RemoteFreeBatch, kBatches> batches_{};
  Pool* pool_;
  OwnedSuperblocks<C>* owned_;
  std::uint32_t sent_ = 0;  // batches
};

template <Configuration C>
void RemoteFrees<C>::free(Superblock* superblock, Block* block) {
  if (!begins_block(superblock, block)) [[unlikely]] {
    pool_->report(block, Fault::kInterior);
    return;
  }
  const std::ptrdiff_t tag_index = tag_index_of(superblock);
  RemoteFreeBatch& batch = batch_at(tag_index);
  if (batch.superblock != superblock) {
    if (batch.superblock != nullptr) {
      send(batch);
    }
    const auto blocks = static_cast<std::uint16_t>((kMaxBytes - 1) / superblock->size + 1);
    batch = {nullptr, block, superblock, static_cast<std::int32_t>(tag_index), blocks, blocks};
  }
  if (add(tag_index, block) == FreeResult::kBatchFull) {
    send(batch);
  }
}

template <Configuration C>
void RemoteFrees<C>::send(RemoteFreeBatch& batch) {
  RemoteFreeBatch full = std::exchange(batch, RemoteFreeBatch{});
  ++sent_;
  if ((sent_ <= kBatchesChecked || sent_ % kBatchesPerCheck == 0) && !check(full)) [[unlikely]] {
    return;
  }
  owned_->send(full);
}

// Takes addresses inside blocks out of a batch, and drops a batch with a cycle (a double free). It
// reports both. Returns whether blocks are left.
template <Configuration C>
bool RemoteFrees<C>::check(RemoteFreeBatch& batch) const {
  const BlockChain checked = check_list<C>(*pool_, {batch.first, batch.count()});
  batch.first = batch.last = checked.first;
  batch.blocks_left = static_cast<std::uint16_t>(batch.max_blocks - checked.count);
  for (Block* next = checked.first; next != nullptr; next = next_of<C>(*pool_, next)) {
    batch.last = next;
  }
  return checked.first != nullptr;
}

}  // namespace heapwright::alloc
