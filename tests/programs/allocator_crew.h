// Keeps worker threads that sleep until they get work, as OpenMP threads do between parallel
// regions. In allocator_owners, the main thread decides which worker does what, and when.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "allocator_churn.h"

namespace heapwright::shadow {

class Worker {
 public:
  Worker() : thread_(start(body, this)) {}
  ~Worker() {
    begin(nullptr);
    pthread_join(thread_, nullptr);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Starts the work; `work` must live until await() returns.
  void begin(const std::function<void()>* work) {
    const std::lock_guard guard(mutex_);
    work_ = work;
    busy_ = true;
    changed_.notify_all();
  }
  void await() {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [this] { return !busy_; });
  }
  void run(const std::function<void()>& work) {
    begin(&work);
    await();
  }

 private:
  static void* body(void* raw) {
    auto& self = *static_cast<Worker*>(raw);
    for (;;) {
      std::unique_lock guard(self.mutex_);
      self.changed_.wait(guard, [&self] { return self.busy_; });
      if (self.work_ == nullptr) {
        return nullptr;
      }
      guard.unlock();
      (*self.work_)();
      guard.lock();
      self.busy_ = false;
      self.changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool busy_ = false;
  pthread_t thread_;  // last, because the thread uses the other members
};

// Runs `work` in all workers at once, and waits for them. `workers` has `count` elements; `work`
// gets the worker's index.
inline void together(Worker* workers, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::function<void()> jobs[16];
  for (std::size_t i = 0; i < count; ++i) {
    jobs[i] = [&work, i] { work(i); };
    workers[i].begin(&jobs[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    workers[i].await();
  }
}

}  // namespace heapwright::shadow
