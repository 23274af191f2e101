// Makes a model smaller: neighbouring size classes become one, those first whose difference matters least.
#pragma once

#include <cstddef>

#include "model.h"

namespace heapwright::model {

// Class c becomes into[c]; those that become the same are merged.
void renumber(Model& model, const std::vector<std::uint32_t>& into);

// Merges until the model's JSON has at most so many bytes, or hardly any classes are left; true where it fits.
bool merge_until(Model& model, std::size_t bytes);

// Where very many threads end only some of them do in the model, evenly; and the last of each number, which has no successor.
void thin(std::vector<ThreadEnd>& ends);

}  // namespace heapwright::model
