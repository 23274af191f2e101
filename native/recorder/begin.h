// How the recording of a process begins: configuration, the file and its header. Once a process, and again in a forked child.
#pragma once

#include "session.h"

namespace heapwright::recorder {

// Variables, as `heapwright record` sets them.
inline constexpr const char* kFolderVariable =
    "HEAPWRIGHT_RECORD";  // where the raw files go; nothing is recorded without
inline constexpr const char* kParentVariable =
    "HEAPWRIGHT_RECORD_PARENT";  // record only processes with this parent
inline constexpr const char* kClockVariable =
    "HEAPWRIGHT_RECORD_CLOCK";  // 'monotonic': not the processor's ticks
inline constexpr const char* kSignalVariable =
    "HEAPWRIGHT_RECORD_SIGNAL";  // a signal's number that marks a phase

// What `malloc` the process runs on, for the header. Called once, by who found it.
void set_allocator(const char* library);
// The number of the signal that marks a phase, or 0.
int phase_signal();

// Makes the file, in the folder of its own process id; false: nothing is to be recorded, or cannot be, and that was said.
bool begin_file(Session& into, bool forked);
// The same file under a high number, where it does not take one that the program would have got.
int move_to_high_descriptor(int file);

// One line on stderr, with what went wrong.
void print_error(const char* what, int error);

// Where this thread stands; in record.h's thread-local variable.
ThreadState& thread_state();

}  // namespace heapwright::recorder
