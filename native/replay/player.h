// Plays the streams of an operations file (ops.h) with the malloc of this process.
//
// All memory of the replayer is one mapping: stream windows, slot tables and entries. It is made
// and touched before the first operation. So its size does not change during the replay and can be
// subtracted from every reading. The only calls of malloc are those of the trace and those of
// pthread_create, which the program made too.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "ops.h"
#include "waiting.h"

namespace heapwright::replay {

enum class Touch : std::uint8_t { kNone, kPage, kFull };

struct SharedSlot {
  void* block = nullptr;
  Counter turn;
};

// The memory of one running thread.
struct Lane {
  Word* window = nullptr;        // the current chunk of its stream
  void** slots = nullptr;        // the table of its own slots
  std::uint64_t slot_count = 0;  // of that table
  Counter busy;                  // 1 while a thread runs in the lane
};

// Readings of one moment of the trace: all earlier operations are done and no later one has begun.
struct Reading {
  std::uint64_t recorded = 0;  // nanoseconds of recorded time since the reading before
  std::uint64_t resident = 0;  // bytes
  std::uint64_t cpu = 0;       // nanoseconds: CPU time of the process so far
  std::uint64_t wall = 0;      // nanoseconds: the monotonic clock
};

// A thread that has been started.
struct Started {
  pthread_t handle;
  Counter created;  // 1 once the handle is valid
};

struct Replay {
  OpsHeader header;
  int file = -1;  // of operations
  int statm = -1;
  bool dry = false;            // make no call and touch nothing, to measure the cost of the replayer itself
  bool real_pace = false;      // make the calls at the recorded times
  double slowdown = 1.0;       // the allocator sees this many times the recorded time (clock.h)
  bool has_libstdcxx = false;  // in this process, which has therefore allocated what it needs
  Touch touch = Touch::kPage;
  std::size_t page = 0;  // bytes, of this machine

  ThreadEntry* threads = nullptr;
  Started* started = nullptr;  // of each thread
  Lane* lanes = nullptr;
  SharedSlot* shared = nullptr;
  Reading* readings = nullptr;  // in the order of the trace; only one thread at a time writes
  std::uint64_t readings_taken = 0;
  std::uint64_t last_reading = 0;  // recorded nanoseconds

  std::uint64_t own_bytes = 0;  // of the mapping
  std::uint32_t others = 0;     // threads that are started, without the first

  Counter epoch;                          // the current one
  std::atomic<std::uint32_t> arrived{0};  // threads that have finished it
  Counter finished;                       // threads at the end of their stream
  std::atomic<std::uint64_t> events{0};
};

// Reads the header and the entries, and maps and touches all memory of the replayer. False if the
// file is not an operations file.
bool prepare(Replay& replay);

// Plays the whole trace. Returns when all streams are at their end. If the allocator refuses a
// call, the process ends with status 1.
void play(Replay& replay);

// Reads resident memory and the clocks. `recorded`: nanoseconds of recorded time since the previous
// reading.
Reading read_now(const Replay& replay, std::uint64_t recorded);

// Returns the bytes of files in the resident memory of this process.
std::uint64_t resident_files(const Replay& replay);

// Prints `what`, `number` and `then` on stderr as one line and ends the process with status 1.
[[noreturn]] void die(const char* what, std::uint64_t number, const char* then);

}  // namespace heapwright::replay
