// Implements the rules of pss.h.
#include "pss.h"

#include <algorithm>

namespace heapwright::meter {
namespace {

constexpr double kFirstAfter = 0.01;  // seconds: until then a program loads its libraries
constexpr double kRegularShare = 0.01;
constexpr double kPeakShare = 0.015;
constexpr double kReleaseShare = 0.02;
constexpr double kAllowance = 0.001;  // seconds
constexpr double kRise = 1.02;
constexpr double kPerByte =
    0.01 / (1U << 30U);  // seconds: expected for memory that was added since the last reading

}  // namespace

bool PssSampler::due(double time, const Ledger& ledger, Moment moment) const {
  const double elapsed = time - start_;
  if (attempts_ == 0) {
    return moment == Moment::kExit || scale_ * elapsed >= kFirstAfter;
  }
  const auto rss = static_cast<double>(ledger.total().rss);
  const bool peak =
      rss > kRise * static_cast<double>(high_rss_) || rss - surplus() > kRise * static_cast<double>(peak_);
  const double growth = std::max(0.0, rss - static_cast<double>(attempt_rss_));
  const double after = spent_ + cost_ + kPerByte * growth;
  if (moment == Moment::kOrdinary) {
    return (peak || time >= next_) && after <= scale_ * (kPeakShare * elapsed + kAllowance / 2);
  }
  return (peak || moment == Moment::kExit) && after <= scale_ * (kReleaseShare * elapsed + kAllowance);
}

void PssSampler::read(double time, double cost, const Ledger& ledger, const std::optional<Rollup>& sum) {
  ++attempts_;
  spent_ += cost;
  cost_ = cost;
  next_ = time + cost / (scale_ * kRegularShare);
  attempt_rss_ = ledger.total().rss;
  high_rss_ = std::max(high_rss_, attempt_rss_);
  if (!sum) {
    return;
  }
  const double span = time - last_;
  if (samples_ == 0 || ledger.changed() > last_) {  // from 0 at the start
    // A straight line, but at most the resident memory seen meanwhile, because the first reading
    // may come late.
    const double line = span * static_cast<double>(sum_.pss + sum->pss) / 2;
    const double resident = ledger.rss_area() - rss_area_;
    pss_area_ += resident > 0 ? std::min(line, resident) : line;
    sum_ = *sum;
  } else {
    const double before = surplus();
    sum_ = *sum;
    pss_area_ += ledger.rss_area() - rss_area_ - span * (before + surplus()) / 2;
  }
  rss_area_ = ledger.rss_area();
  last_ = time;
  peak_ = std::max(peak_, sum_.pss);
  ++samples_;
}

double PssSampler::mean(double end, const Ledger& ledger) const {
  if (end <= start_ || sum_.rss == 0) {
    return 0;
  }
  // Processes end after the last reading, so the surplus falls too, in proportion.
  const double share = static_cast<double>(sum_.pss) / static_cast<double>(sum_.rss);
  const double rest = std::max(0.0, ledger.rss_area() - rss_area_) * share;
  return std::clamp((pss_area_ + rest) / (end - start_), 0.0, static_cast<double>(peak_));
}

}  // namespace heapwright::meter
