// Writes the heaps that own_heap.h and cpython.h read, as the JSON of heapwright-diagnose.
#pragma once

#include <nlohmann/json.hpp>

#include "cpython.h"
#include "own_heap.h"

namespace heapwright::diagnose {

// The keys that the heaps of all allocators have, and further figures of exgen and reaper.
nlohmann::ordered_json to_json(const ClassHeap& heap);
// Likewise for a runtime.
nlohmann::ordered_json to_json(const PythonHeap& heap);

}  // namespace heapwright::diagnose
