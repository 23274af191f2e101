// Opens and reads the counters of instructions and energy. See counters.h.
#include "counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "procfs.h"

namespace heapwright::meter {
namespace {

constexpr int kMaxDomains = 64;
constexpr double kReadEveryS = 30;

}  // namespace

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

EnergyCounter::EnergyCounter(const std::string& folder) {
  for (int number = 0; number < kMaxDomains; ++number) {
    const std::string path = folder + "/intel-rapl:" + std::to_string(number) + "/";
    const std::string name = read_text(path + "name");
    if (name.empty()) {
      break;
    }
    if (!name.starts_with("package-")) {  // psys includes the packages
      continue;
    }
    const auto start = read_number(path + "energy_uj");
    const auto range = read_number(path + "max_energy_range_uj");
    if (!start || !range) {  // only root may read them
      domains_.clear();
      break;
    }
    domains_.push_back({.path = path + "energy_uj", .last = *start, .range = *range});
  }
}

void EnergyCounter::tick(double time) {
  if (time >= next_) {
    read();
    next_ = time + kReadEveryS;
  }
}

void EnergyCounter::read() {
  for (auto& domain : domains_) {
    const auto value = read_number(domain.path);
    if (!value) {
      domains_.clear();
      return;
    }
    sum_ += *value >= domain.last ? *value - domain.last : *value + domain.range - domain.last;
    domain.last = *value;
  }
}

std::optional<double> EnergyCounter::joules() {
  read();
  return domains_.empty() ? std::nullopt : std::optional(static_cast<double>(sum_) * 1e-6);
}

}  // namespace heapwright::meter
