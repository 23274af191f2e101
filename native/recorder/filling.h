// Observes how the program fills its newest large blocks.
//
// A program that doubles a vector allocates the new block, copies the content, and frees the old
// one. At that moment only half of the new block is touched. A replay that touched all of it would
// have a higher peak than the program. So each thread remembers the last large blocks that it has
// allocated. When it allocates or frees a large block, or reads resident memory, it records how
// much of them is touched (Other::kFilling), until they are filled. A replay touches them in these
// steps.
//
// Only blocks of which all resident pages are touched ones (Touching::kMeasured) are observed, and
// only by the thread that allocated them. Another thread may free a block meanwhile; the table of
// large blocks tells. The observations of a thread take at most kAllowedNs and 1% of the time.
#pragma once

#include <cstddef>

#include "encoder.h"

namespace heapwright::recorder {

inline constexpr std::size_t kFilling = 256 * 1024;  // smaller blocks are not observed

// Remembers a new block, of which no page is resident.
void begin_filling(const void* block, std::size_t size);

// Returns whether this thread remembers a block.
bool observes_filling();

// Records the touched bytes of the remembered blocks of this thread, if the writer has room.
// Forgets blocks that are filled, freed, or have not changed for a while.
void put_filling(Stream& writer);

}  // namespace heapwright::recorder
