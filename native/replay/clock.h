// Makes the allocator see the time of the recording.
//
// Allocators give memory back after a time: jemalloc's decay, mimalloc's purge delay. A replay
// makes the calls of a minute in a second, and so these timers would never run. The replayer
// therefore defines clock_gettime, gettimeofday and time. Its symbols stand before those of libc,
// so an allocator that is a shared library calls them.
//
//   time that the allocator sees =
//     real time when the replay began + slowdown * time since the recording began
//
// The recorded time has no waits for a processor, which the program has on a busy machine, and it
// has the recorder's time. So the program takes `slowdown` times as long as recorded. The time
// stands still between two kClock operations (ops.h). Clocks of CPU time are not changed.
//
// Not reached: an allocator that reads the processor's tick counter or makes the system call
// itself; and the waiting of its background threads, which the kernel ends by its own clock.
#pragma once

#include <cstdint>
#include <ctime>

namespace heapwright::replay {

// From now on the allocator sees the time of the recording, which is 0 at this moment.
//
// real_pace  set_clock() waits until as much real time has passed
// slowdown   the allocator sees this many times the recorded time
void begin_clock(bool real_pace, double slowdown);

// Sets the time: recorded nanoseconds since the recording began. Does nothing if it is later
// already.
void set_clock(std::uint64_t recorded);

// Returns nanoseconds of a clock of the kernel.
std::uint64_t kernel_clock(clockid_t which);

}  // namespace heapwright::replay
