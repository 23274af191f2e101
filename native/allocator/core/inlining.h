// Tells the compiler where to put code: fast paths inline, rarely used functions out of line and
// small. A program then keeps fewer pages of an allocator's code in memory.
#pragma once

#define HEAPWRIGHT_INLINE __attribute__((always_inline)) inline
#define HEAPWRIGHT_COLD __attribute__((noinline, cold))
