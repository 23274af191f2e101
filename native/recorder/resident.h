// Takes readings of the process's resident memory and its parts while the program runs.
#pragma once

#include "session.h"

namespace heapwright::recorder {

// Records the process's resident memory with its parts; nothing if it is not known. `last`: the
// process ends. The writer has room for the records.
void put_resident(Writer& writer, bool last);

// Sets the interval of the first readings. It doubles up to 10 ms.
void begin_readings();
// Stores the present moment in the header on both clocks; the reader derives the length of a unit
// from it.
void update_clock_pair();

}  // namespace heapwright::recorder
