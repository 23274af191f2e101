#include "process.h"

#include <elf.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "meter/procfs.h"

namespace heapwright::diagnose {
namespace {

std::string process_name(pid_t pid) {
  const auto stat = meter::read_stat(pid);
  return "process " + std::to_string(pid) + (stat ? " (" + stat->name + ")" : "");
}

std::string folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

// The class of the ELF file that the process runs; 0 if it cannot be told.
unsigned char elf_class(pid_t pid) {
  std::array<unsigned char, EI_NIDENT> start{};
  const int file = ::open((folder_of(pid) + "/exe").c_str(), O_RDONLY | O_CLOEXEC);
  const bool read =
      file >= 0 && ::read(file, start.data(), start.size()) == static_cast<ssize_t>(start.size());
  if (file >= 0) {
    (void)::close(file);
  }
  return read && std::memcmp(start.data(), ELFMAG, SELFMAG) == 0 ? start[EI_CLASS] : 0;
}

// Whether the kernel has Yama, and Yama keeps users from reading their own processes.
bool yama_restricts() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope && scope > 0;
}

}  // namespace

std::string why_unreadable(pid_t pid) {
  const auto stat = meter::read_stat(pid);
  if (!stat) {
    return "there is no process " + std::to_string(pid) + " (any more)";
  }
  if (stat->dead) {
    return process_name(pid) + " is a zombie: it has ended, and only its parent can still collect its status";
  }
  if (stat->kernel_thread) {
    return process_name(pid) + " is a thread of the kernel, and has no memory of its own";
  }
  const auto status = meter::read_status(pid);
  if (status && status->tgid != 0 && status->tgid != pid) {
    return std::to_string(pid) + " is a thread of process " + std::to_string(status->tgid) +
           ": diagnose that number";
  }
  if (elf_class(pid) == ELFCLASS32) {
    return process_name(pid) + " is a 32-bit program; only 64-bit programs can be read";
  }
  return "";
}

std::string why_refused(pid_t pid, int error) {
  if (error == ENOENT || error == ESRCH) {
    return process_name(pid) + " ended while it was read";
  }
  if (error != EACCES && error != EPERM) {
    return process_name(pid) + " cannot be read: " + std::strerror(error);
  }
  if (::geteuid() == 0) {
    return process_name(pid) +
           " may not be read: root lacks CAP_SYS_PTRACE here, as in most containers (docker and podman: "
           "--cap-add"
           " SYS_PTRACE), or a security module forbids it";
  }
  struct stat owner{};
  const bool known = ::stat(folder_of(pid).c_str(), &owner) == 0;
  if (known && owner.st_uid != ::geteuid()) {
    const passwd* const user = ::getpwuid(owner.st_uid);
    return process_name(pid) + " belongs to user " +
           (user != nullptr ? std::string(user->pw_name) : std::to_string(owner.st_uid)) +
           " and may not be read: run as that user or as root (CAP_SYS_PTRACE)";
  }
  return process_name(pid) + " may not be read: run as root (CAP_SYS_PTRACE)" +
         (yama_restricts() ? ", or lower kernel.yama.ptrace_scope to 0" : "");
}

std::optional<std::uint64_t> start_of(pid_t pid) {
  const auto stat = meter::read_stat(pid);
  return stat && !stat->dead ? std::optional(stat->start) : std::nullopt;
}

std::uint64_t thread_count(pid_t pid) { return meter::threads_of(pid).size(); }

}  // namespace heapwright::diagnose
