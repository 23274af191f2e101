// Starts a child process that does something and then waits to be killed.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace heapwright::meter {

class Child {
 public:
  explicit Child(void (*what)()) : pid_(fork()) {
    if (pid_ == 0) {
      what();
      while (true) {
        pause();
      }
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {  // kill(-1) would end every process of the user
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Polls until the condition holds; returns false after a long time.
  template <class Condition>
  [[nodiscard]] bool reaches(Condition condition) const {
    for (int i = 0; i < 10000 && !condition(); ++i) {
      usleep(1000);
    }
    return condition();
  }

 private:
  pid_t pid_;
};

}  // namespace heapwright::meter
