// Divides the memory of processes into kinds: program and libraries, files, stacks, libc's heap,
// other.
//
// The source is /proc/PID/smaps. Each mapping counts as a whole for one kind:
//
//   program   files of which the process maps some page executable; the executable's
//             zero-initialised data (bss)
//   files     all other files, and memory that processes share (shmem, memfd)
//   stacks    the main stack. Stacks of other threads are unnamed mappings and count as other
//   heap      [heap], and the 64 MiB arenas of glibc: unnamed mappings that hold an address on a
//             64 MiB boundary, and that end, with the reserved pages behind them, on such a
//             boundary
//   other     all other anonymous memory: blocks that malloc maps by themselves, other allocators,
//             thread stacks
//
// A rule in doubt counts a mapping as heap or other, never as program, files or stacks: their sum
// is an upper bound of what malloc holds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace heapwright::meter {

struct Parts {
  std::uint64_t program = 0;
  std::uint64_t files = 0;
  std::uint64_t stacks = 0;
  std::uint64_t heap = 0;
  std::uint64_t other = 0;

  [[nodiscard]] std::uint64_t sum() const { return program + files + stacks + heap + other; }
  Parts& operator+=(const Parts& more);
};

// Bytes by RSS and by PSS, and the paths of the files that count as program.
struct Breakdown {
  Parts rss;
  Parts pss;
  std::set<std::string> program_files;
};

// `executable`: the path of the process's program, as mappings name it.
Breakdown parse_smaps(const std::string& text, const std::string& executable);
// Returns the path of a process's program; empty if the process has ended.
std::string executable_of(pid_t pid);
// Returns nullopt with errno set, as read_rollup does. Takes as long as read_rollup, and about 5 us
// more for each mapping.
std::optional<Breakdown> read_breakdown(pid_t pid);

}  // namespace heapwright::meter
