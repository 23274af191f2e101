// Tells the compiler where to put code: the fast paths inline, the cold ones out of line and small.
// Only a few pages of an allocator's code stay in memory, and so in the caches, if the rarely used
// code is not mixed with the rest.
#pragma once

#define HEAPWRIGHT_INLINE __attribute__((always_inline)) inline
#define HEAPWRIGHT_COLD __attribute__((noinline, cold))
