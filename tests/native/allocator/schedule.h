// Explores all orders in which a few threads can take their steps. Each thread is a function on its
// own stack that yields before each step. A run follows one order to its end; the next run takes
// another branch. States that were seen before (the contents of memory, and the values that each
// thread has read so far) are not explored again.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace heapwright::alloc::test {

class Scheduler {
 public:
  // Runs every order until an error is found.
  //
  // begin    sets the memory of the threads up anew, before each run
  // threads  the functions of the threads
  // digest   returns a hash of that memory
  // verdict  returns the error that a complete run has left, or ""
  //
  // Returns the error, or "".
  std::string explore(const std::function<void()>& begin, const std::vector<std::function<void()>>& threads,
                      const std::function<std::uint64_t()>& digest,
                      const std::function<std::string()>& verdict) {
    current_ = this;
    choices_.clear();
    seen_.clear();
    runs = 0;
    do {
      begin();
      run(threads, digest);
      ++runs;
      if (error_.empty() && !in_seen_state_) {
        error_ = verdict();
      }
      if (!error_.empty()) {
        break;
      }
    } while (next_order());
    states = seen_.size();
    return error_;
  }

  // Called by a thread before each of its steps: other threads may take theirs first.
  static void step() { current_->yield(nullptr); }
  // Likewise, before a step that has to wait until `holds` returns true.
  static void wait_until(const std::function<bool()>& holds) { current_->yield(&holds); }
  // Records a value that the thread has read, because its next steps depend on it.
  static void note(std::uint64_t value) {
    Thread& thread = current_->threads_[current_->running_];
    thread.history = mix(thread.history, value);
  }
  static void fail(const char* what) {
    if (current_->error_.empty()) {
      current_->error_ = what;
    }
  }
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    a = (a * 0x9e3779b97f4a7c15U) ^ (b + 0xbf58476d1ce4e5b9U);
    a = (a ^ a >> 30U) * 0x94d049bb133111ebU;
    return a ^ a >> 31U;
  }
  static std::size_t running() { return current_->running_; }

  std::size_t runs = 0;
  std::size_t states = 0;

 private:
  static constexpr std::size_t kStack = 64 * 1024;
  struct Thread {
    ucontext_t context{};  // for the first switch to a stack; then setjmp, which is no system call
    std::jmp_buf place{};
    bool begun = false;
    std::vector<char> stack = std::vector<char>(kStack);
    const std::function<void()>* body = nullptr;
    const std::function<bool()>* waits_for = nullptr;
    std::uint64_t history = 0;
    bool done = false;
  };
  // Which thread takes the next step: `taken` is an index of the runnable threads `of`.
  struct Choice {
    std::size_t taken;
    std::vector<std::size_t> of;
  };

  static void begin_thread() {
    Thread& thread = current_->threads_[current_->running_];
    (*thread.body)();
    thread.done = true;
    _longjmp(current_->main_, 1);
  }
  void yield(const std::function<bool()>* holds) {
    Thread& thread = threads_[running_];
    thread.waits_for = holds;
    thread.history = mix(thread.history, 0);
    if (_setjmp(thread.place) == 0) {
      _longjmp(main_, 1);
    }
    thread.waits_for = nullptr;
  }

  void run(const std::vector<std::function<void()>>& bodies, const std::function<std::uint64_t()>& digest) {
    in_seen_state_ = false;
    threads_.resize(bodies.size());
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      Thread& thread = threads_[i];
      thread.body = &bodies[i];
      thread.done = false;
      thread.history = 0;
      thread.waits_for = nullptr;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = kStack;
      thread.context.uc_link = nullptr;
      thread.begun = false;
      makecontext(&thread.context, begin_thread, 0);
    }
    for (std::size_t depth = 0;; ++depth) {
      std::vector<std::size_t> runnable;
      bool all_done = true;
      for (std::size_t i = 0; i < threads_.size(); ++i) {
        all_done = all_done && threads_[i].done;
        if (!threads_[i].done && (threads_[i].waits_for == nullptr || (*threads_[i].waits_for)())) {
          runnable.push_back(i);
        }
      }
      if (runnable.empty()) {
        if (!all_done) {
          fail("all threads wait for each other");
        }
        return;
      }
      if (depth < choices_.size()) {
        running_ = choices_[depth].of[choices_[depth].taken];
      } else {
        std::uint64_t state = digest();
        for (const Thread& thread : threads_) {
          state = mix(state, thread.history);
        }
        if (!seen_.insert(state).second) {
          choices_.push_back({0, {0}});
          in_seen_state_ = true;
          return;
        }
        running_ = runnable.front();
        choices_.push_back({0, runnable});
      }
      resume(threads_[running_]);
    }
  }
  void resume(Thread& thread) {
    if (_setjmp(main_) != 0) {
      return;
    }
    if (!std::exchange(thread.begun, true)) {
      setcontext(&thread.context);
    }
    _longjmp(thread.place, 1);
  }
  // Chooses the next order. Returns false if all have been run.
  bool next_order() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of.size()) {
      choices_.pop_back();
    }
    if (choices_.empty()) {
      return false;
    }
    ++choices_.back().taken;
    return true;
  }

  static inline Scheduler* current_ = nullptr;
  std::jmp_buf main_{};
  std::vector<Thread> threads_;
  std::size_t running_ = 0;
  std::vector<Choice> choices_;
  std::unordered_set<std::uint64_t> seen_;
  bool in_seen_state_ = false;  // this run has reached a state that an earlier one has explored
  std::string error_;
};

// The part of std::atomic that BasicRemoteQueue uses. compare_exchange_weak never fails spuriously.
class Word {
 public:
  void store(std::uint32_t value, std::memory_order /*order*/) {
    Scheduler::step();
    value_ = value;
  }
  [[nodiscard]] std::uint32_t load(std::memory_order /*order*/) const {
    Scheduler::step();
    Scheduler::note(value_);
    return value_;
  }
  std::uint32_t exchange(std::uint32_t value, std::memory_order /*order*/) {
    Scheduler::step();
    Scheduler::note(value_);
    return std::exchange(value_, value);
  }
  bool compare_exchange_strong(std::uint32_t& seen, std::uint32_t wanted, std::memory_order /*success*/,
                               std::memory_order /*failure*/) {
    Scheduler::step();
    Scheduler::note(value_);
    if (value_ == seen) {
      value_ = wanted;
      return true;
    }
    seen = value_;
    return false;
  }
  bool compare_exchange_weak(std::uint32_t& seen, std::uint32_t wanted, std::memory_order success,
                             std::memory_order failure) {
    return compare_exchange_strong(seen, wanted, success, failure);
  }
  std::uint32_t value_ = 0;
};

// A variable that other threads read.
template <class T>
class Shared {
 public:
  T get() const {
    Scheduler::step();
    Scheduler::note(static_cast<std::uint64_t>(value));
    return value;
  }
  void set(T wanted) {
    Scheduler::step();
    value = wanted;
  }
  T value{};
};

}  // namespace heapwright::alloc::test
