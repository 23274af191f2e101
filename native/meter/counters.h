// Counts retired instructions (perf_event_open) and energy (RAPL), if the machine and the
// permissions allow it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heapwright::meter {

// Counts the instructions in user mode of a process and all its children, from its next exec on.
class InstructionCounter {
 public:
  InstructionCounter() = default;
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  ~InstructionCounter();
  // Returns false with errno set if counters do not work.
  bool open(pid_t process);
  [[nodiscard]] std::optional<std::uint64_t> read() const;

 private:
  int file_ = -1;
};

// Measures the energy of all CPU packages of the machine since construction. RAPL cannot separate
// the target's share.
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
