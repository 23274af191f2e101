// The packed trace: what heapwright keeps of a recorded or made-up trace. A file of blocks, each a run of events laid out in
// columns and compressed, with an index and a summary at its end; docs/trace-format.md draws every bit.
//
// Invariants: a block can be decoded by itself (no state crosses blocks but the two counters in its head); a file without its
// end is read block by block until the first that is not whole. Not for several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "event.h"

namespace heapwright::trace {

// What the end of a whole file says of it, so that nobody has to read it all to know.
struct Summary {
  std::uint64_t events = 0;
  std::uint64_t allocations = 0;  // making events
  std::uint64_t threads = 0;
  std::uint64_t peak_live_bytes = 0;    // of sizes asked for
  std::uint64_t peak_live_objects = 0;  // the slots a replay needs
  std::uint64_t duration = 0;           // nanoseconds: the time of the last event
};

// Nanoseconds. A call or two: finer says nothing of memory over time, and each halving costs 0.07 bytes an event.
inline constexpr std::uint64_t kTick = 256;

class PackedWriter {
 public:
  // Writes under a temporary name beside `path` until finish(). nullptr and one line in `error` where that cannot be.
  // Times are kept to a `tick` of nanoseconds; with 1 they come back as they were.
  // Blocks are of as many events as are worth it, or of so many.
  static std::unique_ptr<PackedWriter> create(const std::string& path, const Header& header,
                                              std::string& error, std::uint64_t tick = kTick,
                                              std::uint32_t block_events = 0);

  PackedWriter() = default;
  PackedWriter(const PackedWriter&) = delete;
  PackedWriter& operator=(const PackedWriter&) = delete;
  // Not finished: the temporary file goes, nothing is left.
  virtual ~PackedWriter() = default;

  // Takes the next event in trace order; Event::object counts makings from 0, as event.h says. False once the file cannot be
  // written or the event contradicts what came before; error() says which.
  virtual bool add(const Event& event) = 0;
  // Writes what is left, the index and the summary, and renames the file to its name.
  virtual bool finish(const Loss& loss) = 0;
  virtual const std::string& error() const = 0;
  // Up to now.
  virtual const Summary& summary() const = 0;
};

// Threads are numbered as they appear, so a thread's number is hardly above the number of events before it: by so much at most. What
// is further ahead is no trace, and whoever has a table of threads need not fear for its memory.
inline constexpr std::uint64_t kThreadsAhead = 4096;

// A packed trace as a stream of events, with its summary where the file has its end.
class PackedSource : public EventSource {
 public:
  // nullptr where the file has lost its end.
  virtual const Summary* summary() const = 0;
  // Goes to the first block that holds events at or after `time` (nanoseconds). Events of other blocks before are left out,
  // so objects may be freed that were never seen to be made. False without an index.
  virtual bool seek(std::uint64_t time) = 0;
};

std::unique_ptr<PackedSource> open_packed(const std::string& path, std::string& error);

}  // namespace heapwright::trace
