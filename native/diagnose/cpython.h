// Reads the arenas of CPython's own allocator (pymalloc) in another process, without stopping it.
//
// pymalloc serves objects of at most 512 bytes. It takes arenas from the kernel, divides them into
// pools, and each pool into blocks of one size:
//
//     3.8 and 3.9    arenas of 256 KiB, pools of 4 KiB
//     3.10 to 3.14   arenas of 1 MiB, pools of 16 KiB (without a radix tree 256 KiB and 4 KiB)
//
// `arenas`, a static variable, points to an array of arena objects. It has no exported symbol, and
// its address is another one in each build. So the reader tries every pointer in the writable data
// of the interpreter's library or executable. It accepts an array only if its entries point to
// arenas whose pools have headers that fit: each holds the number of its arena and the end of its
// last block. Both layouts are tried; where neither fits, nothing is returned.
//
// The counts are those of sys._debugmallocstats(). They belong to the main interpreter and to those
// that share its arenas. Since 3.12 an interpreter may have arenas of its own: these are not found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory.h"
#include "size_class.h"

namespace heapwright::diagnose {

// All figures are in bytes unless they say otherwise.
struct PythonHeap {
  std::string name;  // such as "CPython 3.11"; a free-threaded build has a t behind it
  // False: the process changed the arenas during each attempt to read them. Each figure may then be
  // wrong by what it changed during the last one.
  bool consistent = false;
  std::uint64_t arenas = 0;  // 0: the interpreter does not use pymalloc
  std::uint64_t arena_bytes = 0;
  std::optional<std::uint64_t> resident_bytes;    // of the arenas
  std::uint64_t live_bytes = 0;                   // in allocated blocks
  std::uint64_t free_bytes = 0;                   // in free blocks of pools in use, and in free pools
  std::optional<std::uint64_t> free_pages_bytes;  // in memory, in wholly free pools
  std::uint64_t free_arenas = 0;                  // without any allocated block
  std::vector<SizeClass> classes;                 // `spans` are pools
};

// Reads the arenas. nullopt: the process runs no CPython from 3.8 to 3.14, or its arenas were not
// found.
std::optional<PythonHeap> read_cpython(const Memory& memory);

}  // namespace heapwright::diagnose
