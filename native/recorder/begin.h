// Begins the recording of a process: reads the configuration, makes the file and fills its header.
// Runs once in each process, so again in a forked child.
#pragma once

#include "session.h"

namespace heapwright::recorder {

// Environment variables that `heapwright record` sets.
// The folder of the raw files; nothing is recorded if it is not set.
inline constexpr const char* kFolderVariable = "HEAPWRIGHT_RECORD";
// A process id: only processes with this parent are recorded.
inline constexpr const char* kParentVariable = "HEAPWRIGHT_RECORD_PARENT";
// 'monotonic': use the monotonic clock, not the processor's ticks.
inline constexpr const char* kClockVariable = "HEAPWRIGHT_RECORD_CLOCK";
// The number of a signal that marks a phase.
inline constexpr const char* kSignalVariable = "HEAPWRIGHT_RECORD_SIGNAL";
// Only of recordings of samples and windows (sampling.h). One in so many small objects is recorded.
inline constexpr const char* kSampleVariable = "HEAPWRIGHT_RECORD_SAMPLE";
// Bytes of a raw file, at most.
inline constexpr const char* kMaxSizeVariable = "HEAPWRIGHT_RECORD_MAX_SIZE";
inline constexpr const char* kMaxCostVariable = "HEAPWRIGHT_RECORD_MAX_COST";
// Seconds from the start of the process to the window, and the window's length in seconds.
inline constexpr const char* kAfterVariable = "HEAPWRIGHT_RECORD_AFTER";
inline constexpr const char* kForVariable = "HEAPWRIGHT_RECORD_FOR";
// The number of a signal that begins the window, and ends it.
inline constexpr const char* kWindowSignalVariable = "HEAPWRIGHT_RECORD_WINDOW_SIGNAL";

// Sets the library of the real malloc, for the file's header. find_real() calls it once.
void set_allocator(const char* library);
// Returns the number of the signal that marks a phase, or 0.
int phase_signal();

// Makes the raw file of this process, maps its header and fills it.
//
// into    the session that gets the file
// forked  the process began as a copy of a recorded one
//
// Returns false if this process is not to be recorded, or if the file cannot be made; then one line
// on stderr says why.
bool begin_file(Session& into, bool forked);
// Returns whether the errno `error` of a raw file that cannot be opened is no failure:
// `heapwright record` has packed the raw files and removed their folder, though processes still
// run. A process that has changed its root folder does not see the folder either, but that is a
// failure.
bool is_packed(int error);
// Closes the raw file of the parent in a forked child. `record` takes the last close of a raw file
// for the end of its process (src/heapwright/trace/process_ends.py).
void close_inherited_file();
// Moves a descriptor to a high number, so that the program's own files get the numbers they would
// have without the recorder. Returns the new number, or the old one if it cannot be moved.
int move_to_high_descriptor(int file);

// Prints one line on stderr: `what`, the process id and the text of the errno `error`.
void print_error(const char* what, int error);

// Returns this thread's state, the thread-local variable of record.h.
ThreadState& thread_state();

}  // namespace heapwright::recorder
