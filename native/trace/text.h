// Converts events to lines of text and back, for tests and for reading: `heapwright-trace dump` and
// `parse`.
//
//   TIME THREAD malloc|calloc OBJECT SIZE        TIME THREAD realloc|free_sized OBJECT SIZE
//   TIME THREAD aligned OBJECT SIZE ALIGNMENT    TIME THREAD usable_size OBJECT
//   TIME THREAD free OBJECT [TOUCHED]            TIME THREAD touched|touched_so_far OBJECT TOUCHED
//   TIME THREAD thread_start|thread_end|end      TIME THREAD VALUE_KIND VALUE
//
// VALUE_KIND is one of fork, phase, resident, ticks, untouched, heap, files, spawn.
//
// Times are in nanoseconds. Empty lines and comments from a '#' on are skipped.
#pragma once

#include <string>

#include "event.h"

namespace heapwright::trace {

std::string to_text(const Event& event);

// Reads an event from a line.
//
// line   the line
// event  gets the event
// error  gets the reason if the line is no event; empty for an empty line
//
// Returns false if the line is no event.
bool from_text(const std::string& line, Event& event, std::string& error);

}  // namespace heapwright::trace
