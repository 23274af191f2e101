// Retired instructions (perf_event_open) and energy (RAPL), where machine and permissions allow; else
// nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heapwright::meter {

// Instructions in user mode of a process and all its children, from its next exec on.
class InstructionCounter {
 public:
  InstructionCounter() = default;
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  ~InstructionCounter();
  // False with errno set where counters do not work.
  bool open(pid_t process);
  [[nodiscard]] std::optional<std::uint64_t> read() const;

 private:
  int file_ = -1;
};

// Energy of all CPU packages of the machine since construction. Not only the target's: RAPL cannot tell.
class EnergyCounter {
 public:
  EnergyCounter();
  [[nodiscard]] std::optional<double> joules() const;
  [[nodiscard]] bool works() const { return !domains_.empty(); }

 private:
  struct Domain {
    std::string path;
    std::uint64_t start = 0;
    std::uint64_t range = 0;  // the counter wraps here
  };
  std::vector<Domain> domains_;
};

}  // namespace heapwright::meter
