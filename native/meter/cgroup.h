// Reads the peak memory of the process tree's own memory cgroup, if it has one.
//
// A cgroup is the tree's own if it and the groups below it hold every process of the tree and no other process
// but the meter. That is so where the meter was started in a fresh scope or container, or where the command
// moves itself into one (`systemd-run --scope`). The kernel charges a group with everything that its processes
// use: page cache, page tables and other kernel memory too. A meter in the group adds its own 1 MiB.
//
// Version 2 has memory.peak (Linux 5.19) and memory.current, version 1 has memory.max_usage_in_bytes and
// memory.usage_in_bytes. A peak from before the run does not count: where the kernel's peak has not risen
// since then, the figure is the largest current usage that was seen.
//
// Invariant: once a foreign process was seen in a group, or a process of the tree outside, that group has no
// figure any more.
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

// Finds the memory cgroup of a process. `cgroup` is the text of its /proc/PID/cgroup, `mountinfo` that of
// /proc/self/mountinfo. nullopt where none is mounted or the process is outside of what is mounted.
std::optional<MemoryGroup> memory_group(const std::string& cgroup, const std::string& mountinfo);

// The processes in a group and in those below it. 0 stands for a process outside our PID namespace.
std::vector<pid_t> members_of(const std::string& folder);

// The kernel's figures for a group, in bytes; nullopt where it does not tell.
std::optional<std::uint64_t> group_peak(const MemoryGroup& group);
std::optional<std::uint64_t> group_usage(const MemoryGroup& group);

class TreeGroup {
 public:
  // `meter`: the process whose descendants are the tree.
  explicit TreeGroup(pid_t meter);
  // Looks which group `root` is in and who else is there, and reads the group's figures. `tree`: the processes
  // of the tree that are known to live.
  void look(pid_t root, const std::vector<pid_t>& tree);
  // The same for a given group.
  void look_at(const MemoryGroup& group, const std::vector<pid_t>& tree);
  // Reads the figures again, whoever is in the group.
  void read();
  // In bytes; nullopt where the tree has no group of its own or the kernel does not tell.
  [[nodiscard]] std::optional<std::uint64_t> peak() const;

 private:
  [[nodiscard]] bool is_own(const MemoryGroup& group, const std::vector<pid_t>& members,
                            const std::vector<pid_t>& tree) const;

  pid_t meter_;
  std::string mountinfo_;
  std::optional<MemoryGroup> group_;
  bool seen_ = false;    // its members
  bool shared_ = false;  // with others, for good
  std::optional<std::uint64_t> peak_before_;
  std::uint64_t peak_ = 0;
  std::uint64_t largest_usage_ = 0;
};

}  // namespace heapwright::meter
