// Reads the peak memory of the process tree's own memory cgroup, if it has one.
//
// A cgroup is the tree's own if it and the groups below it hold every process of the tree and no
// other process but the meter. That is so if the meter was started in a fresh scope or container,
// or if the command moves itself into one (`systemd-run --scope`). The kernel charges a group with
// everything that its processes use: page cache, page tables and other kernel memory too. A meter
// in the group adds its own 1 MiB.
//
// Version 2 has memory.peak (Linux 5.19) and memory.current, version 1 has
// memory.max_usage_in_bytes and memory.usage_in_bytes. A peak from before the run does not count:
// if the kernel's peak has not risen since then, the figure is the largest current usage that was
// seen.
//
// Invariant: a group has no figure from then on if a foreign process was seen in it, or a process
// of the tree outside it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heapwright::meter {

struct MemoryGroup {
  std::string folder;
  int version = 2;
  bool operator==(const MemoryGroup&) const = default;
};

// Finds the memory cgroup of a process. `cgroup` is the text of its /proc/PID/cgroup, `mountinfo`
// that of /proc/self/mountinfo. nullopt if none is mounted, or the process is outside the mounted
// part.
std::optional<MemoryGroup> memory_group(const std::string& cgroup, const std::string& mountinfo);

// The processes in a group and in those below it. 0 stands for a process outside our PID namespace.
std::vector<pid_t> members_of(const std::string& folder);

// The kernel's figures for a group, in bytes; nullopt if the kernel does not have them.
std::optional<std::uint64_t> group_peak(const MemoryGroup& group);
std::optional<std::uint64_t> group_usage(const MemoryGroup& group);

class TreeGroup {
 public:
  // `meter`: the process whose descendants are the tree.
  explicit TreeGroup(pid_t meter);
  // Finds the group of `root` and its other members, and reads its figures. `tree`: the known live
  // processes of the tree.
  void look(pid_t root, const std::vector<pid_t>& tree);
  // The same for a given group.
  void look_at(const MemoryGroup& group, const std::vector<pid_t>& tree);
  // Reads the figures again without looking at the members.
  void read();
  // In bytes; nullopt if the tree has no group of its own or the kernel does not have the figure.
  [[nodiscard]] std::optional<std::uint64_t> peak() const;

 private:
  [[nodiscard]] bool is_own(const MemoryGroup& group, const std::vector<pid_t>& members,
                            const std::vector<pid_t>& tree) const;

  pid_t meter_;
  std::string mountinfo_;
  std::optional<MemoryGroup> group_;
  bool seen_ = false;    // its members have been read
  bool shared_ = false;  // with foreign processes; never reset
  std::optional<std::uint64_t> peak_before_;
  std::uint64_t peak_ = 0;
  std::uint64_t largest_usage_ = 0;
};

}  // namespace heapwright::meter
