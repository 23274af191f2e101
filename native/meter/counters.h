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
//
// A counter wraps after about 260 kJ: in 87 minutes at 50 W, in 4 at 1 kW. So it is read every half
// a minute.
class EnergyCounter {
 public:
  // folder  the kernel's, or one like it
  explicit EnergyCounter(const std::string& folder = "/sys/class/powercap");
  // Called at every tick: reads the counters if that is due.
  void tick(double time);
  // Reads the counters. nullopt if there are none, or one could not be read.
  [[nodiscard]] std::optional<double> joules();
  [[nodiscard]] bool works() const { return !domains_.empty(); }

 private:
  struct Domain {
    std::string path;
    std::uint64_t last = 0;   // microjoules
    std::uint64_t range = 0;  // the counter wraps here
  };
  void read();

  std::vector<Domain> domains_;
  double next_ = 0;        // when a reading is due
  std::uint64_t sum_ = 0;  // microjoules
};

}  // namespace heapwright::meter
