// The recording of one process: its file, the blocks of it that are mapped, and the writers that threads borrow.
//
// All of it lies in memory that the kernel wipes in a forked child, and what is mapped of the file is not there in a child at all.
// So a child finds no session and no room in any writer, and its first event begins a recording of its own; the parent's file is
// out of its reach.
//
// Thread rules: a writer belongs to who set `taken`, until it is cleared. Nothing here waits for a lock, and all of it may be
// entered again from a signal handler: what is interrupted keeps its writer, the handler takes another.
#pragma once

#include <sys/types.h>

#include "clock.h"
#include "encoder.h"
#include "large_blocks.h"

namespace heapwright::recorder {

struct alignas(128) Writer : Stream {
  std::uint64_t waited = 0;     // nanoseconds its thread has waited for a processor, as last told
  std::uint64_t sample_at = 0;  // when to look whether resident memory is to be sampled
  std::uint32_t countdown = 0;  // events until the next stamp, where not each has one
  std::atomic<std::uint8_t> stamp_every_event;  // each event is stamped: there are other writers
  std::atomic<std::uint8_t> taken;
  std::uint32_t thread = 0;  // whose the records are that come next
  std::uint8_t* block = nullptr;
  std::uint64_t sequence = 0;  // of the next block
};

enum class State : std::uint32_t { kNone, kBeginning, kRecording, kStopped };

struct Session {
  std::atomic<State> state;
  FileHeader* header;
  std::atomic<int> file;
  dev_t device;
  ino_t inode;
  char path[4096];
  std::atomic<std::uint64_t> next_sample;
  std::atomic<std::uint64_t> sample_interval;
  std::atomic<std::uint32_t> used;  // writers that were ever taken: those below it
  LargeBlocks large;
  Writer writers[kWriters];
};

inline constexpr std::uint32_t kNoThread = ~std::uint32_t{0};

// Where a thread is with respect to the recorder.
enum class Location : std::uint8_t {
  kProgram,    // in the program
  kAllocator,  // in the real allocator: calls made from there are its own affair and not the program's
  kRecorder,   // in the recorder: whoever calls malloc now is a signal handler
};

struct ThreadState {
  Writer* writer;
  Location location;
  bool ended;                // its end is recorded; what comes now comes from the C library's last rites
  std::uint32_t thread;      // its number in the file, or kNoThread
  std::uint32_t session;     // which session that is of
  const void* last_block;    // the block that was recorded last
  const void* sized_delete;  // what sized delete is about to pass to plain delete
};

extern Session* session;  // nullptr before the first event
extern Writer no_writer;  // has no room

inline bool recording() {
  return session != nullptr && session->state.load(std::memory_order_acquire) == State::kRecording;
}

// Where to record and what of it, from the environment. Called once, before everything else here.
void configure();

// A writer for this thread with room for an event; nullptr: there is none, or nothing is recorded.
Writer* refill(ThreadState& self);
// A borrow_writer writer for one event of this thread, to be given back; nullptr where nothing is recorded.
Writer* borrow(ThreadState& self);
void return_writer(Writer& writer);
// Records that the thread ends, and lets others have its writer.
void on_thread_exit(ThreadState& self);

// Records how long the thread waited for a processor, after a pause.
void record_waited(Writer& writer);

// Records resident memory if its time has come; sets when to look again.
void sample_resident(Writer& writer, std::uint64_t now);
// Counts a call that was refused memory.
void count_failure();
// The number of a phase of this name.
std::uint32_t phase_number(const char* name);
// The process ends. `self` may have more to record.
void finish_recording(ThreadState& self);
// Stops recording for good, says why, and lets the program go on.
void stop_recording(int error);

}  // namespace heapwright::recorder
