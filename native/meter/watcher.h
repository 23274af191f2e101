// Combines the events of a back end (calls, deaths, ticks) with readings of /proc, and keeps the
// ledger. It is the same for every back end; each passes the events that it can see.
//
// Readings are taken at the ENTRY of a call and give the state since the previous call. A reading
// after each call would cost a second stop.
//
// While mremap moves a mapping, the kernel's figures include both its old and its new place: for
// milliseconds if the mapping is large. A tick, or a call of another thread, may read them then, so
// such a reading is repeated once the call is over.
//
// Invariants: a process is in processes_ from its first event until it is known to have ended. An
// 'uncounted' process still shares its parent's memory (vfork), or is the meter's own child before
// its first exec, and is not in the ledger. Readings go through a descriptor that was opened for
// the task, so a reused process id never leads to another process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calls.h"
#include "cgroup.h"
#include "huge.h"
#include "ledger.h"
#include "parts.h"
#include "procfs.h"
#include "pss.h"
#include "stacks.h"

namespace heapwright::meter {

// The memory by kind of all live processes, and of the process with the most memory.
struct TreeBreakdown {
  Breakdown sum;
  std::uint64_t processes = 0;
  std::string busiest;  // the path of its program
  std::set<std::string> busiest_files;
  std::uint64_t busiest_pss = 0;
};

class Watcher {
 public:
  // ledger  is kept by this watcher
  // pss     read proportional set sizes too
  // parts   divide them by kind of memory (parts.h), with five times the budget of readings
  explicit Watcher(Ledger& ledger, bool pss = false, bool parts = false);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher();

  // The meter's own child, before its exec.
  void started(pid_t root, double time);
  // A new process. `uncounted`: it shares its parent's memory.
  void adopt(pid_t process, bool uncounted);
  // A watched call at its entry. Finds the process of the thread itself.
  void called(pid_t thread, const CallArguments& call, double time);
  // The process has a new program image. Back ends that see an exec call this; for others the
  // watcher notices it from its readings.
  void executed(pid_t process);
  // The process has ended, or is about to.
  void process_ended(pid_t process, double time);
  // Called every 10 ms: reads all processes and looks for new ones.
  void tick(double time);
  // All processes have ended: reads the last figures of the cgroup and of the machine.
  void finish();
  // Excludes a child of the meter that is not the target's from the tree.
  void ignore(pid_t process) { ignored_.insert(process); }

  [[nodiscard]] std::uint64_t mapping_calls() const { return mapping_calls_; }
  [[nodiscard]] std::uint64_t vm_peak() const { return vm_peak_; }
  [[nodiscard]] int processes() const { return seen_; }
  // The meter has the rusage of this process.
  void waited_for(pid_t process) { unwaited_.erase(process); }
  // A process whose rusage nobody gets, because its parent ignores SIGCHLD.
  struct Unwaited {
    pid_t parent = 0;
    std::string parent_name;
    Usage usage;                 // at the last reading
    double read = 0;             // the time of that
    std::optional<double> rate;  // CPU time per second between the last two readings
    // Whether it had several threads, so that the scheduler's figure of one is not its CPU time.
    bool threaded = false;
    // Its children at the last reading: it may have waited for one since.
    std::set<pid_t> children;
    bool ended = false;
  };
  [[nodiscard]] const std::map<pid_t, Unwaited>& unwaited() const { return unwaited_; }
  // The last readings of these processes, as a sum. Their doubt includes the time from there to
  // their end. A process that began and ended between two readings is not known.
  //
  // end  the end of the run
  [[nodiscard]] Usage unwaited_usage(double end) const;
  [[nodiscard]] int max_threads() const { return max_threads_; }
  [[nodiscard]] std::uint64_t max_maps() const { return max_maps_; }
  // nullptr unless asked for.
  [[nodiscard]] const PssSampler* pss() const { return pss_ ? &*pss_ : nullptr; }
  [[nodiscard]] const HugePageSampler& huge() const { return huge_; }
  // The huge pages that the kernel made for all processes of the machine during the run; nullopt if
  // it does not count them.
  [[nodiscard]] const std::optional<ThpEvents>& thp_events() const { return thp_events_; }
  // The memory by kind at the largest complete reading; nullopt if not requested, or if there was
  // none.
  [[nodiscard]] const std::optional<TreeBreakdown>& breakdown() const { return breakdown_; }
  // nullopt without a group of its own, or if one process alone had more memory: then the tree was
  // elsewhere for a time.
  [[nodiscard]] std::optional<std::uint64_t> cgroup_peak() const;
  [[nodiscard]] const std::set<std::string>& warnings() const { return warnings_; }

 private:
  struct Process {
    pid_t task = 0;  // through which it is read
    bool uncounted = false;
    bool ending = false;        // at exit_group: later calls of its other threads do not count
    bool exec_pending = false;  // its last call was exec; a reading shows whether that succeeded
    bool settling = false;      // was read while in exec
    Statm last;                 // its last reading
    pid_t remapping = 0;        // the thread whose latest call is mremap, which may not be over
    std::uint64_t stack = 0;
    std::uint64_t start_stack = 0;
    std::uint64_t heap_end = 0;  // as last requested by brk
    ThreadStacks stacks;
  };
  struct Thread {
    int statm = -1;
    pid_t process = 0;
  };

  std::optional<Statm> read_thread(pid_t thread, pid_t& process);
  std::optional<Statm> read_process(pid_t process, Process& state);
  void discover(pid_t process);
  std::vector<std::pair<pid_t, Statm>> read_all(double time);
  bool sample(pid_t process, Statm memory, double time, pid_t caller);
  [[nodiscard]] bool may_be_remapping(const Process& state, pid_t caller) const;
  Statm settled(pid_t process, Process& state, Statm memory, pid_t caller);
  void refresh(Process& state);
  void new_image(pid_t process, Process& state, const Stat& stat, double time);
  void call_effects(pid_t process, Process& state, const CallArguments& call, double time);
  void count_mappings(const Process& state, double time);
  void scan(double time, std::vector<std::pair<pid_t, Statm>>& readings);
  void forget_threads(pid_t process);
  void read_unwaited(double time);
  static void count_unread(Unwaited& lost, double time);
  static PssSampler::Moment moment_of(Process& state, const CallArguments& call);
  std::optional<Rollup> read_memory(pid_t task, TreeBreakdown& tree) const;
  void read_pss(double time, PssSampler::Moment moment);
  void read_huge(double time, bool exiting);
  void look_at_group(double time);

  Ledger& ledger_;
  std::optional<PssSampler> pss_;
  HugePageSampler huge_;
  std::optional<ThpEvents> thp_before_;
  std::optional<ThpEvents> thp_events_;
  bool parts_;
  std::optional<TreeBreakdown> breakdown_;
  TreeGroup group_;
  pid_t root_ = 0;
  std::map<pid_t, Process> processes_;
  std::map<pid_t, Thread> threads_;  // leaders too
  std::set<pid_t> ignored_;
  std::set<std::string> warnings_;
  std::map<pid_t, Unwaited> unwaited_;
  Usage reused_;  // of unwaited processes whose ids belong to later processes
  std::uint64_t mapping_calls_ = 0;
  std::uint64_t vm_peak_ = 0;
  std::uint64_t max_maps_ = 0;
  int seen_ = 0;
  int max_threads_ = 0;
  bool forked_ = false;
  double next_scan_ = 0;
  double next_count_ = 0;
  double next_refresh_ = 0;
  double next_group_ = 0;
  double next_usage_ = 0;
};

}  // namespace heapwright::meter
