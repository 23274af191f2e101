// Reads and writes packed traces, the form in which heapwright keeps recorded and synthetic traces.
// A packed file is a sequence of event blocks; each is a run of events in columns, compressed. An
// index and a summary are at the end. docs/trace-format.md describes every bit.
//
// Invariants: a block can be decoded by itself; the only state that crosses blocks are the two
// counters in its head. A file without its end is read up to the first incomplete block. A reader
// or a writer serves one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "event.h"

namespace heapwright::trace {

// The summary at the end of a complete file, so that a tool need not read all of it.
struct Summary {
  std::uint64_t events = 0;
  std::uint64_t allocations = 0;  // allocation events
  std::uint64_t threads = 0;
  std::uint64_t peak_live_bytes = 0;    // of the sizes that the program asked for
  std::uint64_t peak_live_objects = 0;  // the number of slots that a replay needs
  std::uint64_t duration = 0;           // nanoseconds: the time of the last event
};

// The resolution of times in nanoseconds. One or two calls take that long; a finer one adds nothing
// to memory over time, and each halving costs 0.07 bytes an event.
inline constexpr std::uint64_t kTick = 256;

class PackedWriter {
 public:
  // Begins a file. It has a temporary name beside `path` until finish().
  //
  // path          the file
  // header        goes into the file
  // error         gets one line if the file cannot be written
  // tick          the resolution of times in nanoseconds; 1 keeps them exactly
  // block_events  events in a block; 0 for the usual number
  //
  // Returns nullptr if the file cannot be written.
  static std::unique_ptr<PackedWriter> create(const std::string& path, const Header& header,
                                              std::string& error, std::uint64_t tick = kTick,
                                              std::uint32_t block_events = 0);

  PackedWriter() = default;
  PackedWriter(const PackedWriter&) = delete;
  PackedWriter& operator=(const PackedWriter&) = delete;
  // Removes the temporary file if finish() was not called.
  virtual ~PackedWriter() = default;

  // Adds the next event in trace order. Returns false if the file cannot be written or the event
  // contradicts earlier ones, such as a free of an object that is not live; error() says which.
  virtual bool add(const Event& event) = 0;
  // Writes the last block, the index and the summary, and gives the file its name.
  virtual bool finish(const Loss& loss) = 0;
  virtual const std::string& error() const = 0;
  // The summary of the events so far.
  virtual const Summary& summary() const = 0;
};

// Threads are numbered in the order of their first events. So the number of a thread exceeds the
// number of events before it by at most this much. A reader rejects a higher number, so that the
// tables of threads stay small even for a damaged file.
inline constexpr std::uint64_t kThreadsAhead = 4096;

// A packed trace as a stream of events, with its summary if the file is complete.
class PackedSource : public EventSource {
 public:
  // nullptr if the end of the file is missing.
  virtual const Summary* summary() const = 0;
};

// Opens a packed trace. Returns nullptr, with one line in `error`, if it cannot be read.
std::unique_ptr<PackedSource> open_packed(const std::string& path, std::string& error);

}  // namespace heapwright::trace
