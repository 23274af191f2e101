// Defines the descriptor by which another process finds and reads the heap of this one: where its
// roots are, and how its structures are laid out. native/diagnose/own_heap.h is the reader.
//
// Each library and each static program has one such object, in writable data, at a multiple of its
// alignment. A reader finds it by its magic and by `self`, which holds its own address. So it also
// works in a stripped program. The allocator itself never reads it.
//
// A change of what a field means, or of how a reader must use it, needs a new kVersion. A change of
// an offset or a size does not: the fields hold them.
//
// Nothing is locked for a reader. What it reads may be changing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heapwright::alloc {

struct alignas(64) HeapLayout {
  static constexpr std::uint32_t kVersion = 6;
  static constexpr char kMagic[16] = {'h', 'e', 'a', 'p', 'w', 'r', 'i', 'g',
                                      'h', 't', ' ', 'h', 'e', 'a', 'p', '\0'};

  char magic[16] = {};
  std::uint32_t version = kVersion;
  std::uint32_t bytes = 0;           // of this object
  const HeapLayout* self = nullptr;  // its address
  char name[16] = {};                // "exgen", "reaper-secure", ...

  // Where the roots are: addresses of the fields that hold them.
  const void* region_base = nullptr;   // address of chunk 0; 0: there is no region yet
  const void* region_bytes = nullptr;  // of all chunks
  const void* used = nullptr;          // superblocks in use
  const void* dirty = nullptr;         // free superblocks that may hold memory
  const void* purged_bytes = nullptr;  // so far
  const void* map_low = nullptr;       // the tags are mapped from here to region_base
  const void* threaded = nullptr;      // one byte: 0 means that no remote queue has been set up
  const void* large_entries = nullptr;
  const void* large_capacity = nullptr;  // entries, empty ones included; their address is 0
  const void* large_count = nullptr;
  const void* large_bytes = nullptr;
  const void* kept = nullptr;                   // the entries of freed large blocks whose mappings are kept
  const void* kept_count = nullptr;             // how many of them are in use
  const void* span_quarantine_bytes = nullptr;  // nullptr in builds that are not hardened

  // The heaps: the library's first, the one that ending threads share, and those of threads, which
  // are linked. The fields of the first tell the offsets in all.
  const void* first_heap = nullptr;
  const void* shared_heap = nullptr;
  const void* created = nullptr;  // address of the field that holds the latest heap of a thread
  const void* first_next_created = nullptr;
  const void* first_lists = nullptr;             // the free lists of the thread cache
  const void* first_depots = nullptr;            // `depots` words: see depot.h
  const void* first_freed_by_others = nullptr;   // `freed_by_others` words: see freed_by_others.h
  const void* first_batches = nullptr;           // the remote-free batches
  const void* first_quarantine_bytes = nullptr;  // nullptr in builds that are not hardened
  std::uint32_t heap_bytes = 0;
  std::uint16_t lists = 0;  // list 0 belongs to no class
  std::uint16_t list_bytes = 0;
  std::uint16_t depots = 0;           // stacks
  std::uint16_t freed_by_others = 0;  // lists
  std::uint16_t batches = 0;
  std::uint16_t batch_bytes = 0;
  std::uint16_t batch_first = 0;  // offset of the batch's first block; nullptr: the batch is empty

  // Superblocks. The first of a chunk describes the others: superblock i at i · description_bytes.
  std::uint16_t superblocks_in_chunk = 0;
  std::uint32_t superblock_bytes = 0;
  std::uint16_t description_bytes = 0;
  std::uint16_t chunk_free = 0;  // offset in a chunk's description: 64 bits, one for each free superblock
  std::uint16_t free_list = 0;   // offsets in a superblock's description: the first free block
  std::uint16_t free_count = 0;  // 32 bits each, from here
  std::uint16_t carved = 0;
  std::uint16_t size = 0;
  std::uint16_t length = 0;
  std::uint16_t first_block = 0;   // 16 bits: the offset of the first block in the superblock
  std::uint16_t kind = 0;          // 8 bits: see Kind
  std::uint16_t purged_pages = 0;  // 16 bits
  std::uint16_t queue_begin = 0;   // in a chunk: the remote queues
  std::uint16_t queue_bytes = 0;
  std::uint16_t marks_begin = 0;      // in a chunk: the bits of allocated blocks of hardened builds; else 0
  std::uint16_t marks_bytes = 0;      // for each superblock
  std::uint16_t free_bits_begin = 0;  // in a chunk: the bits of free blocks that are in no list
  std::uint16_t free_bits_bytes = 0;  // for each superblock; 0: none
  std::uint16_t free_bits_below = 0;  // blocks below this size have them; `purged_pages` is how many are set
  std::uint8_t kind_blocks = 0;
  std::uint8_t kind_span = 0;
  std::uint8_t kind_quarantined = 0;
  std::uint8_t queue_count_shift = 0;  // of a queue's word: how many blocks
  std::uint32_t queue_count_mask = 0;
  std::uint32_t queue_first_mask = 0;  // the first block, in granules of 16 bytes plus 1; 0: none
  std::uint16_t large_entry_bytes = 0;
  std::uint16_t large_entry_size = 0;  // offset of its bytes; its address is at 0
};

}  // namespace heapwright::alloc
