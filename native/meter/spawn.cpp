// Starts the target. The parent and the child communicate over a socket pair: one byte lets the
// child go on, an int is its answer (0 or an errno), and the listener is sent by SCM_RIGHTS, the
// only way that containers allow.
#include "spawn.h"

#include <linux/seccomp.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "calls.h"

namespace heapwright::meter {
namespace {

void send_answer(int socket, int value, int file) {
  iovec data{.iov_base = &value, .iov_len = sizeof value};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  (void)!sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Receives the child's answer.
//
// socket  the parent's end of the pair
// value   gets 0 or an errno
// file    gets a descriptor if the child sends one
// flags   of recvmsg
//
// Returns false if the child has ended without an answer.
bool receive_answer(int socket, int& value, int& file, int flags) {
  iovec data{.iov_base = &value, .iov_len = sizeof value};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size = 0;
  do {
    size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof value) {
    return false;
  }
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message); header != nullptr) {
    std::memcpy(&file, CMSG_DATA(header), sizeof file);
  }
  return true;
}

bool wait_for_order(int socket) {
  char order = 0;
  ssize_t size = 0;
  do {
    size = read(socket, &order, 1);
  } while (size < 0 && errno == EINTR);
  return size == 1;
}

void give_order(int socket) { (void)!send(socket, "", 1, MSG_NOSIGNAL); }

}  // namespace

std::string find_program(const char* name) {
  std::string program = name;
  if (program.find('/') != std::string::npos) {
    return program;
  }
  const char* const list = std::getenv("PATH");
  const std::string paths = list == nullptr ? "/usr/local/bin:/usr/bin:/bin" : list;
  int problem = ENOENT;
  for (std::size_t from = 0; from <= paths.size();) {
    const std::size_t end = std::min(paths.find(':', from), paths.size());
    const std::string folder = paths.substr(from, end - from);
    std::string path = (folder.empty() ? "." : folder) + "/" + program;
    struct stat info{};
    if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      if (access(path.c_str(), X_OK) == 0) {
        return path;
      }
      problem = EACCES;
    }
    from = end + 1;
  }
  errno = problem;
  return "";
}

Spawned::~Spawned() {
  for (const int file : {socket_, child_socket_, listener_}) {
    if (file >= 0) {
      close(file);
    }
  }
}

int Spawned::fork_child(const Options& options, std::uint32_t filter_action, const sigset_t& mask,
                        std::string& error) {
  path_ = find_program(options.command[0]);
  if (path_.empty()) {
    const bool there = errno == EACCES;
    error = (there ? std::string("cannot execute ") + options.command[0] + ": " + std::strerror(EACCES)
                   : std::string("command not found: ") + options.command[0]);
    return there ? kCannotExecute : kNotFound;
  }
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    error = std::string("cannot make a socket pair: ") + std::strerror(errno);
    return kFailed;
  }
  socket_ = pair[0];
  child_socket_ = pair[1];
  action_ = filter_action;
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    error = std::string("cannot fork: ") + std::strerror(errno);
    return kFailed;
  }
  if (pid_ == 0) {
    child(options, filter_action, mask, parent);
  }
  close(child_socket_);
  child_socket_ = -1;
  return 0;
}

void Spawned::child(const Options& options, std::uint32_t filter_action, const sigset_t& mask,
                    pid_t parent) const {
  // The waiting child also holds the parent's end of the socket pair, so without this it would wait
  // for a dead meter for ever.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(kFailed);
  }
  // All allocations come before the filter, because the meter's mapping calls are not the target's.
  std::vector<sock_filter> filter;
  if (filter_action != 0) {
    filter = build_filter(filter_action);
  }
  std::vector<char*> script{const_cast<char*>("/bin/sh"), const_cast<char*>(path_.c_str())};
  script.insert(script.end(), options.command.begin() + 1, options.command.end());
  if (!wait_for_order(child_socket_)) {
    _exit(kFailed);
  }
  if (filter_action != 0) {
    const bool listens = filter_action == SECCOMP_RET_USER_NOTIF;
    const int result = install_filter(filter, listens ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0);
    send_answer(child_socket_, result < 0 ? errno : 0, listens ? result : -1);
    if (result < 0 || !wait_for_order(child_socket_)) {
      _exit(kFailed);
    }
    if (listens) {
      close(result);
    }
  }
  prctl(PR_SET_PDEATHSIG,
        0);  // it would survive the exec; from here on the watchdog or the tracer handles the meter's death
  if (options.massif &&
      options.massif_as_valgrind) {  // as under Valgrind, which places programs at fixed addresses
    personality(ADDR_NO_RANDOMIZE);
  }
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execv(path_.c_str(), options.command.data());
  if (errno == ENOEXEC) {  // a script without its #! line, as shells and execvp run it
    execv("/bin/sh", script.data());
  }
  send_answer(child_socket_, errno, -1);
  _exit(kNotFound);
}

bool Spawned::prepare(std::string& error) {
  if (action_ == 0) {
    return true;
  }
  give_order(socket_);
  int answer = 0;
  if (!receive_answer(socket_, answer, listener_, 0) || answer != 0) {
    error = std::string("the seccomp filter cannot be installed: ") +
            (answer != 0 ? std::strerror(answer) : "the child has ended");
    return false;
  }
  return true;
}

void Spawned::release() { give_order(socket_); }

int Spawned::exec_error() {
  int answer = 0;
  int file = -1;
  return receive_answer(socket_, answer, file, MSG_DONTWAIT) ? answer : 0;
}

}  // namespace heapwright::meter
