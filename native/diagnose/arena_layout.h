// Finds glibc's malloc_state structures (arenas) and its malloc_par in another process.
//
//   malloc_state   mutex, flags | fastbinsY[10] | top | last_remainder | bins[254] | binmap |
//                  next | next_free | attached_threads | system_mem | max_system_mem
//
// The structures have no exported names, and what stands before the bins differs: versions 2.27 to
// 2.42 have ten fastbins, 2.43 has none. So the main arena is found by its bins, in the writable
// data of libc or of the executable: the two pointers of an empty bin point 16 bytes before
// themselves. The arenas form a ring over `next`, which must lead back to the main arena. That also
// tells how far before its bins an arena begins.
//
// Before the first call of malloc the bins are zero. Then the main arena is found by its `next`,
// which leads to itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memory.h"
#include "page_map.h"

namespace heapwright::diagnose {

struct ArenaLayout {
  std::uint64_t main = 0;             // address of the main arena
  std::uint64_t bins_offset = 0;      // of the bins in a malloc_state
  std::vector<std::uint64_t> arenas;  // addresses, the main arena first

  // Addresses of fields of the arena at `arena`.
  [[nodiscard]] std::uint64_t flags(std::uint64_t arena) const { return arena + 4; }
  [[nodiscard]] std::uint64_t fastbins(std::uint64_t arena) const { return bins(arena) - 16 - 80; }
  [[nodiscard]] std::uint64_t top(std::uint64_t arena) const { return bins(arena) - 16; }
  [[nodiscard]] std::uint64_t bins(std::uint64_t arena) const { return arena + bins_offset; }
  [[nodiscard]] std::uint64_t next(std::uint64_t arena) const { return bins(arena) + kBinBytes; }
  [[nodiscard]] std::uint64_t attached_threads(std::uint64_t arena) const { return next(arena) + 16; }
  [[nodiscard]] std::uint64_t system_mem(std::uint64_t arena) const { return next(arena) + 24; }
  [[nodiscard]] std::uint64_t end(std::uint64_t arena) const { return next(arena) + 40; }
  [[nodiscard]] bool has_fastbins() const { return bins_offset >= 16 + 80; }

  static constexpr std::uint64_t kBins = 127;
  static constexpr std::uint64_t kBinBytes = kBins * 16 + 16;  // with the binmap
};

// What malloc_par says of blocks that have a mapping of their own.
struct MappedBlocks {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> resident;  // bytes in memory; nullopt if not known
};

// nullopt: no arena was found, so the process has no glibc malloc, or one of an unknown layout.
std::optional<ArenaLayout> find_arenas(const Memory& memory, const PageMap& page_map,
                                       const std::vector<Mapping>& mappings);

// Joins adjacent mappings at the program break: the kernel splits [heap] at pages with other flags,
// and in forked processes. An unnamed mapping behind [heap] also belongs to the heap if it begins
// below `end`, the end of the last chunk.
std::vector<Mapping> heap_runs(const std::vector<Mapping>& mappings, std::uint64_t end);

// Without `resident`. nullopt: malloc_par was not found near the main arena.
std::optional<MappedBlocks> find_mapped_blocks(const Memory& memory, const PageMap& page_map,
                                               const ArenaLayout& layout,
                                               const std::vector<Mapping>& mappings);

}  // namespace heapwright::diagnose
