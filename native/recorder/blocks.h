// Gives writers their blocks of the raw file, and keeps a bounded file within its bound.
//
// A file without a bound gets one block after the other. A bounded one (only of a sample) has a fixed
// number of blocks, and a state for each:
//
//     unused ──► taking ──► level k, current block of a writer ──► level k, full
//                  ▲                                                   │ the level is dropped
//                  └──────────────────── dropped ◄─────────────────────┘
//
// If no block is unused or dropped, the lowest level is dropped: the header's min_level rises first, so
// that a reader ignores the level's blocks from then on, also if the process is killed at this moment.
// A writer's current block is dropped by the thread that has the writer, when it returns it, or by the
// dropping thread if no thread has it.
#pragma once

#include "session.h"

namespace heapwright::recorder {

// Gives a writer its next block. Returns false if recording has stopped, or if the writer's level has
// been dropped.
bool next_block(Writer& writer);

// Prepares the bound of a session that begins: `bytes` of the file in all, 0 for none. Returns false
// if there is no memory for it.
bool set_bound(Session& of, std::uint64_t bytes);

// Whether the level that a writer belongs to has been dropped.
bool is_dropped(const Writer& writer);
// Drops the current block of a writer whose level has been dropped. The caller has the writer.
void drop_block(Writer& writer);

// The level of a writer's objects, of a recording of a sample.
std::uint32_t level_of(const Writer& writer);

}  // namespace heapwright::recorder
