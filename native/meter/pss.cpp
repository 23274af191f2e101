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
constexpr double kReserve = 0.005;  // seconds
// PSS is read again if it may be above this ratio to the peak known.
constexpr double kNear = 1.125;
constexpr double kPerByte =
    0.01 / (1U << 30U);  // seconds: expected for memory that was added since the last reading

}  // namespace

bool PssSampler::due(double time, const Ledger& ledger, Moment moment) {
  borrows_ = false;
  const double elapsed = time - start_;
  if (attempts_ == 0) {
    return moment == Moment::kExit || scale_ * elapsed >= kFirstAfter;
  }
  const auto rss = static_cast<double>(ledger.total().rss);
  const bool peak =
      rss > kRise * static_cast<double>(high_rss_) || rss - surplus() > kRise * static_cast<double>(peak_);
  const double growth = std::max(0.0, rss - static_cast<double>(attempt_rss_));
  const double cost = cost_ + kPerByte * growth;
  const double after = spent_ - borrowed_ + cost;
  if (moment == Moment::kOrdinary) {
    if ((peak || time >= next_) && after <= scale_ * (kPeakShare * elapsed + kAllowance / 2)) {
      return true;
    }
  } else if ((peak || moment == Moment::kExit) && after <= scale_ * (kReleaseShare * elapsed + kAllowance)) {
    return true;
  }
  const auto known = static_cast<double>(std::max(peak_, followed_));
  // Processes start in bursts: a reading of only some of them would have to be repeated.
  const bool settled = moment != Moment::kOrdinary || ledger.changed() < time;
  borrows_ = settled && rss - surplus() > std::max(kNear * known, double{kCounterError}) &&
             borrowed_ + cost <= scale_ * kReserve;
  return borrows_;
}

void PssSampler::read(double time, double cost, const Ledger& ledger, const std::optional<Rollup>& sum) {
  ++attempts_;
  spent_ += cost;
  borrowed_ += borrows_ ? cost : 0;
  cost_ = cost;
  next_ = time + cost / (scale_ * kRegularShare);
  attempt_rss_ = ledger.total().rss;
  high_rss_ = std::max(high_rss_, attempt_rss_);
  if (!sum) {
    return;
  }
  const double larger_surplus = std::max(samples_ == 0 ? 0 : surplus(), surplus_of(*sum));
  possible_ = std::max(possible_, static_cast<double>(unread_rss_) - larger_surplus);
  unread_rss_ = 0;
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
  anonymous_ = std::max(ledger.total().anonymous, sum_.anonymous);
  live_ = ledger.live();
  peak_ = std::max(peak_, sum_.pss);
  ++samples_;
}

void PssSampler::observe(const Ledger& ledger) {
  unread_rss_ = std::max(unread_rss_, ledger.total().rss);
  const bool same_processes = ledger.live() == live_ && ledger.changed() <= last_;
  if (samples_ > 0 && same_processes && ledger.total().anonymous > anonymous_) {
    followed_ = std::max(followed_, sum_.pss + ledger.total().anonymous - anonymous_);
  }
}

std::optional<std::uint64_t> PssSampler::peak_of_run(std::uint64_t max_rss) const {
  const std::uint64_t peak = std::max(peak_, followed_);
  const double possible =
      std::max(possible_, static_cast<double>(std::max(unread_rss_, max_rss)) - surplus());
  const auto least = static_cast<double>(peak);
  if (samples_ == 0 || possible > std::max(kNear * least, least + kCounterError)) {
    return std::nullopt;
  }
  return peak;
}

double PssSampler::mean(double end, const Ledger& ledger) const {
  if (end <= start_ || sum_.rss == 0) {
    return 0;
  }
  // Processes end after the last reading, so the surplus falls too, in proportion.
  const double share = static_cast<double>(sum_.pss) / static_cast<double>(sum_.rss);
  const double rest = std::max(0.0, ledger.rss_area() - rss_area_) * share;
  return std::clamp((pss_area_ + rest) / (end - start_), 0.0,
                    static_cast<double>(std::max(peak_, followed_)));
}

}  // namespace heapwright::meter
