// Names the kinds of wrong pointers that a heap can detect, and the function that it reports them
// to.
#pragma once

#include <cstdint>

namespace heapwright::alloc {

enum class Fault : std::uint8_t {
  kForeign,         // no block of this allocator begins there
  kInterior,        // inside a block, or in memory that belongs to no block
  kDoubleFree,      // the block is free already
  kOverrun,         // the program wrote beyond the end of the block
  kWriteAfterFree,  // the program wrote to the block after freeing it
  kWrongOrigin,     // for example delete[] of a block that came from malloc
  kWrongSize,       // the size given to a sized delete is not the block's
};

using FaultHandler = void (*)(const void* address, Fault fault);

}  // namespace heapwright::alloc
