// Opens and reads the counters of instructions and energy. See counters.h.
#include "counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "procfs.h"

namespace heapwright::meter {

InstructionCounter::~InstructionCounter() {
  if (file_ >= 0) {
    close(file_);
  }
}

bool InstructionCounter::open(pid_t process) {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof attributes;
  attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
  attributes.disabled = 1;
  attributes.inherit = 1;
  attributes.enable_on_exec = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  file_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, process, -1, -1, PERF_FLAG_FD_CLOEXEC));
  return file_ >= 0;
}

std::optional<std::uint64_t> InstructionCounter::read() const {
  std::array<std::uint64_t, 3> values{};  // count, time enabled, time running
  if (file_ < 0 || ::read(file_, values.data(), sizeof values) != sizeof values || values[2] == 0) {
    return std::nullopt;
  }
  if (values[2] >= values[1]) {
    return values[0];
  }
  // The counter was shared with other events for part of the time.
  return static_cast<std::uint64_t>(static_cast<double>(values[0]) * static_cast<double>(values[1]) /
                                    static_cast<double>(values[2]));
}

EnergyCounter::EnergyCounter() {
  for (int package = 0; package < 64; ++package) {
    const std::string path = "/sys/class/powercap/intel-rapl:" + std::to_string(package) + "/";
    const auto start = read_number(path + "energy_uj");
    const auto range = read_number(path + "max_energy_range_uj");
    if (!start || !range) {
      break;
    }
    domains_.push_back({.path = path + "energy_uj", .start = *start, .range = *range});
  }
}

std::optional<double> EnergyCounter::joules() const {
  if (domains_.empty()) {
    return std::nullopt;
  }
  double sum = 0;
  for (const auto& domain : domains_) {
    const auto end = read_number(domain.path);
    if (!end) {
      return std::nullopt;
    }
    const std::uint64_t used =
        *end >= domain.start ? *end - domain.start : *end + domain.range - domain.start;
    sum += static_cast<double>(used) * 1e-6;
  }
  return sum;
}

}  // namespace heapwright::meter
