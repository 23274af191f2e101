// Limits the tool's life and memory. The tool works for the process that started it and reads its
// output, so it ends when that process ends. It takes no more memory than the machine has
// available.
#pragma once

#include <cstdint>

namespace heapwright::trace {

// The kernel kills this process when the thread that started it ends.
void die_with_parent();

// Returns the bytes that can be allocated without swapping, as the kernel estimates them; the
// greatest 64-bit number if it does not.
std::uint64_t available_memory();

// Limits the data of this process to so many bytes. A request beyond them throws std::bad_alloc.
void limit_memory(std::uint64_t bytes);

}  // namespace heapwright::trace
