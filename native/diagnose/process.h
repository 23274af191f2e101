// Tells whether a process can be read, and what the kernel says of its memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace heapwright::diagnose {

// Returns the reason why a process cannot be read, as one line for the user; empty if it can be
// read.
std::string why_unreadable(pid_t pid);
// Returns a line for the user about this errno of opening /proc/PID/mem.
std::string why_refused(pid_t pid, int error);
// Moment at which the process began, in clock ticks since boot; tells it from a later process with
// the same number. nullopt if it has ended.
std::optional<std::uint64_t> start_of(pid_t pid);
std::uint64_t thread_count(pid_t pid);

}  // namespace heapwright::diagnose
