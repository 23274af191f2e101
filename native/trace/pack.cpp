#include "pack.h"

namespace heapwright::trace {

bool pack(EventSource& source, const std::string& path, Packed& done, std::string& error,
          std::uint64_t tick) {
  const auto writer = PackedWriter::create(path, source.header(), error, tick);
  if (!writer) {
    return false;
  }
  const bool complete = source.header().sample == 0;
  Event event;
  while (source.next(event)) {
    if (complete) {
      done.ticks += is_tick(event.kind) ? 1 : 0;
    } else if (event.kind == Kind::kTicks) {
      done.ticks += event.value;
    }
    if (!writer->add(event)) {
      error = writer->error();
      return false;
    }
  }
  done.loss = source.loss();
  if (!writer->finish(done.loss)) {
    error = writer->error();
    return false;
  }
  done.summary = writer->summary();
  return true;
}

}  // namespace heapwright::trace
