// Gives writers their raw blocks, 64 KiB of the file each, and keeps a bounded file within its
// bound.
//
// A file without a bound gets one raw block after the other. A bounded one (only of a sample) has a
// fixed number of them, and a state for each:
//
//     unused ──► taking ──► level k, current block of a writer ──► level k, full
//                  ▲                                                   │ the level is dropped
//                  └──────────────────── dropped ◄─────────────────────┘
//
// If no block is unused or dropped, the lowest level is dropped: the header's min_level rises
// first, so that a reader ignores the level's blocks from then on, also if the process is killed at
// this moment. A writer's current block is dropped by the thread that has the writer, when it
// returns it, or by the dropping thread if no thread has it.
#pragma once

#include "session.h"

namespace heapwright::recorder {

// Gives a writer its next block. Returns false if recording has stopped, or if the writer's level
// has been dropped.
bool next_block(Writer& writer);

// Drops the lowest level, and its blocks in a bounded file. Returns false if there is none left.
bool drop_lowest_level();

// Prepares the bound of a session that begins: `bytes` of the file in all, 0 for none. Returns
// false if there is no memory for it.
bool set_bound(Session& of, std::uint64_t bytes);

// The level of a writer's objects, of a recording of a sample.
inline std::uint32_t level_of(const Writer& writer) {
  const auto number = static_cast<std::uint32_t>(&writer - session->writers);
  return number < kBornWriters ? number / kWritersPerLevel : number - kBornWriters;
}
// Whether the level that a writer belongs to has been dropped.
inline bool is_dropped(const Writer& writer) {
  return level_of(writer) < session->header->min_level.load(std::memory_order_seq_cst);
}
// Drops the current block of a writer whose level has been dropped. The caller has the writer.
void drop_block(Writer& writer);

}  // namespace heapwright::recorder
