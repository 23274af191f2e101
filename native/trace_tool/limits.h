// What a tool of ours may take of the machine. It works for a process that started it and reads its output: when that is gone nobody
// wants the result, so it goes too; and it has no more memory than there is.
#pragma once

#include <cstdint>

namespace heapwright::trace {

// The kernel kills this process when the thread that started it ends.
void die_with_parent();

// Bytes that can be taken without swapping: what the kernel says is available, or all a 64-bit number holds where it says nothing.
std::uint64_t available_memory();

// From now on a request for memory beyond so many bytes of data is refused: std::bad_alloc.
void limit_memory(std::uint64_t bytes);

}  // namespace heapwright::trace
