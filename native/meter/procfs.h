// What the kernel says of a process, from /proc: read only, nothing cached here but file descriptors.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heapwright::meter {

// One line of /proc/PID/statm, in bytes. `data` is private writable memory, the main stack included.
struct Statm {
  std::uint64_t vm = 0;
  std::uint64_t rss = 0;
  std::uint64_t data = 0;
};

struct Status {
  pid_t tgid = 0;
  std::uint64_t vm_peak = 0;
  std::uint64_t rss_peak = 0;
  std::uint64_t stack = 0;  // the main stack's mapping
  int threads = 0;
};

struct Stat {
  pid_t parent = 0;
  bool dead = false;              // a zombie; threads may go on without it
  bool exiting = false;           // on its way there, or there (PF_EXITING)
  bool not_executed = false;      // forked and has not called exec since (PF_FORKNOEXEC)
  std::uint64_t start_stack = 0;  // tells one program image from the next
};

// Of /proc/PID/smaps_rollup, in bytes. A page that n processes map counts 1/n in `pss`.
struct Rollup {
  std::uint64_t rss = 0;
  std::uint64_t pss = 0;
};

// Opens /proc/TID/statm; stays bound to that very task, whatever becomes of the number. -1 if it has gone.
int open_statm(pid_t tid);
// nullopt when the task has gone or has no memory any more, as a zombie has none.
std::optional<Statm> read_statm(int file);
std::optional<Status> read_status(pid_t pid);
std::optional<Stat> read_stat(pid_t pid);
// Sums up all mappings of a process. The kernel walks its page tables for that: about 7 ms per GiB. nullopt
// with errno set; ESRCH and ENOENT say that the process has gone or has no memory any more.
std::optional<Rollup> read_rollup(pid_t pid);
// How many mappings a process has. Reading takes time in proportion to them.
std::optional<std::uint64_t> count_maps(pid_t pid);
// The threads of a process, its leader among them even when only a zombie is left of that.
std::vector<pid_t> threads_of(pid_t pid);
// Direct children of all its threads; empty where the kernel does not tell.
std::vector<pid_t> children_of(pid_t pid);
// All descendants, not `pid` itself.
std::vector<pid_t> descendants_of(pid_t pid);

// Whether a process descends from `ancestor`, or is it, or has gone meanwhile.
bool descends_from(pid_t pid, pid_t ancestor);

// Whether a process still runs on its parent's memory, as after vfork.
bool shares_memory(pid_t pid, const Stat& stat);

// A whole small file, or /proc/PID/NAME; empty if it cannot be read.
std::string read_text(const std::string& path);
std::string read_proc(pid_t pid, const char* name);
// The number that a file begins with.
std::optional<std::uint64_t> read_number(const std::string& path);

// Seconds on the monotonic clock, and seconds of CPU time that this thread has used.
double now();
double cpu_now();

}  // namespace heapwright::meter
