// Handles calls and processes for the watcher. watcher_tick.cpp has the periodic readings.
#include "watcher.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace heapwright::meter {
namespace {

constexpr std::size_t kMaxThreads = 512;  // descriptors held open
constexpr double kPartsScale = 5;
constexpr double kUnknown = std::numeric_limits<double>::infinity();
// A process may use this share of each of its threads' time after its last reading, even if it was
// idle before.
constexpr double kMinRate = 0.1;

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
  ledger_.set_root(root);
  if (pss_) {
    pss_->start(time);
  }
  huge_.start(time);
  thp_before_ = read_thp_events();
  adopt(root, true);
  look_at_group(time);
}

std::optional<std::uint64_t> Watcher::cgroup_peak() const {
  const auto peak = group_.peak();
  return peak && *peak + kCounterError >= ledger_.max_anonymous() ? peak : std::nullopt;
}

void Watcher::finish() {
  group_.read();
  const auto after = read_thp_events();
  if (thp_before_ && after) {
    thp_events_ = ThpEvents{.faults = after->faults - thp_before_->faults,
                            .collapses = after->collapses - thp_before_->collapses};
  }
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
  const auto stat = read_stat(process);
  if (const auto parent = stat && process != root_ ? read_stat(stat->parent) : std::nullopt;
      parent && parent->ignores_children) {
    if (const auto old = unwaited_.find(process); old != unwaited_.end()) {
      reused_ += old->second.usage;
    }
    Unwaited lost;
    lost.parent = stat->parent;
    lost.parent_name = parent->name;
    lost.usage = read_usage(process).value_or(Usage{.doubt_s = kUnknown});
    lost.read = now();
    unwaited_[process] = lost;
  }
  if (const auto above = stat ? unwaited_.find(stat->parent) : unwaited_.end(); above != unwaited_.end()) {
    above->second.children.insert(process);
  }
  if (!uncounted) {
    if (stat) {
      at->second.start_stack = stat->start_stack;
      if (const auto parent = processes_.find(stat->parent); parent != processes_.end()) {
        at->second.stacks = parent->second.stacks.inherited();
      }
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
      read_statm(statm).has_value();  // else it is exiting and may have been counted already
  close(statm);
  const auto stat = read_stat(process);
  if (stat && ((has_memory && !stat->dead) || threads_of(process).size() > 1)) {
    adopt(process, shares_memory(process, *stat));
  }
}

// Reads the memory of a thread's process and finds which process that is. Returns nullopt if it has
// ended.
std::optional<Statm> Watcher::read_thread(pid_t thread, pid_t& process) {
  auto known = threads_.find(thread);
  if (known != threads_.end()) {
    process = known->second.process;
    if (const auto memory = read_statm(known->second.statm)) {
      return memory;
    }
    close(known->second.statm);  // the id may belong to another task by now
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

// Reads the memory of a process. A leader that called pthread_exit has none, but its threads still
// use the memory.
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

// Returns whether mremap may be under way in a thread other than the caller (0 at a tick). Polling
// sees no calls, so it may be at any time.
bool Watcher::may_be_remapping(const Process& state, pid_t caller) const {
  return mapping_calls_ == 0 || (state.remapping != 0 && state.remapping != caller);
}

// Returns a reading without the second copy of a mapping that mremap is moving.
Statm Watcher::settled(pid_t process, Process& state, Statm memory, pid_t caller) {
  const bool grown = memory.vm > state.last.vm || memory.data > state.last.data;
  if (grown && may_be_remapping(state, caller)) {
    wait_for_mapping(state.task);
    if (const auto again = read_process(process, state)) {
      memory.vm = std::min(memory.vm, again->vm);
      memory.data = std::min(memory.data, again->data);
    }
  }
  state.last = memory;
  return memory;
}

void Watcher::refresh(Process& state) {
  auto status = read_status(state.task);
  if (status && status->vm_peak > vm_peak_ && may_be_remapping(state, 0)) {
    wait_for_mapping(state.task);
    status = read_status(state.task);
  }
  if (status && status->vm_peak != 0) {
    state.stack = status->stack;
    vm_peak_ = std::max(vm_peak_, status->vm_peak);
    max_threads_ = std::max(max_threads_, status->threads);
  }
}

void Watcher::new_image(pid_t process, Process& state, const Stat& stat, double time) {
  ledger_.process_ended(process, time);  // the memory of the old image does not count as returned
  state.uncounted = false;
  state.start_stack = stat.start_stack;
  state.stacks = ThreadStacks{};
  refresh(state);
}

// Enters a reading into the ledger.
//
// process  the process
// memory   the reading
// time     seconds since the start
// caller   the thread of it that is at the entry of a call, so that it is not in exec; 0 at a tick
//
// Returns false if the task has ended meanwhile.
bool Watcher::sample(pid_t process, Statm memory, double time, pid_t caller) {
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
    // During exec the new image has no stack for a moment. A reading then would be wrong until the
    // next one. (The field is also 0 if the meter may not read it; then the next reading is taken
    // as it is.)
    if (!stat->not_executed && !stat->dead && stat->start_stack == 0 && !state.settling) {
      state.settling = true;
      return true;
    }
    state.settling = false;
    // A dead leader shows no stack. But an exec, by any thread, would have made the leader alive
    // again.
    const bool moved = !stat->dead && stat->start_stack != state.start_stack;
    if (!stat->not_executed && (state.uncounted || moved)) {
      new_image(process, state, *stat, time);
    }
    if (!state.uncounted) {
      // The reading may still be of the old image, after vfork of the parent's memory. And exec
      // sets the start of the stack before it grows the stack by 128 KiB (setup_arg_pages): both
      // figures must be from the same side of that.
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
    state.exec_pending = state.exec_pending && caller == 0;
  }
  if (!state.uncounted) {
    memory = settled(process, state, memory, caller);
    state.stacks.reading(memory.data);
    const std::uint64_t stacks = std::min(memory.data, state.stack + state.stacks.bytes());
    ledger_.sample(
        process, time,
        {.vm = memory.vm, .rss = memory.rss, .anonymous = memory.anonymous, .heap = memory.data - stacks});
  }
  return true;
}

void Watcher::called(pid_t thread, const CallArguments& call, double time) {
  mapping_calls_ += is_mapping(call.call) ? 1 : 0;
  pid_t process = 0;
  const auto memory = read_thread(thread, process);
  const auto at = processes_.find(process);
  if (!memory || at == processes_.end() || !sample(process, *memory, time, thread)) {
    return;
  }
  if (call.call == Call::kMremap) {
    at->second.remapping = thread;
  } else if (at->second.remapping == thread) {
    at->second.remapping = 0;
  }
  if (!at->second.ending && !at->second.uncounted) {
    at->second.stacks.called(thread, call);
  }
  ledger_.end_release(process, thread);
  if (gives_back(call)) {
    ledger_.begin_release(process, thread);
  }
  read_pss(time, moment_of(at->second, call));
  if (call.call == Call::kExit) {
    read_huge(time, true);
  }
  call_effects(process, at->second, call, time);
}

// Returns whether a call is the last chance to read the present proportional memory.
PssSampler::Moment Watcher::moment_of(Process& state, const CallArguments& call) {
  using Moment = PssSampler::Moment;
  switch (call.call) {
    case Call::kExit:
      return Moment::kExit;
    case Call::kExec:
      return Moment::kReleasing;
    case Call::kBrk: {
      if (call.values[0] == 0) {  // it only asks for the present break
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
      ledger_.process_ended(process, time);
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

// The end of a process that nobody waits for. Since its last reading it may have gone on as before,
// or have waited for a child. Its parent may wait for it after all: then the parent's usage includes
// it.
void Watcher::count_unread(Unwaited& lost, double time) {
  const double rate = std::max(lost.rate.value_or(lost.usage.threads), kMinRate * lost.usage.threads);
  lost.usage.doubt_s += std::max(0.0, time - lost.read) * rate;
  if (!lost.children.empty() || waits_for_children(lost.parent)) {
    lost.usage.doubt_s = kUnknown;
  }
  lost.ended = true;
}

Usage Watcher::unwaited_usage(double end) const {
  Usage sum = reused_;
  for (auto [process, lost] : unwaited_) {
    if (!lost.ended) {
      count_unread(lost, end);
    }
    sum += lost.usage;
  }
  return sum;
}

void Watcher::process_ended(pid_t process, double time) {
  if (const auto at = unwaited_.find(process); at != unwaited_.end() && !at->second.ended) {
    count_unread(at->second, time);
  }
  ledger_.process_ended(process, time);
  forget_threads(process);
  processes_.erase(process);
}

}  // namespace heapwright::meter
