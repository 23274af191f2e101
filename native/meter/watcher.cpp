// Calls and processes as the watcher sees them. watcher_tick.cpp has what it reads from time to time.
#include "watcher.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace heapwright::meter {
namespace {

constexpr std::size_t kMaxThreads = 512;  // descriptors kept open
constexpr double kPartsScale = 5;

}  // namespace

Watcher::Watcher(Ledger& ledger, bool pss, bool parts)
    : ledger_(ledger),
      pss_(pss ? std::optional(PssSampler(parts ? kPartsScale : 1)) : std::nullopt),
      parts_(parts),
      group_(getpid()) {}

Watcher::~Watcher() {
  for (const auto& [tid, thread] : threads_) {
    close(thread.statm);
  }
}

void Watcher::started(pid_t root, double time) {
  root_ = root;
  if (pss_) {
    pss_->start(time);
  }
  adopt(root, true);
  look_at_group(time);
}

void Watcher::adopt(pid_t process, bool uncounted) {
  const auto [at, fresh] = processes_.try_emplace(process);
  if (!fresh) {
    return;
  }
  ++seen_;
  at->second.task = process;
  at->second.uncounted = uncounted;
  const int statm = open_statm(process);
  if (statm >= 0) {
    threads_[process] = {.statm = statm, .process = process};
  }
  if (!uncounted) {
    if (const auto stat = read_stat(process)) {
      at->second.start_stack = stat->start_stack;
    }
    refresh(at->second);
  }
}

void Watcher::discover(pid_t process) {
  if (ignored_.contains(process)) {
    return;
  }
  const int statm = open_statm(process);
  const bool has_memory =
      read_statm(statm).has_value();  // else it is dying and may have been counted already
  close(statm);
  const auto stat = read_stat(process);
  if (stat && ((has_memory && !stat->dead) || threads_of(process).size() > 1)) {
    adopt(process, shares_memory(process, *stat));
  }
}

// Reads the memory of a thread's process, and says which that is. nullopt: it has gone.
std::optional<Statm> Watcher::read_thread(pid_t thread, pid_t& process) {
  auto known = threads_.find(thread);
  if (known != threads_.end()) {
    process = known->second.process;
    if (const auto memory = read_statm(known->second.statm)) {
      return memory;
    }
    close(known->second.statm);  // the number may be another task's by now
    threads_.erase(known);
  }
  const auto status = read_status(thread);
  if (!status) {
    return std::nullopt;
  }
  process = status->tgid;
  if (threads_.size() >= kMaxThreads) {
    forget_threads(0);
  }
  if (!processes_.contains(process)) {
    discover(process);
  }
  known = threads_.find(thread);
  if (known == threads_.end()) {
    known = threads_.emplace(thread, Thread{.statm = open_statm(thread), .process = process}).first;
  }
  return read_statm(known->second.statm);
}

// Reads the memory of a process. A leader that called pthread_exit has none, while its threads go on with it.
std::optional<Statm> Watcher::read_process(pid_t process, Process& state) {
  pid_t owner = 0;
  if (const auto memory = read_thread(state.task, owner); memory && owner == process) {
    return memory;
  }
  for (const pid_t thread : threads_of(process)) {
    if (const auto memory = read_thread(thread, owner); memory && owner == process) {
      state.task = thread;
      return memory;
    }
  }
  return std::nullopt;
}

// Closes the descriptors of a process's threads, or (0) of all that are not leaders.
void Watcher::forget_threads(pid_t process) {
  for (auto at = threads_.begin(); at != threads_.end();) {
    const bool leader = at->first == at->second.process;
    if (process == 0 ? !leader : at->second.process == process) {
      close(at->second.statm);
      at = threads_.erase(at);
    } else {
      ++at;
    }
  }
}

void Watcher::refresh(Process& state) {
  if (const auto status = read_status(state.task); status && status->vm_peak != 0) {
    state.stack = status->stack;
    vm_peak_ = std::max(vm_peak_, status->vm_peak);
    max_threads_ = std::max(max_threads_, status->threads);
  }
}

void Watcher::new_image(pid_t process, Process& state, const Stat& stat, double time) {
  ledger_.gone(process, time);  // the old image's memory went with it: that is no memory given back
  state.uncounted = false;
  state.start_stack = stat.start_stack;
  state.stacks = ThreadStacks{};
  refresh(state);
}

// One reading into the ledger; false when the task has gone meanwhile. `calls`: it is at a call's entry, so it is
// not within exec.
bool Watcher::sample(pid_t process, Statm memory, double time, bool calls) {
  const auto at = processes_.find(process);
  if (at == processes_.end() || at->second.ending) {
    return true;
  }
  Process& state = at->second;
  if (state.uncounted || state.exec_pending) {
    const auto stat = read_stat(process);
    if (!stat) {
      return false;
    }
    // Within exec there is a moment when the new image has no stack yet: what is read then would be wrong for
    // as long as nobody looks again. (It also reads 0 where we may not look: then the next reading has to
    // do.)
    if (!stat->not_executed && !stat->dead && stat->start_stack == 0 && !state.settling) {
      state.settling = true;
      return true;
    }
    state.settling = false;
    // A dead leader does not tell its stack; but an exec, whoever's, would have made it live again.
    const bool moved = !stat->dead && stat->start_stack != state.start_stack;
    if (!stat->not_executed && (state.uncounted || moved)) {
      new_image(process, state, *stat, time);
    }
    if (!state.uncounted) {
      // What was read may still be the old image, with vfork its parent's memory. And exec tells where the stack
      // starts before it grows it by 128 KiB (setup_arg_pages): both figures are to be from one side of that.
      std::uint64_t stack = 0;
      do {
        stack = state.stack;
        const auto fresh = read_process(process, state);
        if (!fresh) {
          return false;
        }
        memory = *fresh;
        refresh(state);
      } while (state.stack != stack);
    }
    state.exec_pending = state.exec_pending && !calls;
  }
  if (!state.uncounted) {
    state.stacks.reading(memory.data);
    const std::uint64_t stacks = std::min(memory.data, state.stack + state.stacks.bytes());
    ledger_.sample(process, time, {.vm = memory.vm, .rss = memory.rss, .heap = memory.data - stacks});
  }
  return true;
}

void Watcher::called(pid_t thread, const CallArguments& call, double time) {
  mapping_calls_ += is_mapping(call.call) ? 1 : 0;
  pid_t process = 0;
  const auto memory = read_thread(thread, process);
  const auto at = processes_.find(process);
  if (!memory || at == processes_.end() || !sample(process, *memory, time, true)) {
    return;
  }
  if (!at->second.ending && !at->second.uncounted) {
    at->second.stacks.called(thread, call);
  }
  ledger_.released(process, thread);
  if (gives_back(call)) {
    ledger_.releasing(process, thread);
  }
  read_pss(time, moment_of(at->second, call));
  call_effects(process, at->second, call, time);
}

// What a call means for proportional memory: whether it is the last chance to see what is there.
PssSampler::Moment Watcher::moment_of(Process& state, const CallArguments& call) {
  using Moment = PssSampler::Moment;
  switch (call.call) {
    case Call::kExit:
      return Moment::kExit;
    case Call::kExec:
      return Moment::kReleasing;
    case Call::kBrk: {
      if (call.values[0] == 0) {  // a question
        return Moment::kOrdinary;
      }
      const std::uint64_t before = std::exchange(state.heap_end, call.values[0]);
      return call.values[0] < before ? Moment::kReleasing : Moment::kOrdinary;
    }
    default:
      return gives_back(call) ? Moment::kReleasing : Moment::kOrdinary;
  }
}

void Watcher::call_effects(pid_t process, Process& state, const CallArguments& call, double time) {
  switch (call.call) {
    case Call::kExit:
      if (!state.uncounted && !state.ending) {
        refresh(state);
        count_mappings(state, time);
      }
      if (process == root_) {
        next_group_ = 0;  // its cgroup may go with it
        look_at_group(time);
      }
      state.ending = true;
      ledger_.gone(process, time);
      break;
    case Call::kExec:
      if (!state.uncounted) {
        refresh(state);
      }
      state.exec_pending = true;
      break;
    case Call::kFork:
      forked_ = true;
      break;
    case Call::kOwnListener:
      warnings_.insert(
          "the program installs a seccomp listener of its own, which cannot work beside ours: use --meter "
          "ptrace");
      break;
    case Call::kOwnStrictMode:
      warnings_.insert(
          "the program asks for seccomp strict mode, which fails under our filter: use --meter poll");
      break;
    default:
      if (call.call == Call::kMadvise && call.values[2] == MADV_FREE) {
        ledger_.lazily_returned(call.values[1]);
      }
      break;
  }
}

void Watcher::executed(pid_t process) {
  const auto at = processes_.find(process);
  if (at != processes_.end()) {
    at->second.exec_pending = true;
  }
}

void Watcher::gone(pid_t process, double time) {
  ledger_.gone(process, time);
  forget_threads(process);
  processes_.erase(process);
}

}  // namespace heapwright::meter
