// Reads the chunks of an operations file and refuses damaged ones, so that the player can trust
// them.
#pragma once

#include <cstdint>

#include "player.h"

namespace heapwright::replay {

// Prints `what` and `number` as the fault of the file, and ends the process with status 1.
[[noreturn]] void die_of_bad_file(const char* what, std::uint64_t number);

// Reads a chunk into the window of a lane and checks it. Ends the process if the chunk is damaged.
void read_chunk(const Replay& replay, std::uint64_t chunk, const Lane& lane);

}  // namespace heapwright::replay
