// Measures which part of a large block the program touches, when its memory may have been used
// before: such pages are resident, whether the program touches them or not.
//
// mark_resident_pages() writes marks into the resident pages of a new block, whose content is
// undefined; touched_part() counts a page whose marks are all there as not touched:
//
//     block ──┬────────┬────────┬─── ─ ───┬────────┬──
//             │ page 1 │ page 2 │         │ page n │      at most kMarkedPages pages, spread evenly;
//             └────────┴────────┴─── ─ ───┴────────┘      first and last page are shared with others
//                ▲  ▲                                     two cache lines of each
//
// A mark is a function of its address, so nothing is kept about a block. Words of zeros are not
// marked: a program that wrongly takes new memory for zeroed behaves as without the recorder.
// Where a program fills all blocks of a size, only some of them are marked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heapwright::recorder {

// Marks a block of `size` bytes that malloc has just returned. Not for blocks that have content
// (calloc, realloc).
void mark_resident_pages(void* block, std::size_t size);

// Returns how many bytes of a block are resident, in whole pages.
std::size_t resident_part(std::uintptr_t address, std::size_t size);

// Returns how many bytes of a block were touched, in whole pages: the resident ones without those
// that the marks say are untouched. Reads the block, so no other thread may free it meanwhile.
std::size_t touched_part(std::uintptr_t address, std::size_t size);

}  // namespace heapwright::recorder
