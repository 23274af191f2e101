// Implements the rules of huge.h.
#include "huge.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace heapwright::meter {
namespace {

constexpr double kFirstAfter = 0.01;  // seconds: until then a program loads its libraries
constexpr double kRegularShare = 0.005;
constexpr double kExitShare = 0.01;
constexpr double kAllowance = 0.0005;  // seconds
constexpr double kPerByte =
    0.01 / (1U << 30U);  // seconds: expected for memory that was added since the last reading

}  // namespace

bool HugePageSampler::due(double time, std::uint64_t rss, bool exiting) const {
  const double elapsed = time - start_;
  if (attempts_ == 0) {
    return exiting || elapsed >= kFirstAfter;
  }
  const double growth = rss > attempt_rss_ ? static_cast<double>(rss - attempt_rss_) : 0.0;
  const double after = spent_ + cost_ + kPerByte * growth;
  return (exiting || time >= next_) && after <= (exiting ? kExitShare : kRegularShare) * elapsed + kAllowance;
}

void HugePageSampler::spend(double time, double cost, std::uint64_t rss) {
  ++attempts_;
  spent_ += cost;
  cost_ = cost;
  next_ = time + cost / kRegularShare;
  attempt_rss_ = rss;
}

void HugePageSampler::add(double time, const Rollup& sum) {
  const double span = std::max(0.0, time - last_);
  huge_area_ += span * static_cast<double>(sum_.huge + sum.huge) / 2;
  anonymous_area_ += span * static_cast<double>(sum_.anonymous + sum.anonymous) / 2;
  sum_ = sum;
  last_ = time;
  peak_ = std::max(peak_, sum.huge);
  ++samples_;
}

double HugePageSampler::mean(double end) const {
  if (end <= start_) {
    return 0;
  }
  const double rest = std::max(0.0, end - last_) * static_cast<double>(sum_.huge);
  return std::min((huge_area_ + rest) / (end - start_), static_cast<double>(peak_));
}

std::optional<double> HugePageSampler::share(double end) const {
  const double span = std::max(0.0, end - last_);
  const double anonymous = anonymous_area_ + span * static_cast<double>(sum_.anonymous);
  if (samples_ == 0 || anonymous <= 0) {
    return std::nullopt;
  }
  return std::min(1.0, (huge_area_ + span * static_cast<double>(sum_.huge)) / anonymous);
}

std::optional<ThpEvents> parse_thp_events(const std::string& vmstat) {
  const auto value = [&](const char* name) -> std::optional<std::uint64_t> {
    const auto at = vmstat.find(name);
    return at == std::string::npos
               ? std::nullopt
               : std::optional(std::strtoull(vmstat.c_str() + at + std::strlen(name), nullptr, 10));
  };
  const auto faults = value("\nthp_fault_alloc ");
  const auto collapses = value("\nthp_collapse_alloc ");
  if (!faults || !collapses) {
    return std::nullopt;
  }
  return ThpEvents{.faults = *faults, .collapses = *collapses};
}

std::optional<ThpEvents> read_thp_events() { return parse_thp_events(read_text("/proc/vmstat")); }

bool obey_huge_pages_variable() {
  const char* const asked = std::getenv("HEAPWRIGHT_HUGE_PAGES");
  return asked == nullptr || std::string_view(asked) != "never" || prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0;
}

}  // namespace heapwright::meter
