// Takes the watcher's periodic readings, each within a share of the wall time: all processes, new
// ones, mappings, proportional memory, the cgroup. See watcher.h.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "watcher.h"

namespace heapwright::meter {
namespace {

constexpr double kScanEvery = 0.1;
// A scan may take 1/kScanShare of the time.
constexpr double kScanShare = 100;
constexpr double kPollScanShare = 25;
constexpr double kCountShare = 1000;
constexpr double kRefreshShare = 400;
constexpr double kGroupShare = 500;

// Adds the memory of a process to the tree's, which is dropped with a warning if the process is
// there but could not be read (errno says why).
//
// sum       of the tree; nullopt once it has been dropped
// one       of the process
// what      the figures, and their verb, for the warning
// warnings  gets it
void add_memory(std::optional<Rollup>& sum, const std::optional<Rollup>& one, const char* what,
                std::set<std::string>& warnings) {
  if (one && sum) {
    *sum += *one;
  } else if (!one && errno != ESRCH && errno != ENOENT) {
    warnings.insert(std::string(what) +
                    " the time in which a process could not be read: " + std::strerror(errno));
    sum.reset();
  }
}

}  // namespace

// Counts the mappings of a process, unless that was done recently: it takes 1 ms for about 3,000 of
// them.
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
  // A back end that sees calls knows most processes already; polling finds them only here.
  const bool polling = mapping_calls_ == 0;
  const double spent = now() - began;
  next_scan_ = time + (polling ? kPollScanShare * spent : std::max(kScanEvery, kScanShare * spent));
}

// Reads all known processes. A process that has ended leaves the ledger at once, so that no total
// includes both it and memory that was allocated after its end.
std::vector<std::pair<pid_t, Statm>> Watcher::read_all(double time) {
  std::vector<std::pair<pid_t, Statm>> readings;
  std::vector<pid_t> dead;
  for (auto& [process, state] : processes_) {
    if (const auto memory = read_process(process, state)) {
      readings.emplace_back(process, *memory);
      continue;
    }
    errno = 0;
    const auto status = read_status(process);
    const bool unknown = !status && (errno == EMFILE || errno == ENFILE);
    if (!unknown && (!status || status->threads <= 1)) {
      dead.push_back(process);
    }
  }
  for (const pid_t process : dead) {
    process_ended(process, time);
  }
  return readings;
}

// Reads one process, and adds its memory by kind to the tree's if that is requested.
std::optional<Rollup> Watcher::read_memory(pid_t task, TreeBreakdown& tree) const {
  if (!parts_) {
    return read_rollup(task);
  }
  const auto found = read_breakdown(task);
  if (!found) {
    return std::nullopt;
  }
  tree.sum.rss += found->rss;
  tree.sum.pss += found->pss;
  ++tree.processes;
  const Rollup memory{.rss = found->rss.sum(), .pss = found->pss.sum()};
  if (memory.pss > tree.busiest_pss) {
    tree.busiest_pss = memory.pss;
    tree.busiest = executable_of(task);
    tree.busiest_files = found->program_files;
  }
  return memory;
}

// Reads the proportional set sizes of all processes if a reading is due.
void Watcher::read_pss(double time, PssSampler::Moment moment) {
  if (pss_) {
    pss_->observe(ledger_);
  }
  // A child that is not known yet shares its parent's pages; without it the sum would be too small.
  const bool complete = !forked_ || (ledger_.live() == 1 && moment == PssSampler::Moment::kExit);
  if (!pss_ || !complete || !pss_->due(time, ledger_, moment)) {
    return;
  }
  const double began = cpu_now();
  std::optional<Rollup> sum(Rollup{});
  TreeBreakdown tree;
  for (const auto& [process, state] : processes_) {
    if (state.uncounted || state.ending) {
      continue;
    }
    add_memory(sum, read_memory(state.task, tree), "proportional memory leaves out", warnings_);
  }
  if (sum && sum->rss == 0) {
    sum.reset();
  }
  if (parts_ && sum && sum->pss > pss_->peak()) {
    breakdown_ = tree;
  }
  if (!parts_ && sum) {
    huge_.add(time, *sum);
    ledger_.set_huge(sum->huge);
  }
  pss_->read(time, cpu_now() - began, ledger_, sum);
}

// Counts the huge pages of all processes if a reading is due. Readings of proportional memory count
// them too, except those by kind of memory.
void Watcher::read_huge(double time, bool exiting) {
  if ((pss_ && !parts_) || ledger_.live() == 0 || !huge_.due(time, ledger_.total().rss, exiting)) {
    return;
  }
  const double began = cpu_now();
  std::optional<Rollup> sum(Rollup{});
  for (const auto& [process, state] : processes_) {
    if (state.uncounted || state.ending) {
      continue;
    }
    add_memory(sum, read_rollup(state.task), "huge pages leave out", warnings_);
  }
  huge_.spend(time, cpu_now() - began, ledger_.total().rss);
  if (sum && sum->rss > 0) {
    huge_.add(time, *sum);
    ledger_.set_huge(sum->huge);
  }
}

// Finds the memory cgroup of the tree and reads its figures. To find it takes longer than to read
// it, so the figures are read more often.
void Watcher::look_at_group(double time) {
  const double began = cpu_now();
  if (time < next_group_) {
    if (time >= next_usage_) {
      group_.read();
      next_usage_ = time + kGroupShare * (cpu_now() - began);
    }
    return;
  }
  if (!processes_.contains(root_)) {  // its id may belong to another process
    group_.read();
    return;
  }
  std::vector<pid_t> tree;
  for (const auto& [process, state] : processes_) {
    if (!state.ending) {
      tree.push_back(process);
    }
  }
  group_.look(root_, tree);
  next_group_ = time + kGroupShare * (cpu_now() - began);
}

// Reads CPU time and page faults of the processes for which nobody waits. A parent that no longer
// ignores SIGCHLD will wait: then the kernel counts the process.
void Watcher::read_unwaited(double time) {
  for (auto at = unwaited_.begin(); at != unwaited_.end();) {
    Unwaited& lost = at->second;
    if (!lost.ended && waits_for_children(lost.parent)) {
      at = unwaited_.erase(at);
      continue;
    }
    // Before the usage is read, so that it includes the children for which the process has waited.
    std::erase_if(lost.children, [process = at->first](pid_t child) {
      const auto stat = read_stat(child);
      return !stat || stat->parent != process;
    });
    const auto usage = lost.ended ? std::nullopt : read_usage(at->first);
    ++at;
    if (!usage) {
      continue;
    }
    lost.threaded |= usage->threads > 1;
    if (time > lost.read) {
      lost.rate = std::max(0.0, usage->cpu_s() - lost.usage.cpu_s()) / (time - lost.read);
    }
    lost.usage = *usage;
    lost.read = time;
    if (lost.threaded) {
      lost.usage.doubt_s = std::max(lost.usage.doubt_s, 2 * clock_tick_s());
    }
  }
}

void Watcher::tick(double time) {
  auto readings = read_all(time);
  read_unwaited(time);
  const bool reads_pss = pss_ && pss_->due(time, ledger_, PssSampler::Moment::kOrdinary);
  if (reads_pss || time >= next_scan_ || (forked_ && time + kScanEvery >= next_scan_)) {
    scan(time, readings);
  }
  const bool refreshing = time >= next_refresh_;
  double spent = 0;
  for (const auto& [process, memory] : readings) {
    const auto at = processes_.find(process);
    if (at == processes_.end() || !sample(process, memory, time, 0) || at->second.uncounted ||
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
  read_huge(time, false);
  look_at_group(time);
}

}  // namespace heapwright::meter
