// See watcher.h.
#include "watcher.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace heapwright::meter {
namespace {

constexpr std::size_t kMaxThreads = 512;  // descriptors kept open
constexpr double kScanEvery = 0.1;
// Looking may cost one part in so many of the time.
constexpr double kScanShare = 100;
constexpr double kPollScanShare = 25;
constexpr double kCountShare = 1000;
constexpr double kRefreshShare = 400;
constexpr double kGroupShare = 500;

}  // namespace

Watcher::Watcher(Ledger& ledger, bool pss)
    : ledger_(ledger), pss_(pss ? std::optional(PssSampler{}) : std::nullopt), group_(getpid()) {}

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

// One reading into the ledger; false when the task has gone meanwhile.
bool Watcher::sample(pid_t process, Statm memory, double time) {
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
      // What was read may still be the old image, with vfork its parent's memory.
      const auto fresh = read_process(process, state);
      if (!fresh) {
        return false;
      }
      memory = *fresh;
    }
    state.exec_pending = false;
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
  if (!memory || at == processes_.end() || !sample(process, *memory, time)) {
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

// Counts the mappings of a process, unless that was done lately: it takes 1 ms for some 3,000 of them.
void Watcher::count_mappings(const Process& state, double time) {
  if (time < next_count_) {
    return;
  }
  const double began = now();
  if (const auto count = count_maps(state.task)) {
    max_maps_ = std::max(max_maps_, *count);
  }
  next_count_ = time + kCountShare * (now() - began);
}

// Looks for processes that have made no watched call yet, and reads them.
void Watcher::scan(double time, std::vector<std::pair<pid_t, Statm>>& readings) {
  const double began = now();
  for (const pid_t process : descendants_of(getpid())) {
    if (processes_.contains(process)) {
      continue;
    }
    discover(process);
    if (const auto at = processes_.find(process); at != processes_.end()) {
      if (const auto memory = read_process(process, at->second)) {
        readings.emplace_back(process, *memory);
      }
    }
  }
  forked_ = false;
  // Who sees calls has seen most processes already; polling sees them only here.
  const bool polling = mapping_calls_ == 0;
  const double spent = now() - began;
  next_scan_ = time + (polling ? kPollScanShare * spent : std::max(kScanEvery, kScanShare * spent));
}

// Readings of all known processes; those that have gone leave the ledger at once, so that no total holds both
// them and what came after them.
std::vector<std::pair<pid_t, Statm>> Watcher::read_all(double time) {
  std::vector<std::pair<pid_t, Statm>> readings;
  std::vector<pid_t> dead;
  for (auto& [process, state] : processes_) {
    if (const auto memory = read_process(process, state)) {
      readings.emplace_back(process, *memory);
      continue;
    }
    const auto status = read_status(process);
    if (!status || status->threads <= 1) {
      dead.push_back(process);
    }
  }
  for (const pid_t process : dead) {
    gone(process, time);
  }
  return readings;
}

// Reads the proportional set sizes of all processes, if it is time for that.
void Watcher::read_pss(double time, PssSampler::Moment moment) {
  // A child that has not been looked for yet shares its parent's pages: without it the sum would be too small.
  const bool complete = !forked_ || (ledger_.live() == 1 && moment == PssSampler::Moment::kExit);
  if (!pss_ || !complete || !pss_->due(time, ledger_, moment)) {
    return;
  }
  const double began = cpu_now();
  std::optional<Rollup> sum(Rollup{});
  for (const auto& [process, state] : processes_) {
    if (state.uncounted || state.ending) {
      continue;
    }
    const auto one = read_rollup(state.task);
    if (one && sum) {
      sum->rss += one->rss;
      sum->pss += one->pss;
    } else if (!one && errno != ESRCH && errno != ENOENT) {
      warnings_.insert(
          std::string("proportional memory leaves out the time in which a process could not be read: ") +
          std::strerror(errno));
      sum.reset();
    }
  }
  if (sum && sum->rss == 0) {
    sum.reset();
  }
  pss_->read(time, cpu_now() - began, ledger_, sum);
}

// Looks which memory cgroup the tree is in, and at its figures.
void Watcher::look_at_group(double time) {
  if (time < next_group_) {
    return;
  }
  const double began = cpu_now();
  std::vector<pid_t> tree;
  for (const auto& [process, state] : processes_) {
    if (!state.ending) {
      tree.push_back(process);
    }
  }
  group_.look(root_, tree);
  next_group_ = time + kGroupShare * (cpu_now() - began);
}

void Watcher::tick(double time) {
  auto readings = read_all(time);
  const bool reads_pss = pss_ && pss_->due(time, ledger_, PssSampler::Moment::kOrdinary);
  if (reads_pss || time >= next_scan_ || (forked_ && time + kScanEvery >= next_scan_)) {
    scan(time, readings);
  }
  const bool refreshing = time >= next_refresh_;
  double spent = 0;
  for (const auto& [process, memory] : readings) {
    const auto at = processes_.find(process);
    if (at == processes_.end() || !sample(process, memory, time) || at->second.uncounted ||
        at->second.ending) {
      continue;
    }
    if (refreshing) {
      const double began = now();
      refresh(at->second);
      spent += now() - began;
    }
    count_mappings(at->second, time);
  }
  if (refreshing) {
    next_refresh_ = time + kRefreshShare * spent;
  }
  ledger_.tick(time);
  read_pss(time, PssSampler::Moment::kOrdinary);
  look_at_group(time);
}

}  // namespace heapwright::meter
