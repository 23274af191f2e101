// Measures how much of glibc's blocks with a mapping of their own is in memory.
//
// malloc_par tells only their number and the size of their mappings. Each of them begins with the
// header of a chunk, so they are found in the anonymous mappings of the process. The kernel joins
// adjacent mappings, so one line of /proc/PID/maps can hold several blocks, and other memory too.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "arena_layout.h"
#include "memory.h"
#include "page_map.h"

namespace heapwright::diagnose {

// nullopt: the blocks that were found are not those that malloc_par counts.
std::optional<std::uint64_t> resident_of_mapped(const Memory& memory, const PageMap& page_map,
                                                const std::vector<Mapping>& mappings,
                                                const MappedBlocks& expected);

}  // namespace heapwright::diagnose
