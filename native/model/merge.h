// Makes a model smaller: merges neighbouring size classes, first those whose difference matters
// least for live bytes.
#pragma once

#include <cstddef>

#include "model.h"

namespace heapwright::model {

// Gives class c the number into[c]. Classes that get the same number are merged.
void renumber(Model& model, const std::vector<std::uint32_t>& into);

// Merges until the JSON of the model has at most so many bytes. Returns false if it is larger with
// the fewest classes.
bool merge_until(Model& model, std::size_t bytes);

// Shortens a long list of thread ends: keeps an even choice, and the last end of each number, after
// which no new thread starts.
void thin(std::vector<ThreadEnd>& ends);

}  // namespace heapwright::model
