// Reads facts about processes from /proc. Caches nothing but file descriptors.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heapwright::meter {

// The kernel counts resident pages in batches for each processor, so its counters are off by up to
// about this much. For PSS it walks the pages.
constexpr std::uint32_t kCounterError = 1 << 20;

// One line of /proc/PID/statm, in bytes. `data` is private writable memory, the main stack
// included. `anonymous` is the resident memory that is no page of a file.
struct Statm {
  std::uint64_t vm = 0;
  std::uint64_t rss = 0;
  std::uint64_t anonymous = 0;
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
  std::string name;
  pid_t parent = 0;
  bool dead = false;              // a zombie; threads may go on without it
  bool exiting = false;           // exiting or a zombie (PF_EXITING)
  bool not_executed = false;      // forked and has not called exec since (PF_FORKNOEXEC)
  bool kernel_thread = false;     // PF_KTHREAD
  bool ignores_children = false;  // ignores SIGCHLD: nobody waits for its children
  std::uint64_t start = 0;        // clock ticks since boot; tells it from a later process of its number
  std::uint64_t start_stack = 0;  // differs from one program image to the next
  std::uint64_t start_brk = 0;    // 0 if the kernel hides it
};

// CPU time and page faults of a process, with those of the children for which it has waited.
struct Usage {
  double user_s = 0;
  double sys_s = 0;
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  double doubt_s = 0;  // the CPU time may be larger by up to this much
  int threads = 1;

  [[nodiscard]] double cpu_s() const { return user_s + sys_s; }

  Usage& operator+=(const Usage& more) {
    user_s += more.user_s;
    sys_s += more.sys_s;
    minor_faults += more.minor_faults;
    major_faults += more.major_faults;
    doubt_s += more.doubt_s;
    return *this;
  }
};

// Figures of /proc/PID/smaps_rollup, in bytes. A page that n processes map counts 1/n in `pss`.
struct Rollup {
  std::uint64_t rss = 0;
  std::uint64_t pss = 0;
  std::uint64_t anonymous = 0;
  std::uint64_t huge = 0;  // anonymous memory in huge pages
  std::uint64_t swap = 0;

  Rollup& operator+=(const Rollup& more) {
    rss += more.rss;
    pss += more.pss;
    anonymous += more.anonymous;
    huge += more.huge;
    swap += more.swap;
    return *this;
  }
};

// A line of /proc/PID/maps, or the first line of a mapping in smaps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t inode = 0;
  std::string_view access;  // "rw-p"
  std::string_view path;    // empty for anonymous memory; [heap] and [stack] as the kernel names them
};

// Opens /proc/TID/statm. The descriptor stays bound to this task, even if its number is used again.
// Returns -1 if the task has ended.
int open_statm(pid_t tid);
// Returns nullopt if the task has ended or is a zombie, which has no memory.
std::optional<Statm> read_statm(int file);
std::optional<Status> read_status(pid_t pid);
// Waits for the end of a call that changes the mappings of a process, if one is under way.
void wait_for_mapping(pid_t pid);
std::optional<Stat> read_stat(pid_t pid);
// Whether a process is there and does not ignore SIGCHLD. One that is exiting shows no signals.
bool waits_for_children(pid_t pid);
// Returns the unit in which the kernel gives CPU times in /proc, usually 10 ms.
double clock_tick_s();
// Returns nullopt if the process has ended.
std::optional<Usage> read_usage(pid_t pid);
// Sums up all mappings of a process. The kernel walks its page tables for that: about 7 ms per GiB.
// nullopt with errno set; ESRCH and ENOENT mean that the process has ended or is a zombie.
std::optional<Rollup> read_rollup(pid_t pid);
// Returns the number of mappings of a process. Takes time in proportion to it.
std::optional<std::uint64_t> count_maps(pid_t pid);
// Returns the threads of a process, including its leader even if that is a zombie.
std::vector<pid_t> threads_of(pid_t pid);
// Returns the direct children of all its threads; empty if the kernel does not list them.
std::vector<pid_t> children_of(pid_t pid);
// Returns all descendants, without `pid` itself.
std::vector<pid_t> descendants_of(pid_t pid);

// Returns whether a process is `ancestor` or descends from it, or has ended meanwhile.
bool descends_from(pid_t pid, pid_t ancestor);

// Returns whether a process still shares its parent's memory, as after vfork.
bool shares_memory(pid_t pid, const Stat& stat);

// Parses a line of a mapping; nullopt if it is none. A line feed or a zero stands behind the line.
std::optional<Mapping> parse_mapping(std::string_view line);
// Calls f(line) for each line of a text.
template <typename F>
void each_line(std::string_view text, F f) {
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    f(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

// Reads a whole small file, or /proc/PID/NAME up to about `limit` bytes; empty if it cannot be read.
std::string read_text(const std::string& path);
std::string read_proc(pid_t pid, const char* name, std::size_t limit = SIZE_MAX);
// Reads the number at the beginning of a file.
std::optional<std::uint64_t> read_number(const std::string& path);

// Returns seconds on the monotonic clock; seconds of CPU time that this thread has used.
double now();
double cpu_now();

}  // namespace heapwright::meter
