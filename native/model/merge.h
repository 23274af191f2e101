// Makes a model smaller: neighbouring size classes become one, those first whose difference matters least.
#pragma once

#include <cstddef>

#include "model.h"

namespace heapwright::model {

// Merges until the model's JSON has at most so many bytes, or no more than twelve classes are left; true where it fits.
bool merge_until(Model& model, std::size_t bytes);

}  // namespace heapwright::model
