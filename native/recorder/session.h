// Holds the recording of one process: its file, the mapped raw blocks of the file, and the writers
// that fill them.
//
// Fork: the kernel zeroes the session in a forked child (MADV_WIPEONFORK) and does not map the
// raw blocks there (MADV_DONTFORK). So the child finds an empty session and no room in any
// writer. Its first event begins a recording of its own, and it cannot write into the parent's
// file. The time of the recording counts from the fork on, because a sample may choose its first
// object much later.
//
// Threads: a thread claims a writer by setting `taken` and owns it until `taken` is cleared.
// Nothing here waits for a lock. A signal handler may enter any function again: the interrupted
// code keeps its writer, and the handler borrows another.
//
// Thread exit: the destructor of a pthread key, in its last round, records the exit and clears
// `taken`, so that another thread can go on with the writer and its half-full raw block. Calls that
// libc's thread teardown makes after that go through borrowed writers.
//
// Process exit: exit() and _exit() record the resident bytes of the large blocks that are still
// live, and mark the file as ended. A killed process records nothing more. Its file keeps
// Ending::kRunning and every record whose tag was stored, because raw blocks are shared mappings of
// the file.
#pragma once

#include <sys/types.h>

#include <cerrno>

#include "chosen_objects.h"
#include "clock.h"
#include "encoder.h"
#include "heap_size.h"
#include "large_blocks.h"

namespace heapwright::recorder {

// Whether this is the library that records samples and windows (sampling.h), or the complete
// recorder.
#ifndef HEAPWRIGHT_SAMPLING
#define HEAPWRIGHT_SAMPLING 0
#endif
inline constexpr bool kSampling = HEAPWRIGHT_SAMPLING != 0;

struct alignas(128) Writer : Stream {
  // Nanoseconds its thread has waited for a processor, as last recorded.
  std::uint64_t waited = 0;
  // When to check next whether a reading of resident memory is due: units of the clock.
  std::uint64_t read_memory_at = 0;
  // Events until the next stamp, unless every event has one.
  std::uint32_t countdown = 0;
  // There are other writers, and only stamps tell the order between writers.
  std::atomic<std::uint8_t> stamp_every_event;
  std::atomic<std::uint8_t> taken;
  std::uint32_t thread = 0;  // the thread that makes the next records
  std::uint8_t* block = nullptr;
  std::uint64_t sequence = 0;  // of the next block
  // Number of its current block in a bounded file, plus 1; 0 for none.
  std::atomic<std::uint64_t> block_number;
};

// Of a recording with a window: events are recorded only while it is open.
enum class WindowState : std::uint32_t { kNone, kBefore, kOpening, kOpen, kClosing, kAfter };

enum class State : std::uint32_t { kNone, kBeginning, kRecording, kStopped };

// The beginning of a new thread: its creator fills it in, and the thread reads it.
struct ThreadStart {
  void* (*routine)(void*);
  void* argument;
  std::uint32_t thread;   // its number in the file
  std::uint32_t session;  // that the number belongs to
  std::atomic<std::uint8_t> taken;
};
inline constexpr std::uint32_t kThreadStarts = 256;  // threads that are being created at once

struct Session {
  Writer writers[kWriters];
  ThreadStart starts[kThreadStarts];
  std::atomic<State> state;
  FileHeader* header;
  std::atomic<int> file;
  dev_t device;
  ino_t inode;
  bool linked;  // the file system said that the file had a name
  char path[4096];
  // When fork() began this process: the monotonic clock and the recorder's. 0 if it began
  // otherwise.
  std::uint64_t fork_ns;
  std::uint64_t fork_stamp;
  std::atomic<std::uint64_t> next_memory_reading;
  std::atomic<std::uint64_t> memory_reading_interval;
  // When the heap may be measured again, in nanoseconds of the monotonic clock, and the resident
  // memory of the last measurement.
  std::atomic<std::uint64_t> next_heap_ns;
  std::atomic<std::uint64_t> measured_resident;
  HeapGauge gauge;
  std::atomic<std::uint32_t> used;  // the writers below this number have been taken at least once
  LargeBlocks large;
  // Only in recordings of samples and windows.
  ChosenObjects chosen;
  std::atomic<std::uint64_t> births;    // chosen objects so far
  std::atomic<std::uint64_t> readings;  // of resident memory so far
  // Calls on chosen objects so far, and at the last drop of a level because of their cost; the
  // process's CPU time at that drop.
  std::atomic<std::uint64_t> chosen_calls;
  std::atomic<std::uint64_t> calls_at_drop;
  std::atomic<std::uint64_t> cpu_ns_at_drop;
  std::atomic<WindowState> window;
  std::uint64_t max_blocks;                 // of the file; 0: no bound
  std::atomic<std::uint64_t> next_block;    // where to look for a free one
  std::atomic<std::uint8_t>* block_states;  // blocks.cpp
};

// The raw file was removed: `heapwright record` has packed it and no longer waits for this process.
inline constexpr int kFileRemoved = -1;  // no errno
inline constexpr std::uint32_t kNoThread = ~std::uint32_t{0};
inline constexpr std::uint32_t kTopLevel = kLevels - 1;  // is never dropped

// Which code a thread is running.
enum class Location : std::uint8_t {
  kProgram,    // the program
  kAllocator,  // the real allocator; calls of malloc that it makes are no events of the program
  kRecorder,   // the recorder; only a signal handler can call malloc now
};

struct ThreadState {
  Writer* writer;
  Location location;
  bool ended;                // its exit is recorded; later calls come from libc's thread teardown
  std::uint32_t thread;      // its number in the file, or kNoThread
  std::uint32_t session;     // the session that `writer`, `thread` and `given` belong to
  std::uint32_t given;       // the number that its creator gave it, until its first event; or kNoThread
  const void* last_block;    // the block whose allocation was recorded last; not set in a sample
  const void* sized_delete;  // the block that sized delete is about to pass to plain delete
};

extern Session* session;  // nullptr: the process is not recorded
extern Writer no_writer;  // has no room

inline bool recording() {
  return session != nullptr && session->state.load(std::memory_order_acquire) == State::kRecording;
}

// Reads from the environment where to record and what. Called once, before every other function
// here.
void configure();

// Notes the time of a fork in the child, and closes the parent's raw file there. pthread_atfork()
// calls it, so also where the C library forks, as daemon() does.
void on_fork_in_child();

// Gives this thread a writer with room for an event: the one it has, with a new raw block, or one
// it claims. Begins the recording if it has not begun. Returns nullptr if every writer is taken or
// nothing is recorded.
Writer* refill(ThreadState& self);
// Begins the recording if it has not begun, and gives the thread its number. Returns false if
// nothing is recorded.
bool begin_thread(ThreadState& self);
// Tells a new thread the number that its creator gave it.
void adopt_number(ThreadState& self, std::uint32_t number, std::uint32_t its_session);
// Borrows one of the kSpareWriters for one event of this thread, in a sample one of the top level;
// the caller returns it with return_writer. Returns nullptr if nothing is recorded.
Writer* borrow(ThreadState& self);
// Borrows a writer of a level of a sample, for one event of this thread at the time `now` (units of
// the clock). Returns nullptr if nothing is recorded, or if the level has been dropped.
Writer* borrow_at_level(ThreadState& self, std::uint32_t level, std::uint64_t now);
void return_writer(Writer& writer);
// Borrows the writer for objects of a level that were born before the window.
//
// thread  that allocated the object
// now     the time of the next record
Writer* borrow_for_born(std::uint32_t level, std::uint32_t thread, std::uint64_t now);
// Records the process's resident memory, in a recording of a sample. `now` is the time, in units of
// the clock; nothing if another thread does so meanwhile.
void read_resident_by_level(ThreadState& self, std::uint64_t now);
// Lets on_thread_exit() run when this thread exits, once the process has begun a recording.
void watch_thread_exit(ThreadState& self);
// Records that the thread exits, and releases its writer to other threads.
void on_thread_exit(ThreadState& self);

// Records how long the thread has waited for a processor since the last such record.
void record_waited(Writer& writer);

// Records the process's resident memory if a reading is due, and sets the time of the next check.
void read_resident(Writer& writer, std::uint64_t now);
// Counts a call that got no memory.
void count_failure();
// Returns the number of the phase with this name, a new one for a new name.
std::uint32_t phase_number(const char* name);
// Ends the recording because the process exits. Other threads may still record.
void finish_recording(ThreadState& self);
// Stops recording for good and prints why; the program goes on. `error` is an errno; kFileRemoved
// is no failure and prints nothing.
void stop_recording(int error);

}  // namespace heapwright::recorder
