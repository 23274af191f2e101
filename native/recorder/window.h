// Opens and closes the window of a recording (sampling.h says what a window is).
#pragma once

#include "session.h"

namespace heapwright::recorder {

// Opens the window if its time has come, or closes it. Called at events of chosen objects, so a
// window begins at the first such event after its time.
void check_window(ThreadState& self);

}  // namespace heapwright::recorder
