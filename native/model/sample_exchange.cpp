#include "sample_exchange.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace heapwright::model {

namespace {

// Copies of an object exchange with copies of so many earlier objects of its kind.
constexpr std::size_t kNeighbours = 8;
// A copy looks so many times for one that has not been exchanged yet.
constexpr int kTries = 4;

// Sizes of copies that may be exchanged are within a quarter of a doubling.
int quarter_of(std::uint64_t size) {
  return size < 16 ? 0 : static_cast<int>(4 * std::log2(static_cast<double>(size)));
}

// Kinds of which no object is left are forgotten if there are so many, or twice those of the last time.
constexpr std::size_t kManyKinds = 5000;

}  // namespace

// Objects of a kind have similar sizes at their allocation, one thread, and the same call.
SampleExchange::CopyKind SampleExchange::kind_of(const trace::Event& allocation) {
  return {quarter_of(allocation.size), allocation.thread, static_cast<int>(allocation.kind),
          allocation.alignment};
}

void SampleExchange::add_block(const std::vector<std::uint32_t>& objects) {
  for (const std::uint32_t index : objects) {
    Sampled& object = sampled_[index];
    if (object.offered || !takes_part(index)) {
      continue;
    }
    object.offered = true;
    std::vector<Member>& last = last_[kind_of(object.allocation)];
    drop_ended(last);
    // The other half is for later objects.
    for (std::size_t i = 0; i < object.copies.size() / 2 && !last.empty(); ++i) {
      const std::vector<std::uint32_t>& others = sampled_[last[below(last.size())].index].copies;
      for (int tries = 0; tries < kTries && !swap(object.copies[i], others[below(others.size())]); ++tries) {
      }
    }
    if (last.size() == kNeighbours) {
      last.erase(last.begin());
    }
    last.push_back({index, object.output});
  }
  if (last_.size() > kinds_) {
    for (auto kind = last_.begin(); kind != last_.end();) {
      drop_ended(kind->second);
      kind = kind->second.empty() ? last_.erase(kind) : std::next(kind);
    }
    kinds_ = std::max(kManyKinds, 2 * last_.size());
  }
}

void SampleExchange::drop_ended(std::vector<Member>& members) const {
  std::erase_if(members, [this](const Member& member) {
    return sampled_[member.index].output != member.output || !takes_part(member.index);
  });
}

// Returns whether an object has copies, and no free of it has been read.
bool SampleExchange::takes_part(std::uint32_t index) const {
  const Sampled& object = sampled_[index];
  return !object.copies.empty() && object.scheduled_free.how == ScheduledFree::How::kUnknown;
}

// Exchanges the objects of two copies. Returns false, and does nothing, if one has been exchanged or
// has something to do, or if resizes have made their sizes different or large. Of large blocks the
// touched bytes are known, which are not those of another object.
bool SampleExchange::swap(std::uint32_t one, std::uint32_t two) {
  Copy& a = copies_[one];
  Copy& b = copies_[two];
  const auto stays = [](const Copy& copy) {
    return copy.exchanged || !copy.allocated || copy.steps > 0 || copy.deadline != 0;
  };
  if (stays(a) || stays(b) || quarter_of(a.size) != quarter_of(b.size) ||
      std::max(a.size, b.size) >= trace::kLargeBlock) {
    return false;
  }
  std::swap(sampled_[a.sampled].copies[a.place], sampled_[b.sampled].copies[b.place]);
  std::swap(a.sampled, b.sampled);
  std::swap(a.place, b.place);
  a.exchanged = b.exchanged = true;
  return true;
}

}  // namespace heapwright::model
