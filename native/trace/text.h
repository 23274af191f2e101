// Events as lines of text, for tests and curious people; `heapwright-trace dump` and `parse`.
//
//   TIME THREAD malloc|calloc OBJECT SIZE        TIME THREAD realloc|free_sized OBJECT SIZE
//   TIME THREAD aligned OBJECT SIZE ALIGNMENT    TIME THREAD usable_size OBJECT
//   TIME THREAD free OBJECT [TOUCHED]            TIME THREAD touched OBJECT TOUCHED
//   TIME THREAD thread_start|thread_end          TIME THREAD fork|phase|resident VALUE
//
// Time is in nanoseconds; empty lines and what follows a '#' are passed over.
#pragma once

#include <string>

#include "event.h"

namespace heapwright::trace {

std::string to_text(const Event& event);

// False where the line is no event; an empty line gives a false with an empty `error`.
bool from_text(const std::string& line, Event& event, std::string& error);

}  // namespace heapwright::trace
