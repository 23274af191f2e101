// Plays the streams of an operations file (ops.h) against whatever malloc the process has.
//
// All memory of its own is one mapping, made and touched before the first operation: windows of the streams, slot tables, plans.
// It is as large when the replay begins as when it ends, so it can be told and taken off. No malloc is called but the trace's
// (and what pthread_create calls, as it did in the program).
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
  Number turn{0};
};

// What one thread at a time has: the window of its stream, and its own slots.
struct Lane {
  Word* window = nullptr;
  void** slots = nullptr;
  Number busy{0};
};

// What was read when all before it was done and nothing after.
struct Reading {
  std::uint64_t recorded = 0;  // nanoseconds of recorded time since the reading before
  std::uint64_t resident = 0;  // bytes
  std::uint64_t cpu = 0;       // nanoseconds: CPU time of the process so far
  std::uint64_t wall = 0;      // nanoseconds: the monotonic clock
};

struct Replay {
  Plan plan;
  int file = -1;  // of operations
  int statm = -1;
  bool dry = false;  // call nothing, touch nothing: what the replay itself costs
  Touch touch = Touch::kPage;
  std::size_t page = 4096;

  ThreadPlan* threads = nullptr;
  pthread_t* handles = nullptr;
  Lane* lanes = nullptr;
  SharedSlot* shared = nullptr;
  Reading* readings = nullptr;  // one at a time, in the order of the trace
  std::uint64_t readings_taken = 0;

  std::uint64_t own_bytes = 0;
  std::uint32_t others = 0;  // threads that are started, without the first

  Number epoch{0};     // all before it are done
  Number arrived{0};   // threads that are done with it
  Number finished{0};  // threads that are at the end of their stream
  std::atomic<std::uint64_t> events{0};
};

// Maps and touches all memory of the replay's own. False with a line on stderr.
bool prepare(Replay& replay);

// Plays everything; returns when all streams are at their end. A call that is refused ends the process, with status 1.
void play(Replay& replay);

// Resident memory and the clocks now, so much recorded time after the reading before.
Reading read_now(const Replay& replay, std::uint64_t recorded);

[[noreturn]] void die(const char* what, std::uint64_t number, const char* then);

}  // namespace heapwright::replay
