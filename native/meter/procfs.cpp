// Reads /proc with plain read and strtoull, because it does so thousands of times a second.
#include "procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): SIGCHLD is POSIX
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>  // NOLINT(modernize-deprecated-headers): clock_gettime is POSIX
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kForkNoExec = 0x40;          // PF_FORKNOEXEC, include/linux/sched.h
constexpr std::uint64_t kExiting = 0x04;             // PF_EXITING
constexpr std::uint64_t kKernelThread = 0x00200000;  // PF_KTHREAD

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

int open_proc(pid_t pid, const char* name) {
  std::array<char, 64> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/%s", pid, name);
  return open(path.data(), O_RDONLY | O_CLOEXEC);
}

// Reads a small file up to about `limit` bytes; empty if it cannot be read.
std::string read_whole(int file, std::size_t limit = SIZE_MAX) {
  std::string text;
  if (file < 0) {
    return text;
  }
  std::array<char, 4096> buffer{};
  ssize_t size = 0;
  while (text.size() < limit && (size = read(file, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  close(file);
  return text;
}

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Returns the number after "\nName:" in /proc/PID/status and smaps_rollup; sizes there are in KiB.
std::uint64_t status_field(const std::string& text, const char* name) {
  const auto at = text.find(name);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + std::strlen(name), nullptr, 10);
}

// /proc/PID/stat. The fields have their numbers in proc(5), from 4 on.
struct StatFields {
  std::string name;
  char state = 0;
  std::array<std::uint64_t, 48> field{};
};

std::optional<StatFields> read_stat_fields(pid_t pid) {
  const std::string text = read_proc(pid, "stat");
  const auto name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || name_end + 4 >= text.size()) {
    return std::nullopt;
  }
  StatFields stat;
  const auto name = std::min(text.find('('), name_end) + 1;
  stat.name = text.substr(name, name_end - std::min(name, name_end));
  stat.state = text[name_end + 2];
  const char* at = text.c_str() + name_end + 4;  // after ") S "
  for (std::size_t number = 4; number < stat.field.size(); ++number) {
    char* end = nullptr;
    stat.field.at(number) = std::strtoull(at, &end, 10);
    at = end;
  }
  return stat;
}

}  // namespace

int open_statm(pid_t tid) { return open_proc(tid, "statm"); }

std::optional<Statm> read_statm(int file) {
  std::array<char, 160> text{};
  const ssize_t size = pread(file, text.data(), text.size() - 1, 0);
  if (size <= 0) {
    return std::nullopt;
  }
  char* at = text.data();
  std::array<std::uint64_t, 6> fields{};  // size resident shared text lib data
  for (auto& field : fields) {
    field = std::strtoull(at, &at, 10) * page_size();
  }
  if (fields[0] == 0) {
    return std::nullopt;
  }
  return Statm{.vm = fields[0],
               .rss = fields[1],
               .anonymous = fields[1] - std::min(fields[1], fields[2]),
               .data = fields[5]};
}

std::optional<Status> read_status(pid_t pid) {
  const std::string text = read_proc(pid, "status");
  if (text.empty()) {
    return std::nullopt;
  }
  return Status{.tgid = static_cast<pid_t>(status_field(text, "\nTgid:")),
                .vm_peak = status_field(text, "\nVmPeak:") * 1024,
                .rss_peak = status_field(text, "\nVmHWM:") * 1024,
                .stack = status_field(text, "\nVmStk:") * 1024,
                .threads = static_cast<int>(status_field(text, "\nThreads:"))};
}

void wait_for_mapping(pid_t pid) {
  // The kernel reads the command line from the process's memory, under the lock of its mappings.
  // Unlike other files that need the lock, everybody may read this one.
  (void)read_proc(pid, "cmdline", 1);
}

std::optional<Stat> read_stat(pid_t pid) {
  const auto text = read_stat_fields(pid);
  if (!text) {
    return std::nullopt;
  }
  const auto& field = text->field;
  constexpr std::uint64_t kChildSignal = std::uint64_t{1} << (SIGCHLD - 1);
  return Stat{.name = text->name,
              .parent = static_cast<pid_t>(field[4]),
              .dead = text->state == 'Z' || text->state == 'X',
              .exiting = (field[9] & kExiting) != 0,
              .not_executed = (field[9] & kForkNoExec) != 0,
              .kernel_thread = (field[9] & kKernelThread) != 0,
              .ignores_children = (field[33] & kChildSignal) != 0,  // the low 31 ignored signals
              .start = field[22],
              .start_stack = field[28],
              .start_brk = field[47]};
}

bool waits_for_children(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat && !stat->dead && !stat->exiting && !stat->ignores_children;
}

double clock_tick_s() {
  static const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  return tick;
}

std::optional<Usage> read_usage(pid_t pid) {
  const auto text = read_stat_fields(pid);
  if (!text) {
    return std::nullopt;
  }
  const auto& field = text->field;
  const auto seconds = [](std::uint64_t ticks) { return static_cast<double>(ticks) * clock_tick_s(); };
  Usage usage{.user_s = seconds(field[14]),
              .sys_s = seconds(field[15]),
              .minor_faults = field[10] + field[11],
              .major_faults = field[12] + field[13],
              .threads = static_cast<int>(field[20])};
  // Both figures are rounded down to ticks. The scheduler's figure is exact, but it is that of one
  // thread.
  const std::string scheduler = usage.threads == 1 ? read_proc(pid, "schedstat") : "";
  const double exact_s = std::strtod(scheduler.c_str(), nullptr) / 1e9;
  if (exact_s > 0 && exact_s >= usage.cpu_s()) {
    usage.user_s += exact_s - usage.cpu_s();
  } else {
    usage.doubt_s = 2 * clock_tick_s();
  }
  if (field[16] + field[17] > 0) {
    usage.doubt_s += 2 * clock_tick_s();
  }
  usage.user_s += seconds(field[16]);
  usage.sys_s += seconds(field[17]);
  return usage;
}

std::optional<Rollup> read_rollup(pid_t pid) {
  errno = 0;
  const std::string text = read_proc(pid, "smaps_rollup");
  if (text.empty()) {
    errno = errno == 0 ? ESRCH : errno;  // before Linux 6.16 a zombie's is empty
    return std::nullopt;
  }
  return Rollup{.rss = status_field(text, "\nRss:") * 1024,
                .pss = status_field(text, "\nPss:") * 1024,
                .anonymous = status_field(text, "\nAnonymous:") * 1024,
                .huge = status_field(text, "\nAnonHugePages:") * 1024,
                .swap = status_field(text, "\nSwap:") * 1024};
}

std::optional<std::uint64_t> count_maps(pid_t pid) {
  const int file = open_proc(pid, "maps");
  if (file < 0) {
    return std::nullopt;
  }
  std::uint64_t lines = 0;
  std::array<char, 65536> buffer{};
  ssize_t size = 0;
  while ((size = read(file, buffer.data(), buffer.size())) > 0) {
    for (ssize_t i = 0; i < size; ++i) {
      lines += buffer[static_cast<std::size_t>(i)] == '\n' ? 1 : 0;
    }
  }
  close(file);
  return lines;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::array<char, 64> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/task", pid);
  DIR* const tasks = opendir(path.data());
  if (tasks == nullptr) {
    return threads;
  }
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] != '.') {
      threads.push_back(static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10)));
    }
  }
  closedir(tasks);
  return threads;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t thread : threads_of(pid)) {
    std::array<char, 32> name{};
    (void)std::snprintf(name.data(), name.size(), "task/%d/children", thread);
    const std::string text = read_proc(pid, name.data());
    const char* at = text.c_str();
    char* end = nullptr;
    while (const long child = std::strtol(at, &end, 10)) {
      children.push_back(static_cast<pid_t>(child));
      at = end;
    }
  }
  return children;
}

std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> all = children_of(pid);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto more = children_of(all[i]);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

bool descends_from(pid_t pid, pid_t ancestor) {
  constexpr int kTries = 3;  // a parent may end between two readings, and its children get another parent
  for (int tries = 0; tries < kTries; ++tries) {
    pid_t at = pid;
    while (at > 1 && at != ancestor) {
      const auto stat = read_stat(at);
      if (!stat) {
        break;
      }
      at = stat->parent;
    }
    if (at == ancestor || at <= 1) {
      return at == ancestor;
    }
    if (at == pid) {
      return true;
    }
  }
  return false;
}

std::string read_text(const std::string& path) {
  return read_whole(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

std::string read_proc(pid_t pid, const char* name, std::size_t limit) {
  return read_whole(open_proc(pid, name), limit);
}

// "BEGIN-END ACCESS OFFSET DEVICE INODE   PATH"
std::optional<Mapping> parse_mapping(std::string_view line) {
  Mapping mapping;
  const char* const text = line.data();
  char* at = nullptr;
  mapping.begin = std::strtoull(text, &at, 16);
  if (line.empty() || at == text || *at != '-') {
    return std::nullopt;
  }
  mapping.end = std::strtoull(at + 1, &at, 16);
  std::size_t place = static_cast<std::size_t>(at - text) + 1;
  if (*at != ' ' || place + 4 > line.size()) {
    return std::nullopt;
  }
  mapping.access = line.substr(place, 4);
  for (int field = 0; field < 3; ++field) {  // to the inode
    place = line.find(' ', place);
    if (place == std::string_view::npos) {
      return std::nullopt;
    }
    ++place;
  }
  mapping.inode = std::strtoull(text + place, &at, 10);
  place = line.find_first_not_of(' ', static_cast<std::size_t>(at - text));
  mapping.path = place == std::string_view::npos ? std::string_view{} : line.substr(place);
  return mapping;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const std::string text = read_text(path);
  return text.empty() ? std::nullopt : std::optional<std::uint64_t>(std::strtoull(text.c_str(), nullptr, 10));
}

bool shares_memory(pid_t pid, const Stat& stat) {
  if (!stat.not_executed || stat.parent <= 0) {
    return false;
  }
  const long order = syscall(SYS_kcmp, pid, stat.parent, KCMP_VM, 0, 0);
  if (order >= 0) {
    return order == 0;
  }
  // Most containers forbid kcmp. Then processes whose figures agree to the page are taken to share
  // memory.
  const int own_file = open_statm(pid);
  const int parent_file = open_statm(stat.parent);
  const auto own = read_statm(own_file);
  const auto parent = read_statm(parent_file);
  close(own_file);
  close(parent_file);
  return own && parent && own->vm == parent->vm && own->rss == parent->rss && own->data == parent->data;
}

double now() { return seconds_of(CLOCK_MONOTONIC); }

double cpu_now() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace heapwright::meter
