#include "begin.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "blocks.h"
#include "sampling.h"
#include "settings.h"
#include "system.h"

// glibc's since 2.32; weak for other C libraries. The headers of newer ones declare it, but not
// weak.
// NOLINTNEXTLINE(readability-redundant-declaration)
extern "C" [[gnu::weak]] const char* strerrordesc_np(int error) noexcept;

namespace heapwright::recorder {

namespace {

// The file that stderr was at the start.
struct stat stderr_at_start;
bool has_stderr = false;

// The root folder at the start.
struct stat root_at_start;

char folder[3072];
char allocator_name[sizeof(FileHeader::allocator)];
long required_parent = 0;
// The raw file of this process, or of the process it was forked from. Not wiped in a forked child,
// which has to close it.
int last_file = -1;
struct stat last_file_status;
// `heapwright record` had removed the parent's raw file when this process was forked.
bool parent_packed = false;
int mark_signal = 0;

// Returns whether the tick counters of all processors agree and run at one speed. The kernel does
// not use the counter as its clock source if it has found them to disagree.
bool ticks_agree() {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kInvariant = 1U << 8;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0 || (d & kInvariant) == 0) {
    return false;
  }
  char source[64];
  sys::read_start("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof(source));
  return std::strncmp(source, "tsc", 3) == 0 || std::strncmp(source, "kvm-clock", 9) == 0 ||
         std::strncmp(source, "hyperv_clocksource_tsc_page", 27) == 0;
#elif defined(__aarch64__)
  // The architecture requires that the counters agree. Its errata make the kernel choose another
  // clock source, or trap the instruction and then say so by the name of the source.
  char source[64];
  sys::read_start("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof(source));
  std::uint64_t hertz = 0;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
  if (std::strncmp(source, "arch_sys_counter", 16) != 0 || hertz == 0) {
    return false;
  }
  constexpr std::uint64_t kRate = 1'500'000'000;  // ticks of a second that a unit is meant for
  while (hertz << tick_shift < kRate && tick_shift < 8) {
    ++tick_shift;
  }
  return true;
#else
  return false;
#endif
}

// Notes in the raw file at a path, if it is this process's, that its recording ended by exec, and
// not because the process was killed. A process with the same id may have made it: ids are used
// again, and each container has its own.
void end_replaced(const char* path) {
  const int file = sys::open_file(path, O_RDWR);
  if (file < 0) {
    return;
  }
  const auto read = [file](auto& value, std::size_t where) {
    return syscall(SYS_pread64, file, &value, sizeof(value), static_cast<off_t>(where)) ==
           static_cast<long>(sizeof(value));
  };
  std::uint64_t start = 0;
  Ending ending{};
  if (read(start, offsetof(FileHeader, process_start)) && start == sys::process_start() &&
      read(ending, offsetof(FileHeader, ending)) && ending == Ending::kRunning) {
    ending = Ending::kReplaced;
    sys::write_at(file, &ending, sizeof(ending), offsetof(FileHeader, ending));
  }
  sys::close_file(file);
}

// Makes the file PID-K.raw with the first free number K. A process that calls exec has several
// recordings, with K from 0. Returns a descriptor, or -1 with errno set.
int make_file(Session& into, int pid) {
  for (unsigned k = 0;; ++k) {
    (void)std::snprintf(into.path, sizeof(into.path), "%s/%d-%u.raw", folder, pid, k);
    const int file = sys::open_file(into.path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0 || errno != EEXIST) {
      if (file >= 0 && k > 0) {
        char before[sizeof(into.path)];
        (void)std::snprintf(before, sizeof(before), "%s/%d-%u.raw", folder, pid, k - 1);
        end_replaced(before);
      }
      return file;
    }
  }
}

// Whether `heapwright record` has made the folder (src/heapwright/trace/raw_files.py).
bool is_own_folder() {
  constexpr char kSuffix[] = ".recording";
  const std::size_t length = std::strlen(folder);
  return length >= sizeof(kSuffix) && std::strcmp(folder + length - (sizeof(kSuffix) - 1), kSuffix) == 0;
}

// Whether `last_file` is still the file that it was; gets its status.
bool is_inherited(struct stat& status) {
  return last_file >= 0 && fstat(last_file, &status) == 0 && status.st_dev == last_file_status.st_dev &&
         status.st_ino == last_file_status.st_ino;
}

void fill_header(const Session& session, FileHeader& h, int pid, bool forked) {
  h.version = kVersion;
  h.block_bytes = kBlockBytes;
  h.clock = clock_kind;
  h.page_size = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
  h.pid = static_cast<std::uint64_t>(pid);
  h.parent = static_cast<std::uint64_t>(getppid());
  const std::uint64_t now_ns = monotonic_ns();
  const std::uint64_t now_stamp = clock_now<true>();
  const bool has_fork = session.fork_ns != 0;
  h.first_ns = has_fork ? session.fork_ns : now_ns;
  h.first_stamp = has_fork ? session.fork_stamp : now_stamp;
  h.last_ns.store(now_ns, std::memory_order_relaxed);
  h.last_stamp.store(now_stamp, std::memory_order_relaxed);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  h.start = static_cast<std::uint64_t>(now.tv_sec) - (now_ns - h.first_ns) / 1'000'000'000;
  h.resident_at_start = sys::resident_memory().all;
  h.forked = forked ? 1 : 0;
  h.sample = kSampling ? sampling.rate : 0;
  h.windowed = sampling.windowed ? 1 : 0;
  h.process_start = sys::process_start();
  std::memcpy(h.allocator, allocator_name, sizeof(h.allocator));
  if (readlink("/proc/self/exe", h.executable, sizeof(h.executable) - 1) < 0) {
    h.executable[0] = 0;
  }
  h.command_bytes =
      static_cast<std::uint32_t>(sys::read_start("/proc/self/cmdline", h.command, sizeof(h.command)));
  h.magic = kFileMagic;
}

}  // namespace

Sampling sampling;

void set_allocator(const char* library) {
  (void)std::snprintf(allocator_name, sizeof(allocator_name), "%s", library);
}

int phase_signal() { return mark_signal; }

void configure() {
  const sys::KeepErrno keep;
  has_stderr = fstat(STDERR_FILENO, &stderr_at_start) == 0;
  (void)stat("/", &root_at_start);
  if (getauxval(AT_SECURE) != 0) {
    return;  // a privileged program, such as set-user-ID: its caller must not choose where it writes
  }
  constexpr std::size_t kMax = std::size_t{8} << 20;  // more than Linux allows for an environment
  void* const room =
      mmap(nullptr, kMax, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return;
  }
  auto* const environment = static_cast<char*>(room);
  std::size_t bytes = sys::read_start("/proc/self/environ", environment, kMax);
  if constexpr (kSampling) {
    bytes += append_settings(environment + bytes, kMax - bytes);
  }
  const char* const where = variable(environment, bytes, kFolderVariable);
  const char* const parent = variable(environment, bytes, kParentVariable);
  const char* const clock = variable(environment, bytes, kClockVariable);
  const char* const mark = variable(environment, bytes, kSignalVariable);
  if constexpr (kSampling) {
    read_sampling(environment, bytes);
  }
  if (where != nullptr && std::strlen(where) < sizeof(folder)) {
    std::memcpy(folder, where, std::strlen(where) + 1);
  }
  required_parent = parent == nullptr ? 0 : std::strtol(parent, nullptr, 10);
  mark_signal = mark == nullptr ? 0 : static_cast<int>(std::strtol(mark, nullptr, 10));
  const bool monotonic = clock != nullptr && std::strcmp(clock, "monotonic") == 0;
  munmap(room, kMax);
  if (folder[0] == 0) {
    return;
  }
  clock_kind = !monotonic && ticks_agree() ? ClockKind::kTsc : ClockKind::kMonotonic;
  void* const memory = mmap(nullptr, sizeof(Session), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || madvise(memory, sizeof(Session), MADV_WIPEONFORK) != 0) {
    print_error("nothing is recorded: there is no memory for it, or Linux is older than 4.14", errno);
    return;
  }
  session = static_cast<Session*>(memory);  // all zeroes: a session that has not begun
}

bool is_packed(int error) {
  struct stat root{};
  return error == ENOENT && is_own_folder() && stat("/", &root) == 0 && root.st_dev == root_at_start.st_dev &&
         root.st_ino == root_at_start.st_ino;
}

bool begin_file(Session& into, bool forked) {
  const int pid = sys::process_id();
  if (required_parent != 0 && getppid() != required_parent) {
    return false;
  }
  if (forked) {
    close_inherited_file();
  }
  const int file = move_to_high_descriptor(make_file(into, pid));
  struct stat is{};
  void* header = MAP_FAILED;
  const int error = file < 0 ? errno : sys::reserve(file, 0, kBlockBytes);
  if (file >= 0 && error == 0 && fstat(file, &is) == 0) {
    header = mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (header == MAP_FAILED) {
    const int why = error != 0 ? error : errno;
    if (!(is_packed(why) || (parent_packed && why == ENOENT))) {
      print_error("nothing is recorded of this process: its file cannot be made", why);
    }
    if (file >= 0) {
      sys::close_file(file);
      unlink(into.path);
    }
    return false;
  }
  madvise(header, kBlockBytes, MADV_DONTFORK);
  into.file.store(file, std::memory_order_relaxed);
  last_file = file;
  last_file_status = is;
  into.device = is.st_dev;
  into.inode = is.st_ino;
  into.linked = is.st_nlink != 0;
  into.header = static_cast<FileHeader*>(header);
  into.window.store(sampling.windowed ? WindowState::kBefore : WindowState::kNone, std::memory_order_relaxed);
  if (kSampling && !set_bound(into, sampling.max_bytes)) {
    print_error("the file has no bound, because there is no memory for one", errno);
  }
  fill_header(into, *into.header, pid, forked);
  return true;
}

void close_inherited_file() {
  struct stat inherited{};
  if (is_inherited(inherited)) {
    parent_packed = inherited.st_nlink == 0;
    sys::close_file(last_file);
  }
  last_file = -1;
}

int move_to_high_descriptor(int file) {
  if (file < 0) {
    return file;
  }
  rlimit limits{};
  constexpr rlim_t kHigh = 1024;
  constexpr rlim_t kFew = 16;
  const rlim_t limit =
      getrlimit(RLIMIT_NOFILE, &limits) == 0 && limits.rlim_cur < kHigh ? limits.rlim_cur : kHigh;
  const int high =
      limit > kFew ? static_cast<int>(syscall(SYS_fcntl, file, F_DUPFD_CLOEXEC, limit - kFew)) : -1;
  if (high < 0) {
    return file;
  }
  sys::close_file(file);
  return high;
}

void print_error(const char* what, int error) {
  char line[512];
  char number[32];
  (void)std::snprintf(number, sizeof(number), "error %d", error);
  const char* const reason = strerrordesc_np == nullptr ? number : strerrordesc_np(error);
  const int length = std::snprintf(line, sizeof(line), "heapwright: %s (process %d: %s)\n", what,
                                   sys::process_id(), reason == nullptr ? number : reason);
  // A program that has closed stderr may have a file of its own with that number now.
  struct stat stderr_now{};
  const bool same = has_stderr && fstat(STDERR_FILENO, &stderr_now) == 0 &&
                    stderr_now.st_dev == stderr_at_start.st_dev &&
                    stderr_now.st_ino == stderr_at_start.st_ino;
  if (length > 0 && same) {
    sys::write_file(STDERR_FILENO, line,
                    static_cast<std::size_t>(length) < sizeof(line) ? static_cast<std::size_t>(length)
                                                                    : sizeof(line) - 1);
  }
}

}  // namespace heapwright::recorder
